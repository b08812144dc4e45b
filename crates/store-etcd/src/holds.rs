//! Telling holders that another caller acted on their hold. Who revokes writes the key under one name of its namespace, and the handles
//! that hold something there watch that name: one watch, however many keys they hold.
//!
//! It is a hint: a watch that breaks costs the delay until the next renewal, and is begun again after a while.

use std::rc::Rc;
use std::time::Duration;

use fencehold_contract::hold_changes::spread;
use fencehold_core::{Key, Namespace};

use super::Core;
use super::look::put;
use super::messages::TxnRequest;
use super::names::Span;
use super::wire::{Fault, Watch};

/// In how many namespaces a handle watches at most.
const NAMESPACES_MAX: usize = 8;
/// The first rest before a watch is begun again,
const REST: Duration = Duration::from_secs(1);
/// and the longest.
const REST_MAX: Duration = Duration::from_secs(60);

impl Core {
    /// Something was granted here: hears from now on of what others do to it, where a listener wants to know.
    pub(super) fn hear_of_holds(self: &Rc<Self>, namespace: &Namespace) {
        if !self.hold_changes.has_listeners() {
            return;
        }
        let mut followed = self.followed.borrow_mut();
        if followed.len() >= NAMESPACES_MAX || !followed.insert(namespace.clone()) {
            return;
        }
        let (core, namespace) = (Rc::clone(self), namespace.clone());
        tokio::task::spawn_local(async move {
            let mut rest = REST;
            while core.hold_changes.has_listeners() {
                let name = Span(core.names.hold_changed(&namespace), Vec::new());
                match core.wire.watch_from_now(name).await {
                    Ok(watch) => {
                        if core.hear(watch, &namespace).await {
                            rest = REST;
                        }
                    }
                    // It stays among those that are followed, so that it is not asked for again.
                    Err(Fault::Refused(_)) => return,
                    Err(_) => {}
                }
                pause(spread(rest)).await;
                rest = (rest * 2).min(REST_MAX);
            }
            core.followed.borrow_mut().remove(&namespace);
        });
    }

    /// Hears until the watch breaks. False: it never began.
    async fn hear(&self, mut watch: Watch, namespace: &Namespace) -> bool {
        let mut began = false;
        while let Some(keys) = watch.told().await {
            began = true;
            // It begins with nothing; what happened before that was not heard.
            if keys.is_empty() {
                self.hold_changes.tell_missed();
            }
            for key in keys {
                match std::str::from_utf8(&key).ok().and_then(|key| Key::new(key).ok()) {
                    Some(key) => self.hold_changes.tell(std::iter::once((namespace, &key))),
                    None => self.hold_changes.tell_missed(),
                }
            }
        }
        began
    }

    /// Says to all handles that a caller acted on the hold of this key. What is not said, its holder learns by its next renewal.
    pub(super) async fn say_hold_changed(&self, namespace: &Namespace, key: &Key) {
        let success = vec![put(self.names.hold_changed(namespace), key.as_str().as_bytes().to_vec(), 0)];
        let said = self.wire.txn(TxnRequest { compare: Vec::new(), success, failure: Vec::new() });
        if said.await.is_err() {
            tracing::debug!("holders were not told of a change; they learn of it when they renew");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a member is asked again after a while, in real time")]
async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
