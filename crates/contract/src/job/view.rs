//! Jobs as people see them: everything but the proof of a claim.

use fencehold_core::job::{Ended, JobId, Kind, Queue, State, Terms, Undo, UniqueKey};
use fencehold_core::lease::Notice;
use fencehold_core::ledger::Effect;
use fencehold_core::{Owner, Token};
use serde::{Deserialize, Serialize};

use super::UndoOf;

/// How a job stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Its queue.
    pub queue: Queue,
    /// What it is.
    pub kind: Kind,
    /// How it stands.
    pub state: State,
    /// Its newest token.
    pub token: Token,
    /// On which terms it is tried.
    pub terms: Terms,
    /// How many attempts there were, the one under way included.
    pub attempts: u32,
    /// Failures so far.
    pub failures: u16,
    /// Dead holders so far.
    pub crashes: u16,
    /// When it was enqueued, in wall time.
    pub enqueued_wall_ms: u64,
    /// Since when it stands as it does, in wall time.
    pub since_wall_ms: u64,
    /// In how many milliseconds it is ready, while it is scheduled.
    pub due_in_ms: Option<u64>,
    /// Who works on it.
    pub runner: Option<RunnerView>,
    /// Its labels.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// What makes it the same as another.
    pub unique: Option<UniqueKey>,
    /// How far its effects have been undone.
    pub undo: Undo,
    /// Whose effect it undoes, where it does.
    pub undo_of: Option<UndoOf>,
}

/// Who works on a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerView {
    /// Who.
    pub owner: Owner,
    /// The ttl that it chose.
    pub ttl_ms: u64,
    /// How long it has left unless it renews.
    pub remaining_ms: u64,
    /// Since when, in wall time.
    pub since_wall_ms: u64,
    /// For how long it has worked.
    pub age_ms: u64,
    /// Who called the job off.
    pub cancel_by: Option<Owner>,
    /// Who asks it to yield.
    pub notice: Option<Notice>,
}

/// Everything about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDetail {
    /// How it stands.
    pub job: JobView,
    /// What it is about: JSON.
    pub payload: Box<str>,
    /// What it gave: JSON.
    pub result: Option<Box<str>>,
    /// How far it has come: JSON.
    pub progress: Option<Box<str>>,
    /// Where it would go on from.
    pub checkpoint: Option<Vec<u8>>,
    /// The trace context of whoever enqueued it.
    pub trace: Option<Box<str>>,
    /// The attempts that ended, oldest first; the oldest may be forgotten.
    pub attempts: Vec<AttemptView>,
    /// Its effects, in the order in which they were first heard of.
    pub effects: Vec<Effect>,
}

/// An attempt that ended, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptView {
    /// Its token.
    pub token: Token,
    /// Who made it.
    pub owner: Owner,
    /// When it began, in wall time.
    pub since_wall_ms: u64,
    /// When it ended, in wall time.
    pub ended_wall_ms: u64,
    /// How it ended.
    pub how: Ended,
    /// What went wrong.
    pub error: Option<Box<str>>,
}

/// Which jobs. What is not named does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFilter {
    /// In this queue.
    pub queue: Option<Queue>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// In any of these states; none named: in every state.
    pub states: Vec<State>,
    /// With all of these labels.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// That this owner works on.
    pub owner: Option<Owner>,
    /// With this text in the payload.
    pub payload_contains: Option<String>,
}

/// Which jobs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsRequest {
    /// Which.
    pub filter: JobFilter,
    /// Where the page before ended.
    pub cursor: Option<u64>,
    /// At most this many.
    pub limit: usize,
}

/// One page of jobs. It may be short, or even empty, and still not be the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// Where the next page starts; `None`: this was the last.
    pub next: Option<u64>,
}

/// Which job to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRequest {
    /// Which.
    pub id: JobId,
    /// For how long.
    pub wait_ms: u64,
}

/// How many jobs there are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Ready.
    pub queued: u64,
    /// Waiting for their time.
    pub scheduled: u64,
    /// Being worked on.
    pub running: u64,
    /// Done, and not yet pruned.
    pub completed: u64,
    /// Failed for good, and not yet pruned.
    pub failed: u64,
    /// Called off, and not yet pruned.
    pub cancelled: u64,
    /// The end of too many holders.
    pub quarantined: u64,
    /// Waiting for a person to look.
    pub indeterminate: u64,
}

impl Counts {
    /// The number for a state.
    pub fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Queued => &mut self.queued,
            State::Scheduled => &mut self.scheduled,
            State::Running => &mut self.running,
            State::Completed => &mut self.completed,
            State::Failed => &mut self.failed,
            State::Cancelled => &mut self.cancelled,
            State::Quarantined => &mut self.quarantined,
            // States that a later version may add are for people to look at.
            _ => &mut self.indeterminate,
        }
    }
}
