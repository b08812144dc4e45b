//! The last events, of which each namespace has its share, and those who watch for the next.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fencehold_contract::operation::StoreResponse;
use fencehold_contract::{EventPage, LeaseStats, LeaseStatsRequest, ListEventsRequest, StoreError};
use fencehold_core::limits::{EVENTS_KEPT, WAIT_MS_MAX};
use fencehold_core::{BadInput, Event, EventData, Key, Namespace};
use hashbrown::HashMap;

use super::persistence::{OldEvents, StoredEvents};
use super::state::Engine;
use super::step::Step;
use super::waiters::{Ticket, Watcher};

/// An owner that reads no earlier events reads them once it has this many of its own: by then some are to be forgotten.
const LOAD_AFTER: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Events {
    /// `Some`: those that were kept are still in the archive, to be read once there are this many beside them.
    to_load_at: Option<usize>,
    /// The newest of all, whether or not their namespace still keeps them.
    recent: VecDeque<Arc<Event>>,
    by_namespace: HashMap<Namespace, NamespaceEvents>,
    /// The namespaces by how many events each had after the last batch.
    sizes: BTreeSet<(usize, Namespace)>,
    kept: usize,
    /// Up to here, events may be missing in a namespace of which none is kept.
    lost_until: u64,
    last_seq: u64,
    /// How many of the recent ones have not been handed over yet.
    new: usize,
    /// What has become of old ones since the last batch.
    old: OldEvents,
}

/// The events of one namespace.
#[derive(Debug, Default)]
struct NamespaceEvents {
    events: VecDeque<Arc<Event>>,
    /// Up to here, events of this namespace were lost.
    lost_until: u64,
    /// How many it had after the last batch; 0: it was not there.
    size: usize,
}

impl Events {
    pub(super) fn from_kept(kept: StoredEvents, last_seq: u64) -> Self {
        let StoredEvents { recent, old, lost, lost_by_others, lost_by_all } = kept;
        // Where nothing is there, all that happened is lost.
        let lost_by_all = if recent.is_empty() { last_seq } else { lost_by_all };
        let mut events =
            Events { last_seq, lost_until: lost_by_others.max(lost_by_all), ..Events::default() };
        events.recent = recent.into_iter().map(Arc::new).collect();
        let old = old.into_iter().map(Arc::new);
        let all: Vec<Arc<Event>> = old.chain(events.recent.iter().cloned()).collect();
        for event in all {
            let others = events.lost_until;
            let story = events.by_namespace.entry(event.namespace.clone()).or_insert_with(|| {
                let own = lost.get(&event.namespace).copied();
                NamespaceEvents {
                    lost_until: own.unwrap_or(others).max(lost_by_all),
                    ..NamespaceEvents::default()
                }
            });
            if event.seq > story.lost_until {
                story.events.push_back(event);
                events.kept += 1;
            }
        }
        for (namespace, until_seq) in lost {
            let story = events.by_namespace.get(&namespace);
            if story.is_none_or(|story| story.events.is_empty()) {
                events.lost_until = events.lost_until.max(until_seq);
            }
        }
        events.by_namespace.retain(|_, story| !story.events.is_empty());
        let namespaces: Vec<Namespace> = events.by_namespace.keys().cloned().collect();
        for namespace in namespaces {
            events.measure(namespace);
        }
        if lost_by_all > 0 {
            let stories = events.by_namespace.iter();
            let lost = stories.map(|(namespace, story)| (Some(namespace.clone()), story.lost_until));
            events.old.lost_until = lost.chain([(None, events.lost_until)]).collect();
        }
        events.age();
        events.forget();
        events
    }

    /// Those that were kept, up to this one, are read when they are needed.
    pub(super) fn unread(last_seq: u64) -> Self {
        Events { to_load_at: Some(LOAD_AFTER), last_seq, ..Events::default() }
    }

    /// Puts those that were kept before those that have come since.
    pub(super) fn loaded(&mut self, kept: StoredEvents) {
        let before = Events::from_kept(kept, self.kept_until());
        let since = std::mem::replace(self, before);
        for event in since.recent {
            self.push(event);
        }
        for namespace in since.by_namespace.into_keys() {
            self.measure(namespace);
        }
        (self.last_seq, self.new) = (since.last_seq, since.new);
    }

    /// The last of those that are still to be read.
    pub(super) fn kept_until(&self) -> u64 {
        self.last_seq - self.recent.len() as u64
    }

    pub(super) fn add(&mut self, at_wall_ms: u64, namespace: Namespace, key: Key, fact: EventData) {
        self.last_seq += 1;
        self.push(Arc::new(Event::new(self.last_seq, at_wall_ms, namespace, key, fact)));
        self.new += 1;
    }

    fn push(&mut self, event: Arc<Event>) {
        let lost_until = self.lost_until;
        if let Some(story) = self.by_namespace.get_mut(&event.namespace) {
            story.events.push_back(Arc::clone(&event));
        } else {
            let events = VecDeque::from([Arc::clone(&event)]);
            let story = NamespaceEvents { events, lost_until, size: 0 };
            self.by_namespace.insert(event.namespace.clone(), story);
        }
        self.recent.push_back(event);
        self.kept += 1;
    }

    /// The events since the last call, and what becomes of old ones. Events are forgotten only now, so that no step loses its own.
    pub(super) fn take_new(&mut self) -> (Vec<Arc<Event>>, OldEvents) {
        let new: Vec<Arc<Event>> = self.recent.iter().skip(self.recent.len() - self.new).cloned().collect();
        self.new = 0;
        if self.to_load_at.is_some() {
            return (new, OldEvents { unread: true, ..OldEvents::default() });
        }
        if new.is_empty() {
            // What becomes of old ones is kept with new ones.
            return Default::default();
        }
        let mut measured: Option<&Namespace> = None;
        for Event { namespace, .. } in new.iter().map(AsRef::as_ref) {
            // Those of a batch are mostly of one namespace.
            if measured != Some(namespace) {
                self.measure(namespace.clone());
                measured = Some(namespace);
            }
        }
        self.forget();
        self.age();
        (new, std::mem::take(&mut self.old))
    }

    /// Tells those that are no longer among the newest, and that their namespace keeps.
    fn age(&mut self) {
        while self.recent.len() > EVENTS_KEPT
            && let Some(event) = self.recent.pop_front()
        {
            let story = self.by_namespace.get(&event.namespace);
            if story.is_some_and(|story| story.lost_until < event.seq) {
                self.old.kept.push(event);
            }
        }
    }

    /// Notes how many events a namespace has.
    fn measure(&mut self, namespace: Namespace) {
        let Some(story) = self.by_namespace.get_mut(&namespace) else { return };
        let before = std::mem::replace(&mut story.size, story.events.len());
        if before != story.size {
            let size = story.size;
            self.sizes.remove(&(before, namespace.clone()));
            self.sizes.insert((size, namespace));
        }
    }

    /// Forgets what is too much: the oldest of the namespace that has most, so that none pushes out the events of another that has fewer.
    fn forget(&mut self) {
        let oldest_recent = self.recent.front().map_or(u64::MAX, |event| event.seq);
        while self.kept > EVENTS_KEPT
            && let Some((most, namespace)) = self.sizes.pop_last()
        {
            let Some(story) = self.by_namespace.get_mut(&namespace) else { continue };
            let second = self.sizes.last().map_or(0, |(size, _)| *size);
            let count = most.saturating_sub(second).clamp(1, self.kept - EVENTS_KEPT);
            for event in story.events.drain(..count.min(story.events.len())) {
                self.kept -= 1;
                story.lost_until = event.seq;
                if event.seq < oldest_recent {
                    self.old.forgotten.push(event.seq);
                }
            }
            self.old.lost_until.push((Some(namespace.clone()), story.lost_until));
            story.size = story.events.len();
            if story.events.is_empty() {
                self.lost_until = self.lost_until.max(story.lost_until);
                self.old.lost_until.push((None, self.lost_until));
                self.by_namespace.remove(&namespace);
            } else {
                self.sizes.insert((story.size, namespace));
            }
        }
    }

    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The last one before those that were not sent yet.
    pub(super) fn seen_by_all(&self) -> u64 {
        self.last_seq - self.new as u64
    }

    pub(super) fn page(
        &self,
        namespace: &Namespace,
        request: &ListEventsRequest,
    ) -> Result<EventPage, StoreError> {
        let story = self.by_namespace.get(namespace);
        let lost_until = story.map_or(self.lost_until, |story| story.lost_until);
        let after = request.cursor.unwrap_or(lost_until);
        if after < lost_until {
            return Err(StoreError::CursorTooOld { cursor: after, oldest_cursor: lost_until + 1 });
        }
        if after > self.last_seq {
            let problem = format!("{after} is ahead of this store, whose last event is {}", self.last_seq);
            return Err(BadInput::new("cursor", problem).into());
        }
        let mut page = EventPage { events: Vec::new(), next_cursor: self.last_seq };
        let Some(story) = story else { return Ok(page) };
        let first = story.events.partition_point(|event| event.seq <= after);
        for event in story.events.iter().skip(first) {
            let (prefix, above) = (request.prefix.as_ref(), request.task_prefix.as_ref());
            if prefix.is_none_or(|prefix| event.key.as_str().starts_with(prefix.as_str()))
                && above.is_none_or(|above| event.data.is_covered_by(above))
            {
                page.events.push(Event::clone(event));
                if page.events.len() == request.limit {
                    page.next_cursor = event.seq;
                    break;
                }
            }
        }
        Ok(page)
    }

    /// How leases of a namespace ended since a moment, as far as its events are kept.
    fn stats(&self, namespace: &Namespace, now_wall_ms: u64, request: LeaseStatsRequest) -> LeaseStats {
        let since_wall_ms = now_wall_ms.saturating_sub(request.since_ms);
        let story = self.by_namespace.get(namespace);
        let lost_until = story.map_or(self.lost_until, |story| story.lost_until);
        let kept = story.into_iter().flat_map(|story| &story.events);
        let oldest_ms = kept.clone().next().map_or(now_wall_ms, |event| event.at_ms);
        let complete = lost_until == 0 || oldest_ms <= since_wall_ms;
        let begins_at_ms = if complete { since_wall_ms } else { oldest_ms };
        let event_seq = Some(self.last_seq);
        let stats = LeaseStats { begins_at_ms, complete, event_seq, ..LeaseStats::default() };
        let mut stats = stats.in_steps(request, now_wall_ms);
        for event in kept.filter(|event| event.at_ms >= since_wall_ms) {
            if let EventData::LeaseEnded { outcome, .. } = &event.data {
                stats.add(*outcome, event.at_ms, 1);
            }
        }
        stats
    }
}

impl Step<'_> {
    /// Reads the events that were kept, unless they are here.
    pub(crate) fn load_events(&mut self) -> Result<(), StoreError> {
        if self.events.to_load_at.is_some() {
            let kept = self.archive.load_events(self.engine.events.kept_until())?;
            self.events.loaded(kept);
        }
        Ok(())
    }

    /// Reads them where enough have come since. Where that fails, everything but events goes on without them.
    pub(crate) fn load_events_in_time(&mut self) {
        let here = self.events.recent.len();
        if self.events.to_load_at.is_some_and(|at| here >= at)
            && let Err(error) = self.load_events()
        {
            tracing::warn!(%error, "the earlier events of the store cannot be read");
            self.events.to_load_at = Some(here.saturating_mul(2));
        }
    }
}

impl Engine {
    /// How leases of a namespace ended lately.
    pub(super) fn stats(&self, namespace: &Namespace, request: LeaseStatsRequest) -> LeaseStats {
        self.events.stats(namespace, self.now.wall_ms, request)
    }

    /// A page of events. `None`: there are none yet, and the request waits for one.
    pub(super) fn watch(
        &mut self,
        ticket: Ticket,
        namespace: &Namespace,
        request: ListEventsRequest,
    ) -> Result<Option<EventPage>, StoreError> {
        let page = self.events.page(namespace, &request)?;
        if !page.events.is_empty() || request.wait_ms == 0 {
            return Ok(Some(page));
        }
        let until_ms = self.now.store_ms + request.wait_ms.min(WAIT_MS_MAX);
        let request = ListEventsRequest { cursor: Some(page.next_cursor), ..request };
        self.watchers
            .add(ticket, Watcher { namespace: namespace.clone(), request, until_ms });
        Ok(None)
    }

    /// Answers those who watch, if what they wait for has happened.
    pub(super) fn answer_watchers(&mut self) {
        if self.events.new == 0 || self.watchers.waiting.len() == 0 {
            return;
        }
        let new = self.events.recent.iter().skip(self.events.recent.len() - self.events.new);
        let concerned: BTreeSet<Ticket> = new.flat_map(|event| self.watchers.of(event)).collect();
        // Nothing that they wait for happened before these.
        let before = Some(self.events.seen_by_all());
        for ticket in concerned {
            let Some(mut watcher) = self.watchers.remove(ticket) else { continue };
            watcher.request.cursor = watcher.request.cursor.max(before);
            match self.events.page(&watcher.namespace, &watcher.request) {
                // It came after what concerns it.
                Ok(page) if page.events.is_empty() => self.watchers.add(ticket, watcher),
                page => self.answer(ticket, page.map(StoreResponse::Events)),
            }
        }
    }

    /// Answers those who have watched for long enough, with what there is: nothing.
    pub(super) fn dismiss_watchers(&mut self) {
        while let Some(ticket) = self.watchers.waiting.first_overdue(self.now.store_ms) {
            let Some(watcher) = self.watchers.remove(ticket) else { return };
            let next_cursor = self.events.seen_by_all().max(watcher.request.cursor.unwrap_or(0));
            let page = EventPage { events: Vec::new(), next_cursor };
            self.answer(ticket, Ok(StoreResponse::Events(page)));
        }
    }
}
