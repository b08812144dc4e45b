//! A worker at work, and how it ends in good order.

use std::fmt;
use std::pin::pin;
use std::thread::JoinHandle;

use super::WorkerCore;
use super::shared::{JobTally, WorkerPhase};
use crate::connect::no_thread;
use crate::error::Error;
use crate::time::{First, first};
use crate::wake::{block_on, lock};

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// How many attempts it brought to an end: completed, failed or snoozed.
    pub finished: u64,
    /// How many jobs it released, begun or not.
    pub released: u64,
    /// How many handlers could not be stopped and still run. Their claims are renewed until they end, and what they return
    /// is reported then. If this process ends first, their claims run out, and each counts as a crash.
    pub still_running: usize,
}

/// What a worker does, and what it has done. See [`RunningWorker::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// How many jobs run.
    pub running: usize,
    /// How many are claimed and have not begun.
    pub prefetched: usize,
    /// How many attempts have ended whose report the store has not answered yet.
    pub unreported: usize,
    /// How many attempts completed their job, by what their handlers returned.
    pub completed: u64,
    /// How many failed.
    pub failed: u64,
    /// How many put their job off.
    pub snoozed: u64,
    /// How many jobs were released, begun or not.
    pub released: u64,
    /// How many attempts ended without a report: their claims were lost, or left to expire.
    pub lost: u64,
}

/// A worker at work. Dropped, it stops at once: what runs is dropped and released.
#[must_use = "a worker stops as soon as this is dropped"]
pub struct RunningWorker {
    core: WorkerCore,
    claimer: Option<JoinHandle<()>>,
}

impl RunningWorker {
    pub(super) fn start(core: &WorkerCore) -> Result<Self, Error> {
        // Made first: if a thread cannot be started, its drop ends those that were.
        let mut running = RunningWorker { core: core.clone(), claimer: None };
        if core.terms.needs_threads() {
            core.shared.threads.start(core)?;
        }
        let claimer = core.clone();
        let claims = std::thread::Builder::new().name("fencehold-claim".to_owned());
        let claims = claims.spawn(move || block_on(claimer.claim()));
        running.claimer = Some(claims.map_err(|error| no_thread(&error))?);
        Ok(running)
    }

    /// How many jobs run at this moment.
    pub fn running(&self) -> usize {
        self.core.shared.tally.read(|tally, _| tally.running)
    }

    /// What it does at this moment, and what it has done since it started.
    pub fn stats(&self) -> WorkerStats {
        self.core.shared.tally.read(|tally, _| WorkerStats {
            running: tally.running,
            prefetched: tally.shelved,
            unreported: tally.unheard,
            ..tally.ended
        })
    }

    /// Waits until `stop` is done, or the worker cannot go on, or has nothing left to do
    /// ([`until_empty`](crate::Worker::until_empty)).
    pub async fn until(&self, stop: impl Future) {
        first(stop, self.core.shared.tally.when(|tally, _| tally.claimer_gone.then_some(()))).await;
    }

    /// Ends in good order: nothing new is claimed, what was not begun is released, what runs has
    /// [some time](crate::Worker::drain_timeout) to end, and what is not done by then is dropped and released. When this
    /// returns, the store knows of all of it, or could not be reached: it has what is left of that time to take the last
    /// reports, and at least the handle's [timeout](crate::FenceholdBuilder::timeout).
    pub async fn drain(self) -> Result<Drained, Error> {
        self.drain_until(std::future::pending::<()>()).await
    }

    /// Likewise, with less time if `cut_short` is done earlier: what runs is then stopped at once, and the store has the
    /// handle's [timeout](crate::FenceholdBuilder::timeout) to take the last reports.
    pub async fn drain_until(mut self, cut_short: impl Future) -> Result<Drained, Error> {
        let connection = self.core.connection();
        let drained_by_ms = connection.now_ms().saturating_add(self.core.terms.drain_ms);
        self.stop_claiming();
        let mut cut_short = pin!(cut_short);
        let time_is_up = first(connection.timers.sleep_until(drained_by_ms), cut_short.as_mut());
        let mut is_cut_short = false;
        if let First::Right(why) = first(self.all_ended(), time_is_up).await {
            is_cut_short = matches!(why, First::Right(_));
            self.core.shared.advance(WorkerPhase::Stopping);
            // One that blocks its thread for longer cannot be stopped: its claim is renewed for as long as it runs, so that
            // no other worker runs the job beside it.
            let give_up_ms = connection.now_ms().saturating_add(self.core.terms.stop_ms);
            first(self.all_ended(), connection.timers.sleep_until(give_up_ms)).await;
        }
        let still_running = self.still_running();
        let heard = || self.core.shared.tally.when(|tally, _| (tally.unheard == 0).then_some(()));
        let patient_until_ms = || connection.now_ms().saturating_add(connection.timeout_ms);
        let time_is_up = connection.timers.sleep_until(drained_by_ms.max(patient_until_ms()));
        if is_cut_short
            || matches!(first(heard(), first(cut_short, time_is_up)).await, First::Right(First::Left(_)))
        {
            first(heard(), connection.timers.sleep_until(patient_until_ms())).await;
        }
        if still_running == 0 {
            // They are about to end: nothing is left for them to do.
            self.core.shared.threads.join();
            if let Some(claimer) = self.claimer.take() {
                let _ = claimer.join();
            }
        }
        self.core.shared.tally.read(|tally, _| {
            let JobTally { failure, ended: WorkerStats { completed, failed, snoozed, released, .. }, .. } =
                tally;
            let drained =
                Drained { finished: completed + failed + snoozed, released: *released, still_running };
            failure.clone().map_or(Ok(drained), Err)
        })
    }

    /// Nothing more is claimed, and what was not begun is released.
    fn stop_claiming(&self) {
        self.core.shared.advance(WorkerPhase::Draining);
        self.core.hand_back(self.core.shared.close());
    }

    async fn all_ended(&self) {
        let ended = |tally: &JobTally, _| (tally.running == 0 && tally.claimer_gone).then_some(());
        self.core.shared.tally.when(ended).await;
    }

    /// How many handlers cannot be stopped. Their jobs stay theirs: to hand one back would have it run twice at once. Counted
    /// are the slots that have a job, for one of them may be about to begin.
    fn still_running(&self) -> usize {
        let running: Vec<_> = lock(&self.core.shared.running).values().cloned().collect();
        for job in running {
            tracing::warn!(
                job = %job.id(), queue = %job.queue(), kind = %job.kind(), token = job.token().get(),
                "a handler cannot be stopped: its claim is renewed until it ends"
            );
        }
        self.running()
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.stop_claiming();
        self.core.shared.advance(WorkerPhase::Stopping);
    }
}

impl fmt::Debug for RunningWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningWorker")
            .field("tally", &self.core.shared.tally)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;
    use std::time::Duration;

    use fencehold_core::job::JobState;

    use super::*;
    use crate::{Fencehold, Job};

    /// A slot may have taken a job and not begun, on a machine with much to do.
    #[test]
    fn a_slot_that_is_about_to_begin_is_left_running_and_hands_its_job_back() -> Result<(), Error> {
        block_on(async {
            let fencehold = Fencehold::connect("memory:").await?;
            let id = fencehold.queue("q").job("do", &()).enqueue().await?.job_id;
            let worker = fencehold.worker().queue("q").concurrency(1).stop_timeout(Duration::ZERO);
            let worker = worker.handle("do", async |_: Job, (): ()| {});
            // The slot's own thread takes nothing: this one does.
            let running = worker.wrap(|_| {}).start()?;
            let shared = Arc::clone(&running.core.shared);
            let taken = shared.threads.take_waiting();
            let drained = running.drain_until(ready(())).await?;
            assert_eq!((drained.released, drained.still_running), (0, 1));
            // A claim that still waits would get the job for a moment.
            shared.tally.when(|tally, _| tally.claimer_gone.then_some(())).await;
            taken.work().await;
            assert_eq!(shared.tally.read(|tally, _| (tally.running, tally.ended.released)), (0, 1));
            shared.tally.when(|tally, _| (tally.unheard == 0).then_some(())).await;
            assert_eq!(fencehold.jobs().get(id).await?.job.state, JobState::Queued);
            Ok(())
        })
    }
}
