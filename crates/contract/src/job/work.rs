//! Enqueuing, claiming and reporting: what workers and those who give them work say.

use fencehold_core::job::{
    AttemptRenewal, EffectName, JobId, JobKind, JobOptions, JobRefusal, QueueName, UniqueKey,
};
use fencehold_core::ledger::{Compensation, Effect, InDoubtPolicy};
use fencehold_core::wire::{AsJson, AsOptionalJson, Moment, null};
use fencehold_core::{HoldId, Owner, Token};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::QueueWeight;
use crate::http::http_types;
use crate::json::{
    AsBase64, AsLabels, AsNewId, AsOptionalBase64, AsResults, AsWeighted, Labels, is_default, one,
};

wire! {
    /// A job to be.
    #[serde(deny_unknown_fields)]
    pub struct NewJob {
        /// Its id, made for this job alone. Missing: made from the `Idempotency-Key` and the job's place in the request,
        /// or, without one, by the server.
        #[serde(default = "JobId::nil", with = "AsNewId", skip_serializing_if = "JobId::is_nil")]
        pub id: JobId,
        /// Where it stands in line.
        #[serde(default)]
        pub queue: QueueName,
        /// What it is.
        pub kind: JobKind,
        /// What it is about.
        #[serde(default = "null", with = "AsJson")]
        pub payload: Box<str>,
        /// On which terms it is tried.
        #[serde(default, skip_serializing_if = "is_default")]
        pub options: JobOptions,
        /// When it is ready.
        #[serde(flatten, with = "AsWhen")]
        pub when: When,
        /// What makes it the same as another.
        #[serde(flatten, with = "AsUnique")]
        pub unique: Option<Unique>,
        /// For finding it again: names and values.
        #[serde(default, with = "AsLabels", skip_serializing_if = "Vec::is_empty")]
        pub labels: Labels,
        /// The W3C trace context (`traceparent`) of the caller that enqueues it.
        pub traceparent: Option<Box<str>> = None,
        /// While it waits, ask a running job of its queue that has lower priority to yield within this time.
        pub preempt_within_ms: Option<u64> = None,
    }
}

impl NewJob {
    /// A job on the usual terms, ready now.
    pub fn new(id: JobId, queue: QueueName, kind: JobKind, payload: impl Into<Box<str>>) -> Self {
        NewJob {
            id,
            queue,
            kind,
            payload: payload.into(),
            options: JobOptions::default(),
            when: When::Now,
            unique: None,
            labels: Vec::new(),
            traceparent: None,
            preempt_within_ms: None,
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

/// When a job is ready.
/// The JSON form of when: `run_at`, or `delay_ms`, or neither.
struct AsWhen;

http_types! {
    struct JsonWhen {
        /// Not before this moment.
        run_at: Option<Moment> = None,
        /// Not before so many milliseconds from now. Beside `run_at` it is refused.
        #[schemars(range(max = fencehold_core::limits::DELAY_MS_MAX))]
        delay_ms: Option<u64> = None,
    }
}

impl AsWhen {
    fn serialize<S: Serializer>(when: &When, serializer: S) -> Result<S::Ok, S::Error> {
        let (run_at, delay_ms) = match *when {
            When::Now => (None, None),
            When::At { wall_ms } => (Some(Moment { wall_ms }), None),
            When::After { delay_ms } => (None, Some(delay_ms)),
        };
        JsonWhen { run_at, delay_ms }.serialize(serializer)
    }

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<When, D::Error> {
        match JsonWhen::deserialize(deserializer)? {
            JsonWhen { run_at: None, delay_ms: None } => Ok(When::Now),
            JsonWhen { run_at: Some(Moment { wall_ms }), delay_ms: None } => Ok(When::At { wall_ms }),
            JsonWhen { run_at: None, delay_ms: Some(delay_ms) } => Ok(When::After { delay_ms }),
            _ => Err(D::Error::custom("give `run_at` or `delay_ms`, not both")),
        }
    }
}

/// The JSON form of a unique key: two fields of the job.
struct AsUnique;

http_types! {
    struct JsonUnique {
        /// While this key is remembered, there is one job of it.
        unique_key: Option<UniqueKey> = None,
        /// For how long the key is remembered; a day if it is missing.
        #[schemars(range(min = 1, max = fencehold_core::limits::UNIQUE_WINDOW_MS_MAX))]
        unique_window_ms: Option<u64> = None,
    }
}

impl AsUnique {
    #[expect(clippy::ref_option, reason = "that is how serde calls it")]
    fn serialize<S: Serializer>(unique: &Option<Unique>, serializer: S) -> Result<S::Ok, S::Error> {
        let unique_key = unique.as_ref().map(|unique| unique.key.clone());
        let unique_window_ms = unique.as_ref().map(|unique| unique.window_ms);
        JsonUnique { unique_key, unique_window_ms }.serialize(serializer)
    }

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Unique>, D::Error> {
        match JsonUnique::deserialize(deserializer)? {
            JsonUnique { unique_key: Some(key), unique_window_ms } => {
                Ok(Some(Unique { key, window_ms: unique_window_ms.unwrap_or(UNIQUE_WINDOW_MS) }))
            }
            JsonUnique { unique_key: None, unique_window_ms: None } => Ok(None),
            JsonUnique { .. } => Err(D::Error::custom("`unique_window_ms` needs a `unique_key`")),
        }
    }
}

/// For how long a unique key is remembered unless the job says otherwise.
const UNIQUE_WINDOW_MS: u64 = 24 * 60 * 60 * 1_000;

#[cfg(feature = "schema")]
fencehold_core::schema_as! { AsWhen = JsonWhen, AsUnique = JsonUnique }

/// What makes a job the same as another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unique {
    /// Jobs of one namespace with the same key are the same.
    pub key: UniqueKey,
    /// For how long after the first was enqueued; and in any case until it has come to its end.
    pub window_ms: u64,
}

wire! {
    /// A job that is in its queue.
    #[derive(Copy)]
    pub struct EnqueuedJob {
        /// Its id: that of the first one, where it is the same as another.
        pub job_id: JobId,
        /// Whether it was there already, by its id or its unique key.
        pub existed: bool,
    }

    /// The terms on which jobs are asked for.
    #[serde(deny_unknown_fields)]
    pub struct ClaimJobsRequest {
        /// From which queues.
        #[serde(with = "AsWeighted")]
        #[schemars(length(min = 1, max = fencehold_core::limits::QUEUES_PER_CLAIM_MAX))]
        pub queues: Vec<QueueWeight>,
        /// At most this many.
        #[serde(default = "one::<usize>")]
        #[schemars(range(min = 1, max = fencehold_core::limits::JOBS_PER_CALL_MAX))]
        pub limit: usize,
        /// The hold id of this claim: 128 random bits, made for it alone. A secret. All jobs that it gets are held under it,
        /// each under a token of its own.
        pub hold_id: HoldId,
        /// Who asks.
        pub owner: Owner,
        /// How long the claim or a renewal lasts.
        #[schemars(range(min = fencehold_core::limits::TTL_MS_MIN, max = fencehold_core::limits::TTL_MS_MAX))]
        pub ttl_ms: u64,
        /// How long to wait for the first job; 0: not at all.
        #[serde(default)]
        #[schemars(range(max = fencehold_core::limits::WAIT_MS_MAX))]
        pub wait_ms: u64,
        /// How long this request has waited already, at a server that has since gone.
        #[serde(default)]
        pub waited_before_ms: u64,
    }

    /// Jobs that were claimed.
    pub struct ClaimedJobs {
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
        pub queue: QueueName,
        /// What it is.
        pub kind: JobKind,
        /// What it is about.
        #[serde(with = "AsJson")]
        pub payload: Box<str>,
        /// This attempt's token.
        pub token: Token,
        /// Which attempt it is, from 1.
        pub attempt: u32,
        /// How long the claim lasts from the deciding moment.
        pub remaining_ms: u64,
        /// On which terms it is tried; missing: the usual ones.
        #[serde(default, skip_serializing_if = "is_default")]
        pub options: JobOptions,
        /// Failures so far.
        pub failure_count: u16,
        /// Dead holders so far.
        pub crash_count: u16,
        /// Its labels.
        #[serde(default, with = "AsLabels", skip_serializing_if = "Vec::is_empty")]
        pub labels: Labels,
        /// The trace context of the caller that enqueued it.
        pub traceparent: Option<Box<str>> = None,
        /// Where an earlier attempt left off.
        #[serde(with = "AsOptionalBase64")]
        pub checkpoint: Option<Vec<u8>> = None,
        /// The effects that earlier attempts announced or recorded.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub effects: Vec<Effect>,
        /// Whose effect it undoes, where it does.
        pub compensates: Option<CompensatedEffect> = None,
    }

    /// Whose effect a job undoes.
    pub struct CompensatedEffect {
        /// The job that had the effect.
        pub job_id: JobId,
        /// Which effect.
        pub effect: EffectName,
    }

    /// An attempt, as it speaks for itself.
    #[serde(deny_unknown_fields)]
    pub struct AttemptRef {
        /// The job.
        pub job_id: JobId,
        /// The proof: the hold id of its claim.
        pub hold_id: HoldId,
        /// The token that it was given.
        pub token: Token,
    }

    /// The answers to many renewals, in order.
    pub struct RenewAttemptBatchResponse {
        /// One for each.
        #[serde(with = "AsResults")]
        #[schemars(with = "Vec<crate::json::ItemResult<AttemptRenewal>>")]
        pub results: Vec<Result<AttemptRenewal, JobRefusal>>,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
    }

    /// What an attempt has to say.
    #[serde(deny_unknown_fields)]
    pub struct AttemptReport {
        /// Which attempt.
        #[serde(flatten)]
        pub attempt: AttemptRef,
        /// What.
        pub report: Report,
    }

    /// What an attempt can say of its job.
    #[serde(tag = "type")]
    #[serde(deny_unknown_fields)]
    pub enum Report {
        /// The work is done.
        Complete {
            /// What it gave.
            #[serde(with = "AsOptionalJson")]
            result: Option<Box<str>> = None,
        },
        /// The work went wrong.
        Fail {
            /// How.
            error: String,
            /// Try again after this time instead of what the policy says.
            #[schemars(range(max = fencehold_core::limits::DELAY_MS_MAX))]
            retry_in_ms: Option<u64> = None,
            /// Do not try again.
            #[serde(default)]
            permanent: bool,
        },
        /// Put the job off: counts as nothing.
        Snooze {
            /// For how long.
            #[schemars(range(max = fencehold_core::limits::DELAY_MS_MAX))]
            delay_ms: u64,
        },
        /// Give the job back: counts as nothing.
        Release {},
        /// Where to go on from, should this attempt not come to its end.
        Checkpoint {
            /// Whatever the handler understands.
            #[serde(with = "AsBase64")]
            checkpoint: Vec<u8>,
        },
        /// How far it has come, for people.
        Progress {
            /// The note.
            #[serde(with = "AsJson")]
            progress: Box<str>,
        },
    }

    /// An entry in the ledger of a job.
    #[serde(deny_unknown_fields)]
    pub struct AttemptLedgerEntry {
        /// Which attempt writes it.
        #[serde(flatten)]
        pub attempt: AttemptRef,
        /// What.
        pub entry: LedgerEntry,
    }

    /// What can be written into a ledger.
    #[serde(tag = "type")]
    #[serde(deny_unknown_fields)]
    pub enum LedgerEntry {
        /// An effect is about to happen.
        Begin {
            /// Its name.
            effect: EffectName,
            /// What a later attempt does that finds it without an outcome.
            #[serde(default)]
            in_doubt_policy: InDoubtPolicy,
        },
        /// An effect has happened.
        Record {
            /// Its name.
            effect: EffectName,
            /// What it gave.
            #[serde(with = "AsJson")]
            value: Box<str>,
            /// The job that undoes it.
            compensation: Option<Compensation> = None,
        },
        /// An effect that this attempt announced did not happen, and that is certain.
        Withdraw {
            /// Its name.
            effect: EffectName,
        },
    }

    /// What the ledger answers.
    #[serde(tag = "type")]
    pub enum LedgerResponse {
        /// The effect is announced: go ahead.
        Proceed {},
        /// The effect is recorded: as this attempt said, or as an earlier one did.
        Recorded {
            /// The effect, with what it gave.
            recorded_effect: Effect,
        },
        /// An earlier attempt announced it and never said what came of it: the job has stopped in doubt.
        InDoubt {},
        /// The announcement is gone, as if it had never been.
        Withdrawn {},
    }
}

impl LedgerEntry {
    /// The effect that it is about.
    pub fn effect(&self) -> &EffectName {
        match self {
            LedgerEntry::Begin { effect, .. }
            | LedgerEntry::Record { effect, .. }
            | LedgerEntry::Withdraw { effect } => effect,
        }
    }
}
