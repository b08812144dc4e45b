//! A feed: the events of one namespace, read once and handed to all whom they concern.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::problem::Problem;
use fencehold_contract::{CallContext, EventPage, FlatEvent, ListEventsRequest, Prefixes, StoreError};
use fencehold_core::Namespace;
use fencehold_core::limits::PAGE_MAX;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::EventFilter;
use super::mailbox::{EventBatch, Mailbox};
use crate::ServerInner;

/// How long one reading waits for something to happen.
const WAIT_MS: u64 = 15_000;
/// How long the store is borne with.
const TIMEOUT_MS: u64 = 5_000;
/// After it has sent to so many, the feed rests so long for each: what happens meanwhile comes in one batch. So
/// telling takes a fraction of a processor, however many there are to tell.
const REST_FOR_EACH: Duration = Duration::from_micros(50);
const REST_MAX: Duration = Duration::from_millis(100);
/// Where all watchers need notices alone, it rests for so long; where there was more than it read at once, for so many times as long as that took.
const REST_OF_NOTICES: Duration = Duration::from_secs(1);
const REST_OF_NOTICES_TIMES: u32 = 20;

/// The events of one namespace.
#[derive(Debug)]
pub(super) struct Feed {
    /// Up to where everything was handed out.
    told: u64,
    number: u64,
    filters: Prefixes<EventFilter>,
    groups: HashMap<EventFilter, BTreeMap<u64, Arc<Mailbox>>>,
    /// A watcher joined that needs more than notices.
    hurry: Arc<Notify>,
    reading: AbortHandle,
}

impl Feed {
    /// Starts to read after this cursor.
    pub(super) fn start(server: Arc<ServerInner>, namespace: Namespace, cursor: u64) -> Feed {
        let number = server.feeds.fresh();
        let hurry = Arc::new(Notify::new());
        let reading =
            tokio::spawn(read(server, namespace, number, cursor, Arc::clone(&hurry))).abort_handle();
        Feed { told: cursor, number, filters: Prefixes::default(), groups: HashMap::new(), hurry, reading }
    }

    pub(super) fn told(&self) -> u64 {
        self.told
    }

    pub(super) fn watchers(&self) -> usize {
        self.groups.values().map(BTreeMap::len).sum()
    }

    /// Whether all watchers need notices alone.
    fn is_of_notices(&self) -> bool {
        self.groups.keys().all(|filter| filter.notices)
    }

    pub(super) fn join(&mut self, filter: &EventFilter, number: u64, mailbox: Arc<Mailbox>) {
        if !filter.notices {
            self.hurry.notify_one();
        }
        if let Some(group) = self.groups.get_mut(filter) {
            group.insert(number, mailbox);
        } else {
            self.groups.insert(filter.clone(), BTreeMap::from([(number, mailbox)]));
            self.filters.insert(filter.prefix(), filter.clone());
        }
    }

    /// True: no watcher is left.
    pub(super) fn leave(&mut self, filter: &EventFilter, number: u64) -> bool {
        if let Some(group) = self.groups.get_mut(filter) {
            group.remove(&number);
            if group.is_empty() {
                self.groups.remove(filter);
                self.filters.remove(filter.prefix(), filter);
            }
        }
        self.groups.is_empty()
    }

    /// Hands out what was read. Returns how many it sent to.
    fn hand_out(&mut self, page: EventPage) -> usize {
        self.told = page.next_cursor;
        let mut found: BTreeMap<&EventFilter, EventBatch> = BTreeMap::new();
        for event in &page.events {
            let mut words: Option<Arc<str>> = None;
            for filter in self.filters.of(event.key.as_str()) {
                if filter
                    .task_prefix
                    .as_ref()
                    .is_some_and(|above| !event.data.is_covered_by(above))
                {
                    continue;
                }
                let batch = found.entry(filter).or_insert_with(|| EventBatch::empty(page.next_cursor));
                if filter.notices {
                    continue;
                }
                let words = words.get_or_insert_with(|| {
                    // An event is made of what can be written: see the contract's own tests.
                    serde_json::to_string(&FlatEvent(event)).unwrap_or_default().into()
                });
                batch.bytes += words.len() + 1;
                batch.events.push((event.seq, Arc::clone(words)));
            }
        }
        let mut told = 0;
        for (filter, batch) in found {
            let batch = Arc::new(batch);
            for mailbox in self.groups.get(filter).into_iter().flat_map(BTreeMap::values) {
                mailbox.put(&batch);
                told += 1;
            }
        }
        told
    }

    /// Goes on where events are still kept, if no watcher needs those that are not. Returns where.
    fn skip(&mut self, oldest: u64) -> Option<u64> {
        if !self.is_of_notices() {
            return None;
        }
        self.told = oldest;
        let batch = Arc::new(EventBatch::empty(oldest));
        self.groups
            .values()
            .flat_map(BTreeMap::values)
            .for_each(|mailbox| mailbox.put(&batch));
        Some(oldest)
    }

    fn end(&self, problem: Problem) {
        let problem = Arc::new(problem);
        for mailbox in self.groups.values().flat_map(BTreeMap::values) {
            mailbox.end(&problem);
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Reads for as long as a client watches, or until the store has no answer.
async fn read(
    server: Arc<ServerInner>,
    namespace: Namespace,
    number: u64,
    mut after: u64,
    hurry: Arc<Notify>,
) {
    let call = CallContext::new(namespace.clone()).with_timeout_ms(TIMEOUT_MS);
    let problem = loop {
        let request = ListEventsRequest {
            cursor: Some(after),
            limit: PAGE_MAX,
            wait_ms: WAIT_MS,
            ..ListEventsRequest::default()
        };
        let began_ms = server.clock.now().store_ms;
        let page = match server.shutdown.unless(server.store.list_events(&call, request)).await {
            Ok(Ok(page)) => page,
            Ok(Err(StoreError::CursorTooOld { cursor, oldest_cursor })) => {
                let mut feeds = server.feeds.all();
                let Some(feed) = feeds.get_mut(&namespace).filter(|feed| feed.number == number) else {
                    return;
                };
                match feed.skip(oldest_cursor) {
                    Some(oldest) => after = oldest,
                    None => break StoreError::CursorTooOld { cursor, oldest_cursor }.into(),
                }
                continue;
            }
            Ok(Err(error)) => break error.into(),
            Err(shutdown) => break shutdown,
        };
        after = page.next_cursor;
        let is_full = page.events.len() >= PAGE_MAX;
        let (told, is_of_notices) = match server.feeds.all().get_mut(&namespace) {
            Some(feed) if feed.number == number => (feed.hand_out(page), feed.is_of_notices()),
            // Everybody has left; those who came since have a feed of their own.
            _ => return,
        };
        if is_of_notices {
            let took = Duration::from_millis(server.clock.now().store_ms.saturating_sub(began_ms));
            let length = if is_full { took.saturating_mul(REST_OF_NOTICES_TIMES) } else { REST_OF_NOTICES };
            tokio::select! {
                () = rest(length.min(REST_OF_NOTICES)) => {}
                () = hurry.notified() => {}
            }
        } else if !is_full && told > 0 {
            let told = u32::try_from(told).unwrap_or(u32::MAX);
            rest(REST_FOR_EACH.saturating_mul(told).min(REST_MAX)).await;
        }
    };
    // The next watcher begins a new feed.
    let mut feeds = server.feeds.all();
    if feeds.get(&namespace).is_some_and(|feed| feed.number == number)
        && let Some(feed) = feeds.remove(&namespace)
    {
        feed.end(problem);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing is ordered by it: what happens meanwhile comes later, together"
)]
async fn rest(length: Duration) {
    tokio::time::sleep(length).await;
}
