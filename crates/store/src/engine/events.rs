//! The last events, and those who watch for the next.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fencehold_core::limits::{EVENTS_KEPT, WAIT_MS_MAX};
use fencehold_core::{BadInput, Event, Fact, Key, Namespace, Stamp};

use super::ask::Answer;
use super::state::Engine;
use super::waiters::{Ticket, Watcher};
use crate::error::StoreError;
use crate::lease::{EventPage, EventsRequest};

#[derive(Debug, Default)]
pub(super) struct Events {
    kept: VecDeque<Arc<Event>>,
    last_seq: u64,
    /// How many of the kept ones have not been handed over yet.
    new: usize,
}

impl Events {
    #[cfg(feature = "file")]
    pub(super) fn from_kept(events: Vec<Event>, last_seq: u64) -> Self {
        Events { kept: events.into_iter().map(Arc::new).collect(), last_seq, new: 0 }
    }

    pub(super) fn add(&mut self, at_wall_ms: u64, namespace: Namespace, key: Key, fact: Fact) {
        self.last_seq += 1;
        self.kept
            .push_back(Arc::new(Event::new(self.last_seq, at_wall_ms, namespace, key, fact)));
        self.new += 1;
    }

    /// The events since the last call. The oldest are forgotten only now, so that no step loses its own.
    pub(super) fn take_new(&mut self) -> Vec<Arc<Event>> {
        let new = self.kept.iter().skip(self.kept.len() - self.new).cloned().collect();
        self.new = 0;
        while self.kept.len() > EVENTS_KEPT {
            self.kept.pop_front();
        }
        new
    }

    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The last one before those that nobody was told of yet.
    fn seen_by_all(&self) -> u64 {
        self.last_seq - self.new as u64
    }

    fn oldest(&self) -> u64 {
        self.kept.front().map_or(self.last_seq + 1, |event| event.seq)
    }

    fn page(&self, namespace: &Namespace, request: &EventsRequest) -> Result<EventPage, StoreError> {
        let oldest = self.oldest();
        let after = request.after.unwrap_or(oldest - 1);
        if after.saturating_add(1) < oldest {
            return Err(StoreError::CursorTooOld { cursor: after, oldest });
        }
        if after > self.last_seq {
            let problem = format!("{after} is ahead of this store, whose last event is {}", self.last_seq);
            return Err(BadInput::new("cursor", problem).into());
        }
        let skip = usize::try_from((after + 1).saturating_sub(oldest)).unwrap_or(usize::MAX);
        let mut page = EventPage { events: Vec::new(), next: self.last_seq };
        for event in self.kept.iter().skip(skip) {
            let prefix = request.prefix.as_ref();
            let wanted = event.namespace == *namespace
                && prefix.is_none_or(|prefix| event.key.as_str().starts_with(prefix.as_str()));
            if wanted {
                page.events.push(Event::clone(event));
                if page.events.len() == request.limit {
                    page.next = event.seq;
                    break;
                }
            }
        }
        Ok(page)
    }
}

impl Engine {
    pub(super) fn watch(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        namespace: &Namespace,
        request: EventsRequest,
    ) {
        match self.events.page(namespace, &request) {
            Ok(page) if page.events.is_empty() && request.wait_ms > 0 => {
                let until_ms = now.store_ms + request.wait_ms.min(WAIT_MS_MAX);
                let request = EventsRequest { after: Some(page.next), ..request };
                let namespace = namespace.clone();
                self.watchers.add(ticket, Watcher { namespace, request, until_ms });
            }
            page => self.answer(ticket, page.map(Answer::Events)),
        }
    }

    /// Answers those who watch, if what they wait for has happened.
    pub(super) fn answer_watchers(&mut self) {
        if self.events.new == 0 || self.watchers.is_empty() {
            return;
        }
        let new = self.events.kept.iter().skip(self.events.kept.len() - self.events.new);
        let concerned: BTreeSet<Ticket> = new
            .flat_map(|event| self.watchers.of(&event.namespace, event.key.as_str()))
            .collect();
        // Nothing that they wait for happened before these.
        let before = Some(self.events.seen_by_all());
        for ticket in concerned {
            let Some(mut watcher) = self.watchers.remove(ticket) else { continue };
            watcher.request.after = watcher.request.after.max(before);
            match self.events.page(&watcher.namespace, &watcher.request) {
                // It came after what concerns it.
                Ok(page) if page.events.is_empty() => self.watchers.add(ticket, watcher),
                page => self.answer(ticket, page.map(Answer::Events)),
            }
        }
    }

    /// Answers those who have watched for long enough, with what there is: nothing.
    pub(super) fn dismiss_watchers(&mut self, now: Stamp) {
        while let Some(ticket) = self.watchers.first_overdue(now.store_ms) {
            let Some(watcher) = self.watchers.remove(ticket) else { return };
            let next = self.events.seen_by_all().max(watcher.request.after.unwrap_or(0));
            self.answer(ticket, Ok(Answer::Events(EventPage { events: Vec::new(), next })));
        }
    }
}
