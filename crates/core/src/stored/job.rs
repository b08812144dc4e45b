//! The stored record of a job, its attempts and its effects.
#![allow(missing_docs, reason = "the types that these stand for say what their fields mean")]

use std::borrow::Cow;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::NoticeV1;
use crate::job::{
    AttemptHistory, AttemptOutcome, CancelRequest, Claim, CompensationState, Due, EffectName, JobId, JobKind,
    JobNotes, JobOptions, JobRecord, JobState, PastAttempt, QueueName,
};
use crate::ledger::{Compensation, Effect, EffectState, InDoubtPolicy};
use crate::retry::{Backoff, RetryPolicy};
use crate::{HoldHash, Owner, Reason, Timestamp, Token};

/// All that changes about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobV1 {
    pub state: StateV1,
    pub due: DueV1,
    pub token: Token,
    pub failures: u16,
    pub crashes: u16,
    pub terms: TermsV1,
    pub undo: UndoV1,
    pub notes: NotesV1,
    pub since_wall_ms: u64,
    pub claim: Option<ClaimV1>,
    pub trail: Option<TrailV1>,
}

stored_enum! {
    /// How a job stands.
    StateV1 of JobState { Queued, Scheduled, Running, Completed, Failed, Cancelled, Quarantined, #[serde(rename = "indeterminate")] InDoubt }
}

/// What a job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DueV1 {
    Now,
    Store(u64),
    Wall(u64),
}

stored_struct! {
    /// On which terms a job is tried.
    #[derive(Copy)]
    TermsV1 of JobOptions {
        priority: i16, max_attempts as max_failures: u16, max_crashes: u16,
        attempt_ms as attempt_timeout_ms: Option<NonZeroU32>, retry: RetryV1,
    }
}

stored_struct! {
    /// When a job is tried again.
    #[derive(Copy)]
    RetryV1 of RetryPolicy {
        backoff: BackoffV1, base_ms as base_delay_ms: u32, cap_ms as max_delay_ms: u32, jitter_percent: u8,
    }
}

stored_enum! {
    /// How the delay between two tries grows.
    BackoffV1 of Backoff { Fixed, Linear, Exponential }
}

stored_enum! {
    /// How far the effects of a job have been undone.
    UndoV1 of CompensationState { #[serde(rename = "nothing")] None, #[serde(rename = "under_way")] Running, Done, Stopped }
}

stored_struct! {
    /// What is kept of a job elsewhere.
    #[derive(Copy)]
    NotesV1 of JobNotes { checkpoint: bool, progress: bool, result: bool, effects: u16 }
}

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimV1 {
    pub hash: HoldHash,
    pub owner: Owner,
    pub ttl_ms: u64,
    pub since: Timestamp,
    pub cancel: Option<CancelV1>,
    pub notice: Option<NoticeV1>,
}

stored_struct! {
    /// A request to call a running job off.
    CancelV1 of CancelRequest { by: Owner, reason: Option<Reason> }
}

/// The attempts of a job that ended, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrailV1 {
    pub attempts: Vec<AttemptV1>,
    pub forgotten: u32,
}

stored_struct! {
    /// An attempt that ended.
    AttemptV1 of PastAttempt {
        token: Token, hash: HoldHash, owner: Owner, since: Timestamp, ended: Timestamp, how as outcome: EndedV1,
        error: Option<Box<str>>,
    }
}

stored_enum! {
    /// The ways in which an attempt can end.
    EndedV1 of AttemptOutcome {
        Completed, CompletedLate, Failed, FailedLate, TimedOut, Crashed, Snoozed,
        #[serde(rename = "handed_back")] Released,
        Yielded, Abandoned,
        #[serde(rename = "indeterminate")] InDoubt,
        Revoked, Advanced,
    }
}

/// An effect of a job. Borrowed while it is written: its value may be large.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectV1<'a> {
    pub name: EffectName,
    pub nth: u16,
    pub token: Token,
    pub at_wall_ms: u64,
    pub state: EffectStateV1,
    pub value: Option<Cow<'a, str>>,
    pub undo: Option<UndoWithV1<'a>>,
    pub undo_job: Option<JobId>,
}

/// How an effect stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectStateV1 {
    Intended(OnDoubtV1),
    Done,
    Undoing,
    Undone,
    UndoFailed,
}

stored_enum! {
    /// What an attempt does that finds an intent without an outcome.
    OnDoubtV1 of InDoubtPolicy { #[serde(rename = "run_again")] Retry, #[serde(rename = "ask")] Manual }
}

/// The job that undoes an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoWithV1<'a> {
    pub kind: JobKind,
    pub queue: Option<QueueName>,
    pub payload: Cow<'a, str>,
}

impl From<&JobRecord> for JobV1 {
    fn from(record: &JobRecord) -> Self {
        let &JobRecord {
            state,
            due,
            token,
            failure_count: failures,
            crash_count: crashes,
            options,
            compensation_state,
            notes,
            since_wall_ms,
            ref claim,
            ref trail,
        } = record;
        JobV1 {
            state: state.into(),
            due: match due {
                Due::Now => DueV1::Now,
                Due::Store(ms) => DueV1::Store(ms),
                Due::Wall(ms) => DueV1::Wall(ms),
            },
            token,
            failures,
            crashes,
            terms: options.into(),
            undo: compensation_state.into(),
            notes: notes.into(),
            since_wall_ms,
            claim: claim.as_deref().map(|claim| claim.clone().into()),
            trail: trail.as_deref().map(|trail| trail.clone().into()),
        }
    }
}

impl From<JobV1> for JobRecord {
    fn from(stored: JobV1) -> Self {
        let JobV1 { state, due, token, failures, crashes, terms, undo, notes, since_wall_ms, claim, trail } =
            stored;
        JobRecord {
            state: state.into(),
            due: match due {
                DueV1::Now => Due::Now,
                DueV1::Store(ms) => Due::Store(ms),
                DueV1::Wall(ms) => Due::Wall(ms),
            },
            token,
            failure_count: failures,
            crash_count: crashes,
            options: terms.into(),
            compensation_state: undo.into(),
            notes: notes.into(),
            since_wall_ms,
            claim: claim.map(|claim| Box::new(claim.into())),
            trail: trail.map(|trail| Box::new(trail.into())),
        }
    }
}

impl From<Claim> for ClaimV1 {
    fn from(Claim { hash, owner, ttl_ms, since, cancel, yield_request: notice }: Claim) -> Self {
        let cancel = cancel.map(|cancel| (*cancel).into());
        ClaimV1 { hash, owner, ttl_ms, since, cancel, notice: notice.map(|notice| (*notice).into()) }
    }
}

impl From<ClaimV1> for Claim {
    fn from(ClaimV1 { hash, owner, ttl_ms, since, cancel, notice }: ClaimV1) -> Self {
        let cancel = cancel.map(|cancel| Box::new(cancel.into()));
        let yield_request = notice.map(|notice| Box::new(notice.into()));
        Claim { hash, owner, ttl_ms, since, cancel, yield_request }
    }
}

impl From<AttemptHistory> for TrailV1 {
    fn from(AttemptHistory { attempts, forgotten }: AttemptHistory) -> Self {
        TrailV1 { attempts: attempts.into_iter().map(AttemptV1::from).collect(), forgotten }
    }
}

impl From<TrailV1> for AttemptHistory {
    fn from(TrailV1 { attempts, forgotten }: TrailV1) -> Self {
        AttemptHistory { attempts: attempts.into_iter().map(PastAttempt::from).collect(), forgotten }
    }
}

impl<'a> From<&'a Effect> for EffectV1<'a> {
    fn from(effect: &'a Effect) -> Self {
        let &Effect {
            ref name,
            position: nth,
            token,
            written_at_ms: at_wall_ms,
            state,
            ref value,
            ref compensation,
            compensation_job_id: undo_job,
        } = effect;
        EffectV1 {
            name: name.clone(),
            nth,
            token,
            at_wall_ms,
            state: state.into(),
            value: value.as_deref().map(Cow::Borrowed),
            undo: compensation.as_deref().map(|Compensation { kind, queue, payload }| UndoWithV1 {
                kind: kind.clone(),
                queue: queue.clone(),
                payload: Cow::Borrowed(payload),
            }),
            undo_job,
        }
    }
}

impl From<EffectV1<'_>> for Effect {
    fn from(stored: EffectV1<'_>) -> Self {
        let EffectV1 { name, nth, token, at_wall_ms, state, value, undo, undo_job } = stored;
        Effect {
            name,
            position: nth,
            token,
            written_at_ms: at_wall_ms,
            state: state.into(),
            value: value.map(Box::from),
            compensation: undo.map(|UndoWithV1 { kind, queue, payload }| {
                Box::new(Compensation { kind, queue, payload: payload.into() })
            }),
            compensation_job_id: undo_job,
        }
    }
}

impl From<EffectState> for EffectStateV1 {
    fn from(state: EffectState) -> Self {
        match state {
            EffectState::Intended(policy) => EffectStateV1::Intended(policy.into()),
            EffectState::Done => EffectStateV1::Done,
            EffectState::Compensating => EffectStateV1::Undoing,
            EffectState::Compensated => EffectStateV1::Undone,
            EffectState::CompensationFailed => EffectStateV1::UndoFailed,
        }
    }
}

impl From<EffectStateV1> for EffectState {
    fn from(stored: EffectStateV1) -> Self {
        match stored {
            EffectStateV1::Intended(policy) => EffectState::Intended(policy.into()),
            EffectStateV1::Done => EffectState::Done,
            EffectStateV1::Undoing => EffectState::Compensating,
            EffectStateV1::Undone => EffectState::Compensated,
            EffectStateV1::UndoFailed => EffectState::CompensationFailed,
        }
    }
}
