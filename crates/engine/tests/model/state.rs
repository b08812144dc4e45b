//! The contract, once more, as simply as it can be said: no slab, no wheel, no batches.

use fencehold_core::lease::LeaseOutcome;
use fencehold_core::limits::{COLLECT_AFTER_FREE_MS, HISTORY_MAX};

use super::step::{KEYS, Terms};

pub(crate) struct Model {
    pub(crate) now_ms: u64,
    pub(crate) floor: u64,
    pub(crate) keys: Vec<Key>,
    pub(crate) asks: Vec<WaitingRequest>,
    arrivals: u64,
}

#[derive(Default)]
pub(crate) struct Key {
    /// Whether anything is kept of it.
    pub(crate) kept: bool,
    pub(crate) counter: u64,
    pub(crate) holder: Option<Holder>,
    pub(crate) endings: Vec<Ending>,
    freed_at_ms: u64,
}

pub(crate) struct Holder {
    pub(crate) ask: usize,
    pub(crate) since_ms: u64,
    pub(crate) deadline_ms: u64,
    pub(crate) notice: Option<YieldNotice>,
}

#[derive(Clone, Copy)]
pub(crate) struct YieldNotice {
    /// The request that asks the holder to yield.
    pub(crate) ask: usize,
    pub(crate) yield_at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) ask: usize,
    pub(crate) token: u64,
    pub(crate) how: LeaseOutcome,
    /// Its holder gave it back.
    pub(crate) given_back: bool,
}

pub(crate) struct WaitingRequest {
    pub(crate) terms: Terms,
    pub(crate) made_at_ms: u64,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Stands in line.
    InLine(Position),
    /// Was granted this key under this token. Whether it still holds it, the key knows.
    Granted { key: usize, token: u64 },
    /// Went away with nothing.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Since when it counts as standing in line.
    pub(crate) since_ms: u64,
    /// When the sending that stands there now came.
    pub(crate) arrived_ms: u64,
    pub(crate) until_ms: u64,
    order: u64,
}

impl Model {
    pub(crate) fn new(now_ms: u64) -> Self {
        let keys = (0..KEYS).map(|_| Key::default()).collect();
        Model { now_ms, floor: 0, keys, asks: Vec::new(), arrivals: 0 }
    }

    /// The first of its keys that is free, which a request gets.
    pub(crate) fn first_free(&self, terms: &Terms) -> Option<usize> {
        terms.keys.iter().copied().find(|key| self.keys[*key].holder.is_none())
    }

    /// How long the key that comes free first is held for yet.
    pub(crate) fn shortest_wait_ms(&self, terms: &Terms) -> u64 {
        let held = terms.keys.iter().filter_map(|key| self.keys[*key].holder.as_ref());
        held.map(|holder| holder.deadline_ms - self.now_ms)
            .min()
            .expect("keys that are all held")
    }

    pub(crate) fn add(&mut self, terms: Terms) -> usize {
        self.asks
            .push(WaitingRequest { terms, made_at_ms: self.now_ms, state: State::Gone });
        self.asks.len() - 1
    }

    /// Puts a request in line, or the same request once more in its own place.
    pub(crate) fn stand_in_line(&mut self, ask: usize) {
        self.arrivals += 1;
        let now_ms = self.now_ms;
        let request = &mut self.asks[ask];
        let since_ms = if let State::InLine(place) = request.state { place.since_ms } else { now_ms };
        let until_ms = now_ms + request.terms.wait_ms;
        request.state =
            State::InLine(Position { since_ms, arrived_ms: now_ms, until_ms, order: self.arrivals });
    }

    /// Everybody in line for a key, first to last.
    pub(crate) fn line(&self, key: usize) -> Vec<usize> {
        let mut line: Vec<_> = (0..self.asks.len())
            .filter(|ask| self.asks[*ask].terms.keys.contains(&key))
            .filter_map(|ask| match self.asks[ask].state {
                State::InLine(place) => {
                    Some((-self.asks[ask].terms.priority, place.since_ms, place.order, ask))
                }
                _ => None,
            })
            .collect();
        line.sort_unstable();
        line.into_iter().map(|(.., ask)| ask).collect()
    }

    pub(crate) fn in_line(&self) -> Vec<usize> {
        let waits = |ask: &usize| matches!(self.asks[*ask].state, State::InLine(_));
        (0..self.asks.len()).filter(waits).collect()
    }

    /// A key is granted. Its token must be larger than every token before.
    pub(crate) fn grant(&mut self, ask: usize, key: usize, token: u64) {
        let slot = &mut self.keys[key];
        assert!(slot.holder.is_none(), "granted although it is held");
        assert!(token > slot.counter && token > self.floor, "token {token} does not grow");
        let terms = &self.asks[ask].terms;
        let lasts_ms = terms.max_age_ms.map_or(terms.ttl_ms, |age_ms| terms.ttl_ms.min(age_ms));
        let deadline_ms = self.now_ms + lasts_ms;
        slot.holder = Some(Holder { ask, since_ms: self.now_ms, deadline_ms, notice: None });
        (slot.counter, slot.kept) = (token, true);
        self.asks[ask].state = State::Granted { key, token };
    }

    /// The key on which a request's hold is live.
    pub(crate) fn live_on(&self, ask: usize) -> Option<usize> {
        let State::Granted { key, .. } = self.asks[ask].state else { return None };
        self.keys[key].holder.as_ref().filter(|holder| holder.ask == ask).map(|_| key)
    }

    /// How a hold ended, as far as its key remembers.
    pub(crate) fn recent_endings(&self, ask: usize) -> Option<Ending> {
        let State::Granted { key, .. } = self.asks[ask].state else { return None };
        self.keys[key].recent_endings().iter().copied().find(|ending| ending.ask == ask)
    }

    pub(crate) fn end(&mut self, key: usize, how: LeaseOutcome) {
        let slot = &mut self.keys[key];
        let holder = slot.holder.take().expect("a hold to end");
        slot.endings
            .push(Ending { ask: holder.ask, token: slot.counter, how, given_back: false });
        slot.freed_at_ms = self.now_ms;
    }

    /// Its holder gives it back: because a contender asked for it, or of its own accord.
    pub(crate) fn give_back(&mut self, key: usize) {
        let holder = self.keys[key].holder.as_ref().expect("a hold to give back");
        let asked = holder.notice.is_some();
        self.end(key, if asked { LeaseOutcome::Yielded } else { LeaseOutcome::Released });
        self.keys[key].endings.last_mut().expect("an ending").given_back = true;
    }

    /// A renewal of a live hold: a ttl, less what `max_age` and a notice take away, never less than there was.
    pub(crate) fn renew(&mut self, key: usize) -> u64 {
        let (now_ms, asks) = (self.now_ms, &self.asks);
        let holder = self.keys[key].holder.as_mut().expect("a hold to renew");
        let terms = &asks[holder.ask].terms;
        let mut deadline_ms = now_ms + terms.ttl_ms;
        if let Some(max_age_ms) = terms.max_age_ms {
            deadline_ms = deadline_ms.min(holder.since_ms + max_age_ms);
        }
        if let Some(notice) = holder.notice {
            deadline_ms = deadline_ms.min(notice.yield_at_ms);
        }
        holder.deadline_ms = holder.deadline_ms.max(deadline_ms);
        holder.deadline_ms - now_ms
    }

    /// Time passes. Those whose time in line is up by then, who must all be refused.
    pub(crate) fn pass(&mut self, ms: u64) -> Vec<usize> {
        self.now_ms += ms;
        let mut late = Vec::new();
        for (nth, ask) in self.asks.iter_mut().enumerate() {
            if matches!(ask.state, State::InLine(place) if place.until_ms <= self.now_ms) {
                ask.state = State::Gone;
                late.push(nth);
            }
        }
        for key in 0..self.keys.len() {
            if let Some(how) = self.how_it_ran_out(key) {
                self.end(key, how);
            }
            let slot = &mut self.keys[key];
            if slot.kept && slot.holder.is_none() && slot.freed_at_ms + COLLECT_AFTER_FREE_MS <= self.now_ms {
                self.floor = self.floor.max(slot.counter);
                *slot = Key::default();
            }
        }
        late
    }

    fn how_it_ran_out(&self, key: usize) -> Option<LeaseOutcome> {
        let holder = self.keys[key]
            .holder
            .as_ref()
            .filter(|holder| holder.deadline_ms <= self.now_ms)?;
        let max_age_ms = self.asks[holder.ask].terms.max_age_ms;
        Some(if max_age_ms.is_some_and(|age_ms| holder.since_ms + age_ms <= holder.deadline_ms) {
            LeaseOutcome::AgedOut
        } else if holder.notice.is_some_and(|notice| notice.yield_at_ms <= holder.deadline_ms) {
            LeaseOutcome::Yielded
        } else {
            LeaseOutcome::Expired
        })
    }

    /// Every holder is asked to yield by the first in line that outranks it and asks, or by none.
    pub(crate) fn refresh_notices(&mut self) {
        for key in 0..self.keys.len() {
            let Some(holder) = &self.keys[key].holder else { continue };
            let rank = self.asks[holder.ask].terms.priority;
            let asking = self.line(key).into_iter().find_map(|ask| {
                let terms = &self.asks[ask].terms;
                let within_ms = terms.yield_within_ms.filter(|_| terms.priority > rank)?;
                let State::InLine(place) = self.asks[ask].state else { return None };
                let yield_at_ms = (place.arrived_ms + within_ms).max(self.now_ms);
                Some(YieldNotice { ask, yield_at_ms })
            });
            let rank_of = |notice: YieldNotice| self.asks[notice.ask].terms.priority;
            let notice = match (holder.notice, asking) {
                (Some(before), Some(now)) if before.ask == now.ask => Some(before),
                // One that outranks the notice does not put off what was promised.
                (Some(before), Some(now)) if rank_of(now) > rank_of(before) => {
                    Some(YieldNotice { yield_at_ms: now.yield_at_ms.min(before.yield_at_ms), ..now })
                }
                (_, asking) => asking,
            };
            if let Some(holder) = &mut self.keys[key].holder {
                holder.notice = notice;
            }
        }
    }
}

impl Key {
    /// The endings that are kept, oldest first.
    pub(crate) fn recent_endings(&self) -> &[Ending] {
        &self.endings[self.endings.len().saturating_sub(HISTORY_MAX)..]
    }
}
