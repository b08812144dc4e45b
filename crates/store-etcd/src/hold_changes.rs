//! Telling holders that another caller acted on their hold. Who revokes writes the key under one name of its namespace, and the handles
//! that hold something there watch that name: one watch, however many keys they hold.

use std::rc::Rc;

use fencehold_core::{Key, Namespace};
use fencehold_net::FeedEnd;

use super::EtcdInner;
use super::grpc_client::{RequestError, WatchStream};
use super::key_names::KeyRange;
use super::snapshot::put;

impl EtcdInner {
    /// Something was granted here: hears from now on of what others do to it, where a listener wants to know.
    pub(super) fn hear_of_holds(self: &Rc<Self>, namespace: &Namespace) {
        let core = Rc::clone(self);
        self.feeds.follow(namespace, async move |namespace: &Namespace| {
            let name = KeyRange(core.names.hold_changed(namespace), Vec::new());
            match core.wire.watch_from_now(name).await {
                Ok(watch) => core.hear(watch, namespace).await,
                Err(RequestError::Refused(_)) => FeedEnd::Refused,
                Err(_) => FeedEnd::Broken,
            }
        });
    }

    /// Hears until the watch breaks.
    async fn hear(&self, mut watch: WatchStream, namespace: &Namespace) -> FeedEnd {
        let mut end = FeedEnd::Broken;
        while let Some(keys) = watch.told().await {
            end = FeedEnd::BrokenLater;
            // It begins with nothing; what happened before that was not heard.
            if keys.is_empty() {
                self.feeds.changes.tell_missed();
            }
            for key in keys {
                match std::str::from_utf8(&key).ok().and_then(|key| Key::new(key).ok()) {
                    Some(key) => self.feeds.changes.tell(std::iter::once((namespace, &key))),
                    None => self.feeds.changes.tell_missed(),
                }
            }
        }
        end
    }

    /// Says to all handles that a caller acted on the hold of this key. What is not said, its holder learns by its next renewal.
    pub(super) async fn say_hold_changed(&self, namespace: &Namespace, key: &Key) {
        let success = vec![put(self.names.hold_changed(namespace), key.as_str().as_bytes().to_vec(), 0)];
        if self.wire.write(Vec::new(), success).await.is_err() {
            tracing::debug!("holders were not told of a change; they learn of it when they renew");
        }
    }
}
