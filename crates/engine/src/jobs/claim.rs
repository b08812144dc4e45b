//! Taking jobs, standing in line for them, and being asked to make room for one.

use std::collections::{BTreeMap, BTreeSet};

use fencehold_contract::StoreError;
use fencehold_contract::job::{ClaimJobsRequest, QueueMode};
use fencehold_core::job::{AttemptProof, JobCommand, JobCommandResult, JobRefusal};
use fencehold_core::lease::PreemptRequest;
use fencehold_core::{HoldHash, Owner, Task, Timestamp};
use hashbrown::HashMap;

use super::archive::Archive;
use super::read::{ArchiveRead, CLAIM_BYTES_MAX, PickedJob};
use super::used_hold_ids::NamespaceHold;
use crate::state::{Engine, Granted, OutgoingResponse};
use crate::waiters::Ticket;

/// A claim that waits.
#[derive(Debug)]
struct WaitingClaim {
    space: u32,
    hash: HoldHash,
    /// Queues by number, with their weights.
    queues: Vec<(u32, u32)>,
    limit: usize,
    owner: Owner,
    ttl_ms: u64,
    arrived_ms: u64,
    /// Since when it stands in line, here or elsewhere.
    since_ms: u64,
    /// When its time is up. From then on it is never given anything.
    until_ms: u64,
    /// It does not wait: it is answered with the batch in which it came.
    at_once: bool,
}

#[derive(Debug, Default)]
pub(super) struct WaitingClaims {
    waiting: BTreeMap<(u64, Ticket), WaitingClaim>,
    by_ticket: HashMap<Ticket, u64>,
    by_until: BTreeSet<(u64, Ticket)>,
    by_hash: HashMap<NamespaceHold, Ticket>,
    at_once: Vec<Ticket>,
}

impl WaitingClaims {
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.by_until.first().map(|(until_ms, _)| *until_ms)
    }
}

impl Engine {
    pub(super) fn claim(&mut self, now: Timestamp, ticket: Ticket, space: u32, request: ClaimJobsRequest) {
        if let Some(closed) = self.closed(now, space) {
            return self.answer(ticket, Err(closed));
        }
        let hash = request.hold_id.hash();
        let holder = (space, *hash.as_bytes());
        let held = self.jobs.by_hold.get(&holder).cloned().unwrap_or_default();
        if !held.is_empty() || self.jobs.past.has(&holder) {
            // The same claim again gets the jobs that it still has, with the time that remains, and nothing in their stead.
            let live = held.into_iter().filter(|at| self.jobs.is_live(*at, now));
            let jobs = live.filter_map(|at| self.picked(now, at)).collect();
            return self.look_again(ticket, hash, ArchiveRead::Claimed { jobs, waited_ms: 0, resumed: true });
        }
        if let Err(bad) = self.check_ttl(space, request.ttl_ms) {
            return self.answer(ticket, Err(bad.into()));
        }
        let mut since_ms = now.store_ms.saturating_sub(request.waited_before_ms);
        if let Some(earlier) = self.jobs.claimers.by_hash.get(&holder).copied()
            && let Some(claimer) = self.leave_line(earlier)
        {
            // It stands in line already: the later sending takes the place of the earlier.
            since_ms = since_ms.min(claimer.since_ms);
            let why = "the same claim was sent again, and the later one stands in line".to_owned();
            self.answer(earlier, Err(StoreError::Unavailable { message: why }));
        }
        let mut queues = Vec::with_capacity(request.queues.len());
        for (name, weight) in &request.queues {
            queues.push((self.jobs.queues.find_or_insert(space, name), *weight));
        }
        let claimer = WaitingClaim {
            space,
            hash,
            queues,
            limit: request.limit,
            owner: request.owner,
            ttl_ms: request.ttl_ms,
            arrived_ms: now.store_ms,
            since_ms,
            until_ms: now.store_ms.saturating_add(request.wait_ms),
            at_once: request.wait_ms == 0,
        };
        self.stand_in_line(ticket, claimer);
    }

    fn stand_in_line(&mut self, ticket: Ticket, claimer: WaitingClaim) {
        self.table.enter_space(claimer.space);
        let jobs = &mut self.jobs;
        let place = (claimer.since_ms, ticket);
        for (number, _) in &claimer.queues {
            jobs.queues.at_mut(*number).line.insert(place);
            jobs.queues.stirred.insert(*number);
        }
        jobs.claimers.by_ticket.insert(ticket, claimer.since_ms);
        jobs.claimers.by_hash.insert((claimer.space, *claimer.hash.as_bytes()), ticket);
        if claimer.at_once {
            jobs.claimers.at_once.push(ticket);
        } else {
            jobs.claimers.by_until.insert((claimer.until_ms, ticket));
        }
        jobs.claimers.waiting.insert(place, claimer);
    }

    fn leave_line(&mut self, ticket: Ticket) -> Option<WaitingClaim> {
        let jobs = &mut self.jobs;
        let since_ms = jobs.claimers.by_ticket.remove(&ticket)?;
        let claimer = jobs.claimers.waiting.remove(&(since_ms, ticket))?;
        for (number, _) in &claimer.queues {
            jobs.queues.at_mut(*number).line.remove(&(since_ms, ticket));
            jobs.queues.drop_if_unused(*number);
        }
        jobs.claimers.by_until.remove(&(claimer.until_ms, ticket));
        let hold = (claimer.space, *claimer.hash.as_bytes());
        if jobs.claimers.by_hash.get(&hold) == Some(&ticket) {
            jobs.claimers.by_hash.remove(&hold);
        }
        self.table.leave_space(claimer.space);
        Some(claimer)
    }

    /// The caller of a waiting claim, or of a wait for a job, has gone.
    pub(crate) fn cancel_job_ask(&mut self, ticket: Ticket) -> bool {
        self.leave_line(ticket).is_some() || self.jobs.waits.remove(ticket).is_some()
    }

    /// Turns away everybody whose time in line is up: a waiter that is found in line after this may be given something.
    pub(super) fn dismiss_claimers(&mut self, now: Timestamp) {
        while let Some((until_ms, ticket)) = self.jobs.claimers.by_until.first().copied() {
            if until_ms > now.store_ms {
                return;
            }
            if let Some(claimer) = self.leave_line(ticket) {
                self.answer_empty(now, ticket, &claimer);
            }
        }
    }

    /// Everybody in line goes home with this error.
    pub(crate) fn send_claimers_home(&mut self, why: &str) {
        for ticket in self.jobs.claimers.by_ticket.keys().copied().collect::<Vec<_>>() {
            self.leave_line(ticket);
            self.answer(ticket, Err(StoreError::Unavailable { message: why.to_owned() }));
        }
        self.jobs.claimers.at_once.clear();
    }

    fn answer_empty(&mut self, now: Timestamp, ticket: Ticket, claimer: &WaitingClaim) {
        let waited_ms = now.store_ms.saturating_sub(claimer.arrived_ms);
        self.look(ticket, ArchiveRead::Claimed { jobs: Vec::new(), waited_ms, resumed: false });
    }

    /// Serves those in line from the queues to which something has happened.
    pub fn serve_claims(&mut self, now: Timestamp, archive: &mut dyn Archive) {
        self.dismiss_claimers(now);
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
                self.serve(now, ticket, archive);
            }
        }
        for ticket in std::mem::take(&mut self.jobs.claimers.at_once) {
            if let Some(claimer) = self.leave_line(ticket) {
                self.answer_empty(now, ticket, &claimer);
            }
        }
        for number in stirred {
            self.ask_for_room(now, number, archive);
        }
    }

    /// Gives one claim what there is for it.
    fn serve(&mut self, now: Timestamp, ticket: Ticket, archive: &mut dyn Archive) {
        let Some(since_ms) = self.jobs.claimers.by_ticket.get(&ticket).copied() else { return };
        let offers = |claimer: &WaitingClaim| {
            claimer.queues.iter().any(|(number, _)| self.jobs.queues.at(*number).offers())
        };
        if !self.jobs.claimers.waiting.get(&(since_ms, ticket)).is_some_and(offers) {
            return;
        }
        let Some(claimer) = self.leave_line(ticket) else { return };
        let command =
            JobCommand::Claim { hash: claimer.hash, owner: claimer.owner.clone(), ttl_ms: claimer.ttl_ms };
        let mut jobs: Vec<PickedJob> = Vec::new();
        let mut given: Vec<(u32, AttemptProof)> = Vec::new();
        let mut bytes = 0;
        let mut exhausted = false;
        while jobs.len() < claimer.limit && bytes < CLAIM_BYTES_MAX {
            let offering = claimer.queues.iter().copied();
            let offering = offering.filter(|(number, _)| self.jobs.queues.at(*number).offers());
            let Some(number) = self.jobs.turns.next(offering) else { break };
            let Some((_, at)) = self.jobs.queues.at(number).ready.first().map(|(p, at)| (p, *at)) else {
                break;
            };
            let size = self.carried_bytes(at, archive);
            if !jobs.is_empty() && bytes + size > CLAIM_BYTES_MAX {
                break;
            }
            bytes += size;
            let token = match self.apply_to_job(now, at, &command, archive) {
                Ok(JobCommandResult::Claimed { token, .. }) => token,
                Err(JobRefusal::TokensExhausted) => {
                    exhausted = true;
                    break;
                }
                _ if self.jobs.table.at(at).is_none() => break,
                // It blocks no other: the next one is looked at.
                _ => {
                    bytes -= size;
                    self.is_not_ready(now, at);
                    continue;
                }
            };
            self.withdraw_notice_for(now, at, archive);
            given.push((at, AttemptProof { hash: claimer.hash, token }));
            jobs.extend(self.picked(now, at));
        }
        if given.is_empty() && exhausted {
            let what = JobRefusal::TokensExhausted.to_string();
            let limit = fencehold_core::limits::TOKEN_MAX;
            return self.answer(ticket, Err(StoreError::LimitReached { message: what, limit }));
        }
        if given.is_empty() {
            // There was nothing for it after all: it goes on waiting, for as long as it wants to.
            return self.stand_in_line(ticket, claimer);
        }
        self.note_ttl(claimer.space, claimer.ttl_ms);
        let waited_ms = now.store_ms.saturating_sub(claimer.arrived_ms);
        let mut answered =
            OutgoingResponse::to_look(ticket, ArchiveRead::Claimed { jobs, waited_ms, resumed: false });
        answered.granted = Some(Granted::Jobs(given));
        self.batch.answers.push(answered);
    }

    /// Jobs were handed to a caller that had gone: they go back at once.
    pub(crate) fn abandon_jobs(
        &mut self,
        now: Timestamp,
        given: Vec<(u32, AttemptProof)>,
        archive: &mut dyn Archive,
    ) {
        for (at, by) in given {
            let queue = self.jobs.table.at(at).map(|slot| slot.queue);
            let _ = self.apply_to_job(now, at, &JobCommand::Abandon(by), archive);
            // No caller has seen them: should the same claim come back after all, it is as good as new.
            if let Some(queue) = queue {
                let space = self.jobs.queues.at(queue).space;
                self.jobs.past.forget(&(space, *by.hash.as_bytes()));
            }
        }
    }

    /// A ready job that may ask for room does so, if a job of lower rank runs in its queue.
    pub(super) fn ask_for_room(&mut self, now: Timestamp, number: u32, archive: &mut dyn Archive) {
        let queue = self.jobs.queues.at(number);
        if queue.mode == QueueMode::Paused {
            return;
        }
        let Some((priority, at)) = queue.ready.first().map(|(priority, at)| (priority, *at)) else { return };
        let Some(slot) = self.jobs.table.at(at).filter(|slot| slot.yield_within_ms > 0) else { return };
        if self.jobs.notices.contains_key(&at) {
            return;
        }
        let asked = |victim: &u32| self.jobs.notices.values().any(|other| other == victim);
        let victim = queue
            .running
            .iter()
            .take_while(|(held, _)| *held < priority)
            .map(|(_, victim)| *victim)
            .find(|victim| !asked(victim));
        let Some(victim) = victim else { return };
        let Ok(contender) = Owner::new(format!("job/{}", slot.id)) else { return };
        let ask = PreemptRequest {
            contender,
            task: Task::new(format!("queue {}", queue.name)).ok(),
            priority,
            yield_in_ms: u64::from(slot.yield_within_ms),
        };
        if self.apply_to_job(now, victim, &JobCommand::Preempt(ask), archive).is_ok() {
            self.jobs.notices.insert(at, victim);
        }
    }

    /// A job that had asked for room needs it no more.
    pub(super) fn withdraw_notice_for(&mut self, now: Timestamp, contender: u32, archive: &mut dyn Archive) {
        if let Some(victim) = self.jobs.notices.remove(&contender) {
            let _ = self.apply_to_job(now, victim, &JobCommand::Withdraw, archive);
        }
    }
}
