//! Answers that are read from the archive once the changes of their batch have been kept.

use fencehold_core::job::{Attempt, JobId, Notes, State, Terms};
use fencehold_core::ledger::{Effect, EffectState};
use fencehold_core::{Stamp, Token};

use super::JobAnswer;
use super::archive::{Archive, Body, Note, Read, Rows};
use super::table::Slot;
use crate::engine::state::Engine;
use crate::job::{
    AttemptView, Began, Begun, Claimed, ClaimedJob, Finding, FindingKind, FindingPage, FindingsRequest,
    JobDetail, JobFilter, JobPage, JobView, JobsRequest, RunnerView,
};

/// How many rows one page looks at, so that listing a million jobs never holds up a renewal for long.
const LOOK_AT_MAX: usize = 1_000;
/// How many bytes of JSON one answer about a job carries of what is stored as bytes.
const NOT_UTF8: &str = "null";

/// What is still to be read.
#[derive(Debug)]
pub(crate) enum Look {
    Claimed { jobs: Vec<Picked>, waited_ms: u64, resumed: bool },
    Began { job: Picked, resumed: bool },
    Done { id: JobId, arrival: u64, result: bool },
    Job { space: u32, id: JobId },
    List { space: u32, request: JobsRequest },
    Findings { space: u32, request: FindingsRequest },
}

#[cfg(feature = "sim")]
impl Look {
    /// The jobs that a claim was given, with their tokens and how long each lasts.
    pub(crate) fn claims(&self) -> Option<Vec<(JobId, Token, u64)>> {
        let Look::Claimed { jobs, .. } = self else { return None };
        Some(jobs.iter().map(|job| (job.id, job.token, job.remaining_ms)).collect())
    }
}

/// A claimed job: what its handler gets to know, but for what is in the archive.
#[derive(Debug)]
pub(crate) struct Picked {
    id: JobId,
    arrival: u64,
    token: Token,
    attempt: u32,
    remaining_ms: u64,
    terms: Terms,
    failures: u16,
    crashes: u16,
    notes: Notes,
}

impl Engine {
    /// What the holder of a job gets to know of it.
    pub(super) fn picked(&self, now: Stamp, at: u32) -> Option<Picked> {
        let slot = self.jobs.table.at(at)?;
        let record = &slot.record;
        Some(Picked {
            id: slot.id,
            arrival: slot.arrival,
            token: record.token,
            attempt: record.attempt_count(),
            remaining_ms: match &record.claim {
                Some(claim) if seeded!(ClaimRepeatCountsAnew) => claim.ttl_ms,
                _ => slot.deadline_ms.saturating_sub(now.store_ms),
            },
            terms: record.terms,
            failures: record.failures,
            crashes: record.crashes,
            notes: record.notes,
        })
    }

    /// Reads what is still to be read for an answer.
    pub(crate) fn read(&self, now: Stamp, look: Look, archive: &mut dyn Archive) -> Read<JobAnswer> {
        Ok(match look {
            Look::Claimed { jobs, waited_ms, resumed } => {
                let jobs: Result<Vec<_>, _> = jobs.into_iter().map(|job| claimed(job, archive)).collect();
                JobAnswer::Claimed(Claimed {
                    jobs: jobs?.into_iter().flatten().collect(),
                    waited_ms,
                    resumed,
                })
            }
            Look::Began { job, resumed } => {
                let id = job.id;
                let what = match claimed(job, archive)? {
                    Some(job) => Begun::New(Box::new(job)),
                    None => Begun::Indeterminate { job: id },
                };
                JobAnswer::Began(Began { what, waited_ms: 0, resumed })
            }
            Look::Done { id, arrival, result } => {
                let result = if result { text(archive.note(arrival, Note::Result)?) } else { None };
                JobAnswer::Began(Began {
                    what: Begun::Done { job: id, result },
                    waited_ms: 0,
                    resumed: false,
                })
            }
            Look::Job { space, id } => JobAnswer::Job(self.detail(now, space, id, archive)?.map(Box::new)),
            Look::List { space, request } => JobAnswer::Jobs(self.page(now, space, &request, archive)?),
            Look::Findings { space, request } => {
                JobAnswer::Findings(self.findings(now, space, &request, archive)?)
            }
        })
    }

    fn detail(
        &self,
        now: Stamp,
        space: u32,
        id: JobId,
        archive: &mut dyn Archive,
    ) -> Read<Option<JobDetail>> {
        let finished;
        let slot = match self.jobs.table.find(id).and_then(|at| self.jobs.table.at(at)) {
            Some(slot) => slot,
            None => match archive.finished(id)? {
                Some(job) => {
                    finished = Slot::of(job);
                    &finished
                }
                None => return Ok(None),
            },
        };
        if self.jobs.queues.at(slot.queue).space != space {
            return Ok(None);
        }
        let Some(body) = archive.body(slot.arrival)? else { return Ok(None) };
        let notes = slot.record.notes;
        let mut note = |there: bool, what| if there { archive.note(slot.arrival, what) } else { Ok(None) };
        let result = text(note(notes.result, Note::Result)?);
        let progress = text(note(notes.progress, Note::Progress)?);
        let checkpoint = note(notes.checkpoint, Note::Checkpoint)?.map(|bytes| bytes.to_vec());
        let effects = if notes.effects > 0 { in_order(archive.effects(slot.arrival)?) } else { Vec::new() };
        Ok(Some(JobDetail {
            job: view(now, slot, &body),
            payload: body.payload.clone(),
            result,
            progress,
            checkpoint,
            trace: body.trace.clone(),
            attempts: slot.record.attempts().iter().map(view_attempt).collect(),
            effects,
        }))
    }

    fn page(
        &self,
        now: Stamp,
        space: u32,
        request: &JobsRequest,
        archive: &mut dyn Archive,
    ) -> Read<JobPage> {
        let mut page = JobPage { jobs: Vec::new(), next: None };
        let next = self.each_match(
            now,
            space,
            &request.filter,
            request.cursor,
            request.limit,
            archive,
            &mut |slot, body| {
                page.jobs.push(view(now, slot, body));
            },
        )?;
        page.next = next;
        Ok(page)
    }

    /// Every job of a page that matches; where the next page starts.
    #[expect(clippy::too_many_arguments, reason = "a page is what, from where, how much, and for whom")]
    pub(super) fn each_match(
        &self,
        now: Stamp,
        space: u32,
        filter: &JobFilter,
        cursor: Option<u64>,
        limit: usize,
        archive: &mut dyn Archive,
        each: &mut dyn FnMut(&Slot, &Body),
    ) -> Read<Option<u64>> {
        let rows = match (filter.states.is_empty(), filter.states.iter().all(|state| state.is_final())) {
            (false, true) => Rows::Finished,
            (false, false) if !filter.states.iter().any(|state| state.is_final()) => Rows::Live,
            _ if filter.owner.is_some() => Rows::Live,
            _ => Rows::All,
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
            let live = self.jobs.table.find(row.id).and_then(|at| self.jobs.table.at(at));
            let finished = row.finished.map(Slot::of);
            let Some(slot) = live.or(finished.as_ref()) else { continue };
            if self.jobs.queues.at(slot.queue).space != space || !stands(now, slot, filter) {
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

    fn findings(
        &self,
        now: Stamp,
        space: u32,
        request: &FindingsRequest,
        archive: &mut dyn Archive,
    ) -> Read<FindingPage> {
        let jobs = archive.with_effects(request.cursor.unwrap_or(0), request.limit)?;
        let full = jobs.len() == request.limit;
        let mut page = FindingPage { findings: Vec::new(), next: None };
        for (arrival, id) in jobs {
            page.next = Some(arrival + 1).filter(|_| full);
            let Some(detail) = self.detail(now, space, id, archive)? else { continue };
            for effect in detail.effects {
                let Some(what) = finding(&detail.job, &effect) else { continue };
                page.findings.push(Finding {
                    what,
                    job: id,
                    queue: detail.job.queue.clone(),
                    kind: detail.job.kind.clone(),
                    state: detail.job.state,
                    effect: effect.name,
                    effect_state: effect.state,
                    token: effect.token,
                    at_wall_ms: effect.at_wall_ms,
                    undo_job: effect.undo_job,
                });
            }
        }
        Ok(page)
    }
}

/// What people should know of an effect, if anything.
fn finding(job: &JobView, effect: &Effect) -> Option<FindingKind> {
    match effect.state {
        // While its holder is at work, an intent is only what it says.
        EffectState::Intended(_) if job.state == State::Running && effect.token == job.token => None,
        EffectState::Intended(_) => Some(FindingKind::OpenIntent),
        EffectState::Undoing => Some(FindingKind::NotYetUndone),
        EffectState::UndoFailed => Some(FindingKind::UndoFailed),
        EffectState::Undone => Some(FindingKind::Undone),
        EffectState::Done
            if matches!(job.state, State::Failed | State::Cancelled) && effect.undo.is_some() =>
        {
            Some(FindingKind::NotYetUndone)
        }
        EffectState::Done if effect.token != job.token && job.state != State::Completed => {
            Some(FindingKind::Superseded)
        }
        _ => None,
    }
}

fn claimed(job: Picked, archive: &mut dyn Archive) -> Read<Option<ClaimedJob>> {
    let Some(body) = archive.body(job.arrival)? else { return Ok(None) };
    let notes = job.notes;
    let checkpoint = if notes.checkpoint { archive.note(job.arrival, Note::Checkpoint)? } else { None };
    let effects = if notes.effects > 0 { in_order(archive.effects(job.arrival)?) } else { Vec::new() };
    Ok(Some(ClaimedJob {
        id: job.id,
        queue: body.queue.clone(),
        kind: body.kind.clone(),
        payload: body.payload.clone(),
        token: job.token,
        attempt: job.attempt,
        remaining_ms: job.remaining_ms,
        terms: job.terms,
        failures: job.failures,
        crashes: job.crashes,
        labels: body.labels.clone(),
        trace: body.trace.clone(),
        checkpoint: checkpoint.map(|bytes| bytes.to_vec()),
        effects,
        undo_of: body.undo_of.clone(),
    }))
}

fn in_order(mut effects: Vec<Effect>) -> Vec<Effect> {
    effects.sort_by_key(|effect| effect.nth);
    effects
}

fn text(bytes: Option<std::sync::Arc<[u8]>>) -> Option<Box<str>> {
    bytes.map(|bytes| std::str::from_utf8(&bytes).unwrap_or(NOT_UTF8).into())
}

pub(super) fn view(now: Stamp, slot: &Slot, body: &Body) -> JobView {
    let record = &slot.record;
    let state = record.state_at(now);
    let runner = record.claim.as_ref().map(|claim| RunnerView {
        owner: claim.owner.clone(),
        ttl_ms: claim.ttl_ms,
        remaining_ms: slot.deadline_ms.saturating_sub(now.store_ms),
        since_wall_ms: claim.since.wall_ms,
        age_ms: now.store_ms.saturating_sub(claim.since.store_ms),
        cancel_by: claim.cancel.as_ref().map(|cancel| cancel.by.clone()),
        notice: claim.notice.as_deref().cloned(),
    });
    JobView {
        id: slot.id,
        queue: body.queue.clone(),
        kind: body.kind.clone(),
        state,
        token: record.token,
        terms: record.terms,
        attempts: record.attempt_count(),
        failures: record.failures,
        crashes: record.crashes,
        enqueued_wall_ms: body.enqueued_wall_ms,
        since_wall_ms: record.since_wall_ms,
        due_in_ms: (state == State::Scheduled).then(|| record.due.in_ms(now)),
        runner,
        labels: body.labels.clone(),
        unique: body.unique.clone(),
        undo: record.undo,
        undo_of: body.undo_of.clone(),
    }
}

fn view_attempt(attempt: &Attempt) -> AttemptView {
    AttemptView {
        token: attempt.token,
        owner: attempt.owner.clone(),
        since_wall_ms: attempt.since.wall_ms,
        ended_wall_ms: attempt.ended.wall_ms,
        how: attempt.how,
        error: attempt.error.clone(),
    }
}

/// Whether a job stands as the filter says.
pub(super) fn stands(now: Stamp, slot: &Slot, filter: &JobFilter) -> bool {
    let state = slot.record.state_at(now);
    let by_owner = filter
        .owner
        .as_ref()
        .is_none_or(|owner| slot.record.claim.as_ref().is_some_and(|claim| claim.owner == *owner));
    by_owner && (filter.states.is_empty() || filter.states.contains(&state))
}

/// Whether a job is what the filter says.
fn is_about(body: &Body, filter: &JobFilter) -> bool {
    let labelled = |label: &(Box<str>, Box<str>)| body.labels.contains(label);
    filter.queue.as_ref().is_none_or(|queue| body.queue == *queue)
        && filter.kind.as_ref().is_none_or(|kind| body.kind == *kind)
        && filter.labels.iter().all(labelled)
        && filter
            .payload_contains
            .as_ref()
            .is_none_or(|text| body.payload.contains(text.as_str()))
}
