//! Jobs on a `file:` store, beside a plain log of the same bytes and beanstalkd.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencehold::{Fencehold, Job};
use fencehold_core::job::QueueName;
use fencehold_load::{Failed, JobLives, Latencies, Measured, Target, enqueue, run};
use fencehold_store_file::FileOptions;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::beanstalkd::Beanstalkd;
use crate::disk::DiskLoad;
use crate::figure::Figure;
use crate::scratch_dir::{ScratchDir, open, open_with};
use crate::{Common, cpu_time, log, scale};

/// How many clients the bars are about.
const CLIENTS: usize = 64;
/// How long a payload is: as that of the load.
pub(crate) const PAYLOAD_BYTES: usize = 300;
const QUEUE: &str = "bench";
/// How many jobs one call enqueues in bulk.
pub(crate) const BULK: usize = 1_000;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct JobPlan {
    #[command(flatten)]
    common: Common,
    /// How many stored jobs to weigh, and to measure with; 0: skip
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    stored: usize,
    /// How many to enqueue in bulk; 0: skip
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    bulk: usize,
}

/// Clients that each enqueue, claim and complete, so many jobs a call.
pub(crate) async fn lives(
    target: &Target,
    clients: usize,
    batch: usize,
    time: Duration,
) -> Result<Measured, Failed> {
    run(JobLives::clients(target, clients, QUEUE, batch)?, time).await
}

/// Measures, calling `show` with each line as it is known.
pub(crate) async fn measure(plan: &JobPlan, mut show: impl FnMut(Figure)) -> Result<(), Failed> {
    let home = ScratchDir::make(&plan.common.dir)?;
    let mut disk = DiskLoad::open(&home.0)?;
    disk.sample(plan.common.time / 4)?;
    let rate = beside_a_log(plan, &home, &mut disk, &mut show).await?;
    if plan.common.peers {
        beside_beanstalkd(plan, &home, rate, &mut show).await?;
    }
    show(latency(plan, &home, &mut disk).await?);
    if plan.bulk > 0 {
        show(bulk(plan, &home).await?);
    }
    if plan.stored > 0 {
        stored(plan, &home, &mut show).await?;
    }
    show(disk.line());
    Ok(())
}

/// Lives of jobs beside the plain log, with gathering and without, in turns: so all see the same weather.
async fn beside_a_log(
    plan: &JobPlan,
    home: &ScratchDir,
    disk: &mut DiskLoad,
    show: &mut impl FnMut(Figure),
) -> Result<f64, Failed> {
    let time = plan.common.time;
    let target = open(&home.0.join("own"))?;
    // The first calls make the database: that is not what is measured.
    lives(&target, 1, 1, time / 10).await?;
    let one = lives(&target, 1, 1, time).await?;
    let (log, log_cpu_us) = cpu_time::each(log::lives(&home.0, CLIENTS, time)).await?;
    let (many, cpu_us) = cpu_time::each(lives(&target, CLIENTS, 1, time)).await?;
    target.store.close().await;
    disk.sample(time / 4)?;
    let options = FileOptions::default().without_gathering();
    let target = open_with(&home.0.join("ungathered"), options)?;
    lives(&target, 1, 1, time / 10).await?;
    let (ungathered, ungathered_cpu_us) = cpu_time::each(lives(&target, CLIENTS, 1, time)).await?;
    target.store.close().await;

    show(
        Figure::new("plain log: three appends, each synced", CLIENTS)
            .measured(&log)
            .cpu(log_cpu_us),
    );
    show(Figure::new("enqueue + claim + complete", 1).measured(&one));
    let to_log = many.per_second() / log.per_second();
    show(
        Figure::new("enqueue + claim + complete", CLIENTS)
            .measured(&many)
            .cpu(cpu_us)
            .ratio("plain log", to_log)
            .bar("at least 0.3", to_log >= 0.3),
    );
    let to_ungathered = many.per_second() / ungathered.per_second();
    show(
        Figure::new("the same without gathering", CLIENTS)
            .measured(&ungathered)
            .cpu(ungathered_cpu_us),
    );
    show(
        Figure::new("gathering", CLIENTS)
            .ratio("without gathering", to_ungathered)
            .bar("at least 1.5", to_ungathered >= 1.5),
    );
    Ok(many.per_second())
}

async fn beside_beanstalkd(
    plan: &JobPlan,
    home: &ScratchDir,
    ours: f64,
    show: &mut impl FnMut(Figure),
) -> Result<(), Failed> {
    let peer = Beanstalkd::start(&home.0.join("beanstalkd")).await?;
    run(peer.lives(CLIENTS).await?, plan.common.time / 10).await?;
    let theirs = run(peer.lives(CLIENTS).await?, plan.common.time).await?;
    let ratio = ours / theirs.per_second();
    show(
        Figure::new("beanstalkd -f0: put + reserve + delete", CLIENTS)
            .measured(&theirs)
            .ratio("ours, as above, to it", ratio)
            .bar("at least 1.5", ratio >= 1.5),
    );
    Ok(())
}

/// A worker of the library that waits for jobs of an idle queue, and says when a handler starts.
pub(crate) struct Idle {
    fencehold: Fencehold,
    worker: fencehold::RunningWorker,
    started: UnboundedReceiver<Instant>,
}

impl Idle {
    pub(crate) async fn start(target: &Target, queue: &str) -> Result<Idle, Failed> {
        let fencehold = Fencehold::builder().store(target.store.clone()).connect().await?;
        let (say, started) = mpsc::unbounded_channel();
        let handle = move |_: Job, _: serde_json::Value| {
            let _ = say.send(Instant::now());
            async { Ok::<_, fencehold::JobError>(()) }
        };
        let worker = fencehold.worker().queue(queue).concurrency(1).handle("bench", handle).start()?;
        Ok(Idle { fencehold, worker, started })
    }

    /// When the next handler starts.
    pub(crate) async fn next(&mut self) -> Result<Instant, Failed> {
        Ok(self.started.recv().await.ok_or("the worker has gone")?)
    }

    pub(crate) async fn stop(self) -> Result<(), Failed> {
        self.worker.drain().await?;
        self.fencehold.close().await;
        Ok(())
    }
}

/// From the acknowledged enqueue to the start of the handler, while nothing else goes on.
async fn latency(plan: &JobPlan, home: &ScratchDir, disk: &mut DiskLoad) -> Result<Figure, Failed> {
    let target = open(&home.0.join("idle"))?;
    let queue = QueueName::new(QUEUE)?;
    let mut idle = Idle::start(&target, QUEUE).await?;
    let mut latencies = Latencies::default();
    let began = Instant::now();
    while began.elapsed() < plan.common.time {
        enqueue(&target, &queue, 1, PAYLOAD_BYTES).await?;
        let acknowledged = Instant::now();
        // A handler may well start before the enqueue is acknowledged: both wait for the same sync.
        latencies.add(idle.next().await?.saturating_duration_since(acknowledged));
        disk.sample(Duration::from_millis(5))?;
    }
    idle.stop().await?;
    target.store.close().await;
    let (p50_us, p99_us) = (latencies.percentile_us(50.0), latencies.percentile_us(99.0));
    let limit_us = disk.latencies.percentile_us(50.0) + 1_000.0;
    let line = Figure::new("from acknowledged enqueue to start of the handler, idle", 1);
    Ok(Figure { p50_us, p99_us, ..line }
        .ratio("one fsync + 1 ms (p50)", p50_us / limit_us)
        .bar("under 1", p50_us < limit_us))
}

/// Enqueues many, by a thousand.
pub(crate) async fn enqueue_many(target: &Target, many: usize) -> Result<(), Failed> {
    let queue = QueueName::new(QUEUE)?;
    for done in (0..many).step_by(BULK) {
        enqueue(target, &queue, BULK.min(many - done), PAYLOAD_BYTES).await?;
    }
    Ok(())
}

async fn bulk(plan: &JobPlan, home: &ScratchDir) -> Result<Figure, Failed> {
    let target = open(&home.0.join("bulk"))?;
    enqueue_many(&target, 1_000).await?;
    let started = Instant::now();
    enqueue_many(&target, plan.bulk).await?;
    let took = started.elapsed();
    target.store.close().await;
    let what = format!("bulk enqueue of {} jobs: {:.2} s", plan.bulk, took.as_secs_f64());
    let line = Figure { per_second: plan.bulk as f64 / took.as_secs_f64(), ..Figure::new(what, 1) };
    // The bar is about a hundred thousand.
    let scaled = took.mul_f64(100_000.0 / plan.bulk as f64);
    Ok(line.bar("100 k under 3 s", scaled < Duration::from_secs(3)))
}

/// Few stored jobs against many, and what many weigh in a process that does nothing else.
async fn stored(plan: &JobPlan, home: &ScratchDir, show: &mut impl FnMut(Figure)) -> Result<(), Failed> {
    const FEW: usize = 10_000;
    let time = plan.common.time;
    let target = open(&home.0.join("few"))?;
    enqueue_many(&target, FEW).await?;
    let few = lives(&target, CLIENTS, 1, time).await?;
    target.store.close().await;

    let place = home.0.join("many");
    let resident = fill_in_another_process(&place, plan.stored)?;
    let megabytes = resident as f64 / 1e6;
    let what = format!(
        "memory with {} queued jobs of {PAYLOAD_BYTES} bytes, whole process: {megabytes:.0} MB",
        plan.stored
    );
    show(
        Figure::new(what, 0)
            .bar("1 M in at most 200 MB", megabytes <= 200.0 * (plan.stored as f64 / 1e6).max(0.1)),
    );
    let started = Instant::now();
    let target = open(&place)?;
    target.store.status(&target.call).await?;
    let what = format!("opening with {} queued jobs: {:.2} s", plan.stored, started.elapsed().as_secs_f64());
    show(Figure::new(what, 0));
    let many = lives(&target, CLIENTS, 1, time).await?;
    target.store.close().await;
    let ratio = many.per_second() / few.per_second();
    show(Figure::new(format!("enqueue + claim + complete with {FEW} stored"), CLIENTS).measured(&few));
    show(
        Figure::new(format!("enqueue + claim + complete with {} stored", plan.stored), CLIENTS)
            .measured(&many)
            .ratio(format!("{FEW} stored"), ratio)
            .bar("at least 0.8", ratio >= 0.8),
    );
    Ok(())
}

fn fill_in_another_process(directory: &Path, many: usize) -> Result<u64, Failed> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("fill")
        .arg(directory)
        .arg(many.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    child.wait()?;
    line.trim()
        .parse()
        .map_err(|_| "the other process could not fill the directory".into())
}

/// What the other process does: fills a directory, and says how much memory it has then.
pub(crate) async fn fill(directory: &Path, many: usize) -> Result<(), Failed> {
    let target = open(directory)?;
    enqueue_many(&target, many).await?;
    writeln!(std::io::stdout(), "{}", scale::resident_bytes("self"))?;
    target.store.close().await;
    Ok(())
}
