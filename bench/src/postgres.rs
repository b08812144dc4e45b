//! Leases and jobs on a PostgreSQL server that runs already, beside other queues on the same server in the same run.
//!
//! Peers and ours take turns, so that all see the same weather. Of several settings the best counts, and all are shown.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencehold::{Fencehold, Job};
use fencehold_core::job::QueueName;
use fencehold_core::limits::BATCH_MAX;
use fencehold_load::{Failed, Latencies, LoadClient, Measured, Target, Timer, enqueue, renew_all, run};
use tokio::sync::Notify;

use crate::figure::Figure;
use crate::job::{BULK, Idle, lives};
use crate::lease::{pairs, renewals};
use crate::queues::{PeerQueues, Worked};
use crate::scratch_dir::open_url;
use crate::{parse_time, scale};

/// As long as the peers'.
pub(crate) const PAYLOAD_BYTES: usize = 200;
/// How many take leases at once.
const LEASE_CLIENTS: usize = 8;
/// How many live jobs at once, and how many jobs one call has.
const JOB_LOADS: [(usize, usize); 3] = [(1, 1), (64, 1), (64, 100)];
/// How many enqueue at once, one job at a time.
const CLIENTS: usize = 64;
/// How much larger than the others' the store with a held snapshot is.
const UNDER_SNAPSHOT: usize = 3;
/// Concurrency, and how many jobs are claimed ahead: three for each queue. The last of `graphile_worker`'s is its own benchmark's.
const OURS: [(usize, usize); 3] = [(8, 1_000), (4, 2_000), (16, 5_000)];
const AWA: [(usize, usize); 3] = [(50, 128), (100, 512), (500, 1_000)];
const GRAPHILE: [(usize, usize); 3] = [(64, 1_000), (24, 5_000), (500, 5_000)];

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct PostgresPlan {
    /// The store: postgres://…
    #[arg(long, value_name = "URL")]
    store: String,
    /// How many jobs to work off
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(3..))]
    jobs: u32,
    /// How long one measurement takes
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "3s")]
    time: Duration,
    /// Beside the queues of this program (`bench/peers`), too, on the database that `DATABASE_URL` names
    #[arg(long, value_name = "PROGRAM")]
    peers: Option<PathBuf>,
}

impl PostgresPlan {
    fn queues(&self) -> Option<PeerQueues> {
        self.peers.clone().map(|program| PeerQueues { program })
    }

    fn jobs(&self) -> usize {
        usize::try_from(self.jobs).unwrap_or(usize::MAX)
    }
}

/// Measures, calling `show` with each line as it is known.
pub(crate) async fn measure(plan: &PostgresPlan, mut show: impl FnMut(Figure)) -> Result<(), Failed> {
    let target = open_url(&plan.store)?;
    leases(&target, plan, &mut show).await?;
    for (clients, batch) in JOB_LOADS {
        // What is opened and planned once is so before the clock runs.
        lives(&target, clients, batch, plan.time / 3).await?;
        let lives = lives(&target, clients, batch, plan.time).await?;
        show(Figure::new(format!("enqueue + claim + complete, by {batch}"), clients).measured(&lives));
    }
    single(&target, plan, &mut show).await?;
    process(&target, plan, &mut show).await?;
    if let Some(queues) = plan.queues() {
        under_a_snapshot(&target, plan, &queues, &mut show).await?;
    }
    show(latency(&target, plan).await?);
    target.store.close().await;
    Ok(())
}

async fn leases(target: &Target, plan: &PostgresPlan, show: &mut impl FnMut(Figure)) -> Result<(), Failed> {
    let taken = pairs(target, LEASE_CLIENTS, plan.time).await?;
    show(Figure::new("acquire + release", LEASE_CLIENTS).measured(&taken));
    let renewed = renewals(target, LEASE_CLIENTS, 100, plan.time).await?;
    show(Figure::new("renew, by 100", LEASE_CLIENTS).measured(&renewed));
    show(many_at_once(target, plan).await?);
    Ok(())
}

/// Renews as many leases as one call takes, over and over.
async fn many_at_once(target: &Target, plan: &PostgresPlan) -> Result<Figure, Failed> {
    let holds = scale::fill(target, BATCH_MAX, 600_000).await?;
    let mut latencies = Latencies::default();
    let started = Instant::now();
    while latencies.len() < 3 || started.elapsed() < plan.time {
        let before = Instant::now();
        renew_all(target, &holds).await?;
        latencies.add(before.elapsed());
    }
    let (done, time) = (latencies.len() * holds.len() as u64, started.elapsed());
    let measured = Measured { done, time, calls: vec![latencies] };
    let line = Figure::new(format!("renew {} leases in one call", holds.len()), 1);
    target.store.release(&target.call, holds).await?;
    let p50_us = measured.percentile_us(50.0);
    Ok(line.measured(&measured).bar("p50 under 300 ms", p50_us < 300_000.0))
}

/// One job at a time, by many.
async fn single(target: &Target, plan: &PostgresPlan, show: &mut impl FnMut(Figure)) -> Result<(), Failed> {
    let queue = fresh_queue(target, "single")?;
    // Connections are opened before the clock runs.
    singles(target, &queue, plan.time / 10).await?;
    let queues = plan.queues();
    let raw = queues
        .as_ref()
        .map(|queues| queues.single("plain", CLIENTS, plan.time))
        .transpose()?;
    let ours = singles(target, &queue, plan.time).await?;
    let line = Figure::new("single enqueues", CLIENTS).measured(&ours);
    let (Some(queues), Some(raw)) = (&queues, raw) else {
        show(line);
        return Ok(());
    };
    let again = queues.single("plain", CLIENTS, plan.time)?;
    let raw = f64::midpoint(raw, again);
    show(Figure { per_second: raw, ..Figure::new("single INSERT into a plain table", CLIENTS) });
    let ratio = ours.per_second() / raw;
    show(line.ratio("plain INSERT", ratio).bar("at least 0.4", ratio >= 0.4));
    for peer in ["awa", "graphile_worker"] {
        let per_second = queues.single(peer, CLIENTS, plan.time)?;
        let line = Figure { per_second, ..Figure::new(format!("{peer}: single enqueues"), CLIENTS) };
        show(line.ratio("plain INSERT", per_second / raw));
    }
    Ok(())
}

/// Enqueues one job at a time.
struct Enqueuer {
    target: Target,
    queue: QueueName,
}

impl LoadClient for Enqueuer {
    async fn round(&mut self, timer: &Timer) -> Result<u64, Failed> {
        timer.time(0, enqueue(&self.target, &self.queue, 1, PAYLOAD_BYTES)).await?;
        Ok(1)
    }
}

async fn singles(target: &Target, queue: &QueueName, time: Duration) -> Result<Measured, Failed> {
    let client = |_| Enqueuer { target: target.clone(), queue: queue.clone() };
    run((0..CLIENTS).map(client), time).await
}

/// All jobs are there before the first is taken.
async fn process(target: &Target, plan: &PostgresPlan, show: &mut impl FnMut(Figure)) -> Result<(), Failed> {
    let mut best: [Option<Worked>; 3] = [None; 3];
    let names = ["fencehold", "awa", "graphile_worker"];
    let queues = plan.queues();
    for nth in 0..OURS.len() {
        for (which, settings) in [OURS[nth], AWA[nth], GRAPHILE[nth]].into_iter().enumerate() {
            let (concurrency, batch) = settings;
            let worked = match (&queues, which) {
                (_, 0) => work_off(target, plan.jobs(), settings).await?.worked(),
                (Some(queues), _) => queues.process(names[which], plan.jobs(), concurrency, batch)?,
                (None, _) => continue,
            };
            let what = format!("{}: process {} jobs, up to {batch} ahead", names[which], plan.jobs);
            show(Figure { per_second: worked.process, ..Figure::new(what, concurrency) });
            show(Figure {
                per_second: worked.bulk,
                ..Figure::new(format!("{}: bulk enqueue", names[which]), 1)
            });
            let best = best[which].get_or_insert(worked);
            best.process = best.process.max(worked.process);
            best.bulk = best.bulk.max(worked.bulk);
        }
    }
    let [Some(ours), awa, graphile] = best else { return Ok(()) };
    let bars = [(awa, "awa", 4.0), (graphile, "graphile_worker", 0.8)];
    for (theirs, name, bar) in bars {
        let Some(theirs) = theirs else { continue };
        let ratio = ours.process / theirs.process;
        let line = Figure { per_second: ours.process, ..Figure::new("processing, the best of each", 0) };
        show(line.ratio(name, ratio).bar(format!("at least {bar}"), ratio >= bar));
    }
    let line = Figure { per_second: ours.bulk, ..Figure::new("bulk enqueue, the best of each", 1) };
    show(match awa {
        // Where the peer does not get there, the machine does not.
        Some(awa) => {
            let met = ours.bulk >= awa.bulk.min(50_000.0);
            line.ratio("awa", ours.bulk / awa.bulk).bar("50 k/s, or as awa", met)
        }
        None => line,
    });
    Ok(())
}

/// What became of jobs that were worked off.
struct WorkedOff {
    jobs: usize,
    bulk: Duration,
    /// When each third was done, from the start of the worker on.
    thirds: [Duration; 3],
}

impl WorkedOff {
    fn worked(&self) -> Worked {
        let rate = |time: Duration| self.jobs as f64 / time.as_secs_f64();
        Worked { bulk: rate(self.bulk), process: rate(self.thirds[2]) }
    }

    /// How many a second in the last third.
    fn last_third(&self) -> f64 {
        (self.jobs / 3) as f64 / self.thirds[2].saturating_sub(self.thirds[1]).as_secs_f64()
    }
}

/// Enqueues in bulk, then starts a worker and waits until the last completion is acknowledged.
async fn work_off(target: &Target, jobs: usize, settings: (usize, usize)) -> Result<WorkedOff, Failed> {
    let queue = fresh_queue(target, "process")?;
    let began = Instant::now();
    for done in (0..jobs).step_by(BULK) {
        enqueue(target, &queue, BULK.min(jobs - done), PAYLOAD_BYTES).await?;
    }
    let bulk = began.elapsed();
    let fencehold = Fencehold::builder().store(Arc::clone(&target.store)).connect().await?;
    let count = Arc::new((AtomicUsize::new(0), Notify::new()));
    let counted = Arc::clone(&count);
    let third = (jobs / 3).max(1);
    let handle = move |_: Job, payload: serde_json::Value| {
        std::hint::black_box(payload);
        let done = counted.0.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(third) || done == jobs {
            counted.1.notify_one();
        }
        async { Ok::<_, fencehold::JobError>(()) }
    };
    let (concurrency, ahead) = settings;
    let began = Instant::now();
    let worker = fencehold
        .worker()
        .queue(queue.as_str())
        .concurrency(concurrency)
        .prefetch(ahead)
        .handle("bench", handle)
        .start()?;
    let mut thirds = [Duration::ZERO; 3];
    for (goal, at) in [third, third * 2, jobs].into_iter().zip(&mut thirds) {
        while count.0.load(Ordering::Relaxed) < goal {
            count.1.notified().await;
        }
        *at = began.elapsed();
    }
    worker.drain().await?;
    thirds[2] = began.elapsed();
    fencehold.close().await;
    Ok(WorkedOff { jobs, bulk, thirds })
}

/// What the server cannot clear away, because another session may still look at it, must not be waded through.
async fn under_a_snapshot(
    target: &Target,
    plan: &PostgresPlan,
    queues: &PeerQueues,
    show: &mut impl FnMut(Figure),
) -> Result<(), Failed> {
    let jobs = plan.jobs() * UNDER_SNAPSHOT;
    let free = work_off(target, jobs, OURS[0]).await?.last_third();
    let snapshot = queues.snapshot()?;
    let held = work_off(target, jobs, OURS[0]).await?.last_third();
    drop(snapshot);
    let line =
        Figure { per_second: free, ..Figure::new(format!("the last third of {jobs} jobs"), OURS[0].0) };
    show(line);
    let ratio = held / free;
    let what = "the same, while another session holds a snapshot";
    let line = Figure { per_second: held, ..Figure::new(what, OURS[0].0) };
    show(line.ratio("without", ratio).bar("at least 0.6", ratio >= 0.6));
    Ok(())
}

/// From the call that enqueues, its commit included, to the start of the handler, while nothing else goes on.
async fn latency(target: &Target, plan: &PostgresPlan) -> Result<Figure, Failed> {
    let queue = fresh_queue(target, "idle")?;
    let mut idle = Idle::start(target, queue.as_str()).await?;
    let mut latencies = Latencies::default();
    let began = Instant::now();
    while began.elapsed() < plan.time {
        let called = Instant::now();
        enqueue(target, &queue, 1, PAYLOAD_BYTES).await?;
        latencies.add(idle.next().await?.saturating_duration_since(called));
        // Idle means that the worker is waiting again when the next one comes.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    idle.stop().await?;
    let (p50_us, p99_us) = (latencies.percentile_us(50.0), latencies.percentile_us(99.0));
    let line = Figure::new("from enqueue, commit included, to start of the handler, idle", 1);
    Ok(Figure { p50_us, p99_us, ..line }.bar("p50 under 5 ms", p50_us < 5_000.0))
}

/// A queue that no other run has.
pub(crate) fn fresh_queue(target: &Target, what: &str) -> Result<QueueName, Failed> {
    Ok(QueueName::new(format!("bench/{what}/{}/{}", std::process::id(), target.fresh()))?)
}
