//! What is in the object of one key: JSON, for people who look into the bucket too.
//!
//! No machine can read another's boot-time clock, so moments are kept as ages: how long before this write something was.
//! A reader counts back from the moment at which it first saw this writing, which makes everything look a
//! little younger than it is and nothing older. Times of day are for people only.
//!
//! Never rename or reuse a field: add one, or raise the version.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use fencehold_contract::Quota;
use fencehold_contract::stored::{EndingV1, HoldV1, HowV1, LeaseV1, LimitsV1};
use fencehold_core::lease::LeaseRecord;
use fencehold_core::{HoldHash, Key, Namespace, Owner, Reason, Task, Timestamp, Token};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const VERSION: u8 = 1;

/// What is kept of one key, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObjectBody {
    /// The version of this format.
    fencehold: u8,
    pub(super) namespace: Namespace,
    pub(super) key: Key,
    /// The newest token ever given or consumed.
    token: Token,
    hold: Option<StoredHold>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    endings: Vec<StoredEnding>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forgotten_age_ms: Option<u64>,
    /// After `store advance`: the key is not granted until this writing was seen for that long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) closed_ms: Option<u64>,
    /// The longest ttl that was ever granted.
    #[serde(default)]
    pub(super) longest_ttl_ms: u64,
    /// Grows by one with every write.
    pub(super) seq: u64,
    /// No two writes have the same, so that a writer recognises its own, and no renewal writes the bytes that were
    /// there before.
    pub(super) nonce: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredHold {
    /// Recognises the hold id; does not reveal it.
    hash: String,
    owner: Owner,
    task: Option<Task>,
    ttl_ms: u64,
    /// How long this writing lasts: the ttl, or what `max_age` leaves of it.
    lasts_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_age_ms: Option<NonZeroU64>,
    #[serde(default)]
    priority: i16,
    /// Whether its holder is known to know of it: it was renewed, or its request was sent again and told of the grant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    taken_up: bool,
    age_ms: u64,
    since_wall_ms: u64,
    /// For people: nothing is decided by it.
    expires_at_wall_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredEnding {
    token: Token,
    hash: String,
    owner: Owner,
    task: Option<Task>,
    how: HowV1,
    age_ms: u64,
    at_wall_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Owner>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
}

/// What a write adds to the record itself.
pub(super) struct WriteInfo {
    pub(super) now: Timestamp,
    /// How long the hold lasts from now, if there is one.
    pub(super) lasts_ms: u64,
    /// Whether its holder is known to know of it.
    pub(super) taken_up: bool,
    pub(super) closed_ms: Option<u64>,
    pub(super) nonce: String,
}

impl ObjectBody {
    /// The next writing of a key's object.
    pub(super) fn next(
        before: Option<&ObjectBody>,
        namespace: &Namespace,
        key: &Key,
        record: &LeaseRecord,
        writing: WriteInfo,
    ) -> Self {
        let LeaseV1 { hold, endings, forgotten_at_ms } = LeaseV1::from(record);
        let age_ms = |at_ms: u64| writing.now.store_ms.saturating_sub(at_ms);
        let (hold, endings) = (
            hold.map(|hold| StoredHold::new(hold, &writing)),
            endings
                .into_iter()
                .map(|ending| StoredEnding::new(ending, writing.now))
                .collect(),
        );
        let longest_ttl_ms = record.hold.as_ref().map_or(0, |hold| hold.ttl_ms);
        ObjectBody {
            fencehold: VERSION,
            namespace: namespace.clone(),
            key: key.clone(),
            token: record.counter,
            hold,
            endings,
            forgotten_age_ms: forgotten_at_ms.map(age_ms),
            closed_ms: writing.closed_ms,
            longest_ttl_ms: before.map_or(0, |before| before.longest_ttl_ms).max(longest_ttl_ms),
            seq: before.map_or(0, |before| before.seq).saturating_add(1),
            nonce: writing.nonce,
        }
    }

    /// How long the hold of this writing lasts.
    pub(super) fn lasts_ms(&self) -> Option<u64> {
        self.hold.as_ref().map(|hold| hold.lasts_ms)
    }

    /// The ttl of the hold.
    pub(super) fn ttl_ms(&self) -> Option<u64> {
        self.hold.as_ref().map(|hold| hold.ttl_ms)
    }

    /// Whether the holder is known to know of its hold.
    pub(super) fn is_taken_up(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.taken_up)
    }

    /// The record, its moments counted back from `base_ms` on the reader's own clock.
    pub(super) fn record(&self, base_ms: u64) -> Result<LeaseRecord, String> {
        let hold = self.hold.clone().map(|hold| hold.read(base_ms)).transpose()?;
        let endings = self.endings.iter().cloned().map(|ending| ending.read(base_ms));
        let endings = endings.collect::<Result<_, String>>()?;
        let forgotten_at_ms = self.forgotten_age_ms.map(|age_ms| base_ms.saturating_sub(age_ms));
        Ok(LeaseV1 { hold, endings, forgotten_at_ms }.into_record(self.token))
    }
}

impl StoredHold {
    fn new(hold: HoldV1, writing: &WriteInfo) -> Self {
        // No holder is asked to yield here.
        let HoldV1 { hash, owner, task, ttl_ms, max_age_ms, since, priority, notice: _ } = hold;
        let WriteInfo { now, lasts_ms, taken_up, .. } = *writing;
        StoredHold {
            hash: to_hex(hash),
            owner,
            task,
            ttl_ms,
            lasts_ms,
            max_age_ms,
            priority,
            taken_up,
            age_ms: now.store_ms.saturating_sub(since.store_ms),
            since_wall_ms: since.wall_ms,
            expires_at_wall_ms: now.wall_ms.saturating_add(lasts_ms),
        }
    }

    fn read(self, base_ms: u64) -> Result<HoldV1, String> {
        let hash = from_hex(&self.hash)?;
        let StoredHold { owner, task, ttl_ms, max_age_ms, priority, age_ms, since_wall_ms, .. } = self;
        let since = Timestamp { store_ms: base_ms.saturating_sub(age_ms), wall_ms: since_wall_ms };
        Ok(HoldV1 { hash, owner, task, ttl_ms, max_age_ms, since, priority, notice: None })
    }
}

impl StoredEnding {
    fn new(ending: EndingV1, now: Timestamp) -> Self {
        let EndingV1 { token, hash, owner, task, how, at, by, reason } = ending;
        let (hash, age_ms) = (to_hex(hash), now.store_ms.saturating_sub(at.store_ms));
        StoredEnding { token, hash, owner, task, how, age_ms, at_wall_ms: at.wall_ms, by, reason }
    }

    fn read(self, base_ms: u64) -> Result<EndingV1, String> {
        let StoredEnding { token, hash, owner, task, how, age_ms, at_wall_ms, by, reason } = self;
        let at = Timestamp { store_ms: base_ms.saturating_sub(age_ms), wall_ms: at_wall_ms };
        Ok(EndingV1 { token, hash: from_hex(&hash)?, owner, task, how, at, by, reason })
    }
}

/// What `store advance` leaves for keys that it has never heard of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Floor {
    fencehold: u8,
    /// Every token given from now on is larger.
    #[serde(rename = "floor")]
    pub(super) token: Token,
    /// No new key is granted until this writing was seen for that long.
    pub(super) closed_ms: u64,
    /// Namespaces in which that takes only so long. An earlier version does not know them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) namespaces: BTreeMap<Namespace, u64>,
    pub(super) nonce: String,
}

impl Floor {
    pub(super) fn new(token: Token, closed_ms: u64, namespaces: BTreeMap<Namespace, u64>) -> Self {
        Floor { fencehold: VERSION, token, closed_ms, namespaces, nonce: String::new() }
    }

    /// As it is written: nothing is closed for longer than the store.
    pub(super) fn to_write(&self, nonce: String) -> Self {
        let within = |(namespace, ms): (&Namespace, &u64)| (namespace.clone(), self.closed_ms.min(*ms));
        Floor { namespaces: self.namespaces.iter().map(within).collect(), nonce, ..self.clone() }
    }

    /// This one after another: no token is smaller, and nothing opens earlier. A namespace that only the other one names is
    /// closed for as long as the store.
    pub(super) fn after(self, other: &Floor) -> Self {
        let closed_ms = self.closed_ms.max(other.closed_ms);
        let mut namespaces = self.namespaces;
        for (namespace, own_ms) in &mut namespaces {
            // An object that is gone now may have been there then.
            *own_ms = other.namespaces.get(namespace).copied().unwrap_or(0).max(*own_ms);
        }
        Floor { token: self.token.max(other.token), closed_ms, namespaces, ..self }
    }

    /// Whether this one asks for at least as much.
    pub(super) fn covers(&self, other: &Floor) -> bool {
        self.token >= other.token
            && self.closed_ms >= other.closed_ms
            && other
                .namespaces
                .iter()
                .all(|(namespace, ms)| self.closed_ms_in(namespace) >= *ms)
    }

    /// For how long no new key is granted in a namespace.
    pub(super) fn closed_ms_in(&self, namespace: &Namespace) -> u64 {
        self.namespaces.get(namespace).copied().unwrap_or(self.closed_ms)
    }
}

/// What `quota set` has set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredLimits {
    fencehold: u8,
    #[serde(default)]
    every_namespace: LimitsV1,
    #[serde(default)]
    namespaces: BTreeMap<Namespace, LimitsV1>,
}

impl Default for StoredLimits {
    fn default() -> Self {
        let (every_namespace, namespaces) = (LimitsV1::default(), BTreeMap::new());
        StoredLimits { fencehold: VERSION, every_namespace, namespaces }
    }
}

impl StoredLimits {
    /// What was set for a namespace, or for every one.
    pub(super) fn of(&self, namespace: &Namespace) -> Quota {
        let own = self.namespaces.get(namespace).copied().unwrap_or_default();
        Quota::from(own).or(self.every_namespace.into())
    }

    /// Sets what is set, and leaves the rest: of a namespace, or of every one.
    pub(super) fn set(&mut self, whose: Option<&Namespace>, set: &Quota) {
        let limits = match whose {
            Some(namespace) => self.namespaces.entry(namespace.clone()).or_default(),
            None => &mut self.every_namespace,
        };
        *limits = set.or((*limits).into()).into();
    }
}

/// The bytes of anything that is kept here.
pub(super) fn encode(kept: &impl Serialize) -> Vec<u8> {
    // Plain data with text for keys: serialising it into memory cannot fail.
    serde_json::to_vec_pretty(kept).unwrap_or_default()
}

/// Reads anything that is kept here, if it is of this version, or says what is wrong with it.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Versioned {
        fencehold: u8,
    }
    let Versioned { fencehold } =
        serde_json::from_slice(bytes).map_err(|error| format!("it is not one of Fencehold's: {error}"))?;
    if fencehold != VERSION {
        return Err(format!("it has the unknown version {fencehold}"));
    }
    serde_json::from_slice(bytes).map_err(|error| format!("it is damaged: {error}"))
}

fn to_hex(hash: HoldHash) -> String {
    format!("{:032x}", u128::from_be_bytes(*hash.as_bytes()))
}

fn from_hex(text: &str) -> Result<HoldHash, String> {
    let number = Some(text).filter(|text| text.len() == 32);
    let number = number.and_then(|text| u128::from_str_radix(text, 16).ok());
    let number = number.ok_or("it is damaged: a hash is not 32 hexadecimal digits")?;
    Ok(HoldHash::from_bytes(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use fencehold_conformance::golden::{self, samples};

    use super::*;

    const HERE: &str = env!("CARGO_MANIFEST_DIR");

    #[test]
    fn the_bytes_of_every_version_are_known() {
        let now = Timestamp { store_ms: 1_000_010, wall_ms: 5_000 };
        let (namespace, key) = (Namespace::default(), Key::new("gpu/3").unwrap());
        let mut before: Option<ObjectBody> = None;
        let bodies = samples::leases_without_notice().map(|record| {
            let full = record.history.is_some();
            let writing = WriteInfo {
                now,
                lasts_ms: 29_000,
                taken_up: full,
                closed_ms: full.then_some(90_000),
                nonce: "n-1".to_owned(),
            };
            let body = ObjectBody::next(before.as_ref(), &namespace, &key, &record, writing);
            assert_eq!(body.record(now.store_ms), Ok(record));
            before = Some(body.clone());
            body
        });
        golden::current(HERE, "lease.v1.json", &bodies, encode, decode);
        let namespaces = BTreeMap::from([(Namespace::new("team").unwrap(), 30_000)]);
        let floors = [BTreeMap::new(), namespaces]
            .map(|namespaces| Floor::new(Token::new(9), 90_000, namespaces).to_write("n-1".to_owned()));
        golden::current(HERE, "floor.v1.json", &floors, encode, decode);
        let [none, all] = samples::limits();
        let mut set = StoredLimits::default();
        set.set(None, &none);
        set.set(Namespace::new("team").ok().as_ref(), &all);
        golden::current(HERE, "limits.v1.json", &[StoredLimits::default(), set], encode, decode);
    }

    fn full() -> (LeaseRecord, ObjectBody) {
        let [.., record] = samples::leases_without_notice();
        let now = Timestamp { store_ms: 1_000_010, wall_ms: 5_000 };
        let writing =
            WriteInfo { now, lasts_ms: 29_000, taken_up: true, closed_ms: None, nonce: "n-1".to_owned() };
        let body = ObjectBody::next(None, &Namespace::default(), &Key::new("k").unwrap(), &record, writing);
        (record, body)
    }

    #[test]
    fn a_record_is_read_back_as_it_was_kept() {
        let (record, body) = full();
        let read: ObjectBody = decode(&encode(&body)).unwrap();
        assert_eq!(read, body);
        assert_eq!(read.record(1_000_010), Ok(record));
        assert_eq!((read.lasts_ms(), read.longest_ttl_ms, read.seq), (Some(29_000), 30_000, 1));
        assert!(read.is_taken_up());
    }

    /// One that an earlier version wrote says nothing of it.
    #[test]
    fn a_hold_of_which_nothing_is_said_is_not_taken_up() {
        let text = String::from_utf8(encode(&full().1)).unwrap().replace("\"taken_up\": true,", "");
        assert!(!decode::<ObjectBody>(text.as_bytes()).unwrap().is_taken_up());
    }

    #[test]
    fn another_machine_counts_from_when_it_first_saw_it() {
        let (_, body) = full();
        let record = body.record(77_000).unwrap();
        assert_eq!(record.hold.unwrap().since.store_ms, 76_995, "held for 5 ms when it was written");
        let never_before_it_began = body.record(7).unwrap().history.unwrap().forgotten_at_ms;
        assert_eq!(never_before_it_began, Some(0), "the reader's own clock");
    }

    /// One that an earlier version wrote, and what an earlier version reads of a later one.
    #[test]
    fn a_floor_that_names_no_namespace_counts_for_all() {
        let (known, unknown) = (Namespace::new("team").unwrap(), Namespace::default());
        let namespaces = BTreeMap::from([(known.clone(), 30_000)]);
        let floor = Floor::new(Token::new(9), 90_000, namespaces).to_write("n".to_owned());
        let read: Floor = decode(&encode(&floor)).unwrap();
        assert_eq!((read.closed_ms_in(&known), read.closed_ms_in(&unknown)), (30_000, 90_000));
        let earlier = br#"{"fencehold":1,"floor":9,"closed_ms":90000,"nonce":"n"}"#;
        assert_eq!(decode::<Floor>(earlier).unwrap().closed_ms_in(&known), 90_000);
    }

    #[test]
    fn damaged_bytes_give_an_error_and_never_a_panic() {
        let good = encode(&full().1);
        for cut in 0..good.len() {
            assert!(decode::<ObjectBody>(&good[..cut]).is_err());
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x15;
            let _ = decode::<ObjectBody>(&bad).and_then(|body| body.record(5));
        }
        let later = br#"{"fencehold":2,"floor":9,"closed_ms":90000,"nonce":"n"}"#;
        assert!(decode::<ObjectBody>(later).unwrap_err().contains("unknown version 2"));
        assert!(decode::<Floor>(later).unwrap_err().contains("unknown version 2"));
        assert!(decode::<StoredLimits>(later).unwrap_err().contains("unknown version 2"));
        assert!(decode::<ObjectBody>(b"hello").unwrap_err().contains("not one of Fencehold's"));
    }
}
