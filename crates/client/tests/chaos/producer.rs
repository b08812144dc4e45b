//! The desk: feeds jobs, and tells what happens in the store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use fencehold::job::RetryPolicy;
use fencehold::job::{JobCounts, JobState};
use fencehold::store::{AcquireLeaseRequest, HoldRef, LeaseStatsRequest, ListEventsRequest, file};
use fencehold::{Fencehold, HoldId, JobId, Key, Owner};

use super::replay::Replay;
use super::worker::{ChaosJob, PausePoint};
use super::{LeaderEvent, QUEUE, Random};
use crate::worker_processes::{TIMEOUT, WorkDirectory};

/// How many jobs wait or run at a time, so that no worker is ever without one.
const BACKLOG: u64 = 120;
/// Feeds jobs and tells what happens, on a handle of its own. Never the owner for long: that is for those who die.
pub(crate) struct Producer {
    work_dir: WorkDirectory,
    fh: Fencehold,
    random: Random,
    news: mpsc::Sender<LeaderEvent>,
    fed: Vec<JobId>,
    seen: u64,
    replay: Replay,
    /// Some jobs wait for a delay, some for a moment of the wall clock.
    pub(crate) has_them_wait: bool,
}

impl Producer {
    pub(crate) async fn open(
        work_dir: WorkDirectory,
        random: Random,
        news: mpsc::Sender<LeaderEvent>,
    ) -> Self {
        let fh = work_dir.connect("desk").await;
        Producer {
            work_dir,
            fh,
            random,
            news,
            fed: Vec::new(),
            seen: 0,
            replay: Replay::default(),
            has_them_wait: false,
        }
    }

    /// Returns how often counts were compared.
    pub(crate) async fn run(mut self, calm: Arc<AtomicBool>) -> [u64; 3] {
        loop {
            let feeding = !calm.load(Ordering::SeqCst);
            let status = self.fh.store().status(&self.fh.call()).await.unwrap();
            let _ = self.news.send(LeaderEvent::Owner(status.owner_pid));
            if status.owner_pid == Some(std::process::id()) {
                self.step_down().await;
                continue;
            }
            if feeding && status.job_count < BACKLOG {
                self.feed().await;
            }
            self.tell(20).await;
            self.use_leases().await;
            self.compare().await;
            if !feeding && status.job_count == 0 {
                self.tell(0).await;
                // Nothing is held in the end.
                self.use_lease("desk/expires", 1_000, 30_000).await;
                self.fh.close().await;
                let _ = self.news.send(LeaderEvent::Done(self.fed));
                let compared = self.replay.compared();
                assert!(compared[..2].iter().all(|times| *times > 0), "compared {compared:?} times");
                return compared;
            }
        }
    }

    async fn feed(&mut self) {
        let queue = self.fh.queue(QUEUE);
        let mut jobs = Vec::new();
        for _ in 0..16 {
            let number = u64::try_from(self.fed.len()).unwrap();
            let kind = self.random.one_of(&["async", "blocking"]);
            let holds_before =
                self.random
                    .one_of(&[PausePoint::Append, PausePoint::Record, PausePoint::Completion]);
            let mut bits = [0; 10];
            bits[2..].copy_from_slice(&self.random.below(u64::MAX).to_be_bytes());
            let id = JobId::from_random(number, bits);
            let soon = RetryPolicy::fixed(Duration::from_millis(10));
            let mut job = queue.job(kind, &ChaosJob { number, holds_before }).id(id);
            if self.has_them_wait {
                let soon = Duration::from_millis(self.random.below(2_000));
                job = match self.random.below(4) {
                    0 => job.delay(soon),
                    1 => job.run_at(SystemTime::now() + soon),
                    _ => job,
                };
            }
            jobs.push(job.max_crashes(1_000).max_failures(1_000).retry(soon));
            self.fed.push(id);
        }
        for enqueued in queue.enqueue_batch(jobs).await {
            enqueued.unwrap();
        }
    }

    /// Tells what has happened since the last time.
    async fn tell(&mut self, wait_ms: u64) {
        let mut wait_ms = wait_ms;
        loop {
            let request = ListEventsRequest {
                cursor: Some(self.seen),
                limit: 1_000,
                wait_ms,
                ..ListEventsRequest::default()
            };
            let page = self.fh.store().list_events(&self.fh.call(), request).await.unwrap();
            self.seen = page.next_cursor;
            if page.events.is_empty() {
                return;
            }
            for event in page.events {
                self.replay.hear(event.clone());
                let _ = self.news.send(LeaderEvent::Happened(event));
            }
            wait_ms = 0;
        }
    }

    /// One lease that is released, and one that expires, if it is free.
    async fn use_leases(&mut self) {
        self.use_lease("desk/released", 60_000, 0).await;
        let _ = self.acquire("desk/expires", 1_000, 0).await;
    }

    async fn use_lease(&mut self, key: &str, ttl_ms: u64, wait_ms: u64) {
        if let Some(hold) = self.acquire(key, ttl_ms, wait_ms).await {
            let released = self.fh.store().release(&self.fh.call(), vec![hold]).await;
            released.unwrap();
        }
    }

    async fn acquire(&mut self, key: &str, ttl_ms: u64, wait_ms: u64) -> Option<HoldRef> {
        let mut bits = [0; 16];
        bits[8..].copy_from_slice(&self.random.below(u64::MAX).to_be_bytes());
        let (key, hold_id) = (Key::new(key).unwrap(), HoldId::from_random(bits));
        let owner = Owner::new("desk").unwrap();
        let request =
            AcquireLeaseRequest { wait_ms, ..AcquireLeaseRequest::new(key.clone(), hold_id, owner, ttl_ms) };
        let acquired = self.fh.store().acquire(&self.fh.call(), request).await.ok()?;
        Some(HoldRef { key, hold_id, token: acquired.grant.token })
    }

    /// Holds what the store counts against a replay of what has happened.
    async fn compare(&mut self) {
        let request = LeaseStatsRequest { since_ms: 24 * 3_600_000, step_ms: Some(60_000) };
        let stats = self.fh.store().stats(&self.fh.call(), request).await.unwrap();
        if self.replays_to(stats.event_seq).await {
            self.replay.compare_stats(&stats);
        }
        let jobs = self.fh.store().jobs().unwrap().list_queues(&self.fh.call()).await.unwrap();
        if self.replays_to(jobs.event_seq).await {
            let mut counts = JobCounts::default();
            for queue in &jobs.queues {
                for state in JobState::ALL {
                    *counts.get_mut(state) += queue.job_counts.get(state);
                }
            }
            self.replay.compare_jobs(&counts);
        }
        if self.fh.store().refresh_metrics(&self.fh.call()).await.is_ok() {
            let counted = self
                .fh
                .store()
                .metrics()
                .and_then(|metrics| metrics.facts.together(|counted| counted));
            if self.replays_to(counted.map(|counted| counted.to_seq)).await {
                self.replay.compare_metrics(&**self.fh.store());
            }
        }
    }

    /// Reads and replays all up to an event. False: it is not known which, or the replay is further.
    async fn replays_to(&mut self, seq: Option<u64>) -> bool {
        let Some(seq) = seq else { return false };
        while self.seen < seq {
            self.tell(0).await;
        }
        self.replay.go_to(seq)
    }

    /// Gives the directory to another process, and comes back when one has it.
    async fn step_down(&mut self) {
        let epoch = file::check(&self.work_dir.store()).unwrap().epoch;
        self.fh.close().await;
        let begun = Instant::now();
        while file::check(&self.work_dir.store()).unwrap().epoch == epoch {
            assert!(begun.elapsed() < TIMEOUT, "no process takes the directory over");
            // Another process must come to it; how soon orders nothing here.
            std::thread::sleep(Duration::from_millis(20));
        }
        self.fh = self.work_dir.connect("desk").await;
    }
}
