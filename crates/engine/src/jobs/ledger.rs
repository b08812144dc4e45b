//! The ledger of each job: announcing and recording effects, undoing them, and what a person says of those in doubt.

use fencehold_contract::job::{
    AttemptLedgerEntry, CompensatedEffect, EffectResolution, LedgerEntry, LedgerResponse, NewJob,
    ResolveEffectRequest,
};
use fencehold_contract::operation::{JobResponse, check_json};
use fencehold_core::job::{
    AttemptWrite, CompensationState, EffectName, JobCommand, JobId, JobOptions, JobRefusal, JobState,
};
use fencehold_core::ledger::{
    Compensation, Effect, EffectOutcome, EffectStart, EffectState, begin, next_to_undo, record,
    stands_undone, withdraws,
};
use fencehold_core::limits::{
    EFFECT_VALUE_BYTES_MAX, EFFECTS_BYTES_MAX, EFFECTS_PER_JOB_MAX, PAYLOAD_BYTES_MAX,
};
use fencehold_core::{EventData, Timestamp};

use super::JobSlotChange;
use super::archive::{Archive, JobChange};
use super::report::by;
use crate::state::Engine;

impl Engine {
    pub(super) fn write_ledger(
        &mut self,
        now: Timestamp,
        space: u32,
        entries: Vec<AttemptLedgerEntry>,
        archive: &mut dyn Archive,
    ) -> JobResponse {
        let answers = entries
            .into_iter()
            .map(|entry| self.enter(now, space, entry, archive))
            .collect();
        JobResponse::WrittenEffects(answers)
    }

    fn enter(
        &mut self,
        now: Timestamp,
        space: u32,
        entry: AttemptLedgerEntry,
        archive: &mut dyn Archive,
    ) -> Result<LedgerResponse, JobRefusal> {
        let at = self.find_job(space, entry.attempt.job_id, archive)?;
        let speaker = by(&entry.attempt);
        match entry.entry {
            LedgerEntry::Begin { effect, in_doubt_policy: policy } => {
                let found = self.effect(at, &effect, archive);
                if let Some(found) = found.as_ref().filter(|found| !is_open(found)) {
                    // It is recorded: the caller may know, live or not, as long as it may speak at all.
                    let command = JobCommand::Write { by: speaker, what: AttemptWrite::Outcome };
                    self.apply_to_job(now, at, &command, archive)?;
                    return Ok(LedgerResponse::Recorded { recorded_effect: found.clone() });
                }
                self.apply_to_job(
                    now,
                    at,
                    &JobCommand::Write { by: speaker, what: AttemptWrite::Intent },
                    archive,
                )?;
                let nth = self.next_nth(at, found.as_ref())?;
                match begin(found.as_ref(), &effect, policy, speaker.token, nth, now.wall_ms) {
                    EffectStart::Go(effect) => {
                        self.keep_effect(at, effect, archive);
                        Ok(LedgerResponse::Proceed {})
                    }
                    EffectStart::Recorded(effect) => Ok(LedgerResponse::Recorded { recorded_effect: effect }),
                    EffectStart::InDoubt => {
                        let effect = effect.as_str().into();
                        self.apply_to_job(
                            now,
                            at,
                            &JobCommand::StopAtIntent { by: speaker, effect },
                            archive,
                        )?;
                        Ok(LedgerResponse::InDoubt {})
                    }
                }
            }
            LedgerEntry::Record { effect, value, compensation: undo } => {
                check_json("value of the effect", &value, EFFECT_VALUE_BYTES_MAX)?;
                if let Some(undo) = &undo {
                    check_json("payload of the undo job", &undo.payload, PAYLOAD_BYTES_MAX)?;
                    undo.queue.as_ref().map_or(Ok(()), fencehold_core::job::QueueName::check_open)?;
                }
                self.apply_to_job(
                    now,
                    at,
                    &JobCommand::Write { by: speaker, what: AttemptWrite::Outcome },
                    archive,
                )?;
                let found = self.effect(at, &effect, archive);
                let nth = self.next_nth(at, found.as_ref())?;
                if found.as_ref().is_none_or(is_open) {
                    self.check_room(at, value.len() + undo.as_ref().map_or(0, |undo| undo.payload.len()))?;
                }
                let outcome = EffectOutcome { name: effect, value, compensation: undo.map(Box::new) };
                match record(found.as_ref(), &outcome, speaker.token, nth, now.wall_ms) {
                    Ok(effect) => {
                        self.keep_effect(at, effect.clone(), archive);
                        Ok(LedgerResponse::Recorded { recorded_effect: effect })
                    }
                    // The first record stands.
                    Err(first) => Ok(LedgerResponse::Recorded { recorded_effect: first }),
                }
            }
            LedgerEntry::Withdraw { effect } => {
                self.apply_to_job(
                    now,
                    at,
                    &JobCommand::Write { by: speaker, what: AttemptWrite::Outcome },
                    archive,
                )?;
                match self.effect(at, &effect, archive) {
                    Some(found) if withdraws(&found, speaker.token) => {
                        self.forget_effect(at, effect, archive);
                        Ok(LedgerResponse::Withdrawn {})
                    }
                    None => Ok(LedgerResponse::Withdrawn {}),
                    Some(found) if is_open(&found) => {
                        let state = JobState::Running;
                        let why = format!(
                            "effect {effect} was announced by an earlier attempt, which may have had it"
                        );
                        Err(JobRefusal::WrongState { state, message: why })
                    }
                    Some(found) => Ok(LedgerResponse::Recorded { recorded_effect: found }),
                }
            }
        }
    }

    fn forget_effect(&mut self, at: u32, effect: EffectName, archive: &mut dyn Archive) {
        self.effects(at, archive).retain(|other| other.name != effect);
        self.recount_effects(at);
        let arrival = self.jobs.table.at(at).map_or(0, |slot| slot.arrival);
        self.jobs.batch.others.push(JobChange::NoEffect { arrival, effect });
        self.batch.durable = true;
    }

    /// The effects of a job, in memory from now on.
    fn effects(&mut self, at: u32, archive: &mut dyn Archive) -> &mut Vec<Effect> {
        if !self.jobs.ledgers.contains_key(&at) {
            let slot = self.jobs.table.at(at);
            let kept = slot.filter(|slot| slot.record.notes.effects > 0).map(|slot| slot.arrival);
            let effects = kept
                .and_then(|arrival| self.archived(archive.effects(arrival)))
                .unwrap_or_default();
            self.jobs.ledgers.insert(at, effects);
        }
        self.jobs.ledgers.entry(at).or_default()
    }

    fn effect(&mut self, at: u32, name: &EffectName, archive: &mut dyn Archive) -> Option<Effect> {
        self.effects(at, archive).iter().find(|effect| effect.name == *name).cloned()
    }

    /// The place of the next new effect of a job, if it may have another.
    fn next_nth(&self, at: u32, found: Option<&Effect>) -> Result<u16, JobRefusal> {
        let count = self.jobs.table.at(at).map_or(0, |slot| slot.record.notes.effects);
        if found.is_none() && usize::from(count) >= EFFECTS_PER_JOB_MAX {
            let what = "effects of this job".to_owned();
            return Err(JobRefusal::LimitReached { message: what, limit: EFFECTS_PER_JOB_MAX as u64 });
        }
        let highest = self
            .jobs
            .ledgers
            .get(&at)
            .and_then(|effects| effects.iter().map(|effect| effect.position).max());
        Ok(highest.map_or(0, |nth| nth.saturating_add(1)))
    }

    /// Whether a job's effects may have so many bytes more: each attempt is handed all of them.
    fn check_room(&self, at: u32, bytes: usize) -> Result<(), JobRefusal> {
        let effects = self.jobs.ledgers.get(&at).map_or(&[][..], Vec::as_slice);
        let known: usize = effects
            .iter()
            .map(|effect| {
                let undo = effect.compensation.as_ref().map_or(0, |undo| undo.payload.len());
                effect.value.as_ref().map_or(0, |value| value.len()) + undo
            })
            .sum();
        if known + bytes > EFFECTS_BYTES_MAX {
            let what = "bytes of this job's effects".to_owned();
            return Err(JobRefusal::LimitReached { message: what, limit: EFFECTS_BYTES_MAX as u64 });
        }
        Ok(())
    }

    fn keep_effect(&mut self, at: u32, effect: Effect, archive: &mut dyn Archive) {
        let effects = self.effects(at, archive);
        match effects.iter_mut().find(|other| other.name == effect.name) {
            Some(other) => *other = effect.clone(),
            None => effects.push(effect.clone()),
        }
        self.recount_effects(at);
        let Some(arrival) = self.jobs.table.at(at).map(|slot| slot.arrival) else { return };
        self.jobs.batch.others.push(JobChange::Effect { arrival, effect });
        self.batch.durable = true;
    }

    fn recount_effects(&mut self, at: u32) {
        let count = self.jobs.ledgers.get(&at).map_or(0, Vec::len);
        let Some(slot) = self.jobs.table.at_mut(at) else { return };
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        if slot.record.notes.effects != count {
            slot.record.notes.effects = count;
            let arrival = slot.arrival;
            self.jobs.batch.touched.insert(arrival, JobSlotChange::Put(at));
        }
    }

    /// A job has failed for good or was called off: its effects are undone, last one first.
    pub(super) fn begin_to_undo(&mut self, now: Timestamp, at: u32, archive: &mut dyn Archive) {
        let slot = self.jobs.table.at(at);
        let undone = |state| matches!(state, JobState::Failed | JobState::Cancelled);
        if slot.is_some_and(|slot| undone(slot.record.state) && slot.record.notes.effects > 0) {
            self.undo_next(now, at, archive);
        }
    }

    /// Enqueues the next undo job of a job, or notes that there is none left.
    fn undo_next(&mut self, now: Timestamp, at: u32, archive: &mut dyn Archive) {
        let effects = self.effects(at, archive);
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
            self.enqueue_undo(now, at, effect, archive);
        }
        let Some(slot) = self.jobs.table.at_mut(at) else { return };
        slot.record.compensation_state = stands;
        let arrival = slot.arrival;
        self.jobs.batch.touched.insert(arrival, JobSlotChange::Put(at));
        self.batch.durable = true;
    }

    fn enqueue_undo(&mut self, now: Timestamp, at: u32, effect: Effect, archive: &mut dyn Archive) {
        let Some(slot) = self.jobs.table.at(at) else { return };
        let (id, queue_no, arrival, terms) = (slot.id, slot.queue, slot.arrival, slot.record.options);
        let queue = self.jobs.queues.at(queue_no);
        let (space, own_queue) = (queue.space, queue.name.clone());
        let Some(Compensation { kind, queue, payload }) = effect.compensation.as_deref().cloned() else {
            return;
        };
        // Always the same id: however often this is tried, there is one undo job.
        let undo_id: JobId = self.id_here(space, id.following(effect.name.as_str()), archive);
        if self.find_job(space, undo_id, archive).is_err() {
            let trace = self.body(arrival, archive).and_then(|body| body.trace.clone());
            // Undoing is tried as often as the work itself was to be, and is not pressed for time.
            let terms = JobOptions { attempt_timeout_ms: None, ..terms };
            let job = NewJob {
                options: terms,
                traceparent: trace,
                ..NewJob::new(undo_id, queue.unwrap_or(own_queue), kind, payload)
            };
            let undo_of = CompensatedEffect { job_id: id, effect: effect.name.clone() };
            self.add_job(now, space, job, fencehold_core::job::Due::Now, Some(undo_of));
        }
        let effect =
            Effect { state: EffectState::Compensating, compensation_job_id: Some(undo_id), ..effect };
        self.keep_effect(at, effect, archive);
    }

    /// An undo job has come to its end: so has the effect that it undoes, and the next one is begun.
    pub(super) fn undo_goes_on(&mut self, now: Timestamp, undo_at: u32, archive: &mut dyn Archive) {
        let Some(slot) = self.jobs.table.at(undo_at) else { return };
        let (arrival, state, queue) = (slot.arrival, slot.record.state, slot.queue);
        let space = self.jobs.queues.at(queue).space;
        let Some(CompensatedEffect { job_id: job, effect }) =
            self.body(arrival, archive).and_then(|body| body.undo_of.clone())
        else {
            return;
        };
        let Ok(at) = self.find_job(space, job, archive) else { return };
        let Some(found) = self.effect(at, &effect, archive) else { return };
        let undone = state == JobState::Completed;
        let stands = if undone { EffectState::Compensated } else { EffectState::CompensationFailed };
        self.keep_effect(at, Effect { state: stands, ..found }, archive);
        self.note_job(
            now,
            space,
            job,
            vec![EventData::EffectCompensationEnded { effect: effect.to_string(), compensated: undone }],
        );
        self.undo_next(now, at, archive);
    }

    /// Resolves an effect in doubt as a person decided.
    pub(super) fn resolve(
        &mut self,
        now: Timestamp,
        space: u32,
        request: &ResolveEffectRequest,
        archive: &mut dyn Archive,
    ) -> Result<(), JobRefusal> {
        let at = self.find_job(space, request.job_id, archive)?;
        let state = self
            .jobs
            .table
            .at(at)
            .map_or(JobState::Completed, |slot| slot.record.state_at(now));
        let found = self.effect(at, &request.effect, archive);
        let Some(found) = found.filter(is_open) else {
            let why = format!("it has no open intent {}; `effect ls` lists what is open", request.effect);
            return Err(JobRefusal::WrongState { state, message: why });
        };
        if state == JobState::Running {
            let why = "its holder is still at work, and may know itself".to_owned();
            return Err(JobRefusal::WrongState { state, message: why });
        }
        if let EffectResolution::Happened { value } = &request.resolution {
            let (state, value) = (EffectState::Done, Some(value.clone()));
            self.keep_effect(at, Effect { state, value, written_at_ms: now.wall_ms, ..found }, archive);
        } else {
            self.forget_effect(at, request.effect.clone(), archive);
        }
        if state == JobState::InDoubt {
            self.apply_to_job(now, at, &JobCommand::Retry { by: request.by.clone() }, archive)?;
        }
        Ok(())
    }
}

fn is_open(effect: &Effect) -> bool {
    matches!(effect.state, EffectState::Intended(_))
}
