//! Telling holders that somebody else acted on their hold, where a store can do so at once: in the same process, and through the
//! socket of a directory.
//!
//! It is a hint and no promise: a holder that hears it renews, and the answer to that is what counts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencehold_core::lease::How;
use fencehold_core::{Fact, Key, Namespace};

/// Is called with the namespace and the key; the key of a job is `job/ID`. On a thread of the store's: it must not wait, nor
/// hold the store.
pub type HoldListener = Arc<dyn Fn(&Namespace, &Key) + Send + Sync>;

/// Those who listen to one store.
#[derive(Default)]
pub(crate) struct HoldChanges {
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

    pub(crate) fn subscribe(self: &Arc<Self>, listener: HoldListener) -> Subscription {
        let mut listeners = self.locked();
        listeners.next += 1;
        let number = listeners.next;
        listeners.by_number.insert(number, listener);
        Subscription { to: Arc::clone(self), number }
    }

    pub(crate) fn has_listeners(&self) -> bool {
        !self.locked().by_number.is_empty()
    }

    /// Tells everybody. Nothing is locked meanwhile: a listener may end a subscription.
    pub(crate) fn tell<'a>(&self, changes: impl Iterator<Item = (&'a Namespace, &'a Key)>) {
        let listeners: Vec<HoldListener> = self.locked().by_number.values().cloned().collect();
        for (namespace, key) in changes {
            for listener in &listeners {
                listener(namespace, key);
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

/// Whether a holder would learn of this fact only by its next renewal. What it did itself, and what its own clock tells, is no news.
pub(crate) fn concerns_holder(fact: &Fact) -> bool {
    match fact {
        Fact::LeaseEnded { how, .. } => matches!(how, How::Revoked | How::Advanced),
        Fact::YieldAsked { .. } | Fact::JobCancelRequested { .. } => true,
        Fact::JobDeleted { forced, .. } => *forced,
        _ => false,
    }
}
