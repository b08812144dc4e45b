//! What was loaded, as JSON, for the rules of the core to decide upon.

use std::collections::HashMap;
use std::sync::Arc;

use fencehold_contract::stored::{EffectV1, LimitsV1, ScheduleV1, TermsV1, TrailV1};
use fencehold_core::job::{
    AttemptHistory, AttemptOutcome, Claim, Due, JobId, JobKind, JobNotes, JobRecord, PastAttempt, QueueName,
};
use fencehold_core::ledger::Effect;
use fencehold_core::limits::TRAIL_MAX;
use fencehold_core::{HoldHash, Namespace, Owner, Token};
use fencehold_engine::{JobBody, JobNote, JobSummary, ReplayJob, StoredJob, StoredSchedule, StoredUnique};
use serde::Deserialize;

use super::columns::{JobExtra, PendingSignals, state_of, terms_of, undo_of};
use crate::response::UsedRow;
use crate::value::{bytes_of, stamp};

/// The row that comes before the jobs.
#[derive(Debug, Deserialize)]
pub(super) struct LoadedHead {
    pub(super) now_ms: u64,
    pub(super) newest: u64,
    pub(super) closed_ms: u64,
    pub(super) queues: Option<Vec<QueueRow>>,
    pub(super) uniques: Option<Vec<UniqueRow>>,
    /// `None`: no limit is set in the namespace, or none matters.
    pub(super) room: Option<RoomRow>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RoomRow {
    pub(super) limits: LimitsV1,
    pub(super) used: UsedRow,
    /// Those of the queues that have a row, and count as not there.
    pub(super) unused: Vec<QueueName>,
}

#[derive(Debug, Deserialize)]
pub(super) struct QueueRow {
    pub(super) namespace: Namespace,
    pub(super) name: QueueName,
    pub(super) mode: u8,
}

#[derive(Debug, Deserialize)]
pub(super) struct UniqueRow {
    key: JobId,
    job: JobId,
    payload: JobId,
    until_ms: u64,
}

impl UniqueRow {
    pub(super) fn kept(&self, namespace: &Namespace) -> StoredUnique {
        StoredUnique {
            namespace: namespace.clone(),
            key: *self.key.as_bytes(),
            job: self.job,
            payload: *self.payload.as_bytes(),
            until_ms: self.until_ms,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct ScheduleRow {
    pub(super) namespace: Namespace,
    pub(super) spec: ScheduleV1<'static>,
    pub(super) next_ms: Option<u64>,
    pub(super) last_ms: Option<u64>,
}

impl ScheduleRow {
    pub(super) fn kept(self) -> StoredSchedule {
        let ScheduleRow { namespace, spec, next_ms, last_ms } = self;
        StoredSchedule { namespace, spec: spec.into(), next_wall_ms: next_ms, last_wall_ms: last_ms }
    }
}

/// A job as it is loaded.
#[derive(Debug, Deserialize)]
pub(super) struct JobRow {
    arrival: u64,
    pub(super) id: JobId,
    pub(super) namespace: Namespace,
    pub(super) queue: QueueName,
    pub(super) mode: u8,
    priority: i16,
    kind: JobKind,
    payload: Box<str>,
    enqueued_ms: u64,
    terms: Option<TermsV1>,
    extra: Option<JobExtra>,
    state: u8,
    due_ms: Option<u64>,
    token: Token,
    since_ms: u64,
    deadline_ms: Option<u64>,
    claim: Option<ClaimRow>,
    last: Option<LastRow>,
    failures: u16,
    crashes: u16,
    undo: u8,
    trail: Option<TrailV1>,
    has_result: bool,
    result: Option<Box<str>>,
    notes: Option<HashMap<u8, Option<String>>>,
    effects: Option<Vec<EffectV1<'static>>>,
    victim: Option<JobId>,
}

#[derive(Debug, Deserialize)]
struct ClaimRow {
    hash: JobId,
    owner: Owner,
    ttl_ms: u64,
    since_ms: u64,
    asked: Option<PendingSignals>,
}

/// The attempt that completed a job in one step.
#[derive(Debug, Deserialize)]
struct LastRow {
    token: Token,
    hash: JobId,
    owner: Owner,
    began_ms: u64,
    ended_ms: u64,
    late: bool,
}

impl JobRow {
    pub(super) fn brought(self) -> ReplayJob {
        let extra = self.extra.unwrap_or_default();
        let effects: Vec<Effect> = self.effects.unwrap_or_default().into_iter().map(Effect::from).collect();
        let kept_notes = self.notes.unwrap_or_default();
        let trail = with_last(self.trail.map(AttemptHistory::from), self.last);
        let claim = self.claim.map(|claim| {
            let (cancel, notice) = claim.asked.map_or((None, None), |asked| (asked.cancel, asked.notice));
            let hash = HoldHash::from_bytes(*claim.hash.as_bytes());
            let since = stamp(claim.since_ms);
            let cancel = cancel.map(|cancel| Box::new(cancel.into()));
            let notice = notice.map(|notice| Box::new(notice.into()));
            Box::new(Claim {
                hash,
                owner: claim.owner,
                ttl_ms: claim.ttl_ms,
                since,
                cancel,
                yield_request: notice,
            })
        });
        let record = JobRecord {
            state: state_of(self.state),
            due: self.due_ms.map_or(Due::Now, Due::Store),
            token: self.token,
            failure_count: self.failures,
            crash_count: self.crashes,
            options: terms_of(self.terms, self.priority),
            compensation_state: undo_of(self.undo),
            notes: JobNotes {
                checkpoint: kept_notes.contains_key(&0),
                progress: kept_notes.contains_key(&1),
                result: self.has_result,
                effects: u16::try_from(effects.len()).unwrap_or(u16::MAX),
            },
            since_wall_ms: self.since_ms,
            claim,
            trail,
        };
        let about = JobSummary {
            bytes: u32::try_from(self.payload.len()).unwrap_or(u32::MAX),
            yield_within_ms: u32::try_from(extra.yield_within_ms.unwrap_or(0)).unwrap_or(u32::MAX),
            undoes: extra.undo_of.is_some(),
        };
        let note = |what: JobNote, hex: Option<String>| hex.map(|hex| (what, Arc::from(bytes_of(&hex))));
        let mut notes: Vec<(JobNote, Arc<[u8]>)> = Vec::new();
        for (what, hex) in kept_notes {
            notes.extend(note(if what == 0 { JobNote::Checkpoint } else { JobNote::Progress }, hex));
        }
        notes.extend(self.result.map(|text| (JobNote::Result, Arc::from(text.into_boxed_bytes()))));
        let body = JobBody {
            namespace: self.namespace,
            queue: self.queue,
            kind: self.kind,
            payload: self.payload,
            labels: extra.labels,
            trace: extra.trace,
            unique: extra.unique,
            yield_within_ms: extra.yield_within_ms,
            enqueued_wall_ms: self.enqueued_ms,
            undo_of: extra.undo_of.map(Into::into),
        };
        let kept = StoredJob {
            arrival: self.arrival,
            id: self.id,
            queue: 0,
            record,
            deadline_ms: self.deadline_ms.unwrap_or(0),
            about,
            reopened: false,
            renewed: false,
        };
        ReplayJob { kept, body: Arc::new(body), notes, effects, victim: self.victim }
    }
}

/// The attempts that ended, with the one that is noted apart.
fn with_last(trail: Option<AttemptHistory>, last: Option<LastRow>) -> Option<Box<AttemptHistory>> {
    let Some(last) = last else { return trail.map(Box::new) };
    let mut trail = trail.unwrap_or_default();
    while trail.attempts.len() >= TRAIL_MAX {
        trail.attempts.remove(0);
        trail.forgotten = trail.forgotten.saturating_add(1);
    }
    trail.attempts.push(PastAttempt {
        token: last.token,
        hash: HoldHash::from_bytes(*last.hash.as_bytes()),
        owner: last.owner,
        since: stamp(last.began_ms),
        ended: stamp(last.ended_ms),
        outcome: if last.late { AttemptOutcome::CompletedLate } else { AttemptOutcome::Completed },
        error: None,
    });
    Some(Box::new(trail))
}
