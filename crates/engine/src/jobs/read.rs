//! Answers that are read from the archive once the changes of their batch have been kept.

use fencehold_contract::job::{
    AttemptView, BegunOperation, ClaimedJob, ClaimedJobs, EffectPage, EffectView, FindingKind, JobDetail,
    JobFilter, JobPage, JobView, ListEffectsRequest, ListJobsRequest, OperationStatus, RunnerView,
};
use fencehold_contract::operation::JobResponse;
use fencehold_core::job::{EffectName, JobId, JobNotes, JobOptions, JobState, PastAttempt};
use fencehold_core::ledger::{Compensation, Effect, EffectState};
use fencehold_core::{Timestamp, Token};

use super::archive::{Archive, ArchiveRange, ArchiveResult, JobBody, JobNote};
use super::ledger::is_open;
use super::table::JobSlot;
use crate::state::Engine;
use crate::step::Step;

/// How many rows one page looks at, so that listing a million jobs never holds up a renewal for long.
const LOOK_AT_MAX: usize = 1_000;
/// How many findings make a page full, whatever its limit: one job can have a thousand.
const FINDINGS_MAX: usize = 10_000;
/// How many bytes the jobs of one claim have, at most, beyond the first one.
pub(super) const CLAIM_BYTES_MAX: usize = 8 << 20;
/// What a job or an effect takes up in an answer, apart from what can be long.
const JOB_BYTES: usize = 256;
const EFFECT_BYTES: usize = 96;
/// What stands for text that is not UTF-8.
const NOT_UTF8: &str = "null";

/// What is still to be read.
#[derive(Debug)]
pub enum ArchiveRead {
    Claimed { jobs: Vec<PickedJob>, waited_ms: u64, resumed: bool },
    Began { job: PickedJob, resumed: bool },
    Done { id: JobId, arrival: u64, result: bool },
    Job { space: u32, id: JobId },
    List { space: u32, request: ListJobsRequest },
    Findings { space: u32, request: ListEffectsRequest },
}

impl ArchiveRead {
    /// The jobs that a claim was given, with their tokens and how long each lasts.
    pub fn claims(&self) -> Option<Vec<(JobId, Token, u64)>> {
        let ArchiveRead::Claimed { jobs, .. } = self else { return None };
        Some(jobs.iter().map(|job| (job.id, job.token, job.remaining_ms)).collect())
    }
}

/// A claimed job: what its handler gets to know, but for what is in the archive.
#[derive(Debug)]
pub struct PickedJob {
    id: JobId,
    arrival: u64,
    token: Token,
    attempt: u32,
    remaining_ms: u64,
    terms: JobOptions,
    failures: u16,
    crashes: u16,
    notes: JobNotes,
}

impl Step<'_> {
    /// About how many bytes an answer has to carry for this job.
    pub(super) fn carried_bytes(&mut self, at: u32) -> usize {
        let Some(slot) = self.job(at) else { return 0 };
        let (arrival, notes, body) = (slot.arrival, slot.record.notes, slot.bytes as usize);
        let mut bytes = JOB_BYTES + body;
        if notes.checkpoint {
            let checkpoint = self.archived(|archive| archive.note(arrival, JobNote::Checkpoint)).flatten();
            bytes += checkpoint.map_or(0, |checkpoint| checkpoint.len());
        }
        if notes.effects > 0 {
            bytes += if let Some(effects) = self.jobs.ledgers.get(&at) {
                effects.iter().map(effect_bytes).sum::<usize>()
            } else {
                let effects = self.archived(|archive| archive.effects(arrival)).unwrap_or_default();
                effects.iter().map(effect_bytes).sum()
            };
        }
        bytes
    }

    fn detail(&mut self, space: u32, id: JobId) -> ArchiveResult<Option<JobDetail>> {
        let Step { engine, archive } = self;
        let live = engine.jobs.table.get(id);
        let finished = if live.is_none() { archive.finished(id)?.map(JobSlot::of) } else { None };
        let slot = live.or(finished.as_ref());
        let Some(slot) = slot.filter(|slot| engine.jobs.queues.at(slot.queue).space == space) else {
            return Ok(None);
        };
        let Some(body) = archive.body(slot.arrival)? else { return Ok(None) };
        let notes = slot.record.notes;
        let mut note = |there: bool, what| if there { archive.note(slot.arrival, what) } else { Ok(None) };
        Ok(Some(JobDetail {
            job: view(engine.now, slot, &body),
            payload: body.payload.clone(),
            result: text(note(notes.result, JobNote::Result)?),
            progress: text(note(notes.progress, JobNote::Progress)?),
            checkpoint: note(notes.checkpoint, JobNote::Checkpoint)?.map(|bytes| bytes.to_vec()),
            traceparent: body.trace.clone(),
            attempts: slot.record.attempts().iter().map(view_attempt).collect(),
            effects: effects_in_order(*archive, slot.arrival, notes)?,
        }))
    }

    fn page(&mut self, space: u32, request: &ListJobsRequest) -> ArchiveResult<JobPage> {
        let ListJobsRequest { filter, cursor, limit, .. } = request;
        let (now, mut jobs) = (self.now, Vec::new());
        let next_cursor =
            self.each_match(space, filter, *cursor, *limit, |slot, body| jobs.push(view(now, slot, body)))?;
        Ok(JobPage { jobs, next_cursor })
    }

    /// Every job of a page that matches; where the next page starts.
    pub(super) fn each_match(
        &mut self,
        space: u32,
        filter: &JobFilter,
        cursor: Option<u64>,
        limit: usize,
        mut each: impl FnMut(&JobSlot, &JobBody),
    ) -> ArchiveResult<Option<u64>> {
        let Step { engine, archive } = self;
        let rows = match (filter.states.is_empty(), filter.states.iter().all(|state| state.is_final())) {
            (false, true) => ArchiveRange::Finished,
            (false, false) if !filter.states.iter().any(|state| state.is_final()) => ArchiveRange::Live,
            _ if filter.owner.is_some() => ArchiveRange::Live,
            _ => ArchiveRange::All,
        };
        let looked_at = archive.page(rows, cursor.unwrap_or(0), LOOK_AT_MAX)?;
        let full = looked_at.len() == LOOK_AT_MAX;
        let mut found = 0;
        let mut last = None;
        for row in looked_at {
            if found == limit {
                return Ok(Some(row.arrival));
            }
            last = Some(row.arrival);
            let finished = row.finished.map(JobSlot::of);
            let Some(slot) = engine.jobs.table.get(row.id).or(finished.as_ref()) else { continue };
            if engine.jobs.queues.at(slot.queue).space != space || !stands(engine.now, slot, filter) {
                continue;
            }
            let Some(body) = archive.body(slot.arrival)? else { continue };
            if is_about(&body, filter) {
                each(slot, &body);
                found += 1;
            }
        }
        Ok(last.filter(|_| full).map(|last| last + 1))
    }

    fn findings(&mut self, space: u32, request: &ListEffectsRequest) -> ArchiveResult<EffectPage> {
        let jobs = self.archive.with_effects(request.cursor.unwrap_or(0), request.limit)?;
        let full = jobs.len() == request.limit;
        let mut page = EffectPage { effects: Vec::new(), next_cursor: None };
        for (arrival, id) in jobs {
            page.next_cursor = Some(arrival + 1).filter(|_| full);
            let Some(detail) = self.detail(space, id)? else { continue };
            for effect in detail.effects {
                let Some(finding) = finding(&detail.job, &effect) else { continue };
                page.effects.push(EffectView {
                    finding,
                    job_id: id,
                    queue: detail.job.queue.clone(),
                    kind: detail.job.kind.clone(),
                    job_state: detail.job.state,
                    effect: effect.name,
                    effect_state: effect.state.kind(),
                    token: effect.token,
                    written_at_ms: effect.written_at_ms,
                    compensation_job_id: effect.compensation_job_id,
                });
            }
            if page.effects.len() >= FINDINGS_MAX {
                page.next_cursor = Some(arrival + 1);
                return Ok(page);
            }
        }
        Ok(page)
    }
}

impl Engine {
    /// What the holder of a job gets to know of it.
    pub(super) fn picked(&self, at: u32) -> Option<PickedJob> {
        let slot = self.job(at)?;
        let record = &slot.record;
        Some(PickedJob {
            id: slot.id,
            arrival: slot.arrival,
            token: record.token,
            attempt: record.attempt_count(),
            remaining_ms: slot.deadline_ms.saturating_sub(self.now.store_ms),
            terms: record.options,
            failures: record.failure_count,
            crashes: record.crash_count,
            notes: record.notes,
        })
    }

    /// Reads what is still to be read for an answer. The tokens are those of claimed jobs for which it has no room.
    pub fn read(
        &mut self,
        now: Timestamp,
        read: ArchiveRead,
        archive: &mut dyn Archive,
    ) -> ArchiveResult<(JobResponse, Vec<Token>)> {
        self.begin_step(now);
        let mut step = Step { engine: self, archive };
        let archive = &mut *step.archive;
        let response = match read {
            ArchiveRead::Claimed { jobs, waited_ms, resumed } => {
                let (jobs, left_out) = those_with_room(jobs, archive)?;
                return Ok((JobResponse::Claimed(ClaimedJobs { jobs, waited_ms, resumed }), left_out));
            }
            ArchiveRead::Began { job, resumed } => {
                let job_id = job.id;
                let operation = match claimed(job, archive)? {
                    Some(mut job) => {
                        // Its holder knows that it has begun.
                        job.effects
                            .retain(|effect| effect.name != EffectName::operation() || !is_open(effect));
                        OperationStatus::Started { job: Box::new(job) }
                    }
                    None => OperationStatus::InDoubt { job_id },
                };
                JobResponse::BegunOperation(Ok(BegunOperation { operation, waited_ms: 0, resumed }))
            }
            ArchiveRead::Done { id: job_id, arrival, result } => {
                let result = if result { text(archive.note(arrival, JobNote::Result)?) } else { None };
                let operation = OperationStatus::Completed { job_id, result };
                JobResponse::BegunOperation(Ok(BegunOperation { operation, waited_ms: 0, resumed: false }))
            }
            ArchiveRead::Job { space, id } => JobResponse::Job(step.detail(space, id)?.map(Box::new)),
            ArchiveRead::List { space, request } => JobResponse::Jobs(step.page(space, &request)?),
            ArchiveRead::Findings { space, request } => JobResponse::Effects(step.findings(space, &request)?),
        };
        Ok((response, Vec::new()))
    }
}

/// What people should know of an effect, if anything.
fn finding(job: &JobView, effect: &Effect) -> Option<FindingKind> {
    match effect.state {
        // While its holder is at work, an intent is only what it says.
        EffectState::Intended(_) if job.state == JobState::Running && effect.token == job.token => None,
        EffectState::Intended(_) => Some(FindingKind::InDoubt),
        EffectState::Compensating => Some(FindingKind::CompensationPending),
        EffectState::CompensationFailed => Some(FindingKind::CompensationFailed),
        EffectState::Compensated => Some(FindingKind::Compensated),
        EffectState::Done
            if matches!(job.state, JobState::Failed | JobState::Cancelled)
                && effect.compensation.is_some() =>
        {
            Some(FindingKind::CompensationPending)
        }
        EffectState::Done if effect.token != job.token && job.state != JobState::Completed => {
            Some(FindingKind::Superseded)
        }
        EffectState::Done => None,
    }
}

/// What the claimed jobs carry, as far as one answer has room for it: the first one always. What is left out goes back.
fn those_with_room(
    picked: Vec<PickedJob>,
    archive: &mut dyn Archive,
) -> ArchiveResult<(Vec<ClaimedJob>, Vec<Token>)> {
    let mut jobs = Vec::with_capacity(picked.len());
    let mut bytes = 0;
    let mut picked = picked.into_iter();
    while let Some(next) = picked.next() {
        let token = next.token;
        let Some(job) = claimed(next, archive)? else { continue };
        bytes += job_bytes(&job);
        if !jobs.is_empty() && bytes > CLAIM_BYTES_MAX {
            let left_out = std::iter::once(token).chain(picked.map(|job| job.token));
            return Ok((jobs, left_out.collect()));
        }
        jobs.push(job);
    }
    Ok((jobs, Vec::new()))
}

/// How many bytes a job has in an answer: what can be long about it, and enough for the rest.
fn job_bytes(job: &ClaimedJob) -> usize {
    let labels = job.labels.iter().map(|(name, value)| name.len() + value.len() + 8);
    let names = job.queue.as_str().len() + job.kind.as_str().len();
    let undo_of = job.compensates.as_ref().map_or(0, |undo_of| undo_of.effect.as_str().len());
    let traceparent = job.traceparent.as_ref().map_or(0, |trace| trace.len());
    let checkpoint = job.checkpoint.as_ref().map_or(0, Vec::len);
    let long: usize = labels.chain(job.effects.iter().map(effect_bytes)).sum();
    JOB_BYTES + job.payload.len() + names + undo_of + traceparent + checkpoint + long
}

/// How many bytes an effect has in an answer.
pub(super) fn effect_bytes(effect: &Effect) -> usize {
    let undo = effect
        .compensation
        .as_deref()
        .map_or(0, |Compensation { kind, queue, payload }| {
            payload.len() + kind.as_str().len() + queue.as_ref().map_or(0, |queue| queue.as_str().len())
        });
    EFFECT_BYTES + effect.name.as_str().len() + effect.value.as_ref().map_or(0, |value| value.len()) + undo
}

fn claimed(job: PickedJob, archive: &mut dyn Archive) -> ArchiveResult<Option<ClaimedJob>> {
    let Some(body) = archive.body(job.arrival)? else { return Ok(None) };
    let notes = job.notes;
    let checkpoint = if notes.checkpoint { archive.note(job.arrival, JobNote::Checkpoint)? } else { None };
    let effects = effects_in_order(archive, job.arrival, notes)?;
    Ok(Some(ClaimedJob {
        id: job.id,
        queue: body.queue.clone(),
        kind: body.kind.clone(),
        payload: body.payload.clone(),
        token: job.token,
        attempt: job.attempt,
        remaining_ms: job.remaining_ms,
        options: job.terms,
        failure_count: job.failures,
        crash_count: job.crashes,
        labels: body.labels.clone(),
        traceparent: body.trace.clone(),
        checkpoint: checkpoint.map(|bytes| bytes.to_vec()),
        effects,
        compensates: body.undo_of.clone(),
    }))
}

fn effects_in_order(archive: &mut dyn Archive, arrival: u64, notes: JobNotes) -> ArchiveResult<Vec<Effect>> {
    let mut effects = if notes.effects > 0 { archive.effects(arrival)? } else { Vec::new() };
    effects.sort_by_key(|effect| effect.position);
    Ok(effects)
}

fn text(bytes: Option<std::sync::Arc<[u8]>>) -> Option<Box<str>> {
    bytes.map(|bytes| std::str::from_utf8(&bytes).unwrap_or(NOT_UTF8).into())
}

pub(super) fn view(now: Timestamp, slot: &JobSlot, body: &JobBody) -> JobView {
    let record = &slot.record;
    let state = record.state_at(now);
    let runner = record.claim.as_ref().map(|claim| RunnerView {
        owner: claim.owner.clone(),
        ttl_ms: claim.ttl_ms,
        remaining_ms: slot.deadline_ms.saturating_sub(now.store_ms),
        claimed_at_ms: claim.since.wall_ms,
        age_ms: now.store_ms.saturating_sub(claim.since.store_ms),
        cancel_requested_by: claim.cancel.as_ref().map(|cancel| cancel.by.clone()),
        yield_request: claim.yield_request.as_ref().map(|asked| asked.seen_at(now.store_ms)),
    });
    JobView {
        id: slot.id,
        queue: body.queue.clone(),
        kind: body.kind.clone(),
        state,
        token: record.token,
        options: record.options,
        attempt_count: record.attempt_count(),
        failure_count: record.failure_count,
        crash_count: record.crash_count,
        enqueued_at_ms: body.enqueued_wall_ms,
        state_changed_at_ms: record.since_wall_ms,
        due_in_ms: (state == JobState::Scheduled).then(|| record.due.in_ms(now)),
        runner,
        labels: body.labels.clone(),
        unique_key: body.unique.clone(),
        compensation_state: record.compensation_state,
        compensates: body.undo_of.clone(),
    }
}

fn view_attempt(attempt: &PastAttempt) -> AttemptView {
    AttemptView {
        token: attempt.token,
        owner: attempt.owner.clone(),
        started_at_ms: attempt.since.wall_ms,
        ended_at_ms: attempt.ended.wall_ms,
        outcome: attempt.outcome,
        error: attempt.error.clone(),
    }
}

/// Whether a job stands as the filter says.
pub(super) fn stands(now: Timestamp, slot: &JobSlot, filter: &JobFilter) -> bool {
    let runner = slot.record.claim.as_ref().map(|claim| &claim.owner);
    (filter.owner.is_none() || runner == filter.owner.as_ref())
        && (filter.states.is_empty() || filter.states.contains(&slot.record.state_at(now)))
}

/// Whether a job is what the filter says.
fn is_about(body: &JobBody, filter: &JobFilter) -> bool {
    let JobFilter { queue, kind, labels, payload_contains, .. } = filter;
    queue.as_ref().is_none_or(|queue| body.queue == *queue)
        && kind.as_ref().is_none_or(|kind| body.kind == *kind)
        && labels.iter().all(|label| body.labels.contains(label))
        && payload_contains
            .as_ref()
            .is_none_or(|text| body.payload.contains(text.as_str()))
}

#[cfg(test)]
mod tests {
    use fencehold_contract::job::CompensatedEffect;
    use fencehold_core::job::{EffectName, JobKind, QueueName};
    use fencehold_core::limits::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, TRACE_BYTES_MAX};

    use super::*;

    fn text(bytes: usize) -> Box<str> {
        "x".repeat(bytes).into()
    }

    /// What is measured is never less than what travels, whatever a job is made of.
    #[test]
    fn a_job_is_measured_as_it_travels() {
        let name = |bytes| EffectName::new(text(bytes)).unwrap();
        let effect = |nth| Effect {
            name: name(128),
            position: nth,
            token: Token::new(fencehold_core::limits::TOKEN_MAX),
            written_at_ms: u64::MAX,
            state: EffectState::Done,
            value: Some(text(64 << 10)),
            compensation: Some(Box::new(Compensation {
                kind: JobKind::new(text(128)).unwrap(),
                queue: QueueName::new(text(128)).ok(),
                payload: text(1 << 20),
            })),
            compensation_job_id: Some(JobId::from_random(1, [1; 10])),
        };
        let small = ClaimedJob {
            id: JobId::from_random(1, [1; 10]),
            queue: QueueName::new("q").unwrap(),
            kind: JobKind::new("k").unwrap(),
            payload: "1".into(),
            token: Token::new(fencehold_core::limits::TOKEN_MAX),
            attempt: u32::MAX,
            remaining_ms: u64::MAX,
            options: JobOptions::default(),
            failure_count: u16::MAX,
            crash_count: u16::MAX,
            labels: Vec::new(),
            traceparent: None,
            checkpoint: None,
            effects: Vec::new(),
            compensates: None,
        };
        let large = ClaimedJob {
            queue: QueueName::new(text(128)).unwrap(),
            kind: JobKind::new(text(128)).unwrap(),
            payload: text(1 << 20),
            labels: vec![(text(LABEL_NAME_BYTES_MAX), text(LABEL_VALUE_BYTES_MAX)); LABELS_MAX],
            traceparent: Some(text(TRACE_BYTES_MAX)),
            checkpoint: Some(vec![7; 256 << 10]),
            effects: (0..3).map(effect).collect(),
            compensates: Some(CompensatedEffect {
                job_id: JobId::from_random(1, [1; 10]),
                effect: name(128),
            }),
            ..small.clone()
        };
        let mut effects = small.clone();
        effects.effects = (0..1_000)
            .map(|nth| Effect { value: None, compensation: None, ..effect(nth) })
            .collect();
        for job in [small, large, effects] {
            let (measured, travels) = (job_bytes(&job), postcard::to_allocvec(&job).unwrap().len());
            assert!(travels <= measured && measured < travels + travels / 2 + 512, "{travels}, {measured}");
        }
    }
}
