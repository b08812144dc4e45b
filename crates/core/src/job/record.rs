//! What a store keeps of one job, apart from what never changes (its payload, kind, labels) and what only its holder
//! reads (checkpoint, effects). Small: a million of them are in memory.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::error::BadInput;
use crate::hold::HoldHash;
use crate::key::{Owner, Reason};
use crate::lease::{How, Notice};
use crate::limits::{ATTEMPT_MS_MAX, TRAIL_MAX, TRIES_MAX};
use crate::retry::Retry;
use crate::time::Stamp;
use crate::token::Token;

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// Ready to be claimed.
    Queued,
    /// Waiting for its time, or for its retry.
    Scheduled,
    /// Claimed: somebody works on it.
    Running,
    /// Done.
    Completed,
    /// Failed for good; kept for people.
    Failed,
    /// Called off.
    Cancelled,
    /// It was the end of too many holders; kept for people.
    Quarantined,
    /// An effect was begun and nobody knows whether it happened: a person must look.
    Indeterminate,
}

impl State {
    /// Every state, in the order of their tags.
    pub const ALL: [State; 8] = [
        State::Queued,
        State::Scheduled,
        State::Running,
        State::Completed,
        State::Failed,
        State::Cancelled,
        State::Quarantined,
        State::Indeterminate,
    ];

    /// Whether the job has come to its end. It is then kept for a set time, and pruned.
    pub const fn is_final(self) -> bool {
        matches!(self, State::Completed | State::Failed | State::Cancelled)
    }

    /// Whether nothing more becomes of the job unless a person acts: it has come to its end, or waits for one.
    pub const fn is_settled(self) -> bool {
        self.is_final() || matches!(self, State::Quarantined | State::Indeterminate)
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Scheduled => "scheduled",
            State::Running => "running",
            State::Completed => "completed",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
            State::Quarantined => "quarantined",
            State::Indeterminate => "indeterminate",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for State {
    type Err = BadInput;
    fn from_str(text: &str) -> Result<Self, BadInput> {
        State::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            let names = State::ALL.map(State::name).join(", ");
            BadInput::new("state", format!("{text:?} is not one of {names}"))
        })
    }
}

/// What a scheduled job waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Due {
    /// Nothing.
    #[default]
    Now,
    /// A moment in store time: a retry, a snooze.
    Store(u64),
    /// A moment in wall time: the `run_at` of its enqueuer.
    Wall(u64),
}

impl Due {
    /// In how many milliseconds it is due.
    pub const fn in_ms(self, now: Stamp) -> u64 {
        match self {
            Due::Now => 0,
            Due::Store(at_ms) => at_ms.saturating_sub(now.store_ms),
            Due::Wall(at_ms) => at_ms.saturating_sub(now.wall_ms),
        }
    }
}

/// On which terms a job is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// Its rank: higher is claimed first.
    pub priority: i16,
    /// After so many reported failures it has failed for good.
    pub max_attempts: u16,
    /// After so many dead holders it is quarantined.
    pub max_crashes: u16,
    /// The time limit of one attempt, in milliseconds.
    pub attempt_ms: Option<NonZeroU32>,
    /// How long it waits after a failure.
    pub retry: Retry,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { priority: 0, max_attempts: 10, max_crashes: 5, attempt_ms: None, retry: Retry::default() }
    }
}

impl Terms {
    /// Whether a job can be tried on these terms at all.
    pub fn check(&self) -> Result<(), BadInput> {
        for (field, tries) in [("max_attempts", self.max_attempts), ("max_crashes", self.max_crashes)] {
            if tries == 0 || tries > TRIES_MAX {
                return Err(BadInput::new(field, format!("is {tries}; it takes 1 to {TRIES_MAX}")));
            }
        }
        if let Some(limit_ms) = self.attempt_ms
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
pub struct Record {
    /// How it stands. A scheduled job whose time has come counts as queued, whether or not anybody has noticed.
    pub state: State,
    /// While scheduled: what it waits for.
    pub due: Due,
    /// The newest token given or consumed for this job; zero: it was never claimed.
    pub token: Token,
    /// Failures that count: reported ones, and attempts over their time limit.
    pub failures: u16,
    /// Holders that died.
    pub crashes: u16,
    /// On which terms it is tried.
    pub terms: Terms,
    /// How far its effects have been undone.
    pub undo: Undo,
    /// What else is kept of it.
    pub notes: Notes,
    /// Since when it stands as it does, in wall time.
    pub since_wall_ms: u64,
    /// While running: the claim.
    pub claim: Option<Box<Claim>>,
    /// The attempts that ended. Boxed: a million jobs that were never claimed have none.
    pub trail: Option<Box<Trail>>,
}

/// What is kept of a job elsewhere, so that nobody looks where there is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Notes {
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
pub enum Undo {
    /// There is nothing to undo.
    #[default]
    Nothing,
    /// Undo jobs are under way, one after the other.
    UnderWay,
    /// All that could be undone has been.
    Done,
    /// An undo job failed; the ones before it in time stand.
    Stopped,
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
    pub since: Stamp,
    /// Somebody called the job off; the holder learns at its next renewal.
    pub cancel: Option<Box<Cancel>>,
    /// A job of higher priority asks the holder to yield.
    pub notice: Option<Box<Notice>>,
}

/// A request to call a running job off.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cancel {
    /// Who.
    pub by: Owner,
    /// Why.
    pub reason: Option<Reason>,
}

/// The attempts of a job that ended, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trail {
    /// At most [`TRAIL_MAX`].
    pub attempts: Vec<Attempt>,
    /// How many earlier ones had to be forgotten.
    pub forgotten: u32,
}

/// One attempt that ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// Its token.
    pub token: Token,
    /// Recognises its hold id.
    pub hash: HoldHash,
    /// Who made it.
    pub owner: Owner,
    /// When it began.
    pub since: Stamp,
    /// When it ended.
    pub ended: Stamp,
    /// How it ended.
    pub how: Ended,
    /// What went wrong, in the holder's words; or who ended it, and why.
    pub error: Option<Box<str>>,
}

/// The ways in which an attempt can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ended {
    /// The work was done.
    Completed,
    /// The work was done, and reported after the claim had run out but before anybody else had the job.
    CompletedLate,
    /// Its holder reported an error.
    Failed,
    /// Its holder reported an error after the claim had run out.
    FailedLate,
    /// It ran over its time limit.
    TimedOut,
    /// Its holder died, stalled, or could not reach the store.
    Crashed,
    /// Its holder put the job off.
    Snoozed,
    /// Its holder gave the job back.
    HandedBack,
    /// It was asked to yield, and its time ran out.
    Yielded,
    /// It was handed to somebody who had already gone, and was freed at once.
    Abandoned,
    /// It stopped at an effect of which nobody knows whether it happened.
    Indeterminate,
    /// Somebody ended it by force.
    Revoked,
    /// `store advance` ended every claim.
    Advanced,
}

impl Ended {
    /// Every way, in the order of their tags.
    pub const ALL: [Ended; 13] = [
        Ended::Completed,
        Ended::CompletedLate,
        Ended::Failed,
        Ended::FailedLate,
        Ended::TimedOut,
        Ended::Crashed,
        Ended::Snoozed,
        Ended::HandedBack,
        Ended::Yielded,
        Ended::Abandoned,
        Ended::Indeterminate,
        Ended::Revoked,
        Ended::Advanced,
    ];

    /// Whether the claim simply ran out, so that its holder may not know that it is over.
    pub const fn ran_out(self) -> bool {
        matches!(self, Ended::TimedOut | Ended::Crashed | Ended::Yielded)
    }

    /// How the lease on the job ended, where that is known.
    pub const fn how(self) -> How {
        match self {
            Ended::Crashed | Ended::CompletedLate | Ended::FailedLate => How::Expired,
            Ended::TimedOut => How::AgedOut,
            Ended::Yielded => How::Yielded,
            Ended::Abandoned => How::Abandoned,
            Ended::Revoked => How::Revoked,
            Ended::Advanced => How::Advanced,
            Ended::Completed | Ended::Failed | Ended::Snoozed | Ended::HandedBack | Ended::Indeterminate => {
                How::Released
            }
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Ended::Completed => "completed",
            Ended::CompletedLate => "completed late",
            Ended::Failed => "failed",
            Ended::FailedLate => "failed late",
            Ended::TimedOut => "timed out",
            Ended::Crashed => "crashed",
            Ended::Snoozed => "snoozed",
            Ended::HandedBack => "handed back",
            Ended::Yielded => "yielded",
            Ended::Abandoned => "abandoned",
            Ended::Indeterminate => "indeterminate",
            Ended::Revoked => "revoked",
            Ended::Advanced => "ended by store advance",
        })
    }
}

impl Record {
    /// A job that was just enqueued.
    pub fn new(terms: Terms, run_at_wall_ms: Option<u64>, now: Stamp) -> Self {
        let due = run_at_wall_ms.filter(|at_ms| *at_ms > now.wall_ms);
        Record {
            state: if due.is_some() { State::Scheduled } else { State::Queued },
            due: due.map_or(Due::Now, Due::Wall),
            token: Token::NONE,
            failures: 0,
            crashes: 0,
            terms,
            undo: Undo::Nothing,
            notes: Notes::default(),
            since_wall_ms: now.wall_ms,
            claim: None,
            trail: None,
        }
    }

    /// How it stands at this moment: what has become due is queued.
    pub fn state_at(&self, now: Stamp) -> State {
        if self.state == State::Scheduled && self.due.in_ms(now) == 0 { State::Queued } else { self.state }
    }

    /// The attempts that are remembered, oldest first.
    pub fn attempts(&self) -> &[Attempt] {
        self.trail.as_ref().map_or(&[], |trail| &trail.attempts)
    }

    /// How many attempts there were, the one under way included.
    pub fn attempt_count(&self) -> u32 {
        let forgotten = self.trail.as_ref().map_or(0, |trail| trail.forgotten);
        let ended = u32::try_from(self.attempts().len()).unwrap_or(u32::MAX);
        forgotten.saturating_add(ended).saturating_add(u32::from(self.claim.is_some()))
    }

    pub(crate) fn attempt(&self, token: Token) -> Option<&Attempt> {
        self.attempts().iter().rev().find(|attempt| attempt.token == token)
    }

    /// Ends the claim, if there is one, and remembers how.
    pub(crate) fn end(&mut self, how: Ended, at: Stamp, error: Option<Box<str>>) {
        let Some(claim) = self.claim.take() else { return };
        let trail = self.trail.get_or_insert_default();
        while trail.attempts.len() >= TRAIL_MAX {
            trail.attempts.remove(0);
            trail.forgotten = trail.forgotten.saturating_add(1);
        }
        let Claim { hash, owner, since, .. } = *claim;
        trail
            .attempts
            .push(Attempt { token: self.token, hash, owner, since, ended: at, how, error });
    }
}
