//! What can be asked of a job, what a granted request gets, and why one is refused.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::attempt::AttemptOutcome;
use super::id::JobId;
use super::name::QueueName;
use super::state::JobState;
use crate::error::BadInput;
use crate::hold::HoldHash;
use crate::key::{Owner, Reason};
use crate::lease::{PreemptRequest, YieldRequest};
use crate::token::Token;

/// Which attempt speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptProof {
    /// Recognises its hold id.
    pub hash: HoldHash,
    /// The token that it was given.
    pub token: Token,
}

/// One thing that is asked of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobCommand {
    /// Begin an attempt.
    Claim {
        /// Recognises the hold id of this claim.
        hash: HoldHash,
        /// Who.
        owner: Owner,
        /// How long the claim or a renewal lasts.
        ttl_ms: u64,
    },
    /// Keep it for another ttl.
    Renew(AttemptProof),
    /// The work is done.
    Complete(AttemptProof),
    /// The work went wrong.
    Fail {
        /// Which attempt.
        by: AttemptProof,
        /// What went wrong.
        error: Box<str>,
        /// Try again after this time instead of what the policy says.
        retry_in_ms: Option<u64>,
        /// Do not try again.
        for_good: bool,
        /// Any 64 random bits, for the jitter.
        random: u64,
    },
    /// Put the job off. Counts as nothing.
    Snooze {
        /// Which attempt.
        by: AttemptProof,
        /// For how long.
        for_ms: u64,
    },
    /// Give the job back. Counts as nothing.
    HandBack(AttemptProof),
    /// Give a job back that was handed to a caller that had gone.
    Abandon(AttemptProof),
    /// Whether this attempt may still write what only a holder may: checkpoints and outcomes of effects.
    Write {
        /// Which attempt.
        by: AttemptProof,
        /// What it writes.
        what: AttemptWrite,
    },
    /// Stop at an effect in doubt.
    StopAtIntent {
        /// Which attempt.
        by: AttemptProof,
        /// Which effect.
        effect: Box<str>,
    },
    /// Note that the claim has run out. Does nothing to a live one: a sweep trusts no snapshot.
    Expire {
        /// Any 64 random bits, for the place of a crashed job in the spread of many; 0: it comes back at once.
        random: u64,
    },
    /// Call the job off.
    Cancel {
        /// Who.
        by: Owner,
        /// Why.
        reason: Option<Reason>,
        /// Do not wait for the holder: consume a token, so that whatever it still writes is refused.
        now: bool,
    },
    /// Report in place of a holder who never will: consumes a token, so that whatever it still writes is refused.
    EndByForce {
        /// How the job ends.
        state: ForcedState,
        /// Who.
        by: Owner,
        /// Why.
        reason: Reason,
    },
    /// Try again from the start, also what has failed for good.
    Retry {
        /// Who.
        by: Owner,
    },
    /// Forget the job.
    Delete {
        /// Also while it is running.
        force: bool,
    },
    /// A job of higher priority asks the holder to yield.
    Preempt(PreemptRequest),
    /// Take back the request to yield.
    Withdraw,
    /// End the claim after the store was rewound.
    Advance,
}

/// The ends that a person can give a job in place of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForcedState {
    /// Its work was done.
    Completed,
    /// It is not tried again.
    Failed,
}

impl From<ForcedState> for JobState {
    fn from(state: ForcedState) -> Self {
        match state {
            ForcedState::Completed => JobState::Completed,
            ForcedState::Failed => JobState::Failed,
        }
    }
}

/// What a holder writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptWrite {
    /// Where to go on from. Also late.
    Checkpoint,
    /// How far it has come.
    Progress,
    /// That an effect is about to happen: only while the claim is live.
    Intent,
    /// What came of an effect. Also late.
    Outcome,
}

/// What a command that was carried out gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobCommandResult {
    /// The attempt may begin.
    Claimed {
        /// Its token.
        token: Token,
        /// How long it lasts from the deciding moment.
        remaining_ms: u64,
        /// Which attempt of this job it is, from 1.
        attempt: u32,
    },
    /// The claim goes on.
    Renewed(AttemptRenewal),
    /// The attempt is over.
    Reported(ReportedAttempt),
    /// The holder may write.
    MayWrite,
    /// The claim had run out, and that is now on record.
    Expired {
        /// In which way.
        how: AttemptOutcome,
    },
    /// The job was called off, or will be when its attempt has ended.
    Cancelled {
        /// How it stands now.
        state: JobState,
    },
    /// The job was ended in place of its holder.
    EndedByForce {
        /// How it stands now.
        state: JobState,
    },
    /// The job starts over.
    Retried,
    /// The job may be forgotten.
    Deleted,
    /// There was nothing to do, or nothing to tell.
    Nothing,
}

wire! {
    /// A renewed claim.
    pub struct AttemptRenewal {
        /// The same token as before.
        pub token: Token,
        /// How long it lasts from the deciding moment.
        pub remaining_ms: u64,
        /// Someone called the job off: stop at a good place, and say so.
        pub cancel_requested: bool,
        /// A job of higher priority asks the holder to yield: checkpoint, release.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub yield_request: Option<YieldRequest>,
    }

    /// What became of a job when its attempt ended.
    #[derive(Copy)]
    pub struct ReportedAttempt {
        /// How the job stands now.
        pub state: JobState,
        /// In how many milliseconds it is tried again, where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retry_in_ms: Option<u64>,
        /// Whether the report came after the claim had run out.
        pub late: bool,
    }
}

/// Why a well-formed command on a job was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum JobRefusal {
    /// The item itself is wrong.
    #[error(transparent)]
    BadInput(#[from] BadInput),
    /// There is no such job: it never was, or it was deleted or pruned.
    #[error("there is no such job: it never was, or it was deleted, or pruned after its time")]
    JobNotFound,
    /// The job went on under a newer token.
    #[error("token {token} is stale: the job went on under token {current_token}{}", stale_how(*.outcome))]
    Stale {
        /// The token that was shown.
        token: Token,
        /// How its attempt had ended, as far as is known.
        outcome: Option<AttemptOutcome>,
        /// The job's newest token.
        current_token: Token,
    },
    /// The attempt is over, so it can no longer do this.
    #[error("the attempt under token {token} is over: it {ended}", ended = over_how(*.outcome))]
    Over {
        /// The token that was shown.
        token: Token,
        /// How it ended.
        outcome: AttemptOutcome,
    },
    /// The token is of another job.
    #[error("token {token} was never given for this job{}", other_job(*.job_id))]
    WrongJob {
        /// The token that was shown.
        token: Token,
        /// The job that works under it at the moment, where there is one.
        job_id: Option<JobId>,
    },
    /// The job's token came with a hold id that is not its holder's.
    #[error("the hold id is not the one that token {token} was given to")]
    WrongHoldId {
        /// The token that was shown.
        token: Token,
    },
    /// A token that this store has never given: the store was rewound.
    #[error("token {token} was shown, but this store has only given {current_token}: it was rewound")]
    StoreRewound {
        /// The token that was shown.
        token: Token,
        /// The largest that the store knows of.
        current_token: Token,
    },
    /// The job has come to its end, and that stands.
    #[error("the job is {state}, and that stands")]
    Finished {
        /// How it ended.
        state: JobState,
    },
    /// As the job stands, this cannot be done to it.
    #[error("the job is {state}: {message}")]
    WrongState {
        /// How it stands.
        state: JobState,
        /// What to do instead.
        message: String,
    },
    /// An attempt is running.
    #[error("{owner} works on it under token {token} for another {remaining_ms} ms")]
    JobRunning {
        /// Who.
        owner: Owner,
        /// Its token.
        token: Token,
        /// How long it has left unless it renews.
        remaining_ms: u64,
    },
    /// The claim is still live, so it cannot be expired.
    #[error("the claim is live for another {remaining_ms} ms")]
    NotExpired {
        /// How long it has left.
        remaining_ms: u64,
    },
    /// Only a job of higher priority may ask a holder to yield.
    #[error("the running job has priority {priority}; a contender needs more")]
    PriorityTooLow {
        /// The running job's priority.
        priority: i16,
    },
    /// The unique key, or the id, is taken by a job that is not the same; or the job was completed otherwise.
    #[error("{}", conflict(field, job_id, differs))]
    Conflict {
        /// What came first under the same name: `id`, `unique_key`, `idempotency_key` or `result`.
        field: String,
        /// The job that came first.
        job_id: JobId,
        /// What is not the same about it: its queue, kind, payload or result.
        differs: String,
    },
    /// The queue takes no new jobs.
    #[error("queue {queue} is being drained and takes no new jobs; `queue resume` opens it again")]
    QueueDraining {
        /// Which queue.
        queue: QueueName,
    },
    /// A bound is reached.
    #[error("{message}: the limit of {limit} is reached")]
    LimitReached {
        /// What there is too much of.
        message: String,
        /// The limit.
        limit: u64,
    },
    /// No token is left to give.
    #[error("the store's tokens are used up: no job can be claimed any more")]
    TokensExhausted,
}

fn stale_how(how: Option<AttemptOutcome>) -> String {
    how.map(|how| format!(" after this attempt {}", over_how(how)))
        .unwrap_or_default()
}

fn over_how(how: AttemptOutcome) -> &'static str {
    match how {
        AttemptOutcome::Completed => "was completed",
        AttemptOutcome::CompletedLate => "was completed late",
        AttemptOutcome::Failed => "failed",
        AttemptOutcome::FailedLate => "failed, as was said late",
        AttemptOutcome::TimedOut => "ran over its time limit",
        AttemptOutcome::Crashed => "ran out",
        AttemptOutcome::Snoozed => "was snoozed",
        AttemptOutcome::Released => "was released",
        AttemptOutcome::Yielded => "had to yield",
        AttemptOutcome::Abandoned => "was given back, since its asker had gone",
        AttemptOutcome::InDoubt => "stopped in doubt",
        AttemptOutcome::Revoked => "was ended by force",
        AttemptOutcome::Advanced => "was ended by `store advance`",
    }
}

fn other_job(job: Option<JobId>) -> String {
    job.map(|job| format!("; it is job {job}'s")).unwrap_or_default()
}

fn conflict(field: &str, first: &JobId, differs: &str) -> String {
    if field == "result" {
        return format!("job {first} was completed with another {differs}; the first completion stands");
    }
    format!("the {} is taken by job {first}, which has another {differs}", field.replace('_', " "))
}
