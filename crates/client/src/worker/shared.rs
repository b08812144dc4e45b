//! What claimer, slots and what stops them share.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use fencehold_contract::job::ClaimedJob;
use fencehold_core::job::JobKind;

use super::event::OnEvent;
use super::prefetch::PrefetchPace;
use super::run::WorkerStats;
use super::threads::JobThreads;
use crate::error::Error;
use crate::holding::Holding;
use crate::job::Job;
use crate::wake::{WatchValue, lock};

/// A job that is claimed and not yet begun.
pub(super) struct ReadyJob {
    pub(super) claimed: Box<ClaimedJob>,
    pub(super) holding: Arc<Holding>,
    /// Since when it has lain here.
    pub(super) since_ms: u64,
}

/// What a worker is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkerPhase {
    /// It claims and runs.
    #[default]
    Open,
    /// It claims nothing more; what runs may end.
    Draining,
    /// Whatever still runs is dropped and released.
    Stopping,
}

/// Jobs by where they are.
#[derive(Debug, Default)]
pub(super) struct JobTally {
    pub(super) shelved: usize,
    /// Slots whose task has not run yet. It takes a job off the shelf when it does.
    starting: usize,
    pub(super) running: usize,
    /// Words about ended attempts that the store has not answered yet.
    pub(super) unheard: usize,
    /// How many attempts ended, and how.
    pub(super) ended: WorkerStats,
    /// The claimer has ended, and why if it could not go on.
    pub(super) claimer_gone: bool,
    pub(super) failure: Option<Error>,
}

impl JobTally {
    /// Whether nothing is left that could make a job ready.
    fn is_idle(&self) -> bool {
        self.shelved == 0 && self.running == 0 && self.unheard == 0
    }
}

/// What the claimer, the slots and the one that stops them share.
pub(crate) struct WorkerShared {
    /// The shelf.
    ready: Mutex<WorkerQueue>,
    /// For handlers that block.
    pub(super) threads: JobThreads,
    pub(super) tally: WatchValue<JobTally>,
    /// Apart from the tally: running handlers wait on it, and must not be woken by every job that comes and goes.
    stage: WatchValue<WorkerPhase>,
    pub(super) prefetch_pace: Mutex<PrefetchPace>,
    /// The jobs that run, by the number of their holding.
    pub(super) running: Mutex<HashMap<u64, Job>>,
    pub(super) on_event: Option<OnEvent>,
}

/// A job that has a slot.
pub(super) enum NextJob {
    /// A task is to take it off the shelf when it runs. Until then it can be released: a runtime may be busy.
    InTask,
    /// It is for a thread.
    OnThread(ReadyJob),
}

#[derive(Default)]
struct WorkerQueue {
    jobs: VecDeque<ReadyJob>,
    closed: bool,
}

impl WorkerShared {
    /// Of a worker that takes no jobs.
    pub(crate) fn without_jobs() -> Self {
        WorkerShared::new(PrefetchPace::new(1, 0), None)
    }

    pub(super) fn new(prefetch_pace: PrefetchPace, on_event: Option<OnEvent>) -> Self {
        WorkerShared {
            ready: Mutex::default(),
            threads: JobThreads::default(),
            tally: WatchValue::default(),
            stage: WatchValue::default(),
            prefetch_pace: Mutex::new(prefetch_pace),
            running: Mutex::default(),
            on_event,
        }
    }

    /// Puts jobs on the shelf. What comes after it was closed is given back.
    pub(super) fn put(&self, jobs: Vec<ReadyJob>) -> Vec<ReadyJob> {
        let mut ready = lock(&self.ready);
        if ready.closed {
            return jobs;
        }
        let count = jobs.len();
        ready.jobs.extend(jobs);
        self.count(|tally| tally.shelved += count);
        Vec::new()
    }

    /// Gives the next job a slot, if one of them is free.
    pub(super) fn start_next(
        &self,
        slots: usize,
        needs_thread: impl Fn(&JobKind) -> bool,
    ) -> Option<NextJob> {
        let mut ready = lock(&self.ready);
        let (starting, running) = self.tally.read(|tally, _| (tally.starting, tally.running));
        if starting + running >= slots {
            return None;
        }
        // The jobs before it are for the slots that are starting.
        if needs_thread(&ready.jobs.get(starting)?.claimed.kind) {
            return self.begin(ready.jobs.remove(starting)).map(NextJob::OnThread);
        }
        self.count(|tally| tally.starting += 1);
        Some(NextJob::InTask)
    }

    /// The job of a slot whose task runs. `None`: it was released meanwhile.
    pub(super) fn fill_slot(&self) -> Option<ReadyJob> {
        let mut ready = lock(&self.ready);
        self.abandon_slot();
        self.begin(ready.jobs.pop_front())
    }

    /// A slot whose task has not run, and never will, takes no job.
    pub(super) fn abandon_slot(&self) {
        self.count(|tally| tally.starting -= 1);
    }

    /// Puts a job that was given a slot, and cannot have it, on the shelf again. What comes after it was closed is given back.
    pub(super) fn unbegin(&self, job: ReadyJob) -> Vec<ReadyJob> {
        let mut ready = lock(&self.ready);
        self.count(|tally| tally.running -= 1);
        if ready.closed {
            return vec![job];
        }
        ready.jobs.push_front(job);
        self.count(|tally| tally.shelved += 1);
        Vec::new()
    }

    /// Counted with the shelf locked: a count of both never finds a job in neither place.
    fn begin(&self, taken: Option<ReadyJob>) -> Option<ReadyJob> {
        let job = taken?;
        self.count(|tally| {
            tally.shelved -= 1;
            tally.running += 1;
        });
        Some(job)
    }

    /// Takes off the shelf what has lain there since before this moment.
    pub(super) fn take_stale(&self, before_ms: u64) -> Vec<ReadyJob> {
        let mut ready = lock(&self.ready);
        let stale = ready.jobs.iter().take_while(|job| job.since_ms <= before_ms).count();
        let stale: Vec<ReadyJob> = ready.jobs.drain(..stale).collect();
        if !stale.is_empty() {
            self.count(|tally| tally.shelved -= stale.len());
        }
        stale
    }

    /// Since when the job that has lain there for longest has.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        lock(&self.ready).jobs.front().map(|job| job.since_ms)
    }

    /// Nothing more is begun. What lay on the shelf is the caller's to release.
    pub(super) fn close(&self) -> Vec<ReadyJob> {
        let mut ready = lock(&self.ready);
        ready.closed = true;
        let left: Vec<ReadyJob> = ready.jobs.drain(..).collect();
        self.count(|tally| tally.shelved -= left.len());
        drop(ready);
        self.threads.close();
        left
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut JobTally)) {
        self.tally.change(change);
    }

    /// Whether nothing is left that could make a job ready.
    pub(super) fn is_idle(&self) -> bool {
        self.tally.read(|tally, _| tally.is_idle())
    }

    /// Waits until nothing is.
    pub(super) async fn idle(&self) {
        self.tally.when(|tally, _| tally.is_idle().then_some(())).await;
    }

    /// Goes on to a later stage; never back.
    pub(crate) fn advance(&self, stage: WorkerPhase) {
        self.stage.update(|at| (*at < stage).then(|| *at = stage));
    }

    /// Whether what still runs is to be dropped.
    pub(super) fn is_stopping(&self) -> bool {
        self.stage.read(|at, _| *at >= WorkerPhase::Stopping)
    }

    async fn reached(&self, stage: WorkerPhase) {
        self.stage.when(move |at, _| (*at >= stage).then_some(())).await;
    }

    /// Waits until the worker is asked to stop.
    pub(crate) async fn draining(&self) {
        self.reached(WorkerPhase::Draining).await;
    }

    /// Waits until what still runs is to be dropped.
    pub(crate) async fn stopping(&self) {
        self.reached(WorkerPhase::Stopping).await;
    }

    /// How many more jobs are wanted: none as long as half of what was claimed ahead still lies on the shelf, and none for slots whose
    /// tasks do not run.
    pub(super) fn room(&self, slots: usize) -> usize {
        let ahead = lock(&self.prefetch_pace).ahead();
        let (waiting, begun) = self
            .tally
            .read(|tally, _| (tally.shelved.saturating_sub(tally.starting), tally.starting + tally.running));
        if waiting > ahead / 2 { 0 } else { (slots + ahead).saturating_sub(waiting + begun) }
    }
}
