//! What is kept of jobs, as it is written: types of its own, so that no change of a type in memory changes what is on disk. Never
//! reorder, add or remove a field or a variant: add a version. `golden` holds the bytes against what they have always been.
//!
//! What is only a checked text or a number there (names, tokens, moments) is kept as it is.

use std::borrow::Cow;
use std::num::NonZeroU32;

use fencehold_contract::job::{ScheduleSpec, UndoOf};
use fencehold_core::job::{
    Attempt, Cancel, Claim, Due, EffectName, Ended, JobId, Kind, Notes, Queue, Record, ScheduleName, State,
    Terms, Trail, Undo, UniqueKey,
};
use fencehold_core::lease::Notice;
use fencehold_core::ledger::{Effect, EffectState, OnDoubt, UndoWith};
use fencehold_core::retry::{Backoff, Retry};
use fencehold_core::{HoldHash, Namespace, Owner, Reason, Stamp, Task, Token};
use fencehold_engine::{About, Body};
use serde::{Deserialize, Serialize};

type Labels = [(Box<str>, Box<str>)];

/// A job: what the working state knows of its body, and all that changes about it.
#[derive(Serialize, Deserialize)]
pub(super) struct StandingV1 {
    about: AboutV1,
    record: RecordV1,
}

#[derive(Serialize, Deserialize)]
struct AboutV1 {
    bytes: u32,
    yield_within_ms: u32,
    undoes: bool,
}

#[derive(Serialize, Deserialize)]
struct RecordV1 {
    state: u8,
    due: DueV1,
    token: Token,
    failures: u16,
    crashes: u16,
    terms: TermsV1,
    undo: u8,
    notes: NotesV1,
    since_wall_ms: u64,
    claim: Option<ClaimV1>,
    trail: Option<TrailV1>,
}

#[derive(Serialize, Deserialize)]
enum DueV1 {
    Now,
    Store(u64),
    Wall(u64),
}

#[derive(Serialize, Deserialize)]
struct TermsV1 {
    priority: i16,
    max_attempts: u16,
    max_crashes: u16,
    attempt_ms: Option<NonZeroU32>,
    backoff: u8,
    base_ms: u32,
    cap_ms: u32,
    jitter_percent: u8,
}

#[derive(Serialize, Deserialize)]
struct NotesV1 {
    checkpoint: bool,
    progress: bool,
    result: bool,
    effects: u16,
}

#[derive(Serialize, Deserialize)]
struct ClaimV1 {
    hash: HoldHash,
    owner: Owner,
    ttl_ms: u64,
    since: Stamp,
    cancel: Option<CancelV1>,
    notice: Option<NoticeV1>,
}

#[derive(Serialize, Deserialize)]
struct CancelV1 {
    by: Owner,
    reason: Option<Reason>,
}

#[derive(Serialize, Deserialize)]
struct NoticeV1 {
    contender: Owner,
    task: Option<Task>,
    priority: i16,
    yield_at_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct TrailV1 {
    attempts: Vec<AttemptV1>,
    forgotten: u32,
}

#[derive(Serialize, Deserialize)]
struct AttemptV1 {
    token: Token,
    hash: HoldHash,
    owner: Owner,
    since: Stamp,
    ended: Stamp,
    how: u8,
    error: Option<Box<str>>,
}

/// What never changes about a job. Borrowed while it is written: a payload may be large.
#[derive(Serialize, Deserialize)]
pub(super) struct BodyV1<'a> {
    namespace: Namespace,
    queue: Queue,
    kind: Kind,
    payload: Cow<'a, str>,
    labels: Cow<'a, Labels>,
    trace: Option<Cow<'a, str>>,
    unique: Option<UniqueKey>,
    yield_within_ms: Option<u64>,
    enqueued_wall_ms: u64,
    undo_of: Option<UndoOfV1>,
}

#[derive(Serialize, Deserialize)]
struct UndoOfV1 {
    job: JobId,
    effect: EffectName,
}

#[derive(Serialize, Deserialize)]
pub(super) struct EffectV1<'a> {
    name: EffectName,
    nth: u16,
    token: Token,
    at_wall_ms: u64,
    state: EffectStateV1,
    value: Option<Cow<'a, str>>,
    undo: Option<UndoWithV1<'a>>,
    undo_job: Option<JobId>,
}

#[derive(Serialize, Deserialize)]
enum EffectStateV1 {
    /// With what is done when its outcome is unknown.
    Intended(u8),
    Done,
    Undoing,
    Undone,
    UndoFailed,
}

#[derive(Serialize, Deserialize)]
struct UndoWithV1<'a> {
    kind: Kind,
    queue: Option<Queue>,
    payload: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ScheduleV1<'a> {
    name: ScheduleName,
    cron: Cow<'a, str>,
    zone: Cow<'a, str>,
    queue: Queue,
    kind: Kind,
    payload: Cow<'a, str>,
    terms: TermsV1,
    labels: Cow<'a, Labels>,
    by: Owner,
}

/// A variant's number: its place among all of its kind.
fn tag_of<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let at = all.iter().position(|known| known == one);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

fn tagged<T: Copy>(what: &str, all: &[T], tag: u8) -> Result<T, String> {
    all.get(usize::from(tag))
        .copied()
        .ok_or_else(|| format!("it has an unknown {what}, {tag}"))
}

impl StandingV1 {
    pub(super) fn of(about: About, record: &Record) -> Self {
        let About { bytes, yield_within_ms, undoes } = about;
        StandingV1 { about: AboutV1 { bytes, yield_within_ms, undoes }, record: RecordV1::of(record) }
    }

    pub(super) fn read(self) -> Result<(About, Record), String> {
        let AboutV1 { bytes, yield_within_ms, undoes } = self.about;
        Ok((About { bytes, yield_within_ms, undoes }, self.record.read()?))
    }
}

impl RecordV1 {
    fn of(record: &Record) -> Self {
        let Notes { checkpoint, progress, result, effects } = record.notes;
        RecordV1 {
            state: tag_of(&State::ALL, &record.state),
            due: match record.due {
                Due::Now => DueV1::Now,
                Due::Store(ms) => DueV1::Store(ms),
                Due::Wall(ms) => DueV1::Wall(ms),
            },
            token: record.token,
            failures: record.failures,
            crashes: record.crashes,
            terms: TermsV1::of(&record.terms),
            undo: tag_of(&Undo::ALL, &record.undo),
            notes: NotesV1 { checkpoint, progress, result, effects },
            since_wall_ms: record.since_wall_ms,
            claim: record.claim.as_deref().map(ClaimV1::of),
            trail: record.trail.as_deref().map(|trail| TrailV1 {
                attempts: trail.attempts.iter().map(AttemptV1::of).collect(),
                forgotten: trail.forgotten,
            }),
        }
    }

    fn read(self) -> Result<Record, String> {
        let NotesV1 { checkpoint, progress, result, effects } = self.notes;
        let trail = self.trail.map(|trail| {
            let attempts = trail.attempts.into_iter().map(AttemptV1::read).collect::<Result<_, String>>()?;
            Ok::<_, String>(Box::new(Trail { attempts, forgotten: trail.forgotten }))
        });
        Ok(Record {
            state: tagged("state", &State::ALL, self.state)?,
            due: match self.due {
                DueV1::Now => Due::Now,
                DueV1::Store(ms) => Due::Store(ms),
                DueV1::Wall(ms) => Due::Wall(ms),
            },
            token: self.token,
            failures: self.failures,
            crashes: self.crashes,
            terms: self.terms.read()?,
            undo: tagged("state of undoing", &Undo::ALL, self.undo)?,
            notes: Notes { checkpoint, progress, result, effects },
            since_wall_ms: self.since_wall_ms,
            claim: self.claim.map(|claim| Box::new(claim.read())),
            trail: trail.transpose()?,
        })
    }
}

impl TermsV1 {
    fn of(terms: &Terms) -> Self {
        TermsV1 {
            priority: terms.priority,
            max_attempts: terms.max_attempts,
            max_crashes: terms.max_crashes,
            attempt_ms: terms.attempt_ms,
            backoff: tag_of(&Backoff::ALL, &terms.retry.backoff),
            base_ms: terms.retry.base_ms,
            cap_ms: terms.retry.cap_ms,
            jitter_percent: terms.retry.jitter_percent,
        }
    }

    fn read(self) -> Result<Terms, String> {
        let backoff = tagged("backoff", &Backoff::ALL, self.backoff)?;
        let mut retry = Retry::new(backoff, self.base_ms, self.cap_ms);
        retry.jitter_percent = self.jitter_percent;
        let TermsV1 { priority, max_attempts, max_crashes, attempt_ms, .. } = self;
        Ok(Terms { priority, max_attempts, max_crashes, attempt_ms, retry })
    }
}

impl ClaimV1 {
    fn of(claim: &Claim) -> Self {
        ClaimV1 {
            hash: claim.hash,
            owner: claim.owner.clone(),
            ttl_ms: claim.ttl_ms,
            since: claim.since,
            cancel: claim
                .cancel
                .as_ref()
                .map(|cancel| CancelV1 { by: cancel.by.clone(), reason: cancel.reason.clone() }),
            notice: claim.notice.as_ref().map(|notice| NoticeV1 {
                contender: notice.contender.clone(),
                task: notice.task.clone(),
                priority: notice.priority,
                yield_at_ms: notice.yield_at_ms,
            }),
        }
    }

    fn read(self) -> Claim {
        let ClaimV1 { hash, owner, ttl_ms, since, cancel, notice } = self;
        let cancel = cancel.map(|CancelV1 { by, reason }| Box::new(Cancel { by, reason }));
        let notice = notice.map(|NoticeV1 { contender, task, priority, yield_at_ms }| {
            Box::new(Notice { contender, task, priority, yield_at_ms })
        });
        Claim { hash, owner, ttl_ms, since, cancel, notice }
    }
}

impl AttemptV1 {
    fn of(attempt: &Attempt) -> Self {
        AttemptV1 {
            token: attempt.token,
            hash: attempt.hash,
            owner: attempt.owner.clone(),
            since: attempt.since,
            ended: attempt.ended,
            how: tag_of(&Ended::ALL, &attempt.how),
            error: attempt.error.clone(),
        }
    }

    fn read(self) -> Result<Attempt, String> {
        let AttemptV1 { token, hash, owner, since, ended, how, error } = self;
        let how = tagged("ending", &Ended::ALL, how)?;
        Ok(Attempt { token, hash, owner, since, ended, how, error })
    }
}

impl<'a> BodyV1<'a> {
    pub(super) fn of(body: &'a Body) -> Self {
        BodyV1 {
            namespace: body.namespace.clone(),
            queue: body.queue.clone(),
            kind: body.kind.clone(),
            payload: Cow::Borrowed(&body.payload),
            labels: Cow::Borrowed(&body.labels),
            trace: body.trace.as_deref().map(Cow::Borrowed),
            unique: body.unique.clone(),
            yield_within_ms: body.yield_within_ms,
            enqueued_wall_ms: body.enqueued_wall_ms,
            undo_of: body
                .undo_of
                .as_ref()
                .map(|undone| UndoOfV1 { job: undone.job, effect: undone.effect.clone() }),
        }
    }

    pub(super) fn read(self) -> Body {
        Body {
            namespace: self.namespace,
            queue: self.queue,
            kind: self.kind,
            payload: self.payload.into(),
            labels: self.labels.into_owned(),
            trace: self.trace.map(Box::from),
            unique: self.unique,
            yield_within_ms: self.yield_within_ms,
            enqueued_wall_ms: self.enqueued_wall_ms,
            undo_of: self.undo_of.map(|UndoOfV1 { job, effect }| UndoOf { job, effect }),
        }
    }
}

impl<'a> EffectV1<'a> {
    pub(super) fn of(effect: &'a Effect) -> Self {
        EffectV1 {
            name: effect.name.clone(),
            nth: effect.nth,
            token: effect.token,
            at_wall_ms: effect.at_wall_ms,
            state: match effect.state {
                EffectState::Intended(policy) => EffectStateV1::Intended(tag_of(&OnDoubt::ALL, &policy)),
                EffectState::Done => EffectStateV1::Done,
                EffectState::Undoing => EffectStateV1::Undoing,
                EffectState::Undone => EffectStateV1::Undone,
                EffectState::UndoFailed => EffectStateV1::UndoFailed,
            },
            value: effect.value.as_deref().map(Cow::Borrowed),
            undo: effect.undo.as_ref().map(|undo| UndoWithV1 {
                kind: undo.kind.clone(),
                queue: undo.queue.clone(),
                payload: Cow::Borrowed(&undo.payload),
            }),
            undo_job: effect.undo_job,
        }
    }

    pub(super) fn read(self) -> Result<Effect, String> {
        let undo = self.undo.map(|UndoWithV1 { kind, queue, payload }| {
            Box::new(UndoWith { kind, queue, payload: payload.into() })
        });
        Ok(Effect {
            name: self.name,
            nth: self.nth,
            token: self.token,
            at_wall_ms: self.at_wall_ms,
            state: match self.state {
                EffectStateV1::Intended(policy) => {
                    EffectState::Intended(tagged("policy", &OnDoubt::ALL, policy)?)
                }
                EffectStateV1::Done => EffectState::Done,
                EffectStateV1::Undoing => EffectState::Undoing,
                EffectStateV1::Undone => EffectState::Undone,
                EffectStateV1::UndoFailed => EffectState::UndoFailed,
            },
            value: self.value.map(Box::from),
            undo,
            undo_job: self.undo_job,
        })
    }
}

impl<'a> ScheduleV1<'a> {
    pub(super) fn of(spec: &'a ScheduleSpec) -> Self {
        ScheduleV1 {
            name: spec.name.clone(),
            cron: Cow::Borrowed(&spec.cron),
            zone: Cow::Borrowed(&spec.zone),
            queue: spec.queue.clone(),
            kind: spec.kind.clone(),
            payload: Cow::Borrowed(&spec.payload),
            terms: TermsV1::of(&spec.terms),
            labels: Cow::Borrowed(&spec.labels),
            by: spec.by.clone(),
        }
    }

    pub(super) fn read(self) -> Result<ScheduleSpec, String> {
        Ok(ScheduleSpec {
            name: self.name,
            cron: self.cron.into_owned(),
            zone: self.zone.into_owned(),
            queue: self.queue,
            kind: self.kind,
            payload: self.payload.into(),
            terms: self.terms.read()?,
            labels: self.labels.into_owned(),
            by: self.by,
        })
    }
}
