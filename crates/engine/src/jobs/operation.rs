//! Operations of request handlers: a job that only its own request works on, found by its idempotency key.

use fencehold_contract::StoreError;
use fencehold_contract::job::{BeginOperationRequest, BegunOperation, NewJob, OperationStatus, Unique};
use fencehold_contract::operation::JobResponse;
use fencehold_core::job::{
    AttemptProof, Due, EffectName, ForcedState, JobCommand, JobCommandResult, JobId, JobKind, JobRecord,
    JobRefusal, JobState, QueueName,
};
use fencehold_core::ledger::{Effect, EffectStart, InDoubtPolicy, begin};
use fencehold_core::{BadInput, Owner, Reason, Token};

use super::archive::JobNote;
use super::claim::tokens_exhausted;
use super::enqueue::{UniqueJob, identity, unique_digest, window_clock_ms};
use super::ledger::is_open;
use super::read::ArchiveRead;
use super::{ItemResult, JobReply};
use crate::state::{Granted, ResponseBody};
use crate::step::Step;
use crate::waiters::Ticket;

impl Step<'_> {
    /// Begins an operation, or says how it stands. `None`: that is still to be read.
    pub(super) fn begin_operation(
        &mut self,
        ticket: Ticket,
        space: u32,
        request: BeginOperationRequest,
    ) -> JobReply {
        self.check_open(space)?;
        self.check_ttl(space, request.ttl_ms)?;
        let (queue, kind) = (QueueName::operations(), JobKind::new("operation")?);
        let key = unique_digest("operation", &request.idempotency_key);
        let payload = identity(&queue, &kind, &request.payload);
        if let Some(taken) = self.taken_by(space, key) {
            let same = (&queue, &kind, &*request.payload, payload);
            if self.differs_from_first(space, taken, same).is_some() {
                return Ok(Some(conflict("idempotency_key", taken.job)));
            }
            if let Ok(at) = self.find_job(space, taken.job) {
                return self.begin_again(ticket, at, &request);
            }
        }
        match self.job_with_id(space, request.job_id) {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(Some(conflict("id", request.job_id))),
            Err(_) => return Err(BadInput::new("id", "cannot be used here: begin with a new one").into()),
        }
        if let Err(JobRefusal::LimitReached { message, limit }) =
            self.check_room_for_job(space, &queue, request.payload.len())
        {
            return Err(StoreError::LimitReached { message, limit });
        }
        let window_ms = request.idempotency_window_ms;
        let until_ms = window_clock_ms(self.now).saturating_add(window_ms);
        self.take_unique(space, key, UniqueJob { job: request.job_id, payload, until_ms });
        let unique = Some(Unique { key: request.idempotency_key.clone(), window_ms });
        let job = NewJob::new(request.job_id, queue, kind, request.payload.clone());
        let at = self.add_job(space, NewJob { unique, ..job }, Due::Now, None);
        self.hand_over(ticket, at, &request)
    }

    /// An operation that was begun before.
    fn begin_again(&mut self, ticket: Ticket, at: u32, request: &BeginOperationRequest) -> JobReply {
        let now = self.now;
        if !self.job(at).is_some_and(|slot| slot.is_live(now.store_ms)) {
            // It may have run out unnoticed. The next holder need not wait for the spread: there is no other contender.
            let _ = self.apply_to_job(at, &JobCommand::Expire { random: 0 });
        }
        let Some(slot) = self.job(at) else { return Ok(None) };
        let (job_id, record, hash) = (slot.id, &slot.record, request.hold_id.hash());
        let status = match record.state_at(now) {
            JobState::Running => {
                let Some(claim) = &record.claim else { return Ok(None) };
                if claim.hash == hash {
                    let job = self.picked(at).map(|job| ArchiveRead::Began { job, resumed: true });
                    if let Some(read) = job {
                        self.respond(ticket, ResponseBody::ToRead(read), Some(Granted::Again(hash)));
                    }
                    return Ok(None);
                }
                OperationStatus::InProgress {
                    job_id,
                    owner: claim.owner.clone(),
                    token: record.token,
                    remaining_ms: slot.deadline_ms.saturating_sub(now.store_ms),
                }
            }
            JobState::Completed => {
                let (arrival, result) = (slot.arrival, record.notes.result);
                return Ok(self.read_later(ticket, ArchiveRead::Done { id: job_id, arrival, result }));
            }
            state @ (JobState::Failed | JobState::Cancelled | JobState::Quarantined) => {
                let error = record.attempts().last().and_then(|attempt| attempt.error.clone());
                OperationStatus::Failed { job_id, state, error }
            }
            JobState::Queued | JobState::Scheduled => {
                let in_doubt = self.is_in_doubt(at, request.in_doubt_policy);
                self.make_ready(at);
                if !in_doubt {
                    return self.hand_over(ticket, at, request);
                }
                self.stop_in_doubt(at, request);
                OperationStatus::InDoubt { job_id }
            }
            _ => OperationStatus::InDoubt { job_id },
        };
        let begun = BegunOperation { operation: status, waited_ms: 0, resumed: false };
        Ok(Some(JobResponse::BegunOperation(Ok(begun))))
    }

    /// Whether it is not known how far an earlier holder came. One that gave the operation back, or of whom a person knows, leaves no
    /// doubt.
    fn is_in_doubt(&mut self, at: u32, policy: InDoubtPolicy) -> bool {
        let announced = self.intended_operation(at).is_some();
        let died = self.job(at).is_some_and(|slot| {
            let last = slot.record.attempts().last();
            last.is_some_and(|last| last.outcome.ran_out() && last.token == slot.record.token)
        });
        announced || died && policy == InDoubtPolicy::Manual
    }

    /// An operation whose holder died waits for a person.
    fn stop_in_doubt(&mut self, at: u32, request: &BeginOperationRequest) {
        let died = self.job(at).map_or(Token::NONE, |slot| slot.record.token);
        if let Some(by) = self.claim_operation(at, request) {
            let effect = EffectName::operation();
            let _ = self.apply_to_job(at, &JobCommand::StopAtIntent { by, effect: effect.as_str().into() });
            self.announce_operation(at, died);
        }
    }

    /// Notes that a holder carries the operation out: unless it reports, it is not known how far it came, and a person must look.
    fn announce_operation(&mut self, at: u32, token: Token) {
        let (name, policy, wall_ms) = (EffectName::operation(), InDoubtPolicy::Manual, self.now.wall_ms);
        let found = self.effect(at, &name);
        let Ok(nth) = self.next_nth(at, found.as_ref()) else { return };
        if let EffectStart::Go(effect) = begin(found.as_ref(), &name, policy, token, nth, wall_ms) {
            self.keep_effect(at, effect);
        }
    }

    pub(super) fn is_operation(&self, at: u32) -> bool {
        self.job(at)
            .is_some_and(|slot| self.jobs.queues.at(slot.queue).name == QueueName::operations())
    }

    /// What an operation announced of itself, and no one has resolved.
    fn intended_operation(&mut self, at: u32) -> Option<Effect> {
        let has_effects = self.job(at)?.record.notes.effects > 0;
        let found = (has_effects && self.is_operation(at)).then(|| self.effect(at, &EffectName::operation()));
        found.flatten().filter(is_open)
    }

    /// Someone who knows has said what became of the operation: its holder, or a person.
    pub(super) fn withdraw_operation(&mut self, at: u32) {
        if self.intended_operation(at).is_some() {
            self.forget_effect(at, EffectName::operation());
        }
    }

    /// Takes a job back from a caller that had gone before it learned of it. Nothing was done for it, so an operation is not in doubt.
    pub(super) fn abandon(&mut self, at: u32, by: AttemptProof) {
        if let Ok(JobCommandResult::Reported(_)) = self.apply_to_job(at, &JobCommand::Abandon(by)) {
            self.withdraw_operation(at);
        }
    }

    /// A person knows that the operation was carried out, and what it gave.
    pub(super) fn complete_operation(&mut self, at: u32, by: Owner, result: &str) -> ItemResult<()> {
        let (state, reason) = (ForcedState::Completed, Reason::new("the operation happened")?);
        self.apply_to_job(at, &JobCommand::EndByForce { state, by, reason })?;
        self.keep_note(at, JobNote::Result, result.as_bytes().into());
        self.withdraw_operation(at);
        Ok(())
    }

    /// Takes an operation out of its waiting time: its next holder is here.
    fn make_ready(&mut self, at: u32) {
        let Some(slot) = self.job(at) else { return };
        if slot.record.state == JobState::Scheduled {
            let record = JobRecord { state: JobState::Queued, due: Due::Now, ..slot.record.clone() };
            self.become_job(at, record);
        }
    }

    fn claim_operation(&mut self, at: u32, request: &BeginOperationRequest) -> Option<AttemptProof> {
        let (hash, owner, ttl_ms) = (request.hold_id.hash(), request.owner.clone(), request.ttl_ms);
        let space = self.job(at).map(|slot| self.jobs.queues.at(slot.queue).space)?;
        self.note_ttl(space, ttl_ms);
        self.apply_to_job(at, &JobCommand::Claim { hash, owner, ttl_ms }).ok()?;
        Some(AttemptProof { hash, token: self.job(at)?.record.token })
    }

    fn hand_over(&mut self, ticket: Ticket, at: u32, request: &BeginOperationRequest) -> JobReply {
        let claimed = self.claim_operation(at, request);
        let (by, job) = claimed.zip(self.picked(at)).ok_or_else(tokens_exhausted)?;
        if request.in_doubt_policy == InDoubtPolicy::Manual {
            self.announce_operation(at, by.token);
        }
        let read = ArchiveRead::Began { job, resumed: false };
        self.respond(ticket, ResponseBody::ToRead(read), Some(Granted::Jobs(vec![(at, by)])));
        Ok(None)
    }
}

fn conflict(field: &str, job_id: JobId) -> JobResponse {
    JobResponse::BegunOperation(Err(super::enqueue::conflict(field, job_id, "payload")))
}
