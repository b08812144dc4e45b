//! Watching: what happens in a namespace is read once from the store, for all who watch it.
//!
//! Nouns: a *feed* reads the events of one namespace while a client watches there; a *watcher* has a filter and a mailbox; a
//! *batch* is what one reading found for one filter, shared by all who watch that. Every event is put into words once.
//! An event finds the filters by the prefixes that its key has, so those who watch other keys cost it nothing.
//!
//! Deliberately absent: history. A watcher that comes with an old cursor reads it from the store, up to where the feed is.

mod feed;
mod hold_changes;
mod mailbox;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fencehold_core::{Namespace, Task};

use crate::{ServerInner, locked};
use feed::Feed;
pub(crate) use hold_changes::{HoldChangeFeeds, HoldWatcher};
use mailbox::Mailbox;
pub(crate) use mailbox::{Delivery, TooSlow};

/// Every feed of a server.
#[derive(Debug, Default)]
pub(crate) struct Feeds {
    by_namespace: Mutex<HashMap<Namespace, Feed>>,
    /// Feeds and watchers have numbers that never come back: one that has ended is not taken for its successor.
    numbers: AtomicU64,
}

/// One that watches, until it is dropped.
pub(crate) struct Watcher {
    server: Arc<ServerInner>,
    namespace: Namespace,
    filter: EventFilter,
    number: u64,
    mailbox: Arc<Mailbox>,
}

/// What a watcher wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EventFilter {
    pub(crate) prefix: Option<String>,
    pub(crate) task_prefix: Option<Task>,
    /// It is enough to know that something happened, and soon is soon enough.
    pub(crate) notices: bool,
}

impl EventFilter {
    /// What the keys begin with.
    fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or_default()
    }
}

impl Feeds {
    fn all(&self) -> MutexGuard<'_, HashMap<Namespace, Feed>> {
        locked(&self.by_namespace)
    }

    fn fresh(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// How many watch.
    pub(crate) fn watchers(&self) -> usize {
        self.all().values().map(Feed::watchers).sum()
    }
}

impl Watcher {
    /// Begins to watch. The second is how far the feed has come: what happened up to there, and after the watcher's own
    /// cursor, it must read from the store; all that happens later comes into its mailbox.
    pub(crate) fn begin(
        server: &Arc<ServerInner>,
        namespace: &Namespace,
        filter: EventFilter,
        cursor: u64,
    ) -> (Watcher, u64) {
        let (mailbox, number) = (Arc::new(Mailbox::default()), server.feeds.fresh());
        let mut feeds = server.feeds.all();
        let feed = feeds
            .entry(namespace.clone())
            .or_insert_with(|| Feed::start(Arc::clone(server), namespace.clone(), cursor));
        feed.join(&filter, number, Arc::clone(&mailbox));
        let told = feed.told();
        drop(feeds);
        let server = Arc::clone(server);
        (Watcher { server, namespace: namespace.clone(), filter, number, mailbox }, told)
    }

    /// Waits for news.
    pub(crate) async fn news(&self) -> Result<Delivery, TooSlow> {
        self.mailbox.take().await
    }

    /// Up to where there was nothing for this watcher, if nothing waits for it now.
    pub(crate) fn quiet_until(&self) -> Option<u64> {
        // What hands something out holds this lock.
        let feeds = self.server.feeds.all();
        feeds.get(&self.namespace).filter(|_| self.mailbox.is_empty()).map(Feed::told)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut feeds = self.server.feeds.all();
        let Some(feed) = feeds.get_mut(&self.namespace) else { return };
        if feed.leave(&self.filter, self.number) {
            feeds.remove(&self.namespace);
        }
    }
}
