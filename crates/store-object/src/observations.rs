//! What one handle has seen of each object, and since when.
//!
//! Object storage has no clock that a condition could name, so a lease is over for a contender when it has seen *the
//! same writing* for longer than its holder can believe in it. Its writer need not wait: no one believes
//! in that writing for longer than it lasts from before it was sent, on this same clock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use fencehold_core::lease::{HoldState, LeaseRecord};
use fencehold_core::{Refusal, Timestamp};

use super::body::ObjectBody;
use super::cas::ObjectVersion;

/// Two clocks may drift apart by as much as they can be slewed, 8 % each way; a quarter covers that and more.
const DRIFT_PART: u64 = 4;
/// For whatever a process needs between reading its clock and acting.
const MARGIN_MS: u64 = 1_000;
/// How many objects are remembered. Forgetting one only makes its next contender wait for longer.
const SEEN_MAX: usize = 65_536;

/// For how long a contender must see the same writing before it takes a lease that lasts this long.
pub fn over_after_ms(lasts_ms: u64) -> u64 {
    lasts_ms.saturating_add(lasts_ms / DRIFT_PART).saturating_add(MARGIN_MS)
}

/// One writing of an object, as this handle knows it.
#[derive(Clone, Debug)]
pub(super) struct ObservedVersion<B = ObjectBody> {
    pub(super) version: ObjectVersion,
    pub(super) body: B,
    /// The moment after it was first read; or, for one's own, the moment before it was sent.
    pub(super) base_ms: u64,
    /// Whether this handle wrote it, and so knows when its term began.
    pub(super) own: bool,
    /// When this was noted, among all that this handle does.
    pub(super) noted: u64,
}

impl ObservedVersion {
    /// The record, on this handle's clock.
    pub(super) fn record(&self) -> Result<LeaseRecord, String> {
        self.body.record(self.base_ms)
    }

    /// Whether the hold is live.
    pub(super) fn term(&self, now: Timestamp) -> HoldState {
        let Some(lasts_ms) = self.body.lasts_ms() else { return HoldState::Free };
        let over_in_ms = self.over_in_ms(now, lasts_ms);
        if over_in_ms > 0 {
            // What its holder has left, as far as is known here: never more than it was given.
            return HoldState::Live { remaining_ms: over_in_ms.min(lasts_ms).max(1) };
        }
        let ended_ms = self.base_ms.saturating_add(lasts_ms);
        HoldState::Over { since_ms: now.store_ms.saturating_sub(ended_ms) }
    }

    fn over_in_ms(&self, now: Timestamp, lasts_ms: u64) -> u64 {
        let after_ms = if self.own { lasts_ms } else { over_after_ms(lasts_ms) };
        self.base_ms.saturating_add(after_ms).saturating_sub(now.store_ms)
    }

    /// How much longer the key is not granted, after `store advance`.
    pub(super) fn closed_in_ms(&self, now: Timestamp) -> Option<u64> {
        closed_in_ms(self.base_ms, self.body.closed_ms?, now)
    }

    /// What remains of a hold to a caller that shows its hold id, made this long ago, and is not known to have written
    /// it here: the grant cannot be older than the hold id.
    pub(super) fn remaining_ms(&self, told_ms: u64, hold_age_ms: u64) -> u64 {
        if self.own {
            return told_ms;
        }
        let lasts_ms = self.body.lasts_ms().unwrap_or(0);
        told_ms.min(lasts_ms.saturating_sub(hold_age_ms)).max(1)
    }
}

/// How much longer what was closed at `base_ms` stays closed.
pub(super) fn closed_in_ms(base_ms: u64, closed_ms: u64, now: Timestamp) -> Option<u64> {
    let open_ms = base_ms.saturating_add(over_after_ms(closed_ms));
    open_ms.checked_sub(now.store_ms).filter(|ms| *ms > 0)
}

/// The refusal for one who finds a key closed.
pub(super) fn closed(ms: u64) -> fencehold_contract::StoreError {
    let why = format!("after `store advance` nobody is granted anything for another {ms} ms");
    fencehold_contract::StoreError::Unavailable { message: why }
}

/// The sooner of two refusals: the key that comes free first.
pub(super) fn sooner(one: &Refusal, other: &Refusal) -> bool {
    let free_in_ms = |refusal: &Refusal| match refusal {
        Refusal::Held { remaining_ms: expires_in_ms, .. } => *expires_in_ms,
        _ => u64::MAX,
    };
    free_in_ms(one) < free_in_ms(other)
}

/// What this handle has seen.
#[derive(Debug, Default)]
pub(super) struct Observations {
    seen: Mutex<HashMap<String, ObservedVersion>>,
    order: AtomicU64,
}

impl Observations {
    /// A read begins: what is noted from now on may be newer than what it will find.
    pub(super) fn begin(&self) -> u64 {
        self.order.fetch_add(1, Ordering::SeqCst)
    }

    /// Notes what a read that began then has found. The same writing as before keeps the moment at which it was first
    /// seen.
    pub(super) fn saw(
        &self,
        name: &str,
        began: u64,
        object: (ObjectVersion, ObjectBody),
        now_ms: u64,
    ) -> ObservedVersion {
        let (version, body) = object;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = seen.get(name) {
            let same = known.version == version && known.body.nonce == body.nonce;
            // A newer writing was noted while this answer was on its way.
            let outrun = known.noted > began && known.body.seq > body.seq;
            if same || outrun {
                return known.clone();
            }
        }
        let new = ObservedVersion { version, body, base_ms: now_ms, own: false, noted: self.begin() };
        make_room(&mut seen);
        seen.insert(name.to_owned(), new.clone());
        new
    }

    /// Notes what this handle wrote, when it sent it, and whether it knows when that term began.
    pub(super) fn wrote(
        &self,
        name: &str,
        version: ObjectVersion,
        body: ObjectBody,
        sent_ms: u64,
        own: bool,
    ) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.get(name).is_some_and(|known| known.body.seq > body.seq) {
            // Another has written again, and that was seen before this answer.
            return;
        }
        make_room(&mut seen);
        let noted = self.begin();
        seen.insert(name.to_owned(), ObservedVersion { version, body, base_ms: sent_ms, own, noted });
    }

    /// A read that began then has found no such object.
    pub(super) fn absent(&self, name: &str, began: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.get(name).is_some_and(|known| known.noted <= began) {
            seen.remove(name);
        }
    }

    /// What was last seen.
    pub(super) fn last(&self, name: &str) -> Option<ObservedVersion> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

fn make_room(seen: &mut HashMap<String, ObservedVersion>) {
    if seen.len() < SEEN_MAX {
        return;
    }
    let oldest = seen.iter().min_by_key(|(_, seen)| seen.base_ms).map(|(name, _)| name.clone());
    if let Some(oldest) = oldest {
        seen.remove(&oldest);
    }
}
