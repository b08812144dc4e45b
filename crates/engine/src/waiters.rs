//! Who stands in line for which key. First come, first served, within one priority; a waiter may stand in several
//! lines at once and leaves them all with its first grant.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use fencehold_contract::{AcquireLeaseRequest, ListEventsRequest, Prefixes};
use fencehold_core::{Event, HoldHash, Namespace};
use hashbrown::HashMap;

/// A request's number, for finding its caller again.
pub(crate) type Ticket = u64;

/// Requests that wait, each until its time is up.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    by_ticket: HashMap<Ticket, (u64, T)>,
    by_until: BTreeSet<(u64, Ticket)>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Waiting { by_ticket: HashMap::new(), by_until: BTreeSet::new() }
    }
}

impl<T> Waiting<T> {
    pub(crate) fn add(&mut self, ticket: Ticket, until_ms: u64, request: T) {
        self.by_until.insert((until_ms, ticket));
        self.by_ticket.insert(ticket, (until_ms, request));
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let (until_ms, request) = self.by_ticket.remove(&ticket)?;
        self.by_until.remove(&(until_ms, ticket));
        Some(request)
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&T> {
        self.by_ticket.get(&ticket).map(|(_, request)| request)
    }

    /// One whose time is up.
    pub(crate) fn first_overdue(&self, now_ms: u64) -> Option<Ticket> {
        let (until_ms, ticket) = self.by_until.first()?;
        (*until_ms <= now_ms).then_some(*ticket)
    }

    /// When the first of them has waited for long enough.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.by_until.first().map(|(until_ms, _)| *until_ms)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_ticket.len()
    }
}

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) space: u32,
    pub(super) slots: Vec<u32>,
    pub(super) hash: HoldHash,
    pub(super) request: AcquireLeaseRequest,
    /// When it came here.
    pub(super) arrived_ms: u64,
    /// When its time is up. From then on it is never granted anything.
    pub(super) until_ms: u64,
}

impl Waiter {
    /// Its position in line: rank, then how long it has stood in line in all, then order of arrival.
    fn position(&self, ticket: Ticket) -> WaitPosition {
        let since_ms = self.arrived_ms.saturating_sub(self.request.waited_before_ms);
        (Reverse(self.request.priority), since_ms, ticket)
    }
}

type WaitPosition = (Reverse<i16>, u64, Ticket);

#[derive(Debug, Default)]
pub(super) struct Waiters {
    pub(super) waiting: Waiting<Waiter>,
    lines: HashMap<u32, BTreeSet<WaitPosition>>,
    /// By namespace too: a hold id means nothing in another.
    by_hash: HashMap<(u32, [u8; 16]), Ticket>,
}

impl Waiters {
    pub(super) fn add(&mut self, ticket: Ticket, waiter: Waiter) {
        let position = waiter.position(ticket);
        for slot in &waiter.slots {
            self.lines.entry(*slot).or_default().insert(position);
        }
        self.by_hash.insert((waiter.space, *waiter.hash.as_bytes()), ticket);
        self.waiting.add(ticket, waiter.until_ms, waiter);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiting.remove(ticket)?;
        let position = waiter.position(ticket);
        for slot in &waiter.slots {
            if let Some(line) = self.lines.get_mut(slot) {
                line.remove(&position);
                if line.is_empty() {
                    self.lines.remove(slot);
                }
            }
        }
        self.by_hash.remove(&(waiter.space, *waiter.hash.as_bytes()));
        Some(waiter)
    }

    /// Takes the first in line for a key out of every line.
    pub(super) fn pop_first(&mut self, slot: u32) -> Option<(Ticket, Waiter)> {
        let (ticket, _) = self.in_line(slot).next()?;
        Some((ticket, self.remove(ticket)?))
    }

    /// Everybody in line for a key, first to last.
    pub(super) fn in_line(&self, slot: u32) -> impl Iterator<Item = (Ticket, &Waiter)> {
        let tickets = self.lines.get(&slot).into_iter().flatten().map(|(_, _, ticket)| *ticket);
        tickets.filter_map(|ticket| self.waiting.get(ticket).map(|waiter| (ticket, waiter)))
    }

    pub(super) fn in_line_count(&self, slot: u32) -> usize {
        self.lines.get(&slot).map_or(0, BTreeSet::len)
    }

    /// The waiter that stands in line with this hold id already.
    pub(super) fn with_hash(&self, space: u32, hash: HoldHash) -> Option<Ticket> {
        self.by_hash.get(&(space, *hash.as_bytes())).copied()
    }
}

/// Those that wait for something to happen. An event finds those that it concerns, however many others there are.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    pub(super) waiting: Waiting<Watcher>,
    by_prefix: HashMap<Namespace, Prefixes<Ticket>>,
}

/// One that waits for events.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) namespace: Namespace,
    pub(super) request: ListEventsRequest,
    pub(super) until_ms: u64,
}

impl Watcher {
    fn prefix(&self) -> &str {
        self.request.prefix.as_deref().unwrap_or_default()
    }
}

impl Watchers {
    pub(super) fn add(&mut self, ticket: Ticket, watcher: Watcher) {
        let prefixes = self.by_prefix.entry(watcher.namespace.clone()).or_default();
        prefixes.insert(watcher.prefix(), ticket);
        self.waiting.add(ticket, watcher.until_ms, watcher);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Watcher> {
        let watcher = self.waiting.remove(ticket)?;
        if let Some(prefixes) = self.by_prefix.get_mut(&watcher.namespace) {
            prefixes.remove(watcher.prefix(), &ticket);
            if prefixes.is_empty() {
                self.by_prefix.remove(&watcher.namespace);
            }
        }
        Some(watcher)
    }

    /// Those who wait for an event like this one.
    pub(super) fn of<'a>(&'a self, event: &'a Event) -> impl Iterator<Item = Ticket> + 'a {
        let prefixes = self.by_prefix.get(&event.namespace).into_iter();
        let wants = |ticket: &Ticket| {
            let task_prefix = self
                .waiting
                .get(*ticket)
                .and_then(|watcher| watcher.request.task_prefix.as_ref());
            task_prefix.is_none_or(|above| event.data.is_covered_by(above))
        };
        prefixes
            .flat_map(|prefixes| prefixes.of(event.key.as_str()))
            .copied()
            .filter(wants)
    }
}
