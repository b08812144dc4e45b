//! Taking a key, standing in line for it, and being asked to make room.

use std::num::NonZeroU64;

use fencehold_contract::operation::StoreResponse;
use fencehold_contract::quota::Limited;
use fencehold_contract::{AcquireLeaseRequest, AcquiredLease, StoreError, closed};
use fencehold_core::lease::{Acquire, LeaseCommand, LeaseCommandResult, LeaseRecord, PreemptRequest};
use fencehold_core::limits::WAITERS_PER_KEY_MAX;
use fencehold_core::{HoldHash, Refusal, Timestamp};

use super::jobs::Archive;
use super::persistence::Change;
use super::state::{Engine, Granted, ResponseBody};
use super::step::{Reply, Step};
use super::table::LeaseSlot;
use super::waiters::{Ticket, Waiter};

impl Engine {
    /// Grants a key, or has the request stand in line.
    pub(super) fn acquire(&mut self, ticket: Ticket, space: u32, mut request: AcquireLeaseRequest) -> Reply {
        self.check_open(space)?;
        let hash = request.hold_id.hash();
        let knows = |slot: &LeaseSlot| slot.record.knows(hash);
        // What has run out goes to those who stand in line already, this one's own earlier sending among them; except that a
        // hold id that comes back to its own key must be judged by the rules first.
        for key in &request.any_of {
            if let Some(at) = self.table.find(space, key)
                && !self.table.at(at).is_some_and(knows)
            {
                self.settle(at);
            }
        }
        // The same hold id again gets the lease that it has, or learns how it ended: on whichever key that was.
        let own = request
            .any_of
            .iter()
            .position(|key| self.table.get(space, key).is_some_and(knows));
        let earlier = self.waiters.with_hash(space, hash);
        if let Some(own) = own {
            // What was seen of the first key says nothing of another.
            request.seen_token = request.seen_token.filter(|_| own == 0);
            request.any_of = vec![request.any_of.swap_remove(own)];
        } else {
            // On a key where its hold id may have ended long ago, it must not be granted another either.
            let (now_ms, age_ms) = (self.now.store_ms, request.hold_id_age_ms);
            let forgets = |slot: &LeaseSlot| slot.record.may_have_forgotten(now_ms, age_ms);
            let key = request
                .any_of
                .iter()
                .find(|key| self.table.get(space, key).is_some_and(forgets));
            if let Some(key) = key.filter(|_| earlier.is_none()) {
                return Err(StoreError::refused(key, Refusal::HoldIdUsed { token: None, outcome: None }));
            }
            self.check_ttl(space, request.ttl_ms)?;
        }
        let earlier = earlier.and_then(|ticket| Some((ticket, self.waiters.remove(ticket)?)));
        if let Some((ticket, waiter)) = &earlier {
            // It stands in line already: the later sending takes the place of the earlier.
            let stood_ms = self.now.store_ms.saturating_sub(waiter.arrived_ms);
            let stood_ms = stood_ms.saturating_add(waiter.request.waited_before_ms);
            request.waited_before_ms = request.waited_before_ms.max(stood_ms);
            // A waiter was never granted anything, whatever has been forgotten since.
            request.hold_id_age_ms = 0;
            let message = "the same request was sent again, and the later one stands in line".to_owned();
            self.answer(*ticket, Err(StoreError::Unavailable { message }));
        }
        let taken = self.take_or_stand_in_line(ticket, space, hash, request);
        if let Some((_, waiter)) = earlier {
            // Unless the later sending stands there now, no waiter asks for what the earlier one asked for.
            self.refresh_notices(&waiter);
        }
        taken
    }

    /// For how long nothing is granted in a namespace. One of which nothing is known is closed for as long as any.
    pub(super) fn closed_for_ms(&self, space: u32) -> u64 {
        let own = self.table.space_at(space).and_then(|space| space.closed_until_ms);
        own.unwrap_or(self.closed_until_ms).saturating_sub(self.now.store_ms)
    }

    /// Whether anything is granted in a namespace at the moment.
    pub(super) fn check_open(&self, space: u32) -> Result<(), StoreError> {
        match self.closed_for_ms(space) {
            0 => Ok(()),
            left_ms => Err(StoreError::Unavailable { message: closed::because(left_ms) }),
        }
    }

    /// Notes the longest ttl that was ever granted, in the store and in a namespace.
    pub(super) fn note_ttl(&mut self, space: u32, ttl_ms: u64) {
        if ttl_ms > self.longest_ttl_ms {
            self.longest_ttl_ms = ttl_ms;
            self.batch.others.push(Change::LongestTtl { ttl_ms });
        }
        if self.table.space_at(space).is_some_and(|space| ttl_ms > space.longest_ttl_ms) {
            let space = self.table.space_mut(space);
            space.longest_ttl_ms = ttl_ms;
            self.batch.others.push(space.change());
        }
    }

    fn take_or_stand_in_line(
        &mut self,
        ticket: Ticket,
        space: u32,
        hash: HoldHash,
        request: AcquireLeaseRequest,
    ) -> Reply {
        let mut waiter = Waiter {
            space,
            slots: Vec::with_capacity(request.any_of.len()),
            hash,
            arrived_ms: self.now.store_ms,
            until_ms: self.now.store_ms.saturating_add(request.wait_ms),
            request,
        };
        for nth in 0..waiter.request.any_of.len() {
            let key = &waiter.request.any_of[nth];
            if self.table.find(space, key).is_none() {
                self.check_quota(space, Limited::Keys, 1)?;
            }
            let at = self.table.find_or_insert(space, key);
            if self.try_grant(at, ticket, &waiter) {
                self.pass_on(at);
                self.drop_if_unused(at);
                return Ok(None);
            }
            waiter.slots.push(at);
        }
        if waiter.request.wait_ms == 0 {
            let refused = self.held(&waiter);
            return Err(self.note_refused(&waiter, refused, false));
        }
        let is_full = |at: &&u32| self.waiters.in_line_count(**at) >= WAITERS_PER_KEY_MAX;
        if let Some(at) = waiter.slots.iter().find(is_full) {
            let key = self.table.at(*at).map(|slot| slot.key.to_string()).unwrap_or_default();
            let message = format!("{key}: requests in line for this key");
            let full = StoreError::LimitReached { message, limit: WAITERS_PER_KEY_MAX as u64 };
            return Err(self.note_refused(&waiter, full, false));
        }
        let slots = waiter.slots.clone();
        // Its age was looked at; from now on it is known not to have been granted.
        waiter.request.hold_id_age_ms = 0;
        self.waiters.add(ticket, waiter);
        for at in slots {
            self.refresh_notice(at);
            let waiter_count = self.waiters.in_line_count(at) as u64;
            if let Some(slot) = self.table.at(at) {
                self.contention
                    .waits(self.now, self.table.name_of(space), &slot.key, waiter_count);
            }
        }
        Ok(None)
    }

    /// Counts a refused acquisition as contention, if it is that. `at_the_end`: of its time in line.
    fn note_refused(&mut self, waiter: &Waiter, error: StoreError, at_the_end: bool) -> StoreError {
        let namespace = self.table.name_of(waiter.space);
        self.contention
            .acquire_failed(self.now, namespace, &waiter.request, &error, at_the_end);
        error
    }

    /// Tries to grant a key, and answers unless it is held: then it is false.
    fn try_grant(&mut self, at: u32, ticket: Ticket, waiter: &Waiter) -> bool {
        let request = &waiter.request;
        let waited_ms = self.now.store_ms.saturating_sub(waiter.arrived_ms);
        let Some(key) = self.table.at(at).map(|slot| slot.key.clone()) else { return false };
        let command = LeaseCommand::Acquire(Acquire {
            hash: waiter.hash,
            hold_age_ms: request.hold_id_age_ms,
            owner: request.owner.clone(),
            task: request.task.clone(),
            ttl_ms: request.ttl_ms,
            max_age_ms: request.max_age_ms.and_then(NonZeroU64::new),
            priority: request.priority,
            seen_token: request.seen_token.filter(|_| request.any_of.first() == Some(&key)),
        });
        match self.apply(at, &command) {
            Ok(LeaseCommandResult::Granted(grant)) => {
                self.note_ttl(waiter.space, request.ttl_ms);
                let granted = Granted::Lease { slot: at, hash: waiter.hash, fresh: !grant.resumed };
                let acquired = StoreResponse::Acquired(AcquiredLease { key, grant, waited_ms });
                self.respond(ticket, ResponseBody::Said(Ok(acquired)), Some(granted));
            }
            Err(Refusal::Held { .. }) => return false,
            Err(refusal) => self.answer(ticket, Err(StoreError::refused(&key, refusal))),
            Ok(_) => self.answer(ticket, Err(StoreError::refused(&key, Refusal::NotHeld))),
        }
        true
    }

    /// A refused request leaves no record of a key that was never held.
    fn drop_if_unused(&mut self, at: u32) {
        if self.table.at(at).is_some_and(|slot| slot.record == LeaseRecord::default()) {
            self.table.remove(at);
            self.wheel.take_off(at);
        }
    }

    /// Notes a hold that has run out and passes the key on.
    pub(super) fn settle(&mut self, at: u32) {
        // A live one is left alone: the rules refuse to expire it.
        let _ = self.apply(at, &LeaseCommand::Expire);
        self.pass_on(at);
    }

    /// Gives a free key to the first in line who can still take it.
    pub(super) fn pass_on(&mut self, at: u32) {
        while self.table.at(at).is_some_and(|slot| slot.record.hold.is_none()) {
            let Some((ticket, waiter)) = self.waiters.pop_first(at) else { return };
            if waiter.until_ms <= self.now.store_ms {
                self.turn_away(ticket, &waiter);
            } else {
                self.try_grant(at, ticket, &waiter);
                self.refresh_notices(&waiter);
            }
        }
    }

    /// Turns away everybody whose time in line is up. First of all in every step: a waiter that is found in line after
    /// this may be granted.
    pub(super) fn time_outs(&mut self) {
        while let Some(ticket) = self.waiters.waiting.first_overdue(self.now.store_ms) {
            let Some(waiter) = self.waiters.remove(ticket) else { return };
            self.turn_away(ticket, &waiter);
        }
    }

    /// The time of a waiter is up.
    fn turn_away(&mut self, ticket: Ticket, waiter: &Waiter) {
        let refused = self.held(waiter);
        let refused = self.note_refused(waiter, refused, true);
        self.answer(ticket, Err(refused));
        self.refresh_notices(waiter);
    }

    /// The caller has gone: it no longer stands in line. False: it stood in none.
    pub fn cancel(&mut self, now: Timestamp, ticket: Ticket) -> bool {
        self.begin_step(now);
        if self.watchers.remove(ticket).is_some() || self.cancel_job_wait(ticket) {
            return true;
        }
        let Some(waiter) = self.waiters.remove(ticket) else { return false };
        self.refresh_notices(&waiter);
        true
    }

    /// The caller of a grant has gone: the key is free again at once.
    pub fn abandon(&mut self, now: Timestamp, granted: Granted, archive: &mut dyn Archive) {
        self.begin_step(now);
        match granted {
            Granted::Lease { slot, hash, .. } => {
                let _ = self.apply(slot, &LeaseCommand::Abandon { hash });
                self.pass_on(slot);
            }
            Granted::Jobs(given) => Step { engine: self, archive }.abandon_jobs(given),
            Granted::Again(_) => {}
        }
    }

    pub(super) fn send_everybody_home(&mut self, why: &str) {
        while let Some(ticket) = self.waiters.waiting.first_overdue(u64::MAX) {
            self.waiters.remove(ticket);
            self.answer(ticket, Err(StoreError::Unavailable { message: why.to_owned() }));
        }
        self.send_claimers_home(why);
    }

    fn refresh_notices(&mut self, waiter: &Waiter) {
        for at in &waiter.slots {
            self.refresh_notice(*at);
        }
    }

    /// Makes the notice on a hold say what the line says: the highest that asks it to yield, or none.
    fn refresh_notice(&mut self, at: u32) {
        let Some(slot) = self.table.at(at).filter(|slot| slot.is_live(self.now.store_ms)) else { return };
        let Some(hold) = &slot.record.hold else { return };
        // The line is in order of priority: the first that asks is the highest, and the many of no higher rank are
        // not looked at.
        let higher = |waiter: &Waiter| waiter.request.priority > hold.priority;
        let line = self.waiters.in_line(at).map(|(_, waiter)| waiter);
        let asking = line.take_while(|waiter| higher(waiter)).find_map(|waiter| {
            let yield_in_ms = waiter.request.preempt_within_ms?;
            let stood_ms = self.now.store_ms.saturating_sub(waiter.arrived_ms);
            Some(PreemptRequest {
                contender: waiter.request.owner.clone(),
                task: waiter.request.task.clone(),
                priority: waiter.request.priority,
                yield_in_ms: yield_in_ms.saturating_sub(stood_ms),
            })
        });
        let notice = hold.yield_request.as_ref();
        let stands = notice.map(|notice| (&notice.contender, &notice.task, notice.priority))
            == asking.as_ref().map(|asking| (&asking.contender, &asking.task, asking.priority));
        if stands {
            return;
        }
        // One that outranks the notice takes it over with the time that was promised; anybody else starts anew.
        let outranks = asking
            .as_ref()
            .zip(notice)
            .is_some_and(|(asking, notice)| asking.priority > notice.priority);
        if !outranks {
            let _ = self.apply(at, &LeaseCommand::Withdraw);
        }
        if let Some(asking) = asking {
            let _ = self.apply(at, &LeaseCommand::Preempt(asking));
        }
    }

    /// The refusal for a caller that cannot have any of its keys: the one that comes free first.
    fn held(&self, waiter: &Waiter) -> StoreError {
        let holds = waiter.slots.iter().filter_map(|at| {
            let slot = self.table.at(*at)?;
            let hold = slot.record.hold.as_ref()?;
            Some((slot.deadline_ms.saturating_sub(self.now.store_ms), slot, hold))
        });
        let Some((remaining_ms, slot, hold)) = holds.min_by_key(|(remaining_ms, ..)| *remaining_ms) else {
            let message = "the time to wait was up before the key was free".to_owned();
            return StoreError::Unavailable { message };
        };
        let (owner, task, token) = (hold.owner.clone(), hold.task.clone(), slot.record.counter);
        StoreError::refused(&slot.key, Refusal::Held { owner, task, remaining_ms, token })
    }
}
