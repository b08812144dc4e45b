//! Taking jobs, standing in line for them, and being asked to make room for one.

use std::collections::BTreeSet;

use fencehold_contract::StoreError;
use fencehold_contract::job::{ClaimJobsRequest, QueueMode};
use fencehold_core::job::{AttemptProof, JobCommand, JobCommandResult, JobRefusal};
use fencehold_core::lease::PreemptRequest;
use fencehold_core::limits::TOKEN_MAX;
use fencehold_core::{HoldHash, Owner, Task, Timestamp};
use hashbrown::HashMap;

use super::archive::Archive;
use super::read::{ArchiveRead, CLAIM_BYTES_MAX, PickedJob};
use super::{JobReply, NamespaceHold};
use crate::state::{Engine, Granted, ResponseBody};
use crate::step::Step;
use crate::waiters::{Ticket, Waiting};

/// A claim that waits.
#[derive(Debug)]
pub(super) struct WaitingClaim {
    space: u32,
    hash: HoldHash,
    /// Queues by number, with their weights.
    queues: Vec<(u32, u32)>,
    request: ClaimJobsRequest,
    arrived_ms: u64,
    /// Since when it stands in line, here or elsewhere.
    since_ms: u64,
    /// When its time is up: from then on it is never given anything. `None`: it does not wait, and is answered with the batch in
    /// which it came.
    until_ms: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct WaitingClaims {
    pub(super) waiting: Waiting<WaitingClaim>,
    by_hash: HashMap<NamespaceHold, Ticket>,
    at_once: Vec<Ticket>,
}

impl Step<'_> {
    fn serve_stirred_queues(&mut self) {
        self.dismiss_claimers();
        let stirred = std::mem::take(&mut self.jobs.queues.stirred);
        loop {
            // In the order in which they came, whichever queue it is: one for each job that is to be had.
            let mut next: BTreeSet<(u64, Ticket)> = BTreeSet::new();
            for number in &stirred {
                let queue = self.jobs.queues.at(*number);
                if queue.offers() {
                    next.extend(queue.line.iter().take(queue.ready.len()).copied());
                }
            }
            if next.is_empty() {
                break;
            }
            for (_, ticket) in next {
                self.serve(ticket);
            }
        }
        for ticket in std::mem::take(&mut self.jobs.claimers.at_once) {
            self.answer_empty(ticket);
        }
        for number in stirred {
            self.ask_for_room(number);
        }
    }

    /// Gives one claim what there is for it.
    fn serve(&mut self, ticket: Ticket) {
        let offers = |(number, _): &(u32, u32)| self.jobs.queues.at(*number).offers();
        if !self
            .jobs
            .claimers
            .waiting
            .get(ticket)
            .is_some_and(|claimer| claimer.queues.iter().any(offers))
        {
            return;
        }
        let Some(claimer) = self.leave_line(ticket) else { return };
        let (hash, ttl_ms) = (claimer.hash, claimer.request.ttl_ms);
        let command = JobCommand::Claim { hash, owner: claimer.request.owner.clone(), ttl_ms };
        let mut jobs: Vec<PickedJob> = Vec::new();
        let mut given: Vec<(u32, AttemptProof)> = Vec::new();
        let mut bytes = 0;
        let mut exhausted = false;
        while jobs.len() < claimer.request.limit && bytes < CLAIM_BYTES_MAX {
            let (queues, turns) = (&self.engine.jobs.queues, &mut self.engine.jobs.turns);
            let offering = claimer.queues.iter().copied().filter(|(number, _)| queues.at(*number).offers());
            let Some(number) = turns.next(offering) else { break };
            let Some((_, &at)) = queues.at(number).ready.first() else { break };
            let size = self.carried_bytes(at);
            if !jobs.is_empty() && bytes + size > CLAIM_BYTES_MAX {
                break;
            }
            bytes += size;
            let token = match self.apply_to_job(at, &command) {
                Ok(JobCommandResult::Claimed { token, .. }) => token,
                Err(JobRefusal::TokensExhausted) => {
                    exhausted = true;
                    break;
                }
                _ if self.job(at).is_none() => break,
                // It blocks no other: the next one is looked at.
                _ => {
                    bytes -= size;
                    self.is_not_ready(at);
                    continue;
                }
            };
            self.withdraw_notice_for(at);
            given.push((at, AttemptProof { hash, token }));
            jobs.extend(self.picked(at));
        }
        if given.is_empty() && exhausted {
            return self.answer(ticket, Err(tokens_exhausted()));
        }
        if given.is_empty() {
            // There was nothing for it after all: it goes on waiting, for as long as it wants to.
            return self.stand_in_line(ticket, claimer);
        }
        self.note_ttl(claimer.space, ttl_ms);
        let waited_ms = self.now.store_ms.saturating_sub(claimer.arrived_ms);
        let read = ArchiveRead::Claimed { jobs, waited_ms, resumed: false };
        self.respond(ticket, ResponseBody::ToRead(read), Some(Granted::Jobs(given)));
    }

    /// Jobs were handed to a caller that had gone: they go back at once.
    pub(crate) fn abandon_jobs(&mut self, given: Vec<(u32, AttemptProof)>) {
        for (at, by) in given {
            let space = self.job(at).map(|slot| self.jobs.queues.at(slot.queue).space);
            self.abandon(at, by);
            // No caller has seen them: should the same claim come back after all, it is as good as new.
            if let Some(space) = space {
                self.jobs.past.forget(&(space, *by.hash.as_bytes()));
            }
        }
    }

    /// A ready job that may ask for room does so, if a job of lower rank runs in its queue.
    pub(super) fn ask_for_room(&mut self, number: u32) {
        let queue = self.jobs.queues.at(number);
        if queue.mode == QueueMode::Paused {
            return;
        }
        let Some((priority, &at)) = queue.ready.first() else { return };
        let Some(slot) = self.job(at).filter(|slot| slot.yield_within_ms > 0) else { return };
        if self.jobs.notices.contains_key(&at) {
            return;
        }
        let asked = |victim: u32| self.jobs.notices.values().any(|other| *other == victim);
        let mut lower = queue.running.iter().take_while(|(held, _)| *held < priority);
        let Some(&(_, victim)) = lower.find(|(_, victim)| !asked(*victim)) else { return };
        let Ok(contender) = Owner::new(format!("job/{}", slot.id)) else { return };
        let task = Task::new(format!("queue {}", queue.name)).ok();
        let yield_in_ms = u64::from(slot.yield_within_ms);
        let preempt = JobCommand::Preempt(PreemptRequest { contender, task, priority, yield_in_ms });
        if self.apply_to_job(victim, &preempt).is_ok() {
            self.jobs.notices.insert(at, victim);
        }
    }

    /// A job that had asked for room needs it no more.
    pub(super) fn withdraw_notice_for(&mut self, contender: u32) {
        if let Some(victim) = self.jobs.notices.remove(&contender) {
            let _ = self.apply_to_job(victim, &JobCommand::Withdraw);
        }
    }
}

impl Engine {
    /// Has a claim stand in line, to be served with its batch.
    pub(super) fn claim(&mut self, ticket: Ticket, space: u32, request: ClaimJobsRequest) -> JobReply {
        self.check_open(space)?;
        let hash = request.hold_id.hash();
        let holder = (space, *hash.as_bytes());
        let held = self.jobs.by_hold.get(&holder).cloned().unwrap_or_default();
        if !held.is_empty() || self.jobs.past.get(&holder).is_some() {
            // The same claim again gets the jobs that it still has, with the time that remains, and nothing in their stead.
            let now_ms = self.now.store_ms;
            let live = held
                .into_iter()
                .filter(|at| self.job(*at).is_some_and(|slot| slot.is_live(now_ms)));
            let jobs = live.filter_map(|at| self.picked(at)).collect();
            let read = ArchiveRead::Claimed { jobs, waited_ms: 0, resumed: true };
            self.respond(ticket, ResponseBody::ToRead(read), Some(Granted::Again(hash)));
            return Ok(None);
        }
        self.check_ttl(space, request.ttl_ms)?;
        let mut since_ms = self.now.store_ms.saturating_sub(request.waited_before_ms);
        if let Some(earlier) = self.jobs.claimers.by_hash.get(&holder).copied()
            && let Some(claimer) = self.leave_line(earlier)
        {
            // It stands in line already: the later sending takes the place of the earlier.
            since_ms = since_ms.min(claimer.since_ms);
            let message = "the same claim was sent again, and the later one stands in line".to_owned();
            self.answer(earlier, Err(StoreError::Unavailable { message }));
        }
        let known = &mut self.jobs.queues;
        let queues = request
            .queues
            .iter()
            .map(|(name, weight)| (known.find_or_insert(space, name), *weight));
        let queues = queues.collect();
        let claimer = WaitingClaim {
            space,
            hash,
            queues,
            arrived_ms: self.now.store_ms,
            since_ms,
            until_ms: (request.wait_ms > 0).then(|| self.now.store_ms.saturating_add(request.wait_ms)),
            request,
        };
        self.stand_in_line(ticket, claimer);
        Ok(None)
    }

    fn stand_in_line(&mut self, ticket: Ticket, claimer: WaitingClaim) {
        self.table.enter_space(claimer.space);
        let jobs = &mut self.jobs;
        for (number, _) in &claimer.queues {
            jobs.queues.at_mut(*number).line.insert((claimer.since_ms, ticket));
            jobs.queues.stirred.insert(*number);
        }
        jobs.claimers.by_hash.insert((claimer.space, *claimer.hash.as_bytes()), ticket);
        if claimer.until_ms.is_none() {
            jobs.claimers.at_once.push(ticket);
        }
        jobs.claimers.waiting.add(ticket, claimer.until_ms.unwrap_or(u64::MAX), claimer);
    }

    fn leave_line(&mut self, ticket: Ticket) -> Option<WaitingClaim> {
        let jobs = &mut self.jobs;
        let claimer = jobs.claimers.waiting.remove(ticket)?;
        for (number, _) in &claimer.queues {
            jobs.queues.at_mut(*number).line.remove(&(claimer.since_ms, ticket));
            jobs.queues.drop_if_unused(*number);
        }
        let hold = (claimer.space, *claimer.hash.as_bytes());
        if jobs.claimers.by_hash.get(&hold) == Some(&ticket) {
            jobs.claimers.by_hash.remove(&hold);
        }
        self.table.leave_space(claimer.space);
        Some(claimer)
    }

    /// The caller of a waiting claim, or of a wait for a job, has gone.
    pub(crate) fn cancel_job_wait(&mut self, ticket: Ticket) -> bool {
        self.leave_line(ticket).is_some() || self.jobs.waits.remove(ticket).is_some()
    }

    /// Turns away everybody whose time in line is up: a waiter that is found in line after this may be given something.
    pub(super) fn dismiss_claimers(&mut self) {
        while let Some(ticket) = self.jobs.claimers.waiting.first_overdue(self.now.store_ms) {
            self.answer_empty(ticket);
        }
    }

    /// Everybody in line goes home with this error.
    pub(crate) fn send_claimers_home(&mut self, why: &str) {
        while let Some(ticket) = self.jobs.claimers.waiting.first_overdue(u64::MAX) {
            self.leave_line(ticket);
            self.answer(ticket, Err(StoreError::Unavailable { message: why.to_owned() }));
        }
        self.jobs.claimers.at_once.clear();
    }

    /// Answers a claim for which there is nothing.
    fn answer_empty(&mut self, ticket: Ticket) {
        let Some(claimer) = self.leave_line(ticket) else { return };
        let waited_ms = self.now.store_ms.saturating_sub(claimer.arrived_ms);
        self.read_later(ticket, ArchiveRead::Claimed { jobs: Vec::new(), waited_ms, resumed: false });
    }

    /// Serves those in line from the queues to which something has happened.
    pub fn serve_claims(&mut self, now: Timestamp, archive: &mut dyn Archive) {
        self.begin_step(now);
        Step { engine: self, archive }.serve_stirred_queues();
    }
}

/// What a claim gets when no token is left to give.
pub(super) fn tokens_exhausted() -> StoreError {
    StoreError::LimitReached { message: JobRefusal::TokensExhausted.to_string(), limit: TOKEN_MAX }
}
