//! The ledger of each job: announcing and recording effects, undoing them, and what a person says of those in doubt.

use fencehold_contract::job::{
    AttemptLedgerEntry, CompensatedEffect, EffectResolution, LedgerEntry, LedgerResponse, NewJob,
    ResolveEffectRequest,
};
use fencehold_contract::operation::check_json;
use fencehold_core::EventData;
use fencehold_core::job::{
    AttemptWrite, CompensationState, Due, EffectName, JobCommand, JobId, JobOptions, JobRefusal, JobState,
    QueueName,
};
use fencehold_core::ledger::{
    Compensation, Effect, EffectOutcome, EffectStart, EffectState, begin, next_to_undo, record,
    stands_undone, withdraws,
};
use fencehold_core::limits::{
    EFFECT_VALUE_BYTES_MAX, EFFECTS_BYTES_MAX, EFFECTS_PER_JOB_MAX, PAYLOAD_BYTES_MAX,
};

use super::ItemResult;
use super::archive::JobChange;
use super::report::by;
use crate::state::Engine;
use crate::step::Step;

impl Step<'_> {
    pub(super) fn write_effect(
        &mut self,
        space: u32,
        entry: AttemptLedgerEntry,
    ) -> ItemResult<LedgerResponse> {
        let at = self.find_job(space, entry.attempt.job_id)?;
        let speaker = by(&entry.attempt);
        let may_write = |what| JobCommand::Write { by: speaker, what };
        match entry.entry {
            LedgerEntry::Begin { effect, in_doubt_policy: policy } => {
                let found = self.effect(at, &effect);
                if let Some(found) = found.as_ref().filter(|found| !is_open(found)) {
                    // It is recorded: the caller may know, live or not, as long as it may speak at all.
                    self.apply_to_job(at, &may_write(AttemptWrite::Outcome))?;
                    return Ok(LedgerResponse::Recorded { recorded_effect: found.clone() });
                }
                self.apply_to_job(at, &may_write(AttemptWrite::Intent))?;
                let nth = self.next_nth(at, found.as_ref())?;
                match begin(found.as_ref(), &effect, policy, speaker.token, nth, self.now.wall_ms) {
                    EffectStart::Go(effect) => {
                        self.keep_effect(at, effect);
                        Ok(LedgerResponse::Proceed {})
                    }
                    EffectStart::Recorded(recorded_effect) => {
                        Ok(LedgerResponse::Recorded { recorded_effect })
                    }
                    EffectStart::InDoubt => {
                        let effect = effect.as_str().into();
                        self.apply_to_job(at, &JobCommand::StopAtIntent { by: speaker, effect })?;
                        Ok(LedgerResponse::InDoubt {})
                    }
                }
            }
            LedgerEntry::Record { effect, value, compensation: undo } => {
                check_json("value of the effect", &value, EFFECT_VALUE_BYTES_MAX)?;
                if let Some(undo) = &undo {
                    check_json("payload of the undo job", &undo.payload, PAYLOAD_BYTES_MAX)?;
                    undo.queue.as_ref().map_or(Ok(()), QueueName::check_open)?;
                }
                self.apply_to_job(at, &may_write(AttemptWrite::Outcome))?;
                let found = self.effect(at, &effect);
                let nth = self.next_nth(at, found.as_ref())?;
                if found.as_ref().is_none_or(is_open) {
                    self.check_room(at, value.len() + undo.as_ref().map_or(0, |undo| undo.payload.len()))?;
                }
                let outcome = EffectOutcome { name: effect, value, compensation: undo.map(Box::new) };
                // The first record stands.
                let recorded = record(found.as_ref(), &outcome, speaker.token, nth, self.now.wall_ms);
                if let Ok(effect) = &recorded {
                    self.keep_effect(at, effect.clone());
                }
                let (Ok(recorded_effect) | Err(recorded_effect)) = recorded;
                Ok(LedgerResponse::Recorded { recorded_effect })
            }
            LedgerEntry::Withdraw { effect } => {
                self.apply_to_job(at, &may_write(AttemptWrite::Outcome))?;
                match self.effect(at, &effect) {
                    Some(found) if withdraws(&found, speaker.token) => {
                        self.forget_effect(at, effect);
                        Ok(LedgerResponse::Withdrawn {})
                    }
                    None => Ok(LedgerResponse::Withdrawn {}),
                    Some(found) if is_open(&found) => {
                        let why = "was announced by an earlier attempt, which may have had it";
                        let message = format!("effect {effect} {why}");
                        Err(JobRefusal::WrongState { state: JobState::Running, message })
                    }
                    Some(recorded_effect) => Ok(LedgerResponse::Recorded { recorded_effect }),
                }
            }
        }
    }

    pub(super) fn forget_effect(&mut self, at: u32, effect: EffectName) {
        self.effects(at).retain(|other| other.name != effect);
        self.recount_effects(at);
        let arrival = self.job(at).map_or(0, |slot| slot.arrival);
        self.jobs.batch.others.push(JobChange::NoEffect { arrival, effect });
        self.batch.durable = true;
    }

    /// The effects of a job, in memory from now on.
    fn effects(&mut self, at: u32) -> &mut Vec<Effect> {
        if !self.jobs.ledgers.contains_key(&at) {
            let slot = self.job(at).filter(|slot| slot.record.notes.effects > 0);
            let arrival = slot.map(|slot| slot.arrival);
            let kept = arrival.and_then(|arrival| self.archived(|archive| archive.effects(arrival)));
            self.jobs.ledgers.insert(at, kept.unwrap_or_default());
        }
        self.jobs.ledgers.entry(at).or_default()
    }

    pub(super) fn effect(&mut self, at: u32, name: &EffectName) -> Option<Effect> {
        self.effects(at).iter().find(|effect| effect.name == *name).cloned()
    }

    pub(super) fn keep_effect(&mut self, at: u32, effect: Effect) {
        let effects = self.effects(at);
        match effects.iter_mut().find(|other| other.name == effect.name) {
            Some(other) => *other = effect.clone(),
            None => effects.push(effect.clone()),
        }
        self.recount_effects(at);
        let Some(arrival) = self.job(at).map(|slot| slot.arrival) else { return };
        self.jobs.batch.others.push(JobChange::Effect { arrival, effect });
        self.batch.durable = true;
    }

    /// A job has failed for good or was called off: its effects are undone, last one first.
    pub(super) fn begin_to_undo(&mut self, at: u32) {
        let slot = self.job(at);
        let undone = |state| matches!(state, JobState::Failed | JobState::Cancelled);
        if slot.is_some_and(|slot| undone(slot.record.state) && slot.record.notes.effects > 0) {
            self.undo_next(at);
        }
    }

    /// Enqueues the next undo job of a job, or notes that there is none left.
    fn undo_next(&mut self, at: u32) {
        let effects = self.effects(at);
        let stands = if effects.iter().any(|effect| effect.state == EffectState::CompensationFailed) {
            CompensationState::Stopped
        } else if next_to_undo(effects).is_some() {
            CompensationState::Running
        } else if effects.iter().any(|effect| effect.state == EffectState::Compensated)
            && stands_undone(effects)
        {
            CompensationState::Done
        } else {
            CompensationState::None
        };
        if let Some(effect) = next_to_undo(effects).cloned() {
            self.enqueue_undo(at, effect);
        }
        let Some(slot) = self.jobs.table.at_mut(at) else { return };
        slot.record.compensation_state = stands;
        self.jobs.touch(at);
        self.batch.durable = true;
    }

    fn enqueue_undo(&mut self, at: u32, effect: Effect) {
        let Some(slot) = self.job(at) else { return };
        let (id, arrival, options) = (slot.id, slot.arrival, slot.record.options);
        let queue = self.jobs.queues.at(slot.queue);
        let (space, own_queue) = (queue.space, queue.name.clone());
        let Some(Compensation { kind, queue, payload }) = effect.compensation.as_deref().cloned() else {
            return;
        };
        // Always the same id: however often this is tried, there is one undo job.
        let undo_id: JobId = self.id_here(space, id.following(effect.name.as_str()));
        if self.find_job(space, undo_id).is_err() {
            let traceparent = self.body(arrival).and_then(|body| body.trace.clone());
            // Undoing is tried as often as the work itself was to be, and is not pressed for time.
            let options = JobOptions { attempt_timeout_ms: None, ..options };
            let job = NewJob::new(undo_id, queue.unwrap_or(own_queue), kind, payload);
            let undo_of = CompensatedEffect { job_id: id, effect: effect.name.clone() };
            self.add_job(space, NewJob { options, traceparent, ..job }, Due::Now, Some(undo_of));
        }
        let compensation_job_id = Some(undo_id);
        self.keep_effect(at, Effect { state: EffectState::Compensating, compensation_job_id, ..effect });
    }

    /// An undo job has come to its end: so has the effect that it undoes, and the next one is begun.
    pub(super) fn undo_goes_on(&mut self, undo_at: u32) {
        let Some(slot) = self.job(undo_at) else { return };
        let (arrival, compensated) = (slot.arrival, slot.record.state == JobState::Completed);
        let space = self.jobs.queues.at(slot.queue).space;
        let undo_of = self.body(arrival).and_then(|body| body.undo_of.clone());
        let Some(CompensatedEffect { job_id, effect }) = undo_of else { return };
        let Ok(at) = self.find_job(space, job_id) else { return };
        let Some(found) = self.effect(at, &effect) else { return };
        let state = if compensated { EffectState::Compensated } else { EffectState::CompensationFailed };
        self.keep_effect(at, Effect { state, ..found });
        let fact = EventData::EffectCompensationEnded { effect: effect.to_string(), compensated };
        self.note_job(space, job_id, vec![fact]);
        self.undo_next(at);
    }

    /// Resolves an effect in doubt as a person decided.
    pub(super) fn resolve(&mut self, space: u32, request: ResolveEffectRequest) -> ItemResult<()> {
        let at = self.find_job(space, request.job_id)?;
        let state = self.job_state(at).unwrap_or(JobState::Completed);
        let Some(found) = self.effect(at, &request.effect).filter(is_open) else {
            let message = format!("it has no open intent {}; `effect ls` lists what is open", request.effect);
            return Err(JobRefusal::WrongState { state, message });
        };
        if state == JobState::Running {
            let message = "its holder is still at work, and may know itself".to_owned();
            return Err(JobRefusal::WrongState { state, message });
        }
        let is_operation = request.effect == EffectName::operation() && self.is_operation(at);
        if let EffectResolution::Happened { value } = request.resolution {
            if is_operation {
                return self.complete_operation(at, request.by, &value);
            }
            let (state, value, written_at_ms) = (EffectState::Done, Some(value), self.now.wall_ms);
            self.keep_effect(at, Effect { state, value, written_at_ms, ..found });
        } else {
            self.forget_effect(at, request.effect);
        }
        // An operation starts over also where no one has asked for it since its holder died.
        if state == JobState::InDoubt || is_operation && !state.is_final() {
            self.apply_to_job(at, &JobCommand::Retry { by: request.by })?;
        }
        Ok(())
    }
}

impl Engine {
    /// The place of the next new effect of a job, if it may have another.
    pub(super) fn next_nth(&self, at: u32, found: Option<&Effect>) -> ItemResult<u16> {
        let count = self.job(at).map_or(0, |slot| slot.record.notes.effects);
        if found.is_none() && usize::from(count) >= EFFECTS_PER_JOB_MAX {
            let message = "effects of this job".to_owned();
            return Err(JobRefusal::LimitReached { message, limit: EFFECTS_PER_JOB_MAX as u64 });
        }
        let positions = self.jobs.ledgers.get(&at).into_iter().flatten().map(|effect| effect.position);
        Ok(positions.max().map_or(0, |nth| nth.saturating_add(1)))
    }

    /// Whether a job's effects may have so many bytes more: each attempt is handed all of them.
    fn check_room(&self, at: u32, bytes: usize) -> ItemResult<()> {
        let effects = self.jobs.ledgers.get(&at).into_iter().flatten();
        let values = effects.clone().flat_map(|effect| &effect.value);
        let payloads = effects.flat_map(|effect| &effect.compensation).map(|undo| &undo.payload);
        let known: usize = values.chain(payloads).map(|text| text.len()).sum();
        if known + bytes > EFFECTS_BYTES_MAX {
            let message = "bytes of this job's effects".to_owned();
            return Err(JobRefusal::LimitReached { message, limit: EFFECTS_BYTES_MAX as u64 });
        }
        Ok(())
    }

    fn recount_effects(&mut self, at: u32) {
        let count = self.jobs.ledgers.get(&at).map_or(0, Vec::len);
        let Some(slot) = self.jobs.table.at_mut(at) else { return };
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        if slot.record.notes.effects != count {
            slot.record.notes.effects = count;
            self.jobs.touch(at);
        }
    }
}

pub(super) fn is_open(effect: &Effect) -> bool {
    matches!(effect.state, EffectState::Intended(_))
}
