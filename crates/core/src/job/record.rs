//! What a store keeps of one job, apart from what never changes (its payload, kind, labels) and what only its holder
//! reads (checkpoint, effects). Small: a million of them are in memory.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::attempt::{AttemptHistory, AttemptOutcome, PastAttempt};
use super::state::{Due, JobState};
use crate::error::BadInput;
use crate::hold::HoldHash;
use crate::key::{Owner, Reason};
use crate::lease::PendingYield;
use crate::limits::{ATTEMPT_MS_MAX, TRAIL_MAX, TRIES_MAX};
use crate::retry::RetryPolicy;
use crate::time::Timestamp;
use crate::token::Token;

wire! {
    /// On which terms a job is tried.
    #[derive(Copy, Hash)]
    #[serde(deny_unknown_fields, default)]
    pub struct JobOptions {
        /// Its rank: higher is claimed first.
        pub priority: i16,
        /// After so many reported failures it has failed for good.
        pub max_failures: u16,
        /// After so many dead holders it is quarantined.
        pub max_crashes: u16,
        /// The time limit of one attempt, in milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub attempt_timeout_ms: Option<NonZeroU32>,
        /// How long it waits after a failure.
        pub retry: RetryPolicy,
    }
}

impl Default for JobOptions {
    fn default() -> Self {
        JobOptions {
            priority: 0,
            max_failures: 10,
            max_crashes: 5,
            attempt_timeout_ms: None,
            retry: RetryPolicy::default(),
        }
    }
}

impl JobOptions {
    /// Whether a job can be tried on these terms at all.
    pub fn check(&self) -> Result<(), BadInput> {
        for (field, tries) in [("max_failures", self.max_failures), ("max_crashes", self.max_crashes)] {
            if tries == 0 || tries > TRIES_MAX {
                return Err(BadInput::new(field, format!("is {tries}; it takes 1 to {TRIES_MAX}")));
            }
        }
        if let Some(limit_ms) = self.attempt_timeout_ms
            && u64::from(limit_ms.get()) > ATTEMPT_MS_MAX
        {
            let problem = format!("is {limit_ms} ms; the limit is {ATTEMPT_MS_MAX} ms (30 days)");
            return Err(BadInput::new("time limit of an attempt", problem));
        }
        self.retry.check()
    }
}

/// All that changes about a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobRecord {
    /// How it stands. A scheduled job whose time has come counts as queued, whether or not anybody has noticed.
    pub state: JobState,
    /// While scheduled: what it waits for.
    pub due: Due,
    /// The newest token given or consumed for this job; zero: it was never claimed.
    pub token: Token,
    /// Failures that count: reported ones, and attempts over their time limit.
    pub failure_count: u16,
    /// Holders that died.
    pub crash_count: u16,
    /// On which terms it is tried.
    pub options: JobOptions,
    /// How far its effects have been undone.
    pub compensation_state: CompensationState,
    /// What else is kept of it.
    pub notes: JobNotes,
    /// Since when it stands as it does, in wall time.
    pub since_wall_ms: u64,
    /// While running: the claim.
    pub claim: Option<Box<Claim>>,
    /// The attempts that ended. Boxed: a million jobs that were never claimed have none.
    pub trail: Option<Box<AttemptHistory>>,
}

/// What is kept of a job elsewhere, so that nothing is looked for in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobNotes {
    /// A checkpoint.
    pub checkpoint: bool,
    /// A progress note.
    pub progress: bool,
    /// A result.
    pub result: bool,
    /// This many effects.
    pub effects: u16,
}

/// How far the effects of a failed or cancelled job have been undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompensationState {
    /// There is nothing to undo.
    #[default]
    None,
    /// Undo jobs are under way, one after the other.
    Running,
    /// All that could be undone has been.
    Done,
    /// An undo job failed; the ones before it in time stand.
    Stopped,
}

impl CompensationState {
    /// Every one, in the order of their tags.
    pub const ALL: [CompensationState; 4] = [
        CompensationState::None,
        CompensationState::Running,
        CompensationState::Done,
        CompensationState::Stopped,
    ];
}

/// A live claim. Its token is the record's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// Recognises the holder's hold id.
    pub hash: HoldHash,
    /// Who works on it.
    pub owner: Owner,
    /// How long the claim or a renewal lasts.
    pub ttl_ms: u64,
    /// When it was claimed.
    pub since: Timestamp,
    /// Someone called the job off; the holder learns at its next renewal.
    pub cancel: Option<Box<CancelRequest>>,
    /// A job of higher priority asks the holder to yield.
    pub yield_request: Option<Box<PendingYield>>,
}

/// A request to call a running job off.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CancelRequest {
    /// Who.
    pub by: Owner,
    /// Why.
    pub reason: Option<Reason>,
}

impl JobRecord {
    /// A job that was just enqueued, for this moment of the wall clock.
    pub fn new(terms: JobOptions, run_at_wall_ms: Option<u64>, now: Timestamp) -> Self {
        JobRecord::due(terms, run_at_wall_ms.map_or(Due::Now, Due::Wall), now)
    }

    /// A job that was just enqueued, and what it waits for.
    pub fn due(terms: JobOptions, due: Due, now: Timestamp) -> Self {
        let waits = due.in_ms(now) > 0;
        JobRecord {
            state: if waits { JobState::Scheduled } else { JobState::Queued },
            due: if waits { due } else { Due::Now },
            token: Token::NONE,
            failure_count: 0,
            crash_count: 0,
            options: terms,
            compensation_state: CompensationState::None,
            notes: JobNotes::default(),
            since_wall_ms: now.wall_ms,
            claim: None,
            trail: None,
        }
    }

    /// How it stands at this moment: what has become due is queued.
    pub fn state_at(&self, now: Timestamp) -> JobState {
        if self.state == JobState::Scheduled && self.due.in_ms(now) == 0 {
            JobState::Queued
        } else {
            self.state
        }
    }

    /// The attempts that are remembered, oldest first.
    pub fn attempts(&self) -> &[PastAttempt] {
        self.trail.as_ref().map_or(&[], |trail| &trail.attempts)
    }

    /// How many attempts there were, the one under way included.
    pub fn attempt_count(&self) -> u32 {
        let forgotten = self.trail.as_ref().map_or(0, |trail| trail.forgotten);
        let ended = u32::try_from(self.attempts().len()).unwrap_or(u32::MAX);
        forgotten.saturating_add(ended).saturating_add(u32::from(self.claim.is_some()))
    }

    pub(crate) fn attempt(&self, token: Token) -> Option<&PastAttempt> {
        self.attempts().iter().rev().find(|attempt| attempt.token == token)
    }

    /// Ends the claim, if there is one, and remembers how.
    pub(crate) fn end(&mut self, how: AttemptOutcome, at: Timestamp, error: Option<Box<str>>) {
        let Some(claim) = self.claim.take() else { return };
        let trail = self.trail.get_or_insert_default();
        while trail.attempts.len() >= TRAIL_MAX {
            trail.attempts.remove(0);
            trail.forgotten = trail.forgotten.saturating_add(1);
        }
        let Claim { hash, owner, since, .. } = *claim;
        trail.attempts.push(PastAttempt {
            token: self.token,
            hash,
            owner,
            since,
            ended: at,
            outcome: how,
            error,
        });
    }
}
