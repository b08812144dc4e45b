//! Races about jobs.
//!
//! Nouns: every race has one job. A [`RaceWorker`] claims it, and [`GrantedClaim`] is the claim as that worker knows
//! it. What workers, operators and sweeps say is a [`JobCall`], and what is answered a [`JobReply`]; ours and the naive
//! twin both speak [`JobProtocol`], so that one script runs either. The [`PaymentSink`](crate::fenced_resource::PaymentSink) is what effects reach.
//!
//! Deliberately absent: queues, priorities and schedules. Nothing about them is a race between holders.

pub(crate) mod naive;
mod ours;
mod record;
mod several;
mod worker;

use async_trait::async_trait;
use fencehold_core::job::{AttemptOutcome, JobOptions, JobState};
use fencehold_core::ledger::InDoubtPolicy;
use fencehold_core::{HoldId, Key, Owner};

use crate::actor::RaceActor;
use crate::protocol::{Protocols, RaceCall};
use crate::trace::Trace;

/// One who works on the job, or acts upon it.
pub(crate) type RaceWorker<'a> = RaceActor<'a, JobCall>;

/// The terms of a claim.
#[derive(Clone, Debug)]
pub(crate) struct ClaimTerms {
    pub(crate) hold: HoldId,
    pub(crate) owner: Owner,
    pub(crate) ttl_ms: u64,
    /// How long to stand in line.
    pub(crate) wait_ms: u64,
}

/// A claim as its worker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantedClaim {
    pub(crate) hold: HoldId,
    pub(crate) owner: Owner,
    pub(crate) token: u64,
    /// How long it stood in line, by the store's clock.
    pub(crate) waited_ms: u64,
    /// How long it lasts.
    pub(crate) remaining_ms: u64,
}

/// One call about the job, as data.
#[derive(Clone, Debug)]
pub(crate) enum JobCall {
    Claim(ClaimTerms),
    Renew(GrantedClaim),
    Complete(GrantedClaim, &'static str),
    Fail(GrantedClaim),
    HandBack(GrantedClaim),
    /// An effect is about to happen.
    Announce(GrantedClaim, &'static str, InDoubtPolicy),
    /// An effect has happened; a job of the kind `undo-NAME` undoes it.
    Record(GrantedClaim, &'static str),
    Cancel {
        /// Without waiting for the holder.
        now: bool,
    },
    Sweep,
}

impl JobCall {
    /// The claim that the caller says it has.
    pub(crate) fn claim(&self) -> Option<&GrantedClaim> {
        match self {
            JobCall::Renew(work)
            | JobCall::Complete(work, _)
            | JobCall::Fail(work)
            | JobCall::HandBack(work)
            | JobCall::Announce(work, ..)
            | JobCall::Record(work, _) => Some(work),
            JobCall::Claim(_) | JobCall::Cancel { .. } | JobCall::Sweep => None,
        }
    }
}

impl RaceCall for JobCall {
    type Reply = JobReply;

    fn message(&self) -> &'static str {
        match self {
            JobCall::Claim(_) => "claim",
            JobCall::Renew(_) => "renew",
            JobCall::Complete(..) => "complete",
            JobCall::Fail(_) => "fail",
            JobCall::HandBack(_) => "release",
            JobCall::Announce(..) => "announce",
            JobCall::Record(..) => "record",
            JobCall::Cancel { .. } => "cancel",
            JobCall::Sweep => "sweep",
        }
    }

    async fn perform(&self, protocols: &Protocols, who: &str) -> JobReply {
        protocols.jobs.perform(who, self).await
    }

    fn record(&self, trace: &Trace, key: &Key, who: &str, told: &JobReply) {
        record::record(trace, key, who, self, told);
    }
}

/// What is answered about the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobReply {
    Claimed(GrantedClaim),
    /// There is no job that is ready.
    Nothing,
    Renewed {
        cancel_requested: bool,
    },
    /// How the job stands after this word, or after force.
    Stands {
        state: JobState,
        late: bool,
    },
    /// The effect may happen.
    Go,
    /// The effect is recorded.
    Recorded,
    /// An earlier attempt announced the effect, and its outcome is not known.
    InDoubt,
    /// The job went on under a newer token.
    Stale {
        current: u64,
    },
    /// The attempt is over.
    Over {
        how: AttemptOutcome,
    },
    /// The job has come to its end, and that stands.
    Finished {
        state: JobState,
    },
    /// No answer came.
    Unheard,
    /// A sweep has done what it does.
    Swept,
    /// The job was looked at, where the store sweeps by itself.
    Looked,
    /// Something else; a script that meets it has gone wrong.
    Other(String),
}

impl JobReply {
    pub(crate) fn is_claimed(&self) -> bool {
        matches!(self, JobReply::Claimed(_))
    }

    pub(crate) fn is_renewed(&self) -> bool {
        matches!(self, JobReply::Renewed { .. })
    }

    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, JobReply::Stale { .. })
    }

    pub(crate) fn leaves_it(&self, as_state: JobState) -> bool {
        matches!(self, JobReply::Stands { state, .. } if *state == as_state)
    }
}

/// The job as anybody can see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenJob {
    pub(crate) state: JobState,
    /// Who works on it.
    pub(crate) worker: Option<String>,
    /// How long that claim lasts unless it is renewed.
    pub(crate) remaining_ms: u64,
    pub(crate) result: Option<String>,
    /// How often it was completed.
    pub(crate) completions: usize,
    /// The effects that are undone, or about to be.
    pub(crate) undone: Vec<String>,
}

/// What can be done to the job. Every call is one or more messages through the gate; the one that changes something is
/// named like the call.
#[async_trait]
pub(crate) trait JobProtocol: Send + Sync {
    /// Puts the job into its queue.
    async fn put(&self, terms: JobOptions) -> Result<(), String>;
    async fn perform(&self, who: &str, act: &JobCall) -> JobReply;
    /// How many stand in line for the job.
    async fn in_line(&self) -> usize;
    /// For how long a worker relies on a claim that it got in the moment in which it asked, by its own clock.
    fn relies_for_ms(&self, claim: &GrantedClaim) -> u64;
    /// The idempotency key under which an effect reaches the till. `None`: there is none.
    fn idempotency_key(&self, effect: &str) -> Option<String>;
    /// Undoes the next effect that is to be undone, and says which.
    async fn undo_next(&self, who: &str) -> Option<String>;
    async fn look(&self) -> Result<SeenJob, String>;
}
