//! One request at a time: parse, decide, answer. And the sweep that notes what has run out.

use std::ops::{Deref, DerefMut};

use fencehold_contract::operation::{StoreRequest, StoreResponse};
use fencehold_contract::{
    AdvancedStore, BlockedWrite, ClosedNamespace, HoldRef, KeepFinished, RecordedBlockedWrite, ReleasedLease,
    RenewLeaseBatchResponse, RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreError, StoreStatus,
};
use fencehold_core::lease::{
    HoldState, LeaseCommand, LeaseCommandResult, LeaseRecord, LeaseStanding, decide,
};
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{EventData, Key, Namespace, Owner, Refusal, Timestamp, Token, blocked_elsewhere};

use super::jobs::Archive;
use super::persistence::Change;
use super::state::{Engine, SlotChange};
use super::table::{LeaseSlot, NOWHERE};
use super::view::LOOK_AT_MAX;
use super::waiters::Ticket;

/// The reply to a request. `None`: it waits for something, or what it says is still to be read.
pub(super) type Reply = Result<Option<StoreResponse>, StoreError>;

/// One step of the engine, with the archive at hand.
pub(super) struct Step<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) archive: &'a mut dyn Archive,
}

impl Deref for Step<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl DerefMut for Step<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        self.engine
    }
}

impl Engine {
    /// Takes one request. Its answer comes with the batch, or with a later one if it waits.
    pub fn ask(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        namespace: &Namespace,
        request: StoreRequest,
        archive: &mut dyn Archive,
    ) {
        self.begin_step(now);
        self.time_outs();
        let result = Step { engine: self, archive }.take(ticket, namespace, request);
        if let Some(result) = result.transpose() {
            self.answer(ticket, result);
        }
    }

    /// Notes what has run out and what has come due, at most `budget` of each. True: there is more.
    pub fn sweep(&mut self, now: Timestamp, budget: usize, archive: &mut dyn Archive) -> bool {
        self.begin_step(now);
        let mut step = Step { engine: self, archive };
        step.load_jobs_in_time();
        step.load_events_in_time();
        let jobs = step.sweep_jobs(budget);
        self.sweep_leases(budget) || jobs
    }
}

impl Step<'_> {
    fn take(&mut self, ticket: Ticket, namespace: &Namespace, request: StoreRequest) -> Reply {
        request.check()?;
        if request.needs_jobs() {
            self.load_jobs()?;
        }
        if matches!(request, StoreRequest::Events(_) | StoreRequest::Stats(_)) {
            self.load_events()?;
        }
        Ok(Some(match request {
            StoreRequest::Acquire(request) => {
                let space = self.table.space(namespace);
                return self.acquire(ticket, space, request);
            }
            StoreRequest::Events(request) => {
                return Ok(self.watch(ticket, namespace, request)?.map(StoreResponse::Events));
            }
            StoreRequest::Renew(holds) => self.renew(namespace, &holds),
            StoreRequest::Release(holds) => self.release(namespace, &holds),
            StoreRequest::Revoke { request, from } => self.revoke(namespace, &request, from)?,
            StoreRequest::Get(key) => StoreResponse::Lease(self.view(namespace, &key)),
            StoreRequest::List(request) => StoreResponse::Leases(self.list(namespace, &request)),
            StoreRequest::Advance { by, increment: lift } => {
                // There must be a floor to lift, by which every new namespace then begins.
                self.table.space(namespace);
                StoreResponse::Advanced(self.advance(&by, lift)?)
            }
            StoreRequest::Job(request) if request.may_leave_something() => {
                let space = self.table.visit_space(namespace);
                let response = self.take_job_request(ticket, space, request);
                self.table.leave_space(space);
                return Ok(response?.map(StoreResponse::Job));
            }
            StoreRequest::Job(request) => {
                // There is nothing to look at, or to speak of, in a namespace that does not exist.
                let space = self.table.find_space(namespace).unwrap_or(NOWHERE);
                return Ok(self.take_job_request(ticket, space, request)?.map(StoreResponse::Job));
            }
            StoreRequest::Quota(request) => StoreResponse::Quota(self.quota(namespace, &request)),
            // What was granted before an advance may still be believed in.
            StoreRequest::Reopen { .. } => {
                self.batch.durable = true;
                self.open_namespaces();
                StoreResponse::Reopened(())
            }
            StoreRequest::Status => StoreResponse::Status(self.status(namespace)),
            StoreRequest::ReportBlockedWrite(report) => {
                StoreResponse::BlockedWriteRecorded(self.record_blocked_write(namespace, &report))
            }
            StoreRequest::Stats(request) => StoreResponse::Stats(self.stats(namespace, request)),
            StoreRequest::Contention(request) => {
                StoreResponse::Contention(self.contention.list(self.now, namespace, &request))
            }
            StoreRequest::KeepFinished { ms } => {
                self.set_keep_finished(KeepFinished::for_ms(ms)?);
                StoreResponse::KeepsFinished
            }
        }))
    }

    /// Records a stale write that was refused elsewhere.
    fn record_blocked_write(&mut self, namespace: &Namespace, report: &BlockedWrite) -> RecordedBlockedWrite {
        let BlockedWrite { key, token, action } = report;
        let now_ms = self.now.store_ms;
        let space = self.table.find_space(namespace);
        let (is_holder, current) = if let (Some(job), Some(space)) = (report.job_id(), space) {
            self.claim_under(space, job, *token)
        } else {
            let slot = space.and_then(|space| self.table.get(space, key));
            let endings = slot.map_or(&[][..], |slot| slot.record.endings());
            let outcome = endings.iter().find(|ending| ending.token == *token);
            let newest = slot.map_or(Token::NONE, |slot| slot.record.counter);
            let is_live = slot.is_some_and(|slot| slot.term(now_ms).is_live());
            (is_live && newest == *token, (newest, outcome.map(|ending| ending.outcome)))
        };
        let fact = blocked_elsewhere(*token, *action, is_holder, current);
        let recorded = fact.is_some();
        self.note_in(namespace, key, fact.into_iter().collect());
        RecordedBlockedWrite { recorded }
    }

    fn advance(&mut self, by: &Owner, lift: u64) -> Result<AdvancedStore, StoreError> {
        // Not only of what is held here: what was granted in the time that the store lost may still be believed in.
        let longest_ms = self.longest_ttl_ms;
        let (key_count, ended_count) = (self.table.keys(), self.held);
        let slots: Vec<u32> = (0..self.table.len()).filter(|at| self.table.at(*at).is_some()).collect();
        // All or nothing: whether every counter can rise so far is known before the first one does.
        for slot in slots.iter().filter_map(|at| self.table.at(*at)) {
            if slot.record.counter.max(self.table.floor(slot.space)).advanced(lift).is_none() {
                return Err(StoreError::refused(&slot.key, Refusal::TokensExhausted));
            }
        }
        self.advance_jobs(lift)?;
        self.send_everybody_home("every lease was ended by `store advance`");
        for at in slots {
            // It cannot be refused any more.
            let _ = self.apply(at, &LeaseCommand::Advance { lift, by: by.clone() });
        }
        let mut namespaces = Vec::new();
        let engine = &mut *self.engine;
        for space in engine.table.kept_spaces() {
            if let Some(floor) = space.floor.lifted(lift) {
                space.floor = floor;
                engine.batch.others.push(Change::Floor { namespace: space.name.clone(), floor });
            }
            // Of a namespace in which nothing was granted, as far as is known here, nothing is known.
            if space.longest_ttl_ms > 0 {
                space.closed_until_ms = Some(engine.now.store_ms.saturating_add(space.longest_ttl_ms));
                engine.batch.others.push(space.change());
                let closed_for_ms = space.longest_ttl_ms;
                namespaces.push(ClosedNamespace { namespace: space.name.clone(), closed_for_ms });
            }
        }
        namespaces.sort_by(|a, b| b.closed_for_ms.cmp(&a.closed_for_ms).then(a.namespace.cmp(&b.namespace)));
        namespaces.truncate(PAGE_MAX);
        let until_ms = self.closed_until_ms.max(self.now.store_ms.saturating_add(longest_ms));
        let closed_for_ms = until_ms - self.now.store_ms;
        if closed_for_ms > 0 {
            self.closed_until_ms = until_ms;
            self.batch.others.push(Change::ClosedUntil { until_ms });
        }
        self.batch.durable = true;
        Ok(AdvancedStore { key_count, ended_count, closed_for_ms, namespaces })
    }
}

impl Engine {
    fn renew(&mut self, namespace: &Namespace, holds: &[HoldRef]) -> StoreResponse {
        let renew = |hold: &HoldRef| {
            let command = LeaseCommand::Renew { hash: hold.hold_id.hash(), token: hold.token };
            match self.apply_and_pass_on(namespace, &hold.key, &command)? {
                LeaseCommandResult::Renewed(renewal) => Ok(renewal),
                _ => Err(Refusal::NotHeld),
            }
        };
        let results = holds.iter().map(renew).collect();
        StoreResponse::Renewed(RenewLeaseBatchResponse { results, waited_ms: 0 })
    }

    fn release(&mut self, namespace: &Namespace, holds: &[HoldRef]) -> StoreResponse {
        let release = |hold: &HoldRef| {
            let command = LeaseCommand::Release { hash: hold.hold_id.hash(), token: hold.token };
            match self.apply_and_pass_on(namespace, &hold.key, &command)? {
                LeaseCommandResult::Released { token } => Ok(ReleasedLease { key: hold.key.clone(), token }),
                _ => Err(Refusal::NotHeld),
            }
        };
        StoreResponse::Released(holds.iter().map(release).collect())
    }

    /// Ends the one that is meant, or a page of the many, from a slot on.
    fn revoke(
        &mut self,
        namespace: &Namespace,
        request: &RevokeLeasesRequest,
        from: u32,
    ) -> Result<StoreResponse, StoreError> {
        let revoke = |only_token| LeaseCommand::Revoke {
            by: request.by.clone(),
            reason: request.reason.clone(),
            only_token,
        };
        if let RevokeTarget::Key { key, only_token } = &request.target {
            let outcome = self.apply_and_pass_on(namespace, key, &revoke(*only_token));
            let outcome = outcome.map_err(|refusal| StoreError::refused(key, refusal))?;
            let ended = revoked(key.clone(), outcome).into_iter().collect();
            return Ok(StoreResponse::Revoked { ended, next: None });
        }
        let Some(space) = self.table.find_space(namespace) else {
            return Ok(StoreResponse::Revoked { ended: Vec::new(), next: None });
        };
        let meant = |slot: &LeaseSlot| {
            slot.record.hold.as_ref().is_some_and(|hold| match &request.target {
                RevokeTarget::Task(task) => hold.task.as_ref() == Some(task),
                RevokeTarget::Owner(owner) => hold.owner == *owner,
                RevokeTarget::Prefix(prefix) => slot.key.as_str().starts_with(prefix),
                RevokeTarget::TaskPrefix(above) => hold.task.as_ref().is_some_and(|task| above.covers(task)),
                RevokeTarget::Key { .. } => false,
            })
        };
        let mut ended = Vec::new();
        // A key keeps its slot: a new holder of a key of a page before is not struck by the pages after it.
        let to = from.saturating_add(LOOK_AT_MAX).min(self.table.len());
        for at in from..to {
            if ended.len() == PAGE_MAX {
                return Ok(StoreResponse::Revoked { ended, next: Some(at) });
            }
            let Some(slot) = self.table.at(at).filter(|slot| slot.space == space && meant(slot)) else {
                continue;
            };
            let key = slot.key.clone();
            // A refusal here means that its tokens are used up; the others are ended all the same.
            if let Ok(outcome) = self.apply(at, &revoke(None)) {
                ended.extend(revoked(key, outcome));
            }
            self.pass_on(at);
        }
        Ok(StoreResponse::Revoked { ended, next: (to < self.table.len()).then_some(to) })
    }

    /// Carries out a command on a key by name, and passes the key on if it came free. A namespace that does not exist is
    /// not made for it: there is nothing in it to renew or to end.
    fn apply_and_pass_on(
        &mut self,
        namespace: &Namespace,
        key: &Key,
        command: &LeaseCommand,
    ) -> Result<LeaseCommandResult, Refusal> {
        let space = self.table.find_space(namespace);
        let Some(at) = space.and_then(|space| self.table.find(space, key)) else {
            let floor =
                space.map_or_else(|| self.table.floor_of_a_new_one(), |space| self.table.floor(space));
            // Nothing is kept of the key: nothing comes of it but an answer and facts.
            let standing = LeaseStanding { now: self.now, floor, term: HoldState::Free };
            let decision = decide(&standing, &LeaseRecord::default(), command);
            self.note_in(namespace, key, decision.facts);
            return decision.reply;
        };
        let outcome = self.apply(at, command);
        self.pass_on(at);
        outcome
    }

    /// Opens every namespace that an advance has closed.
    fn open_namespaces(&mut self) {
        self.closed_until_ms = 0;
        self.batch.others.push(Change::ClosedUntil { until_ms: 0 });
        for space in self.table.kept_spaces() {
            if space.closed_until_ms.take().is_some() {
                self.batch.others.push(space.change());
            }
        }
    }

    fn status(&self, namespace: &Namespace) -> StoreStatus {
        let space = self.table.find_space(namespace).unwrap_or(NOWHERE);
        StoreStatus {
            owner_pid: self.served_by.map(|(pid, _)| pid),
            epoch: self.served_by.map(|(_, epoch)| epoch),
            key_count: self.table.keys(),
            held_count: self.held,
            waiter_count: self.waiters.waiting.len() as u64,
            job_count: self.jobs.live(),
            newest_event_seq: self.events.last_seq(),
            unreadable_row_count: self.set_aside,
            closed_for_ms: self.closed_for_ms(space),
            ..StoreStatus::default()
        }
    }

    /// Notes what has run out, at most `budget` slots of it. True: there is more.
    fn sweep_leases(&mut self, budget: usize) -> bool {
        self.time_outs();
        self.dismiss_watchers();
        if self.closed_until_ms > 0 && self.closed_until_ms <= self.now.store_ms {
            // Noted, so that a later boot, whose clock starts anew, does not take it for closed.
            self.open_namespaces();
        }
        for _ in 0..budget {
            let Some(at) = self.wheel.pop_due(self.now.store_ms) else { return false };
            let Some(slot) = self.table.at(at) else { continue };
            if self.now.store_ms < slot.deadline_ms {
                // Renewed since. The wheel is lazy: only now does it learn.
                self.wheel.schedule(at, slot.deadline_ms);
            } else if slot.record.hold.is_some() {
                self.settle(at);
            } else {
                self.collect(at);
            }
        }
        true
    }

    /// Removes a key that has been free for long, and raises the floor in the same step.
    fn collect(&mut self, at: u32) {
        let Some(slot) = self.table.remove(at) else { return };
        let space = self.table.space_mut(slot.space);
        let token = slot.record.counter;
        if token > space.floor {
            space.floor = token;
            let namespace = space.name.clone();
            self.batch.others.push(Change::Floor { namespace, floor: token });
        }
        self.batch.touched.insert(at, SlotChange::Drop);
        self.note(slot.space, &slot.key, vec![EventData::KeyCollected { token }]);
    }
}

fn revoked(key: Key, outcome: LeaseCommandResult) -> Option<RevokedLease> {
    match outcome {
        LeaseCommandResult::Revoked(revoked) => Some(RevokedLease { key, revoked }),
        _ => None,
    }
}
