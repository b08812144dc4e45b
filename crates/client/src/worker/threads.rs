//! Threads for handlers that block, and for all of them where there is no runtime.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::WorkerCore;
use super::drive::guarded;
use super::shared::ReadyJob;
use super::slot::BegunJob;
use crate::connect::no_thread;
use crate::error::Error;
use crate::wake::{block_on, lock};

/// What threads run within.
pub(super) type Within = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// The context of a Tokio runtime.
pub(super) fn within_runtime(runtime: tokio::runtime::Handle) -> Within {
    Arc::new(move |thread| {
        let _entered = runtime.enter();
        thread();
    })
}

/// Threads that are started when there is a job for them, and stay until the worker ends: never more than there are slots.
#[derive(Default)]
pub(super) struct JobThreads {
    queue: Mutex<ThreadQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct ThreadQueue {
    jobs: VecDeque<BegunJob>,
    /// How many threads there are, without those that will take nothing more.
    alive: usize,
    /// How many of them wait for a job.
    idle: usize,
    closed: bool,
    threads: Vec<JoinHandle<()>>,
}

impl JobThreads {
    /// Has a thread run this job: one that is idle or about to be, or a new one. `Err`: there is none, and none can be started.
    pub(super) fn run(&self, core: &WorkerCore, job: ReadyJob) -> Result<(), ReadyJob> {
        let mut queue = lock(&self.queue);
        let needs_thread = queue.idle <= queue.jobs.len() && queue.alive < core.terms.concurrency;
        let failure = if needs_thread { queue.start(core).err() } else { None };
        let accepted = if queue.alive == 0 {
            Err(job)
        } else {
            queue.jobs.push_back(BegunJob::new(core, job));
            Ok(())
        };
        drop(queue);
        self.changed.notify_one();
        if let Some(error) = failure {
            tracing::warn!(%error, "a job waits for a thread");
        }
        accepted
    }

    /// Starts a thread ahead of the first job, to see that threads can be started.
    pub(super) fn start(&self, core: &WorkerCore) -> Result<(), Error> {
        lock(&self.queue).start(core)
    }

    /// Threads end when nothing is left for them to do.
    pub(super) fn close(&self) {
        lock(&self.queue).closed = true;
        self.changed.notify_all();
    }

    /// Waits for the threads, which are about to end.
    pub(super) fn join(&self) {
        let threads = std::mem::take(&mut lock(&self.queue).threads);
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// The next job, for a thread that waits for it. `None`: there will be none, and the thread counts no more.
    fn take(&self, thread: &mut AliveThread<'_>) -> Option<BegunJob> {
        let mut queue = lock(&self.queue);
        queue.idle += 1;
        let has_none = |queue: &mut ThreadQueue| queue.jobs.is_empty() && !queue.closed;
        let mut queue = self.changed.wait_while(queue, has_none).unwrap_or_else(PoisonError::into_inner);
        queue.idle -= 1;
        let job = queue.jobs.pop_front();
        if job.is_none() {
            queue.alive -= 1;
            thread.counts = false;
        }
        job
    }

    /// What no thread has taken, to do it in its place.
    #[cfg(test)]
    pub(super) fn take_waiting(&self) -> BegunJob {
        let queue = lock(&self.queue);
        let has_none = |queue: &mut ThreadQueue| queue.jobs.is_empty();
        let mut queue = self.changed.wait_while(queue, has_none).unwrap_or_else(PoisonError::into_inner);
        queue.jobs.pop_front().expect("it waited for one")
    }
}

impl ThreadQueue {
    fn start(&mut self, core: &WorkerCore) -> Result<(), Error> {
        let core = core.clone();
        let name = format!("fencehold-job-{}", self.threads.len());
        let run = move || {
            let threads = &core.shared.threads;
            let mut thread = AliveThread { threads, counts: true };
            let mut run_jobs = || {
                while let Some(job) = threads.take(&mut thread) {
                    // A job releases itself if something panics that is no handler. The thread goes on: others may wait for it.
                    let _ = guarded(|| block_on(job.work()));
                }
            };
            match &core.terms.within {
                Some(within) => within(&mut run_jobs),
                None => run_jobs(),
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(run);
        self.threads.push(thread.map_err(|error| no_thread(&error))?);
        self.alive += 1;
        Ok(())
    }
}

/// A thread that takes jobs.
struct AliveThread<'a> {
    threads: &'a JobThreads,
    counts: bool,
}

impl Drop for AliveThread<'_> {
    /// It has ended otherwise: by a panic, or because what wraps it has let it.
    fn drop(&mut self) {
        if self.counts {
            lock(&self.threads.queue).alive -= 1;
        }
    }
}
