//! Enqueuing, claiming and reporting: what workers and those who give them work say.

use fencehold_core::job::{EffectName, JobId, JobRenewal, Kind, Queue, Refusal, Terms, UniqueKey};
use fencehold_core::ledger::{Effect, OnDoubt, UndoWith};
use fencehold_core::{HoldId, Owner, Token};
use serde::{Deserialize, Serialize};

use super::Weighted;

/// A job to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJob {
    /// Its id, made for this job alone.
    pub id: JobId,
    /// Where it stands in line.
    pub queue: Queue,
    /// What it is.
    pub kind: Kind,
    /// What it is about: JSON.
    pub payload: Box<str>,
    /// On which terms it is tried.
    pub terms: Terms,
    /// When it is ready.
    pub when: When,
    /// What makes it the same as another.
    pub unique: Option<Unique>,
    /// For finding it again: names and values.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// The W3C trace context (`traceparent`) of whoever enqueued it.
    pub trace: Option<Box<str>>,
    /// While it waits, ask a running job of its queue that has lower priority to yield within this time.
    pub yield_within_ms: Option<u64>,
}

impl NewJob {
    /// A job on the usual terms, ready now.
    pub fn new(id: JobId, queue: Queue, kind: Kind, payload: impl Into<Box<str>>) -> Self {
        NewJob {
            id,
            queue,
            kind,
            payload: payload.into(),
            terms: Terms::default(),
            when: When::Now,
            unique: None,
            labels: Vec::new(),
            trace: None,
            yield_within_ms: None,
        }
    }
}

/// When a job is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// At once.
    #[default]
    Now,
    /// At this moment, in wall time.
    At {
        /// Milliseconds since 1970.
        wall_ms: u64,
    },
    /// After this time, by the store's wall clock.
    After {
        /// Milliseconds.
        delay_ms: u64,
    },
}

/// What makes a job the same as another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unique {
    /// Jobs of one namespace with the same key are the same.
    pub key: UniqueKey,
    /// For how long after the first was enqueued, in wall time; and in any case until it has come to its end.
    pub window_ms: u64,
}

/// A job that is in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enqueued {
    /// Its id: that of the first one, where it is the same as another.
    pub id: JobId,
    /// Whether it was there already, by its id or its unique key.
    pub existed: bool,
}

/// The terms on which jobs are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// From which queues, each with its weight.
    pub queues: Vec<Weighted>,
    /// At most this many.
    pub limit: usize,
    /// The hold id of this claim: all jobs that it gets are held under it, each under a token of its own.
    pub hold: HoldId,
    /// Who asks.
    pub owner: Owner,
    /// How long the claim or a renewal lasts.
    pub ttl_ms: u64,
    /// How long to wait for the first job; 0: not at all.
    pub wait_ms: u64,
    /// How long this request has waited already, at a store that has since gone.
    pub waited_before_ms: u64,
}

/// Jobs that were claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The jobs, in the order in which they should be worked on.
    pub jobs: Vec<ClaimedJob>,
    /// How long the request stood in line before the moment that decided.
    pub waited_ms: u64,
    /// Whether an earlier sending of the same claim was given these jobs.
    pub resumed: bool,
}

/// One claimed job: all that its handler needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedJob {
    /// Its id.
    pub id: JobId,
    /// Its queue.
    pub queue: Queue,
    /// What it is.
    pub kind: Kind,
    /// What it is about: JSON.
    pub payload: Box<str>,
    /// This attempt's token.
    pub token: Token,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// How long the claim lasts from the deciding moment.
    pub remaining_ms: u64,
    /// On which terms it is tried.
    pub terms: Terms,
    /// Failures so far.
    pub failures: u16,
    /// Dead holders so far.
    pub crashes: u16,
    /// Its labels.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// The trace context of whoever enqueued it.
    pub trace: Option<Box<str>>,
    /// Where an earlier attempt left off.
    pub checkpoint: Option<Vec<u8>>,
    /// The effects that earlier attempts announced or recorded.
    pub effects: Vec<Effect>,
    /// Whose effect it undoes, where it does.
    pub undo_of: Option<UndoOf>,
}

/// Whose effect a job undoes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoOf {
    /// The job that had the effect.
    pub job: JobId,
    /// Which effect.
    pub effect: EffectName,
}

/// An attempt, as it speaks for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRef {
    /// The job.
    pub job: JobId,
    /// The proof.
    pub hold: HoldId,
    /// The token that it was given.
    pub token: Token,
}

/// The answers to many renewals, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewedJobs {
    /// One for each.
    pub answers: Vec<Result<JobRenewal, Refusal>>,
    /// How long the request stood in line before the moment that decided.
    pub waited_ms: u64,
}

/// What an attempt has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Which attempt.
    pub attempt: AttemptRef,
    /// What.
    pub word: Word,
}

/// What an attempt can say of its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// The work is done, and gave this (JSON).
    Complete {
        /// The result.
        result: Option<Box<str>>,
    },
    /// The work went wrong.
    Fail {
        /// How.
        error: String,
        /// Try again after this time instead of what the policy says.
        retry_in_ms: Option<u64>,
        /// Do not try again.
        for_good: bool,
    },
    /// Put the job off: counts as nothing.
    Snooze {
        /// For how long.
        for_ms: u64,
    },
    /// Give the job back: counts as nothing.
    HandBack,
    /// Where to go on from, should this attempt not come to its end.
    Checkpoint {
        /// Whatever the handler understands.
        bytes: Vec<u8>,
    },
    /// How far it has come, for people (JSON).
    Progress {
        /// The note.
        note: Box<str>,
    },
}

/// An entry in the ledger of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Which attempt writes it.
    pub attempt: AttemptRef,
    /// What.
    pub act: LedgerAct,
}

/// What can be written into a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LedgerAct {
    /// An effect is about to happen.
    Begin {
        /// Its name.
        effect: EffectName,
        /// What a later attempt does that finds it without an outcome.
        policy: OnDoubt,
    },
    /// An effect has happened.
    Record {
        /// Its name.
        effect: EffectName,
        /// What it gave: JSON.
        value: Box<str>,
        /// The job that undoes it.
        undo: Option<UndoWith>,
    },
    /// An effect that this attempt announced did not happen, and that is certain.
    Withdraw {
        /// Its name.
        effect: EffectName,
    },
}

/// What the ledger answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LedgerAnswer {
    /// The effect is announced: go ahead.
    Go,
    /// The effect is recorded: as this attempt said, or as an earlier one did.
    Recorded(Effect),
    /// An earlier attempt announced it and never said what came of it: the job has stopped as indeterminate.
    InDoubt,
    /// The announcement is gone, as if it had never been.
    Withdrawn,
}

impl LedgerAct {
    /// The effect that it is about.
    pub fn effect(&self) -> &EffectName {
        match self {
            LedgerAct::Begin { effect, .. }
            | LedgerAct::Record { effect, .. }
            | LedgerAct::Withdraw { effect } => effect,
        }
    }
}
