//! Hearing from the server that another caller acted on what is held through this handle: one connection for each namespace
//! in which something was granted, which is nearly always one.
//!
//! What is heard is a hint. A stream that fails costs the delay until the next renewal and nothing else: it is asked for again
//! after a while, longer each time, and never where the server refuses it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencehold_api::{HoldChange, Kind};
use fencehold_contract::hold_changes::{HoldChanges, spread};
use fencehold_core::Namespace;
use fencehold_net::Runtime;
use tokio::sync::watch;

use super::errand::Fault;
use super::wire::{Lines, Wire};

/// In how many namespaces a handle listens at most.
const NAMESPACES_MAX: usize = 8;
/// Nothing came for so long, although the server sends a comment now and then: the connection is dead.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// The first rest before a stream is asked for again,
const REST: Duration = Duration::from_secs(1);
/// and the longest.
const REST_MAX: Duration = Duration::from_secs(60);

/// What a handle hears.
pub(super) struct Holds {
    pub(super) changes: Arc<HoldChanges>,
    followed: Arc<Mutex<BTreeSet<Namespace>>>,
    closing: watch::Sender<bool>,
}

impl Holds {
    pub(super) fn new() -> Self {
        Holds { changes: Arc::default(), followed: Arc::default(), closing: watch::Sender::new(false) }
    }

    /// Something was granted here: listens from now on, if a listener wants to know.
    pub(super) fn follow(&self, runtime: &Runtime, wire: &Arc<Wire>, namespace: &Namespace) {
        if !self.changes.has_listeners() {
            return;
        }
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.len() >= NAMESPACES_MAX || !followed.insert(namespace.clone()) {
            return;
        }
        drop(followed);
        let (wire, changes, namespace) = (Arc::clone(wire), Arc::clone(&self.changes), namespace.clone());
        let (followed, mut closing) = (Arc::clone(&self.followed), self.closing.subscribe());
        runtime.spawn(async move {
            let refused = tokio::select! {
                refused = listen(&wire, &changes, &namespace) => refused,
                _ = closing.wait_for(|closing| *closing) => true,
            };
            // A server that refuses is not asked again.
            if !refused {
                followed.lock().unwrap_or_else(PoisonError::into_inner).remove(&namespace);
            }
        });
    }

    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }
}

/// Listens until no listener is left (false), or the server refuses (true).
async fn listen(wire: &Wire, changes: &HoldChanges, namespace: &Namespace) -> bool {
    let mut rest = REST;
    while changes.has_listeners() {
        match wire.stream(fencehold_api::HOLD_CHANGES_PATH, namespace).await {
            Ok(lines) => {
                // What happened before it was listened for.
                changes.tell_missed();
                if hear(lines, changes, namespace).await > 0 {
                    rest = REST;
                }
            }
            Err(Fault::Problem(problem))
                if problem.kind == Kind::Stopping || problem.kind.status() == 429 => {}
            Err(Fault::Problem(_) | Fault::Stranger(_) | Fault::Distrusted(_)) => return true,
            Err(Fault::Unreached(why) | Fault::Unclear(why)) => {
                tracing::debug!(why, "the server does not say what others do to held leases; asking again");
            }
        }
        pause(spread(rest)).await;
        rest = (rest * 2).min(REST_MAX);
    }
    false
}

/// Hears until the stream ends. Gives how many signs of life there were, after the first.
async fn hear(mut lines: Lines, changes: &HoldChanges, namespace: &Namespace) -> u64 {
    let mut signs: u64 = 0;
    while let Ok(Some(line)) = tokio::time::timeout(SILENT_MAX, lines.next()).await {
        if line.starts_with(':') {
            signs += 1;
        }
        if !changes.has_listeners() {
            break;
        }
        let Some(data) = line.strip_prefix("data: ") else { continue };
        match serde_json::from_str::<HoldChange>(data) {
            Ok(HoldChange { key: Some(key) }) => changes.tell(std::iter::once((namespace, &key))),
            Ok(HoldChange { key: None }) | Err(_) => changes.tell_missed(),
        }
    }
    signs.saturating_sub(1)
}

#[expect(clippy::disallowed_methods, reason = "a server is asked again after a while, in real time")]
async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
