//! Every error as it travels: RFC 9457, with what a caller needs to go on.

mod convert;

use std::fmt;

use fencehold_core::job::{JobId, JobState, QueueName};
use fencehold_core::{Key, Owner, Reason, Task, Token};
use serde::{Deserialize, Serialize};

use crate::http::http_types;
use crate::json::AsOptionalCursor;

pub use convert::store_error;

/// Makes the kinds of problems: name on the wire, status, title.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal $status:literal $title:literal;)*) => {
        /// What kind of problem it is. Stable: programs go by it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)*
        }

        impl ErrorKind {
            /// Every kind.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$kind,)*];

            /// Its name on the wire.
            pub const fn name(self) -> &'static str {
                match self { $(ErrorKind::$kind => $name,)* }
            }

            /// The status of a response that is nothing but this problem; 0: only clients have this kind.
            pub const fn status(self) -> u16 {
                match self { $(ErrorKind::$kind => $status,)* }
            }

            /// What it is, for people, always in the same words.
            pub const fn title(self) -> &'static str {
                match self { $(ErrorKind::$kind => $title,)* }
            }
        }
    };
}

kinds! {
    /// The request can never succeed as it stands.
    BadInput = "urn:fencehold:bad-input" 400 "The request cannot be carried out as it stands";
    /// The caller did not say who it is, or not rightly.
    Unauthorized = "urn:fencehold:unauthorized" 401 "A valid access token is needed";
    /// The caller may not do this.
    Forbidden = "urn:fencehold:forbidden" 403 "This access token does not allow it";
    /// An open server was asked under a name that is not its own, or by a page of another site.
    HostNotAllowed = "urn:fencehold:host-not-allowed" 403 "A server without access tokens does not answer to this host or origin";
    /// There is no such path.
    PathNotFound = "urn:fencehold:path-not-found" 404 "There is nothing at this path";
    /// There is no such access token.
    AccessTokenNotFound = "urn:fencehold:access-token-not-found" 404 "There is no such access token";
    /// There is no such queue.
    QueueNotFound = "urn:fencehold:queue-not-found" 404 "There is no such queue";
    /// There is no such schedule.
    ScheduleNotFound = "urn:fencehold:schedule-not-found" 404 "There is no such schedule";
    /// There is no such job.
    JobNotFound = "urn:fencehold:job-not-found" 404 "There is no such job";
    /// The path takes other methods.
    MethodNotAllowed = "urn:fencehold:method-not-allowed" 405 "This path takes other methods";
    /// Another owner holds the key.
    Held = "urn:fencehold:held" 409 "Another owner holds the key";
    /// This hold id has had its lease.
    HoldIdUsed = "urn:fencehold:hold-id-used" 409 "This hold id was used for a lease that is over";
    /// The hold or the attempt is over, or another owner's.
    Lost = "urn:fencehold:lost" 409 "The hold or the attempt is over";
    /// The token is right and the hold id is not.
    WrongHoldId = "urn:fencehold:wrong-hold-id" 409 "The hold id is not the holder's";
    /// The key is free.
    NotHeld = "urn:fencehold:not-held" 409 "The key is free";
    /// It is still live.
    NotExpired = "urn:fencehold:not-expired" 409 "It is still live";
    /// Only a contender of higher priority may ask.
    PriorityTooLow = "urn:fencehold:priority-too-low" 409 "Only a higher priority may ask the holder to yield";
    /// A token was shown that the store never gave.
    StoreRewound = "urn:fencehold:store-rewound" 409 "The store was rewound";
    /// No token is left.
    TokensExhausted = "urn:fencehold:tokens-exhausted" 409 "No token is left to give";
    /// The token is of another job.
    WrongJob = "urn:fencehold:wrong-job" 409 "The token is of another job";
    /// As the job stands, it cannot be done.
    WrongState = "urn:fencehold:wrong-state" 409 "As the job stands, this cannot be done";
    /// The job is running.
    JobRunning = "urn:fencehold:job-running" 409 "The job is running";
    /// The unique key or the id is taken by a job that is not the same, or the job was completed otherwise.
    Conflict = "urn:fencehold:conflict" 409 "Something else came first under the same name";
    /// The queue takes no new jobs.
    QueueDraining = "urn:fencehold:queue-draining" 409 "The queue takes no new jobs";
    /// The queue still has jobs or schedules.
    QueueNotEmpty = "urn:fencehold:queue-not-empty" 409 "The queue has jobs or schedules";
    /// Events after this cursor are gone.
    CursorTooOld = "urn:fencehold:cursor-too-old" 410 "Events after this cursor are no longer kept";
    /// The body is too large.
    BodyTooLarge = "urn:fencehold:body-too-large" 413 "The body is too large";
    /// The body is not JSON.
    NotJson = "urn:fencehold:not-json" 415 "The body must be application/json";
    /// A bound of the store is reached.
    LimitReached = "urn:fencehold:limit-reached" 429 "A limit of the store is reached";
    /// The caller asks for too much.
    RateLimited = "urn:fencehold:rate-limited" 429 "Too many requests";
    /// What is there cannot be used as a store, or an answer broke.
    #[default]
    Unusable = "urn:fencehold:unusable" 500 "The store cannot be used";
    /// This store cannot do that.
    Unsupported = "urn:fencehold:unsupported" 501 "The store cannot do this";
    /// The store could not be reached, and nothing was done.
    Unavailable = "urn:fencehold:unavailable" 503 "The store is unavailable, and nothing was done";
    /// This server is going away, and nothing was done.
    Stopping = "urn:fencehold:stopping" 503 "The server is stopping, and nothing was done";
    /// It may have been carried out.
    OutcomeUnknown = "urn:fencehold:outcome-unknown" 504 "The outcome is unknown; sending the same request again is safe";
    /// Only clients: the time to wait in line was over.
    #[cfg_attr(feature = "schema", schemars(skip))]
    WaitTimedOut = "urn:fencehold:wait-timed-out" 0 "The time to wait is over";
    /// Only clients: the job that was waited for has failed.
    #[cfg_attr(feature = "schema", schemars(skip))]
    JobFailed = "urn:fencehold:job-failed" 0 "The job has failed";
    /// Only clients: the job that was waited for has not finished yet.
    #[cfg_attr(feature = "schema", schemars(skip))]
    JobNotFinished = "urn:fencehold:job-not-finished" 0 "The job has not finished yet";
    /// Only clients: it is not known whether an effect happened.
    #[cfg_attr(feature = "schema", schemars(skip))]
    InDoubt = "urn:fencehold:in-doubt" 0 "It is not known whether the effect happened";
    /// Only clients: there is no store at this place.
    #[cfg_attr(feature = "schema", schemars(skip))]
    NoStore = "urn:fencehold:no-store" 0 "There is no store";
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

http_types! {
    /// An error, as it travels: whole (`application/problem+json`), or as the answer to one item of many.
    #[derive(Default)]
    #[non_exhaustive]
    pub struct Problem {
        /// What kind of problem it is. Programs go by this.
        #[serde(rename = "type")]
        pub kind: ErrorKind,
        /// What it is, for people, always in the same words.
        pub title: String,
        /// The status of an answer that is nothing but this.
        pub status: u16,
        /// What happened this time, and what to do next.
        pub detail: String,
        /// Which key.
        pub key: Option<Key> = None,
        /// Who holds it, or works on it.
        pub owner: Option<Owner> = None,
        /// What for.
        pub task: Option<Task> = None,
        /// How long that lasts unless it is renewed.
        pub remaining_ms: Option<u64> = None,
        /// The newest token of the key or of the job.
        pub current_token: Option<Token> = None,
        /// The token that was shown.
        pub token: Option<Token> = None,
        /// How the hold or the attempt ended.
        pub outcome: Option<String> = None,
        /// Who ended it, or had it asked to yield, where somebody did.
        pub by: Option<Owner> = None,
        /// Why, if someone ended it by force.
        pub reason: Option<Reason> = None,
        /// Which job.
        pub job_id: Option<JobId> = None,
        /// How the job stands.
        pub state: Option<JobState> = None,
        /// Which queue.
        pub queue: Option<QueueName> = None,
        /// The holder's priority.
        pub priority: Option<i16> = None,
        /// Which field of the request is wrong, or is taken.
        pub field: Option<String> = None,
        /// The cause in a few words, without field, key or advice.
        pub message: Option<String> = None,
        /// What differs from the one that came first: `queue`, `kind`, `payload` or `result`.
        pub differs: Option<String> = None,
        /// Which store.
        pub store: Option<String> = None,
        /// Which member of the namespace's quota is used up.
        pub quota: Option<String> = None,
        /// The limit that was crossed.
        pub limit: Option<u64> = None,
        /// The cursor that is too old.
        #[serde(with = "AsOptionalCursor")]
        pub cursor: Option<u64> = None,
        /// The oldest event that is still kept.
        #[serde(with = "AsOptionalCursor")]
        pub oldest_cursor: Option<u64> = None,
        /// After how long trying again makes sense.
        pub retry_after_ms: Option<u64> = None,
    }
}

impl Problem {
    /// A problem of this kind; what happened is said in `detail`.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Problem {
            kind,
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: detail.into(),
            ..Problem::default()
        }
    }

    /// The same with more said of it.
    #[must_use]
    pub fn with(mut self, say: impl FnOnce(&mut Self)) -> Self {
        say(&mut self);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}
