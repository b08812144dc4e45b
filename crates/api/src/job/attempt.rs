//! Attempts at jobs: claimed, renewed, and what they have to say.

use fencehold_core::job::{EffectName, JobId, Kind, Queue, State};
use fencehold_core::lease::Notice;
use fencehold_core::ledger::{EffectState, OnDoubt};
use fencehold_core::{HoldId, Owner, Token};

use super::Terms;
use crate::{Bytes, Json, Labels, Moment, Outcome, wire};

wire! {
    /// The terms on which jobs are asked for.
    #[serde(deny_unknown_fields)]
    pub struct ClaimRequest {
        /// From which queues.
        #[cfg_attr(feature = "document", schemars(length(min = 1, max = fencehold_core::limits::QUEUES_PER_CLAIM_MAX)))]
        pub queues: Vec<Weighted>,
        /// At most this many.
        #[serde(default = "one")]
        #[cfg_attr(feature = "document", schemars(range(min = 1, max = fencehold_core::limits::JOBS_PER_CALL_MAX)))]
        pub limit: usize,
        /// The hold id of this claim: 128 random bits, made for it alone. A secret. All jobs that it gets are held under it,
        /// each under a token of its own.
        pub hold: HoldId,
        /// Who asks.
        pub owner: Owner,
        /// How long the claim or a renewal lasts.
        #[cfg_attr(feature = "document", schemars(range(min = fencehold_core::limits::TTL_MS_MIN, max = fencehold_core::limits::TTL_MS_MAX)))]
        pub ttl_ms: u64,
        /// How long to wait for the first job; 0: not at all.
        #[serde(default)]
        #[cfg_attr(feature = "document", schemars(range(max = fencehold_core::limits::WAIT_MS_MAX)))]
        pub wait_ms: u64,
        /// How long this request has waited already, at a server that has since gone.
        #[serde(default)]
        pub waited_before_ms: u64,
    }

    /// A queue with its weight in a claim.
    #[serde(deny_unknown_fields)]
    pub struct Weighted {
        /// Which queue.
        pub queue: Queue,
        /// Its share among the others that have jobs.
        #[serde(default = "weight")]
        pub weight: u32,
    }

    /// Jobs that were claimed.
    pub struct Claimed {
        /// The jobs, in the order in which they should be worked on. None: there was nothing.
        pub jobs: Vec<ClaimedJob>,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
        /// Whether an earlier sending of the same claim was given these jobs.
        #[serde(default)]
        pub resumed: bool,
    }

    /// One claimed job: all that its handler needs.
    pub struct ClaimedJob {
        /// Its id.
        pub id: JobId,
        /// Its queue.
        pub queue: Queue,
        /// What it is.
        pub kind: Kind,
        /// What it is about.
        pub payload: Json,
        /// This attempt's token.
        pub token: Token,
        /// Which attempt it is, from 1.
        pub attempt: u32,
        /// How long the claim lasts from the deciding moment.
        pub remaining_ms: u64,
        /// On which terms it is tried; missing: the usual ones.
        #[serde(default, skip_serializing_if = "Terms::are_usual")]
        pub terms: Terms,
        /// Failures so far.
        pub failures: u16,
        /// Dead holders so far.
        pub crashes: u16,
        /// Its labels.
        #[serde(default, skip_serializing_if = "Labels::is_empty")]
        pub labels: Labels,
        /// The trace context of whoever enqueued it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub trace: Option<Box<str>>,
        /// Where an earlier attempt left off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub checkpoint: Option<Bytes>,
        /// The effects that earlier attempts announced or recorded.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub effects: Vec<Effect>,
        /// Whose effect it undoes, where it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub undo_of: Option<UndoOf>,
    }

    /// Whose effect a job undoes.
    pub struct UndoOf {
        /// The job that had the effect.
        pub job: JobId,
        /// Which effect.
        pub effect: EffectName,
    }

    /// One named side effect of a job.
    pub struct Effect {
        /// Its name within the job.
        pub name: EffectName,
        /// Its place among the job's effects.
        pub nth: u16,
        /// The attempt that announced or recorded it.
        pub token: Token,
        /// When.
        pub at: Moment,
        /// How it stands.
        pub state: EffectState,
        /// What it gave.
        #[serde(default, deserialize_with = "Json::present", skip_serializing_if = "Option::is_none")]
        pub value: Option<Json>,
        /// The job that undoes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub undo: Option<Box<UndoWith>>,
        /// The undo job, once it was enqueued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub undo_job: Option<JobId>,
    }

    /// The job that undoes an effect.
    #[serde(deny_unknown_fields)]
    pub struct UndoWith {
        /// Its kind.
        pub kind: Kind,
        /// Its queue; missing: the queue of the job whose effect it undoes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queue: Option<Queue>,
        /// Its payload.
        #[serde(default = "Json::null")]
        pub payload: Json,
    }

    /// An attempt, as it speaks for itself.
    #[serde(deny_unknown_fields)]
    pub struct AttemptRef {
        /// The job.
        pub job: JobId,
        /// The proof: the hold id of its claim.
        pub hold: HoldId,
        /// The token that it was given.
        pub token: Token,
    }

    /// Claims to renew.
    #[serde(deny_unknown_fields)]
    pub struct Attempts {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::value::items")]
        pub attempts: Vec<AttemptRef>,
    }

    /// The answers to many renewals, in order.
    pub struct RenewedJobs {
        /// One for each.
        pub answers: Vec<Outcome<JobRenewal>>,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
    }

    /// A renewed claim.
    pub struct JobRenewal {
        /// The same token as before.
        pub token: Token,
        /// How long it lasts from the deciding moment.
        pub remaining_ms: u64,
        /// Somebody called the job off: stop at a good place, and say so.
        pub cancel_requested: bool,
        /// A job of higher priority asks the holder to yield: checkpoint, hand back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub notice: Option<Notice>,
        /// In how many milliseconds it should be gone, where somebody asks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub yield_in_ms: Option<u64>,
    }

    /// What attempts have to say.
    #[serde(deny_unknown_fields)]
    pub struct ReportRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::value::items")]
        pub reports: Vec<Report>,
    }

    /// What an attempt has to say.
    #[serde(deny_unknown_fields)]
    pub struct Report {
        /// Which attempt.
        pub attempt: AttemptRef,
        /// What.
        pub word: Word,
    }

    /// What an attempt can say of its job.
    #[serde(rename_all = "snake_case", deny_unknown_fields)]
    pub enum Word {
        /// The work is done.
        Complete {
            /// What it gave.
            #[serde(default, deserialize_with = "Json::present", skip_serializing_if = "Option::is_none")]
            result: Option<Json>,
        },
        /// The work went wrong.
        Fail {
            /// How.
            error: String,
            /// Try again after this time instead of what the policy says.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            retry_in_ms: Option<u64>,
            /// Do not try again.
            #[serde(default)]
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
            bytes: Bytes,
        },
        /// How far it has come, for people.
        Progress {
            /// The note.
            note: Json,
        },
    }

    /// The answers to many reports, in order.
    pub struct ReportAnswer {
        /// One for each.
        pub answers: Vec<Outcome<Reported>>,
    }

    /// What became of a job when its attempt ended.
    pub struct Reported {
        /// How the job stands now.
        pub state: State,
        /// In how many milliseconds it is tried again, where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub again_in_ms: Option<u64>,
        /// Whether the report came after the claim had run out.
        pub late: bool,
    }

    /// Entries in the ledgers of jobs.
    #[serde(deny_unknown_fields)]
    pub struct LedgerRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::value::items")]
        pub entries: Vec<LedgerEntry>,
    }

    /// An entry in the ledger of a job.
    #[serde(deny_unknown_fields)]
    pub struct LedgerEntry {
        /// Which attempt writes it.
        pub attempt: AttemptRef,
        /// What.
        pub act: LedgerAct,
    }

    /// What can be written into a ledger.
    #[serde(rename_all = "snake_case", deny_unknown_fields)]
    pub enum LedgerAct {
        /// An effect is about to happen.
        Begin {
            /// Its name.
            effect: EffectName,
            /// What a later attempt does that finds it without an outcome.
            #[serde(default)]
            policy: OnDoubt,
        },
        /// An effect has happened.
        Record {
            /// Its name.
            effect: EffectName,
            /// What it gave.
            value: Json,
            /// The job that undoes it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            undo: Option<UndoWith>,
        },
        /// An effect that this attempt announced did not happen, and that is certain.
        Withdraw {
            /// Its name.
            effect: EffectName,
        },
    }

    /// The answers to many entries, in order.
    pub struct LedgerAnswers {
        /// One for each.
        pub answers: Vec<Outcome<LedgerAnswer>>,
    }

    /// What the ledger answers.
    #[serde(rename_all = "snake_case")]
    pub enum LedgerAnswer {
        /// The effect is announced: go ahead.
        Go,
        /// The effect is recorded: as this attempt said, or as an earlier one did.
        Recorded(Box<Effect>),
        /// An earlier attempt announced it and never said what came of it: the job has stopped as indeterminate.
        InDoubt,
        /// The announcement is gone, as if it had never been.
        Withdrawn,
    }
}

const fn one() -> usize {
    1
}

const fn weight() -> u32 {
    1
}
