//! Looking at keys: everything that a decision needs, read in one linearizable transaction.
//!
//! Nouns: a [`Snapshot`] is what one look showed; a [`KeySnapshot`] is its part about one key, with the revisions that a write
//! built on it must still find. Whether a hold is live is for etcd to say: the key that means 'held' is there or not.

use fencehold_contract::Quota;
use fencehold_core::lease::{HoldState, LeaseCommand, LeaseRecord, LeaseStanding, decide};
use fencehold_core::{HoldHash, Key, Namespace, Timestamp, Token};

use super::codec::{self, StoreMark, StoredWaiter};
use super::grpc_client::RequestError;
use super::key_names::{KeyNames, KeyRange, QueuePosition};
use super::messages::{
    BY_CREATION, Compare, CompareTarget, DESCENDING, DeleteRangeRequest, KeyValue, Op, PutRequest,
    RangeRequest, RangeResponse, RequestOp, TxnResponse,
};

/// How many keys one look takes in: etcd allows 128 operations in a transaction.
pub(super) const KEYS_PER_LOOK: usize = 20;

/// What is to be looked at.
#[derive(Clone, Debug)]
pub(super) struct ReadSet {
    pub(super) namespace: Namespace,
    pub(super) keys: Vec<Key>,
    /// Whose place in line to look for.
    pub(super) who: Option<HoldHash>,
    /// The place in line that is looked from, and for each key the revision at which it was taken.
    pub(super) from: Option<(QueuePosition, Vec<i64>)>,
}

/// What one look showed.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) revision: i64,
    pub(super) term: u64,
    pub(super) mark: StoreMark,
    pub(super) mark_revision: i64,
    pub(super) closing: ClosedState,
    /// What was set for the namespace, or for every one; looked at by those who want a key.
    pub(super) limits: Quota,
    /// The revisions that set it: for the namespace, and for every one.
    pub(super) limits_revisions: [i64; 2],
    /// The waiter that has this hold id already, and the etcd lease and revision that it is there by.
    pub(super) waiting: Option<QueuedWaiter>,
    pub(super) keys: Vec<KeySnapshot>,
}

/// What `store advance` has closed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClosedState {
    /// The revision that closed the store; 0: it is not closed.
    pub(super) revision: i64,
    /// The etcd lease with which the namespace opens; `None`: it is open.
    pub(super) by: Option<i64>,
}

impl ClosedState {
    /// From the key that closes the store, that by which the namespace opens before it, and that which closes the namespace.
    fn new(store: Option<KeyValue>, apart: Option<KeyValue>, own: Option<KeyValue>) -> Self {
        let Some(store) = store else { return ClosedState::default() };
        // What an earlier advance has left says nothing about this one.
        let by = match apart.filter(|apart| apart.lease == store.lease) {
            Some(_) => own.map(|own| own.lease),
            None => Some(store.lease),
        };
        ClosedState { revision: store.mod_revision, by }
    }

    /// The keys to read for it.
    pub(super) fn ops(names: &KeyNames, namespace: &Namespace) -> [RequestOp; 3] {
        [names.closed(), names.closed_apart(namespace), names.closed_namespace(namespace)].map(get)
    }

    /// Reads the answers to [`ClosedState::ops`].
    pub(super) fn read(mut next: impl FnMut() -> RangeResponse) -> Self {
        ClosedState::new(next().into_first(), next().into_first(), next().into_first())
    }
}

/// A place in line, and what keeps it.
#[derive(Clone, Debug)]
pub(super) struct QueuedWaiter {
    pub(super) waiting: StoredWaiter,
    pub(super) lease: i64,
    pub(super) revision: i64,
}

/// What one look showed of one key.
#[derive(Clone, Debug)]
pub(super) struct KeySnapshot {
    pub(super) key: Key,
    /// As it stands now: lifted, if the store was advanced since it was written.
    pub(super) record: LeaseRecord,
    /// 0: there is none.
    pub(super) record_revision: i64,
    /// The longest ttl that was ever granted on it, as far as is known: where an earlier version wrote the record, it is
    /// that of the whole store.
    pub(super) longest_ttl_ms: u64,
    pub(super) held: Option<LeasedKey>,
    pub(super) age: Option<LeasedKey>,
    /// What is left of its `max_age`, where etcd was asked.
    pub(super) age_left_ms: Option<u64>,
    /// The name of one who stands in line before the one who looks: the nearest, if it can be known.
    pub(super) ahead: Option<Vec<u8>>,
    /// How many stand in line; 0 where it was not counted.
    pub(super) in_line: u64,
}

/// A key that is there by an etcd lease, for the hold under this token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeasedKey {
    pub(super) token: Token,
    pub(super) lease: i64,
    pub(super) revision: i64,
}

impl ReadSet {
    /// A look at keys by a caller that does not want them.
    pub(super) fn of(namespace: &Namespace, keys: Vec<Key>) -> Self {
        ReadSet { namespace: namespace.clone(), keys, who: None, from: None }
    }

    /// The operations of this look, in the order in which [`ReadSet::read`] takes their answers.
    pub(super) fn ops(&self, names: &KeyNames) -> Vec<RequestOp> {
        let mut ops = vec![get(names.mark())];
        if let Some(who) = self.who {
            ops.extend(ClosedState::ops(names, &self.namespace));
            ops.extend([Some(&self.namespace), None].map(|whose| get(names.limits(whose))));
            ops.push(get(names.waiting(&self.namespace, who)));
        }
        for (nth, key) in self.keys.iter().enumerate() {
            let space = &self.namespace;
            ops.extend([names.record(space, key), names.held(space, key), names.age(space, key)].map(get));
            let line = names.line(space, key);
            let first_of = |KeyRange(key, range_end)| RangeRequest {
                key,
                range_end,
                limit: 1,
                keys_only: true,
                ..RangeRequest::default()
            };
            match &self.from {
                None => ops.push(range(first_of(line))),
                Some((place, since)) => {
                    let here = names.same_place(space, key, place);
                    ops.push(range(first_of(KeyRange(line.0, here.0.clone()))));
                    ops.push(range(RangeRequest {
                        sort_order: DESCENDING,
                        sort_target: BY_CREATION,
                        max_create_revision: since.get(nth).map_or(i64::MAX, |since| since - 1),
                        ..first_of(here)
                    }));
                }
            }
        }
        ops
    }

    /// Reads the answers to [`ReadSet::ops`].
    pub(super) fn read(&self, response: TxnResponse) -> Result<Snapshot, RequestError> {
        let (revision, term) = (response.revision(), response.header.as_ref().map_or(0, |it| it.raft_term));
        let mut ranges = response.into_ranges();
        let mut next = || ranges.next().unwrap_or_default();
        let (mark, mark_revision) = match next().into_first() {
            Some(kv) => (StoreMark::decode(&kv.value).map_err(|why| damaged(&kv, &why))?, kv.mod_revision),
            None => (StoreMark::fresh(), 0),
        };
        let (mut closing, mut limits, mut limits_revisions) =
            (ClosedState::default(), Quota::default(), [0; 2]);
        let mut waiting = None;
        if self.who.is_some() {
            closing = ClosedState::read(&mut next);
            for revision in &mut limits_revisions {
                let (set, at) = limits_of(next().into_first())?;
                (limits, *revision) = (limits.or(set), at);
            }
            if let Some(kv) = next().into_first() {
                let stood = codec::read(&kv.value).map_err(|why| damaged(&kv, &why))?;
                waiting = Some(QueuedWaiter { waiting: stood, lease: kv.lease, revision: kv.mod_revision });
            }
        }
        let mut keys = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let (record, record_revision, longest_ttl_ms) = record_of(next().into_first().as_ref(), &mark)?;
            let (held, age, line) = (next().into_first(), next().into_first(), next());
            let in_line = line.total();
            let nearest = self.from.as_ref().and_then(|_| next().into_first());
            keys.push(KeySnapshot {
                key: key.clone(),
                record,
                record_revision,
                longest_ttl_ms,
                held: held.and_then(on_lease),
                age: age.and_then(on_lease),
                age_left_ms: None,
                ahead: nearest.or_else(|| line.into_first()).map(|kv| kv.key),
                in_line,
            });
        }
        Ok(Snapshot { revision, term, mark, mark_revision, closing, limits, limits_revisions, waiting, keys })
    }
}

impl KeySnapshot {
    /// Whether this hold id and token are those on record.
    pub(super) fn is_held_by(&self, hash: HoldHash, token: Token) -> bool {
        let hold = self.record.hold.as_ref();
        self.record.counter == token && hold.is_some_and(|hold| hold.hash == hash)
    }

    /// The key that means 'held', if it means the hold on record.
    pub(super) fn live(&self) -> Option<LeasedKey> {
        let hold = self.record.hold.as_ref()?;
        let in_age = hold.max_age_ms.is_none() || self.within_age().is_some();
        self.held.filter(|on| on.token == self.record.counter && in_age)
    }

    /// The key that means 'within its `max_age`', if it means the hold on record.
    pub(super) fn within_age(&self) -> Option<LeasedKey> {
        self.age.filter(|age| age.token == self.record.counter)
    }

    /// How the key stands. What remains to a live hold is known only to etcd, and asked for where it is answered: here
    /// it is 1 ms.
    pub(super) fn standing(&self, mark: &StoreMark, wall_ms: u64) -> LeaseStanding {
        let term = match (&self.record.hold, self.live()) {
            (None, _) => HoldState::Free,
            (Some(_), Some(_)) => HoldState::Live { remaining_ms: 1 },
            (Some(_), None) => HoldState::Over { since_ms: 0 },
        };
        LeaseStanding { now: self.now(wall_ms), floor: mark.floor, term }
    }

    /// Store time is the asker's wall clock, but never before anything on record; and a hold is within its `max_age`
    /// exactly while etcd says so.
    fn now(&self, wall_ms: u64) -> Timestamp {
        let endings = self.record.endings().iter().map(|ending| ending.at.store_ms);
        let since = self.record.hold.as_ref().map(|hold| hold.since.store_ms);
        let mut store_ms = endings.chain(since).fold(wall_ms, u64::max);
        if let Some(hold) = &self.record.hold
            && let Some(max_age_ms) = hold.max_age_ms
        {
            let aged_at_ms = hold.since.store_ms.saturating_add(max_age_ms.get());
            match (self.held, self.within_age()) {
                (_, Some(_)) => {
                    let latest_ms = aged_at_ms.saturating_sub(self.age_left_ms.unwrap_or(1));
                    store_ms = if self.age_left_ms.is_some() { latest_ms } else { store_ms.min(latest_ms) };
                }
                (Some(held), None) if held.token == self.record.counter => {
                    store_ms = store_ms.max(aged_at_ms);
                }
                _ => {}
            }
        }
        Timestamp { store_ms, wall_ms }
    }

    /// What a write built on this sight must still find.
    pub(super) fn unchanged(&self, names: &KeyNames, namespace: &Namespace) -> Vec<Compare> {
        let revision = |on: Option<LeasedKey>| on.map_or(0, |on| on.revision);
        vec![
            changed_at(names.record(namespace, &self.key), self.record_revision),
            changed_at(names.held(namespace, &self.key), revision(self.held)),
            changed_at(names.age(namespace, &self.key), revision(self.age)),
        ]
    }
}

/// A record as it stands, the revision that wrote it, and the longest ttl that was ever granted on its key.
fn record_of(kv: Option<&KeyValue>, mark: &StoreMark) -> Result<(LeaseRecord, i64, u64), RequestError> {
    let Some(kv) = kv else { return Ok((LeaseRecord::default(), 0, 0)) };
    let (record, generation, longest_ttl_ms) =
        codec::decode_record(&kv.value).map_err(|why| damaged(kv, &why))?;
    let longest_ttl_ms = longest_ttl_ms.unwrap_or(mark.longest_ttl_ms);
    Ok((lifted(record, generation, mark), kv.mod_revision, longest_ttl_ms))
}

/// The longest ttl that was ever granted on the key of a record.
pub(super) fn longest_ttl_ms(kv: &KeyValue, mark: &StoreMark) -> Result<u64, RequestError> {
    record_of(Some(kv), mark).map(|(_, _, longest_ttl_ms)| longest_ttl_ms)
}

/// The limits that were set, and the revision that set them.
pub(super) fn limits_of(kv: Option<KeyValue>) -> Result<(Quota, i64), RequestError> {
    let Some(kv) = kv else { return Ok((Quota::default(), 0)) };
    let limits = codec::decode_limits(&kv.value).map_err(|why| damaged(&kv, &why))?;
    Ok((limits, kv.mod_revision))
}

/// A record of an earlier generation: `store advance` has ended its hold and lifted its counter to the floor.
fn lifted(record: LeaseRecord, generation: u64, mark: &StoreMark) -> LeaseRecord {
    let Some(by) = mark.advanced_by.clone().filter(|_| generation < mark.generation) else { return record };
    let term = if record.hold.is_some() { HoldState::Over { since_ms: 0 } } else { HoldState::Free };
    let standing = LeaseStanding { now: mark.advanced_at, floor: mark.floor, term };
    decide(&standing, &record, &LeaseCommand::Advance { lift: 0, by })
        .record
        .unwrap_or(record)
}

fn on_lease(kv: KeyValue) -> Option<LeasedKey> {
    let token = std::str::from_utf8(&kv.value).ok()?.parse().ok()?;
    Some(LeasedKey { token: Token::new(token), lease: kv.lease, revision: kv.mod_revision })
}

/// What lies there was not written by this program, or by a later one.
fn damaged(kv: &KeyValue, why: &str) -> RequestError {
    RequestError::Refused(format!("{}: {why}", String::from_utf8_lossy(&kv.key).replace('\0', " ")))
}

pub(super) fn get(key: Vec<u8>) -> RequestOp {
    range(RangeRequest { key, ..RangeRequest::default() })
}

pub(super) fn range(range: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Op::Range(range)) }
}

/// How many there are.
pub(super) fn count(KeyRange(key, range_end): KeyRange) -> RequestOp {
    range(RangeRequest { key, range_end, count_only: true, ..RangeRequest::default() })
}

/// Puts a key; on an etcd lease unless that is 0.
pub(super) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    RequestOp { request: Some(Op::Put(PutRequest { key, value, lease })) }
}

pub(super) fn delete(key: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Op::Delete(DeleteRangeRequest { key })) }
}

/// The key was last changed by this revision; 0: it is not there.
pub(super) fn changed_at(key: Vec<u8>, revision: i64) -> Compare {
    compare(0, 2, KeyRange(key, Vec::new()), CompareTarget::ModRevision(revision))
}

/// Nothing is there.
pub(super) fn nothing_in(range: KeyRange) -> Compare {
    compare(0, 1, range, CompareTarget::CreateRevision(0))
}

/// Everything that is there was made by this revision or later.
pub(super) fn nothing_older_in(range: KeyRange, revision: i64) -> Compare {
    compare(1, 1, range, CompareTarget::CreateRevision(revision - 1))
}

/// The key is there, by this etcd lease.
pub(super) fn kept_by(key: Vec<u8>, lease: i64) -> Compare {
    compare(0, 4, KeyRange(key, Vec::new()), CompareTarget::Lease(lease))
}

fn compare(result: i32, target: i32, KeyRange(key, range_end): KeyRange, against: CompareTarget) -> Compare {
    Compare { result, target, key, against: Some(against), range_end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(lease: i64) -> KeyValue {
        KeyValue { lease, mod_revision: 7, ..KeyValue::default() }
    }

    #[test]
    fn a_namespace_opens_by_itself_only_within_the_same_advance() {
        let by = |store: Option<i64>, apart: Option<i64>, own: Option<i64>| {
            ClosedState::new(store.map(on), apart.map(on), own.map(on)).by
        };
        assert_eq!(by(None, Some(1), Some(2)), None, "it was opened");
        assert_eq!(by(Some(1), None, None), Some(1), "nothing is known of it");
        assert_eq!(by(Some(1), Some(1), Some(2)), Some(2));
        assert_eq!(by(Some(1), Some(1), None), None);
        assert_eq!(by(Some(3), Some(1), None), Some(3), "a later advance, by an earlier version too");
        assert_eq!(by(Some(3), Some(1), Some(2)), Some(3));
    }

    /// An earlier version leaves out the longest ttl: it may have granted as long a one as there is on record.
    #[test]
    fn a_record_of_an_earlier_version_counts_the_longest_ttl_of_the_store() {
        let mark = StoreMark { longest_ttl_ms: 90_000, ..StoreMark::fresh() };
        let earlier = br#"{"token":7,"generation":0,"hold":null,"endings":[],"forgotten_at_ms":null}"#;
        let kv = |value: Vec<u8>| KeyValue { value, ..KeyValue::default() };
        assert_eq!(longest_ttl_ms(&kv(earlier.to_vec()), &mark).unwrap(), 90_000);
        let later = codec::encode_record(&LeaseRecord::default(), 0, 30_000);
        assert_eq!(longest_ttl_ms(&kv(later), &mark).unwrap(), 30_000);
        assert_eq!(record_of(None, &mark).unwrap().2, 0, "nothing was granted on it");
    }
}
