//! Taking a key, standing in line for it, and being asked to make room.

use std::num::NonZeroU64;

use fencehold_contract::operation::StoreResponse;
use fencehold_contract::quota::Limited;
use fencehold_contract::{AcquireLeaseRequest, AcquiredLease, StoreError, closed};
use fencehold_core::lease::{Acquire, LeaseCommand, LeaseCommandResult, PreemptRequest};
use fencehold_core::limits::WAITERS_PER_KEY_MAX;
use fencehold_core::{HoldHash, Key, Refusal, Timestamp};

use super::jobs::Archive;
use super::persistence::Change;
use super::state::{Engine, Granted, OutgoingResponse, ResponseBody};
use super::waiters::{Ticket, Waiter};

impl Engine {
    pub(super) fn acquire(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        space: u32,
        mut request: AcquireLeaseRequest,
    ) {
        if let Some(closed) = self.closed(now, space) {
            return self.answer(ticket, Err(closed));
        }
        let hash = request.hold_id.hash();
        // What has run out goes to those who stand in line already, this one's own earlier sending among them.
        for key in &request.any_of {
            if let Some(at) = self.table.find(space, key) {
                self.settle_unless_own(now, at, hash);
            }
        }
        // The same hold id again gets the lease that it has, or learns how it ended: on whichever key that was.
        let own = request.any_of.iter().position(|key| {
            let slot = self.table.find(space, key).and_then(|at| self.table.at(at));
            slot.is_some_and(|slot| slot.record.knows(hash))
        });
        if let Some(own) = own {
            // What was seen of the first key says nothing of another.
            request.seen_token = request.seen_token.filter(|_| own == 0);
            request.any_of = vec![request.any_of.swap_remove(own)];
        }
        if own.is_none()
            && self.waiters.with_hash(space, hash).is_none()
            && let Some(key) = self.key_that_may_have_forgotten(now, space, &request)
        {
            let refusal = Refusal::HoldIdUsed { token: None, outcome: None };
            return self.answer(ticket, Err(StoreError::refused(&key, refusal)));
        }
        if own.is_none()
            && let Err(bad) = self.check_ttl(space, request.ttl_ms)
        {
            return self.answer(ticket, Err(bad.into()));
        }
        let earlier = self.waiters.with_hash(space, hash);
        let earlier = earlier.and_then(|ticket| Some((ticket, self.waiters.remove(ticket)?)));
        if let Some((ticket, waiter)) = &earlier {
            // It stands in line already: the later sending takes the place of the earlier.
            let stood_ms = now.store_ms.saturating_sub(waiter.arrived_ms);
            let stood_ms = stood_ms.saturating_add(waiter.request.waited_before_ms);
            request.waited_before_ms = request.waited_before_ms.max(stood_ms);
            // A waiter was never granted anything, whatever has been forgotten since.
            request.hold_id_age_ms = 0;
            let why = "the same request was sent again, and the later one stands in line".to_owned();
            self.answer(*ticket, Err(StoreError::Unavailable { message: why }));
        }
        self.take_or_stand_in_line(now, ticket, space, hash, request);
        if let Some((_, waiter)) = earlier {
            // Unless the later sending stands there now, no waiter asks for what the earlier one asked for.
            self.refresh_notices(now, &waiter);
        }
    }

    /// For how long nothing is granted in a namespace. One of which nothing is known is closed for as long as any.
    pub(super) fn closed_for_ms(&self, now: Timestamp, space: u32) -> u64 {
        let own = self.table.space_at(space).and_then(|space| space.closed_until_ms);
        own.unwrap_or(self.closed_until_ms).saturating_sub(now.store_ms)
    }

    /// Why nothing is granted in a namespace at the moment.
    pub(super) fn closed(&self, now: Timestamp, space: u32) -> Option<StoreError> {
        let left_ms = self.closed_for_ms(now, space);
        (left_ms > 0).then(|| StoreError::Unavailable { message: closed::because(left_ms) })
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

    /// A key of the request on which its hold id may have ended long ago: then it must not be granted another either.
    fn key_that_may_have_forgotten(
        &self,
        now: Timestamp,
        space: u32,
        request: &AcquireLeaseRequest,
    ) -> Option<Key> {
        let forgets = |key: &&Key| {
            let slot = self.table.find(space, key).and_then(|at| self.table.at(at));
            slot.is_some_and(|slot| slot.record.may_have_forgotten(now.store_ms, request.hold_id_age_ms))
        };
        request.any_of.iter().find(forgets).cloned()
    }

    fn take_or_stand_in_line(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        space: u32,
        hash: HoldHash,
        request: AcquireLeaseRequest,
    ) {
        let mut waiter = Waiter {
            space,
            slots: Vec::with_capacity(request.any_of.len()),
            hash,
            arrived_ms: now.store_ms,
            until_ms: now.store_ms.saturating_add(request.wait_ms),
            request,
        };
        for nth in 0..waiter.request.any_of.len() {
            let key = &waiter.request.any_of[nth];
            if self.table.find(space, key).is_none()
                && let Err(full) = self.check_quota(space, Limited::Keys, 1)
            {
                return self.answer(ticket, Err(full));
            }
            let at = self.table.find_or_insert(space, key);
            match self.try_grant(now, at, ticket, &waiter) {
                AcquireAttempt::Answered => {
                    self.pass_on(now, at);
                    return self.drop_if_unused(at);
                }
                AcquireAttempt::Held => waiter.slots.push(at),
            }
        }
        if waiter.request.wait_ms == 0 {
            let refused = self.held(now, &waiter);
            return self.answer(ticket, Err(refused));
        }
        if let Some(at) = waiter
            .slots
            .iter()
            .find(|at| self.waiters.in_line_count(**at) >= WAITERS_PER_KEY_MAX)
        {
            let key = self.table.at(*at).map(|slot| slot.key.to_string()).unwrap_or_default();
            let what = format!("{key}: requests in line for this key");
            return self.answer(
                ticket,
                Err(StoreError::LimitReached { message: what, limit: WAITERS_PER_KEY_MAX as u64 }),
            );
        }
        let slots = waiter.slots.clone();
        // Its age was looked at; from now on it is known not to have been granted.
        waiter.request.hold_id_age_ms = 0;
        self.waiters.add(ticket, waiter);
        for at in slots {
            self.refresh_notice(now, at);
        }
    }

    /// Tries to grant a key, and answers unless it is held.
    fn try_grant(&mut self, now: Timestamp, at: u32, ticket: Ticket, waiter: &Waiter) -> AcquireAttempt {
        let request = &waiter.request;
        let waited_ms = now.store_ms.saturating_sub(waiter.arrived_ms);
        let Some(key) = self.table.at(at).map(|slot| slot.key.clone()) else { return AcquireAttempt::Held };
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
        match self.apply(now, at, &command) {
            Ok(LeaseCommandResult::Granted(grant)) => {
                self.note_ttl(waiter.space, request.ttl_ms);
                let granted = Some(Granted::Lease { slot: at, hash: waiter.hash, fresh: !grant.resumed });
                let result =
                    ResponseBody::Said(Ok(StoreResponse::Acquired(AcquiredLease { key, grant, waited_ms })));
                self.batch.answers.push(OutgoingResponse { ticket, result, granted });
            }
            Err(Refusal::Held { .. }) => return AcquireAttempt::Held,
            Err(refusal) => self.answer(ticket, Err(StoreError::refused(&key, refusal))),
            Ok(_) => self.answer(ticket, Err(StoreError::refused(&key, Refusal::NotHeld))),
        }
        AcquireAttempt::Answered
    }

    /// A refused request leaves no record of a key that was never held.
    fn drop_if_unused(&mut self, at: u32) {
        let unused =
            |slot: &super::table::LeaseSlot| slot.record == fencehold_core::lease::LeaseRecord::default();
        if self.table.at(at).is_some_and(unused) {
            self.table.remove(at);
            self.wheel.take_off(at);
        }
    }

    /// Notes a hold that has run out and passes the key on.
    pub(super) fn settle(&mut self, now: Timestamp, at: u32) {
        // A live one is left alone: the rules refuse to expire it.
        let _ = self.apply(now, at, &LeaseCommand::Expire);
        self.pass_on(now, at);
    }

    /// A key that has run out goes to those who stand in line before anybody who just came, except that a hold
    /// id that comes back to its own key must be judged by the rules first.
    fn settle_unless_own(&mut self, now: Timestamp, at: u32, hash: HoldHash) {
        let own = self.table.at(at).is_some_and(|slot| slot.record.knows(hash));
        if !own {
            self.settle(now, at);
        }
    }

    /// Gives a free key to the first in line who can still take it.
    pub(super) fn pass_on(&mut self, now: Timestamp, at: u32) {
        while self.table.at(at).is_some_and(|slot| slot.record.hold.is_none()) {
            let Some((ticket, _)) = self.waiters.first(at) else { return };
            let Some(waiter) = self.waiters.remove(ticket) else { return };
            if waiter.until_ms <= now.store_ms {
                let refused = self.held(now, &waiter);
                self.answer(ticket, Err(refused));
            } else {
                self.try_grant(now, at, ticket, &waiter);
            }
            self.refresh_notices(now, &waiter);
        }
    }

    /// Turns away everybody whose time in line is up. First of all in every step: a waiter that is found in line after
    /// this may be granted.
    pub(super) fn time_outs(&mut self, now: Timestamp) {
        while let Some(ticket) = self.waiters.first_overdue(now.store_ms) {
            let Some(waiter) = self.waiters.remove(ticket) else { return };
            let refused = self.held(now, &waiter);
            self.answer(ticket, Err(refused));
            self.refresh_notices(now, &waiter);
        }
    }

    /// The caller has gone: it no longer stands in line. False: it stood in none.
    pub fn cancel(&mut self, now: Timestamp, ticket: Ticket) -> bool {
        if self.watchers.remove(ticket).is_some() || self.cancel_job_ask(ticket) {
            return true;
        }
        let Some(waiter) = self.waiters.remove(ticket) else { return false };
        self.refresh_notices(now, &waiter);
        true
    }

    /// The caller of a grant has gone: the key is free again at once.
    pub fn abandon(&mut self, now: Timestamp, granted: Granted, archive: &mut dyn Archive) {
        match granted {
            Granted::Lease { slot, hash, .. } => {
                let _ = self.apply(now, slot, &LeaseCommand::Abandon { hash });
                self.pass_on(now, slot);
            }
            Granted::Jobs(given) => self.abandon_jobs(now, given, archive),
            Granted::Again(_) => {}
        }
    }

    pub(super) fn send_everybody_home(&mut self, why: &str) {
        while let Some(ticket) = self.waiters.first_overdue(u64::MAX) {
            self.waiters.remove(ticket);
            self.answer(ticket, Err(StoreError::Unavailable { message: why.to_owned() }));
        }
        self.send_claimers_home(why);
    }

    fn refresh_notices(&mut self, now: Timestamp, waiter: &Waiter) {
        for at in &waiter.slots {
            self.refresh_notice(now, *at);
        }
    }

    /// Makes the notice on a hold say what the line says: the highest that asks it to yield, or none.
    fn refresh_notice(&mut self, now: Timestamp, at: u32) {
        let Some(slot) = self.table.at(at).filter(|slot| slot.is_live(now.store_ms)) else { return };
        let Some(hold) = &slot.record.hold else { return };
        // The line is in order of priority: the first that asks is the highest, and the many of no higher rank are
        // not looked at.
        let higher = |waiter: &Waiter| waiter.request.priority > hold.priority;
        let line = self.waiters.in_line(at).map(|(_, waiter)| waiter);
        let asking = line.take_while(|waiter| higher(waiter)).find_map(|waiter| {
            let yield_in_ms = waiter.request.preempt_within_ms?;
            let stood_ms = now.store_ms.saturating_sub(waiter.arrived_ms);
            Some(PreemptRequest {
                contender: waiter.request.owner.clone(),
                task: waiter.request.task.clone(),
                priority: waiter.request.priority,
                yield_in_ms: yield_in_ms.saturating_sub(stood_ms),
            })
        });
        let stands = match (&hold.yield_request, &asking) {
            (Some(notice), Some(ask)) => {
                notice.contender == ask.contender
                    && notice.task == ask.task
                    && notice.priority == ask.priority
            }
            (None, None) => true,
            _ => false,
        };
        if stands {
            return;
        }
        // One that outranks the notice takes it over with the time that was promised; anybody else starts anew.
        let outranks = |ask: &PreemptRequest| {
            hold.yield_request.as_ref().is_some_and(|notice| ask.priority > notice.priority)
        };
        if !asking.as_ref().is_some_and(outranks) {
            let _ = self.apply(now, at, &LeaseCommand::Withdraw);
        }
        if let Some(ask) = asking {
            let _ = self.apply(now, at, &LeaseCommand::Preempt(ask));
        }
    }

    /// The refusal for a caller that cannot have any of its keys: the one that comes free first.
    fn held(&self, now: Timestamp, waiter: &Waiter) -> StoreError {
        let holds = waiter.slots.iter().filter_map(|at| {
            let slot = self.table.at(*at)?;
            let hold = slot.record.hold.as_ref()?;
            Some((slot.deadline_ms.saturating_sub(now.store_ms), slot, hold))
        });
        match holds.min_by_key(|(expires_in_ms, ..)| *expires_in_ms) {
            Some((expires_in_ms, slot, hold)) => StoreError::refused(
                &slot.key,
                Refusal::Held {
                    owner: hold.owner.clone(),
                    task: hold.task.clone(),
                    remaining_ms: expires_in_ms,
                    token: slot.record.counter,
                },
            ),
            None => StoreError::Unavailable {
                message: "the time to wait was up before the key was free".to_owned(),
            },
        }
    }
}

enum AcquireAttempt {
    Answered,
    Held,
}
