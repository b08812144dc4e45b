//! Telling holders that another caller acted on their hold, where a store can do so at once: in the same process, through the
//! socket of a directory, by the notifications of a database, by the stream of a server, by the watches of etcd.
//!
//! It is a hint and no promise: a holder that hears it renews, and the answer to that is what counts.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{EventData, Key, Namespace};

/// What a listener is called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldChange<'a> {
    /// Another caller acted on the hold of this key; the key of a job is `job/ID`.
    Of(&'a Namespace, &'a Key),
    /// The store may have missed changes, of any hold: it has begun to listen just now, or lost its connection for a while.
    Missed,
}

/// Is called on a thread of the store's: it must not wait, nor hold the store.
pub type HoldListener = Arc<dyn Fn(HoldChange<'_>) + Send + Sync>;

/// Those who listen to one store.
#[derive(Default)]
pub struct HoldChanges {
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    by_number: BTreeMap<u64, HoldListener>,
}

impl HoldChanges {
    fn locked(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a listener of every change from now on, until its subscription is dropped.
    pub fn subscribe(self: &Arc<Self>, listener: HoldListener) -> Subscription {
        let mut listeners = self.locked();
        listeners.next += 1;
        let number = listeners.next;
        listeners.by_number.insert(number, listener);
        Subscription { to: Arc::clone(self), number }
    }

    /// Whether there is a listener.
    pub fn has_listeners(&self) -> bool {
        !self.locked().by_number.is_empty()
    }

    /// Calls every listener. Nothing is locked meanwhile: a listener may end a subscription.
    pub fn tell<'a>(&self, changes: impl Iterator<Item = (&'a Namespace, &'a Key)>) {
        self.call(changes.map(|(namespace, key)| HoldChange::Of(namespace, key)));
    }

    /// Says that changes may have been missed.
    pub fn tell_missed(&self) {
        self.call(std::iter::once(HoldChange::Missed));
    }

    fn call<'a>(&self, changes: impl Iterator<Item = HoldChange<'a>>) {
        let listeners: Vec<HoldListener> = self.locked().by_number.values().cloned().collect();
        for change in changes {
            for listener in &listeners {
                listener(change);
            }
        }
    }
}

impl fmt::Debug for HoldChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldChanges").finish_non_exhaustive()
    }
}

/// Until it is dropped, a listener is called.
#[derive(Debug)]
#[must_use = "dropping it ends the subscription"]
pub struct Subscription {
    to: Arc<HoldChanges>,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let removed = self.to.locked().by_number.remove(&self.number);
        // Not while the list is locked: what a listener holds may be anything.
        drop(removed);
    }
}

/// A rest before a connection is made again: not all clients at once, when a server comes back.
pub fn spread(rest: Duration) -> Duration {
    let part = RandomState::new().hash_one(()) % 1_000;
    rest + rest * u32::try_from(part).unwrap_or(0) / 1_000
}

/// Whether a holder would learn of this fact only by its next renewal. What it did itself, and what its own clock tells, is no news.
pub fn concerns_holder(fact: &EventData) -> bool {
    match fact {
        EventData::LeaseEnded { outcome: how, .. } => {
            matches!(how, LeaseOutcome::Revoked | LeaseOutcome::Advanced)
        }
        EventData::YieldRequested { .. }
        | EventData::JobCancelRequested { .. }
        | EventData::JobCancelled { .. } => true,
        EventData::JobDeleted { forced, .. } => *forced,
        _ => false,
    }
}
