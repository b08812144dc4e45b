//! Changes of holds: which keys another caller acted on, for those who hold something through this server.
//!
//! The store says so itself, so nothing is read for it. It is a hint: one that lags behind learns that it missed something, and
//! renews to learn what is true.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use fencehold_contract::{HoldChange, LeaseStore, Subscription};
use fencehold_core::{Key, Namespace};
use tokio::sync::broadcast;

use crate::locked;

/// How many changes may wait for one that takes none.
const WAITING_MAX: usize = 64;

type Senders = HashMap<Namespace, broadcast::Sender<Option<Key>>>;

/// The changes of every namespace in which a caller listens.
#[derive(Default)]
pub(crate) struct HoldChangeFeeds {
    senders: Arc<Mutex<Senders>>,
    /// Made with the first who listens. `None` inside: the store has no way to say so.
    subscription: OnceLock<Option<Subscription>>,
}

impl HoldChangeFeeds {
    /// Begins to listen in a namespace. `None`: the store cannot say.
    pub(crate) fn listen(&self, store: &dyn LeaseStore, namespace: &Namespace) -> Option<HoldWatcher> {
        let subscribe = || {
            let senders = Arc::clone(&self.senders);
            store.on_hold_change(Arc::new(move |change| {
                let senders = locked(&senders);
                // No receiver is fine: it has left just now.
                match change {
                    HoldChange::Of(namespace, key) => {
                        senders.get(namespace).map(|sender| sender.send(Some(key.clone())));
                    }
                    HoldChange::Missed => senders.values().for_each(|sender| drop(sender.send(None))),
                }
            }))
        };
        self.subscription.get_or_init(subscribe).as_ref()?;
        let mut senders = locked(&self.senders);
        let sender = senders
            .entry(namespace.clone())
            .or_insert_with(|| broadcast::channel(WAITING_MAX).0);
        let changes = Some(sender.subscribe());
        Some(HoldWatcher { senders: Arc::clone(&self.senders), namespace: namespace.clone(), changes })
    }
}

impl fmt::Debug for HoldChangeFeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldChangeFeeds").finish_non_exhaustive()
    }
}

/// One that listens, until it is dropped.
pub(crate) struct HoldWatcher {
    senders: Arc<Mutex<Senders>>,
    namespace: Namespace,
    changes: Option<broadcast::Receiver<Option<Key>>>,
}

impl HoldWatcher {
    /// Waits for the next key; `None`: changes may have been missed. Cancel safe.
    pub(crate) async fn changed(&mut self) -> Option<Key> {
        match &mut self.changes {
            // Its sender stays while it listens: an error means that it lags behind.
            Some(changes) => changes.recv().await.unwrap_or_default(),
            None => None,
        }
    }
}

impl Drop for HoldWatcher {
    fn drop(&mut self) {
        let mut senders = locked(&self.senders);
        self.changes = None;
        if senders.get(&self.namespace).is_some_and(|sender| sender.receiver_count() == 0) {
            senders.remove(&self.namespace);
        }
    }
}
