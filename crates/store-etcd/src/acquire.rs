//! Taking a key: at once if it is free and no one stands in line, else from a place in line.
//!
//! A grant is one transaction: it finds the record, the held key, the mark and the line as they were seen, or does
//! nothing. A waiter's place must still be there by its own etcd lease, so one whose own time is up is never granted (R19).

use fencehold_contract::{AcquireLeaseRequest, AcquiredLease, StoreError, closed};
use fencehold_core::lease::{Grant, LeaseCommandResult, LeaseDecision};
use fencehold_core::{HoldHash, Key, Namespace, Refusal};
use fencehold_net::PendingCall;

use super::acquire_decision::AcquireDecision;
use super::codec::{encode, encode_record};
use super::grpc_client::RequestError;
use super::key_names::KeyRange;
use super::snapshot::{
    KEYS_PER_LOOK, KeySnapshot, LeasedKey, ReadSet, Snapshot, changed_at, delete, kept_by, nothing_in,
    nothing_older_in, put,
};
use super::undelivered::{AcquireResult, PossibleGrant, UndeliveredState};
use super::wait_queue::{QueuePlace, WaitResult};
use super::{EtcdCall, STORE};

/// One acquisition under way.
pub(super) struct Acquisition<'a> {
    pub(super) call: EtcdCall<'a>,
    pub(super) request: AcquireLeaseRequest,
    pub(super) hash: HoldHash,
    /// Its place in line, once it has one.
    pub(super) stand: Option<QueuePlace>,
    /// The etcd lease that the hold is to be on, and when it was asked for.
    fresh: Option<FreshGrant>,
    /// Those that were too old to be used again, on which a grant may have come or may still come.
    unclear: Vec<FreshGrant>,
}

/// An acquisition that was given up while the outcome of a grant was unknown.
pub(super) struct UnsettledGrant {
    pub(super) namespace: Namespace,
    request: AcquireLeaseRequest,
    unclear: Vec<FreshGrant>,
}

impl UnsettledGrant {
    /// What it asked for, to be reported.
    pub(super) fn keys(&self) -> String {
        self.request.any_of.iter().map(Key::as_str).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Clone, Copy)]
struct FreshGrant {
    lease: i64,
    age_lease: Option<i64>,
    sent_at_ms: u64,
    /// A grant on it was sent, and its outcome is unknown: it must be left to end by itself.
    unclear: bool,
}

impl<'a> Acquisition<'a> {
    pub(super) fn new(call: EtcdCall<'a>, request: AcquireLeaseRequest) -> Self {
        let hash = request.hold_id.hash();
        Acquisition { call, request, hash, stand: None, fresh: None, unclear: Vec::new() }
    }

    /// Goes on with an acquisition whose caller has gone, to find out what became of its grant.
    pub(super) fn settle(call: EtcdCall<'a>, unsettled: UnsettledGrant) -> Self {
        let UnsettledGrant { request, unclear, .. } = unsettled;
        let request = AcquireLeaseRequest { wait_ms: 0, ..request };
        Acquisition { unclear, ..Acquisition::new(call, request) }
    }

    /// Takes a key or gives up. Whatever happens, nothing of it stays behind but a grant. `None`: no caller waits for it.
    pub(super) async fn run(mut self, caller: Option<&PendingCall>) -> AcquireResult {
        let answer = self.take(caller).await;
        if let Some(stand) = self.stand.take() {
            stand.leave(self.call.core).await;
        }
        let left = match &answer {
            // Known to more than this call.
            Ok(acquired) if acquired.grant.resumed => None,
            Ok(acquired) => Some(UndeliveredState::Grant(self.unheard(acquired))),
            Err(_) => {
                self.give_up_fresh().await;
                let Acquisition { call: EtcdCall { namespace, .. }, request, unclear, .. } = self;
                (!unclear.is_empty()).then(|| {
                    UndeliveredState::Doubt(Box::new(UnsettledGrant { namespace, request, unclear }))
                })
            }
        };
        AcquireResult { answer, left }
    }

    fn unheard(&self, acquired: &AcquiredLease) -> PossibleGrant {
        let (namespace, key) = (self.call.namespace.clone(), acquired.key.clone());
        PossibleGrant { namespace, key, hash: self.hash, token: acquired.grant.token }
    }

    /// Whether a grant that was sent may have come, or may still come.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.unclear.is_empty() || self.fresh.is_some_and(|fresh| fresh.unclear)
    }

    async fn take(&mut self, caller: Option<&PendingCall>) -> Result<AcquiredLease, StoreError> {
        let mut seen: Option<Snapshot> = None;
        loop {
            // What may have been granted has to be found all the same.
            if caller.is_none_or(PendingCall::has_gone) && !self.is_in_doubt() {
                return Err(caller_gone());
            }
            let snapshot = match seen.take() {
                Some(snapshot) => snapshot,
                None => self.see().await?,
            };
            if let Some(lease) = snapshot.closing.by {
                // It was there a moment ago: what is left may be less than etcd can say.
                let left_ms = self.call.left_ms(lease).await?.max(1);
                return Err(StoreError::Unavailable { message: closed::because(left_ms) });
            }
            if self.adopt_or_yield(&snapshot).await? {
                continue;
            }
            match self.judge(&snapshot) {
                AcquireDecision::Has(at) => {
                    if let Some(acquired) = self.resumed(at).await? {
                        return Ok(acquired);
                    }
                }
                AcquireDecision::Refused(at, refusal) => {
                    self.call.note_expiry(&snapshot, at).await;
                    if matches!(refusal, Refusal::StoreRewound { .. }) {
                        self.call.core.measures.facts.count_refusal(&refusal);
                    }
                    return Err(StoreError::refused(&at.key, refusal));
                }
                AcquireDecision::Take(at, decision) => {
                    self.check_ttl(&snapshot)?;
                    let newest = self.check_keys(&snapshot, at).await?;
                    match self.grant(&snapshot, at, &decision, newest).await {
                        Ok(Ok(acquired)) => return self.in_time(acquired, &snapshot).await,
                        Ok(Err(later)) => seen = later.map(|later| *later),
                        Err(RequestError::LeaseGone) => self.fresh = None,
                        Err(fault) => self.call.budget.retry_or_fail(fault).await?,
                    }
                }
                AcquireDecision::InTheWay if self.request.preempt_within_ms.is_some() => {
                    let what = "ask a holder to yield".to_owned();
                    return Err(StoreError::Unsupported { store: STORE.to_owned(), message: what });
                }
                AcquireDecision::InTheWay => {
                    self.check_ttl(&snapshot)?;
                    match self.wait(&snapshot, caller).await? {
                        WaitResult::LookAgain => {}
                        WaitResult::TimeIsUp => return Err(self.held(&snapshot).await?),
                        WaitResult::Gone => return Err(caller_gone()),
                    }
                }
            }
        }
    }

    /// Looks at all of its keys. With more keys than one look takes in, each grant is still guarded by what was seen
    /// of that key.
    async fn see(&mut self) -> Result<Snapshot, StoreError> {
        let read_set = self.read_set(0);
        // From the earliest revision on, a watch misses nothing.
        let mut all = self.call.see(&read_set).await?;
        for part in 1..self.request.any_of.len().div_ceil(KEYS_PER_LOOK) {
            let read_set = self.read_set(part);
            all.keys.extend(self.call.see(&read_set).await?.keys);
        }
        Ok(all)
    }

    /// The look at one part of the keys.
    pub(super) fn read_set(&self, part: usize) -> ReadSet {
        let from = part * KEYS_PER_LOOK;
        let keys: Vec<Key> = self.request.any_of.iter().skip(from).take(KEYS_PER_LOOK).cloned().collect();
        let from = self.stand.as_ref().map(|stand| {
            let since = keys.iter().map(|key| stand.since(key)).collect();
            (stand.place.clone(), since)
        });
        ReadSet { namespace: self.call.namespace.clone(), keys, who: Some(self.hash), from }
    }

    /// The lease that this hold id has. `None`: it changed while it was looked at.
    async fn resumed(&mut self, at: &KeySnapshot) -> Result<Option<AcquiredLease>, StoreError> {
        let (Some(on), Some(hold)) = (at.live(), &at.record.hold) else { return Ok(None) };
        let lasts_ms = hold
            .max_age_ms
            .map_or(hold.ttl_ms, |max_age_ms| hold.ttl_ms.min(max_age_ms.get()));
        let token = at.record.counter;
        if let Some(fresh) = self.fresh.iter().chain(&self.unclear).find(|fresh| fresh.lease == on.lease) {
            // This call's own write, whose answer was lost: it counts from when its etcd lease was asked for.
            let grant = Grant { token, remaining_ms: lasts_ms, resumed: false };
            let waited_ms = fresh.sent_at_ms.saturating_sub(self.call.budget.started_ms());
            return Ok(Some(AcquiredLease { key: at.key.clone(), grant, waited_ms }));
        }
        let waited_ms = self.call.budget.elapsed_ms();
        let mut remaining_ms = self.call.left_ms(on.lease).await?.min(lasts_ms);
        if let Some(age) = at.within_age() {
            remaining_ms = remaining_ms.min(self.call.left_ms(age.lease).await?);
        }
        // Any member may have said that, also one that was cut off: it holds if the same hold is still there after it.
        let grant = Grant { token, remaining_ms, resumed: true };
        match self.call.take_up(at, on).await {
            Ok(taken_up) => Ok(taken_up.then(|| AcquiredLease { key: at.key.clone(), grant, waited_ms })),
            Err(fault) => {
                self.call.budget.retry_or_fail(fault).await?;
                Ok(None)
            }
        }
    }

    /// Writes a grant, if all is still as it was seen; else gives how it is now, if that is known. `newest`: the key is new
    /// and counts, and this revision wrote the one that came before it.
    async fn grant(
        &mut self,
        snapshot: &Snapshot,
        at: &KeySnapshot,
        decision: &LeaseDecision,
        newest: Option<i64>,
    ) -> Result<Result<AcquiredLease, Option<Box<Snapshot>>>, RequestError> {
        let (Some(record), Ok(LeaseCommandResult::Granted(grant))) = (&decision.record, &decision.reply)
        else {
            return Ok(Err(None));
        };
        let fresh = self.fresh_lease().await?;
        let (names, space) = (&self.call.core.names, &self.call.namespace);
        let mut compare = at.unchanged(names, space);
        compare.push(changed_at(names.mark(), snapshot.mark_revision));
        compare.push(changed_at(names.closed(), snapshot.closing.revision));
        if snapshot.closing.revision > 0 {
            compare.push(changed_at(names.closed_namespace(space), 0));
        }
        for (whose, revision) in [Some(space), None].into_iter().zip(snapshot.limits_revisions) {
            compare.push(changed_at(names.limits(whose), revision));
        }
        let token = grant.token.to_string().into_bytes();
        let longest_ttl_ms = at.longest_ttl_ms.max(self.request.ttl_ms);
        let bytes = encode_record(record, snapshot.mark.generation, longest_ttl_ms);
        let mut success = vec![
            put(names.record(space, &at.key), bytes, 0),
            put(names.held(space, &at.key), token.clone(), fresh.lease),
        ];
        if let Some(revision) = newest {
            compare.push(changed_at(names.newest_key(space), revision));
            success.push(put(names.newest_key(space), at.key.as_str().as_bytes().to_vec(), 0));
        }
        match fresh.age_lease {
            Some(lease) => success.push(put(names.age(space, &at.key), token, lease)),
            None => success.push(delete(names.age(space, &at.key))),
        }
        let mut mark = snapshot.mark.clone();
        if self.request.ttl_ms > mark.longest_ttl_ms {
            mark.longest_ttl_ms = self.request.ttl_ms;
            success.push(put(names.mark(), encode(&mark), 0));
        }
        let line = names.line(space, &at.key);
        match &self.stand {
            None => compare.push(nothing_in(line)),
            Some(stand) => {
                let own = names.in_line(space, &at.key, &stand.place, self.hash);
                let here = names.same_place(space, &at.key, &stand.place);
                compare.push(nothing_in(KeyRange(line.0, here.0.clone())));
                compare.push(nothing_older_in(here, stand.since(&at.key)));
                compare.push(kept_by(own.clone(), stand.lease));
                success.extend([delete(own), delete(names.waiting(space, self.hash))]);
            }
        }
        // More keys than one look takes in are looked at anew.
        let alone = self.request.any_of.len() <= KEYS_PER_LOOK;
        let read_set = self.read_set(0);
        let failure = if alone { read_set.ops(names) } else { Vec::new() };
        let response = self.call.core.wire.txn(compare, success, failure).await;
        if let (Err(RequestError::Unclear(_)), Some(fresh)) = (&response, &mut self.fresh) {
            fresh.unclear = true;
        }
        let response = response?;
        if !response.succeeded {
            return Ok(Err(if alone { Some(Box::new(read_set.read(response)?)) } else { None }));
        }
        self.call.core.measures.facts.count_written(&at.record, record);
        let revision = response.revision();
        let on = |lease| LeasedKey { token: grant.token, lease, revision };
        let mark_revision = if mark == snapshot.mark { snapshot.mark_revision } else { revision };
        let known = KeySnapshot {
            record: record.clone(),
            record_revision: revision,
            longest_ttl_ms,
            held: Some(on(fresh.lease)),
            age: fresh.age_lease.map(on),
            ahead: None,
            ..at.clone()
        };
        let snapshot =
            Snapshot { revision, mark, mark_revision, waiting: None, keys: vec![known], ..snapshot.clone() };
        self.call.core.remember(&self.call.namespace, snapshot);
        let waited_ms = fresh.sent_at_ms.saturating_sub(self.call.budget.started_ms());
        Ok(Ok(AcquiredLease { key: at.key.clone(), grant: *grant, waited_ms }))
    }

    /// An etcd lease for the hold. One that was not used is used again while it is young: the time that it has been
    /// alive is the holder's loss, since the term counts from when it was asked for.
    async fn fresh_lease(&mut self) -> Result<FreshGrant, RequestError> {
        let young_ms = self.request.ttl_ms / 10;
        let now_ms = self.call.budget.now_ms();
        if let Some(fresh) = self.fresh {
            if now_ms.saturating_sub(fresh.sent_at_ms) <= young_ms {
                return Ok(fresh);
            }
            self.give_up_fresh().await;
        }
        let sent_at_ms = now_ms;
        let lease = self.call.core.wire.lease_grant(self.request.ttl_ms).await?;
        let mut fresh = FreshGrant { lease, age_lease: None, sent_at_ms, unclear: false };
        self.fresh = Some(fresh);
        if let Some(max_age_ms) = self.request.max_age_ms {
            fresh.age_lease = Some(self.call.core.wire.lease_grant(max_age_ms).await?);
            self.fresh = Some(fresh);
        }
        Ok(fresh)
    }

    /// Ends an etcd lease that will not be used any more. One that a grant may come on must be left to end by itself: the
    /// same request, sent again, may find that grant.
    async fn give_up_fresh(&mut self) {
        match self.fresh.take() {
            Some(fresh) if fresh.unclear => self.unclear.push(fresh),
            Some(fresh) => self.call.core.end_leases(fresh.lease, fresh.age_lease).await,
            None => {}
        }
    }

    /// R19: a waiter whose time was up before it could be answered is not granted anything.
    async fn in_time(
        &mut self,
        acquired: AcquiredLease,
        snapshot: &Snapshot,
    ) -> Result<AcquiredLease, StoreError> {
        if self.stand.is_none() || !self.time_is_up() {
            return Ok(acquired);
        }
        let unheard = self.unheard(&acquired);
        self.call.give_back(&unheard).await;
        self.fresh = None;
        Err(self.held(snapshot).await?)
    }

    /// The refusal for a caller that cannot have any of its keys: the one that comes free first.
    async fn held(&mut self, snapshot: &Snapshot) -> Result<StoreError, StoreError> {
        let mut soonest: Option<(u64, &KeySnapshot)> = None;
        for at in &snapshot.keys {
            if let Some(held) = at.live() {
                let left_ms = self.call.left_ms(held.lease).await?;
                if soonest.is_none_or(|(soonest_ms, _)| left_ms < soonest_ms) {
                    soonest = Some((left_ms, at));
                }
            }
        }
        let refusal = soonest.and_then(|(left_ms, at)| {
            let hold = at.record.hold.as_ref()?;
            let (owner, task) = (hold.owner.clone(), hold.task.clone());
            let expires_in_ms = left_ms.min(hold.ttl_ms);
            let refusal =
                Refusal::Held { owner, task, remaining_ms: expires_in_ms, token: at.record.counter };
            Some(StoreError::refused(&at.key, refusal))
        });
        Ok(refusal.unwrap_or_else(|| StoreError::Unavailable {
            message: "the time to wait was up before the key was free".to_owned(),
        }))
    }
}

fn caller_gone() -> StoreError {
    StoreError::Unavailable { message: "the caller has gone".to_owned() }
}
