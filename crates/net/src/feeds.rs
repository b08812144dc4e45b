//! Hearing what others do to the holds of a handle: one stream for each namespace in which something is held, which is nearly
//! always one.
//!
//! What is heard is a hint. A stream that breaks costs the delay until the next renewal, and is opened again after a while; one
//! that is refused is not.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencehold_contract::hold_changes::{HoldChanges, spread};

use crate::budget::{RetryDelay, sleep};

/// In how many namespaces a handle listens at most.
const NAMESPACES_MAX: usize = 8;
/// The pauses before a stream is opened again.
const BACKOFF: RetryDelay = RetryDelay::new(Duration::from_secs(1), Duration::from_secs(60));

/// The streams of one handle.
#[derive(Debug)]
pub struct HoldFeeds<N> {
    /// Those who want to know.
    pub changes: Arc<HoldChanges>,
    followed: Arc<Mutex<BTreeSet<N>>>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEnd {
    /// The other end does not want it.
    Refused,
    /// It broke, or could not be opened.
    Broken,
    /// It broke, after it had shown that it worked.
    BrokenLater,
}

impl<N: Clone + Ord + 'static> HoldFeeds<N> {
    /// No streams yet.
    pub fn new(changes: Arc<HoldChanges>) -> Self {
        HoldFeeds { changes, followed: Arc::default() }
    }

    /// Something was granted in this namespace: follows it from now on, if a listener wants to know. `listen` hears until its stream
    /// ends. To be called on the thread of an [`Actor`](crate::Actor), with which it ends.
    pub fn follow(&self, namespace: &N, listen: impl AsyncFn(&N) -> FeedEnd + 'static) {
        if !self.changes.has_listeners() {
            return;
        }
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.len() >= NAMESPACES_MAX || !followed.insert(namespace.clone()) {
            return;
        }
        drop(followed);
        let (changes, followed) = (Arc::clone(&self.changes), Arc::clone(&self.followed));
        let namespace = namespace.clone();
        tokio::task::spawn_local(async move {
            let mut backoff = BACKOFF;
            while changes.has_listeners() {
                match listen(&namespace).await {
                    // It stays among those that are followed, so that it is not asked for again.
                    FeedEnd::Refused => return,
                    FeedEnd::Broken => {}
                    FeedEnd::BrokenLater => backoff = BACKOFF,
                }
                sleep(spread(backoff.next_pause())).await;
            }
            followed.lock().unwrap_or_else(PoisonError::into_inner).remove(&namespace);
        });
    }
}
