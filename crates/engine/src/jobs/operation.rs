//! Operations of request handlers: a job that only its own request works on, found by its idempotency key.

use fencehold_contract::job::{BeginOperationRequest, BegunOperation, NewJob, OperationStatus, Unique};
use fencehold_contract::operation::{JobResponse, StoreResponse};
use fencehold_core::job::{
    AttemptProof, Due, EffectName, JobCommand, JobId, JobKind, JobRefusal, JobState, QueueName,
};
use fencehold_core::ledger::InDoubtPolicy;
use fencehold_core::{BadInput, Timestamp};

use super::archive::Archive;
use super::enqueue::{UniqueJob, identity, unique_digest, window_clock_ms};
use super::read::ArchiveRead;
use crate::state::{Engine, Granted, OutgoingResponse};
use crate::waiters::Ticket;

impl Engine {
    pub(super) fn begin(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        space: u32,
        request: BeginOperationRequest,
        archive: &mut dyn Archive,
    ) {
        if let Some(closed) = self.closed(now, space) {
            return self.answer(ticket, Err(closed));
        }
        let key = unique_digest("operation", &request.idempotency_key);
        if let Err(bad) = self.check_ttl(space, request.ttl_ms) {
            return self.answer(ticket, Err(bad.into()));
        }
        let Ok(kind) = JobKind::new("operation") else { return };
        let payload = identity(&QueueName::operations(), &kind, &request.payload);
        let taken = self.taken_by(now, space, key, archive);
        let same = (&QueueName::operations(), &kind, &*request.payload, payload);
        match taken {
            Some(taken) if self.differs_from_first(space, taken, same, archive).is_some() => {
                self.answer_conflict(ticket, "idempotency_key", taken.job);
            }
            Some(taken) => match self.find_job(space, taken.job, archive) {
                Ok(at) => self.begin_again(now, ticket, at, &request, archive),
                Err(_) => self.begin_anew(now, ticket, space, request, key, payload, archive),
            },
            None => self.begin_anew(now, ticket, space, request, key, payload, archive),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a request and what was found out about it")]
    fn begin_anew(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        space: u32,
        request: BeginOperationRequest,
        key: [u8; 16],
        payload: [u8; 16],
        archive: &mut dyn Archive,
    ) {
        match self.job_with_id(space, request.job_id, archive) {
            Ok(None) => {}
            Ok(Some(_)) => {
                return self.answer_conflict(ticket, "id", request.job_id);
            }
            Err(_) => {
                let taken = BadInput::new("id", "cannot be used here: begin with a new one");
                return self.answer(ticket, Err(taken.into()));
            }
        }
        if let Err(JobRefusal::LimitReached { message: what, limit }) =
            self.check_room_for_job(space, &QueueName::operations(), request.payload.len())
        {
            return self
                .answer(ticket, Err(fencehold_contract::StoreError::LimitReached { message: what, limit }));
        }
        let Ok(kind) = JobKind::new("operation") else { return };
        let until_ms = window_clock_ms(now).saturating_add(request.idempotency_window_ms);
        self.take_unique(space, key, UniqueJob { job: request.job_id, payload, until_ms });
        let unique =
            Unique { key: request.idempotency_key.clone(), window_ms: request.idempotency_window_ms };
        let job = NewJob::new(request.job_id, QueueName::operations(), kind, request.payload.clone());
        let at = self.add_job(now, space, NewJob { unique: Some(unique), ..job }, Due::Now, None);
        self.hand_over(now, ticket, at, &request, archive);
    }

    /// An operation that was begun before.
    fn begin_again(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        at: u32,
        request: &BeginOperationRequest,
        archive: &mut dyn Archive,
    ) {
        if !self.jobs.is_live(at, now) {
            // It may have run out unnoticed. The next holder need not wait for the spread: there is no other contender.
            let _ = self.apply_to_job(now, at, &JobCommand::Expire { random: 0 }, archive);
        }
        let Some(slot) = self.jobs.table.at(at) else { return };
        let (id, record, arrival) = (slot.id, &slot.record, slot.arrival);
        let own = record.claim.as_ref().is_some_and(|claim| claim.hash == request.hold_id.hash());
        match record.state_at(now) {
            JobState::Running if own => {
                if let Some(job) = self.picked(now, at) {
                    self.look_again(
                        ticket,
                        request.hold_id.hash(),
                        ArchiveRead::Began { job, resumed: true },
                    );
                }
            }
            JobState::Running => {
                let Some(claim) = &record.claim else { return };
                let begun = OperationStatus::InProgress {
                    job_id: id,
                    owner: claim.owner.clone(),
                    token: record.token,
                    remaining_ms: slot.deadline_ms.saturating_sub(now.store_ms),
                };
                self.answer_begun(ticket, begun);
            }
            JobState::Completed => {
                let result = record.notes.result;
                self.look(ticket, ArchiveRead::Done { id, arrival, result });
            }
            state @ (JobState::Failed | JobState::Cancelled | JobState::Quarantined) => {
                let error = record.attempts().last().and_then(|attempt| attempt.error.clone());
                self.answer_begun(ticket, OperationStatus::Failed { job_id: id, state, error });
            }
            JobState::Queued | JobState::Scheduled => {
                // An earlier holder died, or gave it back. Only a death leaves a doubt.
                let died = record.attempts().last().is_some_and(|attempt| attempt.outcome.ran_out());
                if died && request.in_doubt_policy == InDoubtPolicy::Manual {
                    self.stop_in_doubt(now, at, request, archive);
                    return self.answer_begun(ticket, OperationStatus::InDoubt { job_id: id });
                }
                self.make_ready(now, at, archive);
                self.hand_over(now, ticket, at, request, archive);
            }
            _ => self.answer_begun(ticket, OperationStatus::InDoubt { job_id: id }),
        }
    }

    /// An operation whose holder died waits for a person.
    fn stop_in_doubt(
        &mut self,
        now: Timestamp,
        at: u32,
        request: &BeginOperationRequest,
        archive: &mut dyn Archive,
    ) {
        self.make_ready(now, at, archive);
        let Some(by) = self.claim_operation(now, at, request, archive) else { return };
        let effect: Box<str> = EffectName::new("operation").map_or("".into(), |name| name.as_str().into());
        let _ = self.apply_to_job(now, at, &JobCommand::StopAtIntent { by, effect }, archive);
    }

    /// Takes an operation out of its waiting time: its next holder is here.
    fn make_ready(&mut self, now: Timestamp, at: u32, archive: &mut dyn Archive) {
        let Some(slot) = self.jobs.table.at(at) else { return };
        if slot.record.state == JobState::Scheduled {
            let mut record = slot.record.clone();
            record.state = JobState::Queued;
            record.due = Due::Now;
            self.become_job(now, at, record, archive);
        }
    }

    fn claim_operation(
        &mut self,
        now: Timestamp,
        at: u32,
        request: &BeginOperationRequest,
        archive: &mut dyn Archive,
    ) -> Option<AttemptProof> {
        let (hash, owner, ttl_ms) = (request.hold_id.hash(), request.owner.clone(), request.ttl_ms);
        let queue = self.jobs.table.at(at).map(|slot| slot.queue)?;
        self.note_ttl(self.jobs.queues.at(queue).space, ttl_ms);
        self.apply_to_job(now, at, &JobCommand::Claim { hash, owner, ttl_ms }, archive)
            .ok()?;
        self.jobs.holder(at)
    }

    fn hand_over(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        at: u32,
        request: &BeginOperationRequest,
        archive: &mut dyn Archive,
    ) {
        let claimed = self.claim_operation(now, at, request, archive);
        if let (Some(by), Some(job)) = (claimed, self.picked(now, at)) {
            let mut answered = OutgoingResponse::to_look(ticket, ArchiveRead::Began { job, resumed: false });
            answered.granted = Some(Granted::Jobs(vec![(at, by)]));
            self.batch.answers.push(answered);
        } else {
            let what = JobRefusal::TokensExhausted.to_string();
            let limit = fencehold_core::limits::TOKEN_MAX;
            self.answer(ticket, Err(fencehold_contract::StoreError::LimitReached { message: what, limit }));
        }
    }

    fn answer_conflict(&mut self, ticket: Ticket, field: &str, job_id: JobId) {
        let conflict =
            JobRefusal::Conflict { field: field.to_owned(), job_id, differs: "payload".to_owned() };
        self.answer(ticket, Ok(StoreResponse::Job(JobResponse::BegunOperation(Err(conflict)))));
    }

    fn answer_begun(&mut self, ticket: Ticket, what: OperationStatus) {
        let begun = BegunOperation { operation: what, waited_ms: 0, resumed: false };
        self.answer(ticket, Ok(StoreResponse::Job(JobResponse::BegunOperation(Ok(begun)))));
    }
}
