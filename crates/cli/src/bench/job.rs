//! `bench job`: jobs on one store, beside a plain log of the same bytes, in one run.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencehold::{Fencehold, Job};
use fencehold_store_file::FileOptions;
use tokio::sync::mpsc;

use super::beanstalkd::Beanstalkd;
use super::disk::Disk;
use super::home::{Home, open_store, open_store_with};
use super::life::{self, PAYLOAD_BYTES};
use super::load::Subject;
use super::percentile::Latencies;
use super::{Failed, Line, log, processor, scale};

/// How many clients the bars are about.
const CLIENTS: usize = 64;

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Where: a directory of its own is made in it, and removed afterwards.
    pub(crate) directory: PathBuf,
    /// How long one measurement takes.
    pub(crate) time: Duration,
    /// How many stored jobs to measure with, and to weigh; 0: none.
    pub(crate) stored: usize,
    /// How many to enqueue in bulk; 0: none.
    pub(crate) bulk: usize,
    /// Whether to measure beside beanstalkd too.
    pub(crate) peers: bool,
}

/// Measures, calling `show` with each line as it is known.
pub(crate) async fn measure(plan: &Plan, mut show: impl FnMut(Line)) -> Result<(), Failed> {
    let home = Home::make(&plan.directory)?;
    let mut disk = Disk::open(&home.0)?;
    disk.sample(plan.time / 4)?;
    let rate = beside_a_log(plan, &home, &mut disk, &mut show).await?;
    if plan.peers {
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
    plan: &Plan,
    home: &Home,
    disk: &mut Disk,
    show: &mut impl FnMut(Line),
) -> Result<f64, Failed> {
    let subject = Subject::new(open_store(&home.0.join("own"))?);
    // The first calls make the database; they are nobody's everyday.
    life::lives(&subject, 1, plan.time / 10).await?;
    let one = life::lives(&subject, 1, plan.time).await?;
    let (log, log_cpu_us) = processor::each(log::lives(&home.0, CLIENTS, plan.time)).await?;
    let (many, cpu_us) = processor::each(life::lives(&subject, CLIENTS, plan.time)).await?;
    subject.store.close().await;
    disk.sample(plan.time / 4)?;
    let options = FileOptions::default().without_gathering();
    let subject = Subject::new(open_store_with(&home.0.join("ungathered"), options)?);
    life::lives(&subject, 1, plan.time / 10).await?;
    let (ungathered, ungathered_cpu_us) = processor::each(life::lives(&subject, CLIENTS, plan.time)).await?;
    subject.store.close().await;

    show(
        Line::new("plain log: three appends, each synced", CLIENTS)
            .measured(&log)
            .cpu(log_cpu_us),
    );
    show(Line::new("enqueue + claim + complete", 1).measured(&one));
    let to_log = many.per_second() / log.per_second();
    show(
        Line::new("enqueue + claim + complete", CLIENTS)
            .measured(&many)
            .cpu(cpu_us)
            .ratio("plain log", to_log)
            .bar("at least 0.3", to_log >= 0.3),
    );
    let to_ungathered = many.per_second() / ungathered.per_second();
    show(
        Line::new("the same without gathering", CLIENTS)
            .measured(&ungathered)
            .cpu(ungathered_cpu_us),
    );
    show(
        Line::new("gathering", CLIENTS)
            .ratio("without gathering", to_ungathered)
            .bar("at least 1.5", to_ungathered >= 1.5),
    );
    Ok(many.per_second())
}

async fn beside_beanstalkd(
    plan: &Plan,
    home: &Home,
    ours: f64,
    show: &mut impl FnMut(Line),
) -> Result<(), Failed> {
    let peer = Beanstalkd::start(&home.0.join("beanstalkd")).await?;
    peer.lives(CLIENTS, plan.time / 10).await?;
    let theirs = peer.lives(CLIENTS, plan.time).await?;
    let ratio = ours / theirs.per_second();
    show(
        Line::new("beanstalkd -f0: put + reserve + delete", CLIENTS)
            .measured(&theirs)
            .ratio("ours, as above, to it", ratio)
            .bar("at least 1.5", ratio >= 1.5),
    );
    Ok(())
}

/// From the acknowledged enqueue to the start of the handler, while nothing else goes on.
async fn latency(plan: &Plan, home: &Home, disk: &mut Disk) -> Result<Line, Failed> {
    let store = open_store(&home.0.join("idle"))?;
    let fencehold = Fencehold::builder().store(store.clone()).connect().await?;
    let (tell, mut started) = mpsc::unbounded_channel();
    let handle = move |_: Job, _: serde_json::Value| {
        let _ = tell.send(Instant::now());
        async { Ok::<_, fencehold::JobError>(()) }
    };
    let worker = fencehold
        .worker()
        .queue("bench", 1)
        .concurrency(1)
        .handle("bench", handle)
        .start()?;
    let subject = Subject::new(store);
    let mut latencies = Latencies::default();
    let began = Instant::now();
    while began.elapsed() < plan.time {
        for answer in life::jobs(&subject)?.enqueue(&subject.call, vec![life::new_job()?]).await? {
            answer.map_err(life::refused)?;
        }
        let acknowledged = Instant::now();
        let start = started.recv().await.ok_or("the worker has gone")?;
        // A handler may well start before the enqueue is acknowledged: both wait for the same sync.
        latencies.add(start.saturating_duration_since(acknowledged));
        disk.sample(Duration::from_millis(5))?;
    }
    latencies.sort();
    worker.drain().await?;
    fencehold.close().await;
    subject.store.close().await;
    let (p50_us, p99_us) = (latencies.at(50.0), latencies.at(99.0));
    let limit_us = disk.latencies.at(50.0) + 1_000.0;
    let line = Line::new("from acknowledged enqueue to start of the handler, idle", 1);
    Ok(Line { p50_us, p99_us, ..line }
        .ratio("one fsync + 1 ms (p50)", p50_us / limit_us)
        .bar("under 1", p50_us < limit_us))
}

async fn bulk(plan: &Plan, home: &Home) -> Result<Line, Failed> {
    let subject = Subject::new(open_store(&home.0.join("bulk"))?);
    life::enqueue_many(&subject, 1_000).await?;
    let started = Instant::now();
    life::enqueue_many(&subject, plan.bulk).await?;
    let took = started.elapsed();
    subject.store.close().await;
    let what = format!("bulk enqueue of {} jobs: {:.2} s", plan.bulk, took.as_secs_f64());
    let line = Line { per_second: plan.bulk as f64 / took.as_secs_f64(), ..Line::new(what, 1) };
    // The bar is about a hundred thousand.
    let scaled = took.mul_f64(100_000.0 / plan.bulk as f64);
    Ok(line.bar("100 k under 3 s", scaled < Duration::from_secs(3)))
}

/// Few stored jobs against many, and what many weigh in a process that does nothing else.
async fn stored(plan: &Plan, home: &Home, show: &mut impl FnMut(Line)) -> Result<(), Failed> {
    const FEW: usize = 10_000;
    let subject = Subject::new(open_store(&home.0.join("few"))?);
    life::enqueue_many(&subject, FEW).await?;
    let few = life::lives(&subject, CLIENTS, plan.time).await?;
    subject.store.close().await;

    let place = home.0.join("many");
    let resident = fill_in_another_process(&place, plan.stored)?;
    let megabytes = resident as f64 / 1e6;
    let what = format!(
        "memory with {} queued jobs of {PAYLOAD_BYTES} bytes, whole process: {megabytes:.0} MB",
        plan.stored
    );
    show(
        Line::new(what, 0)
            .bar("1 M in at most 200 MB", megabytes <= 200.0 * (plan.stored as f64 / 1e6).max(0.1)),
    );
    let started = Instant::now();
    let subject = Subject::new(open_store(&place)?);
    subject.store.status(&subject.call).await?;
    let what = format!("opening with {} queued jobs: {:.2} s", plan.stored, started.elapsed().as_secs_f64());
    show(Line::new(what, 0));
    let many = life::lives(&subject, CLIENTS, plan.time).await?;
    subject.store.close().await;
    let ratio = many.per_second() / few.per_second();
    show(Line::new(format!("enqueue + claim + complete with {FEW} stored"), CLIENTS).measured(&few));
    show(
        Line::new(format!("enqueue + claim + complete with {} stored", plan.stored), CLIENTS)
            .measured(&many)
            .ratio(format!("{FEW} stored"), ratio)
            .bar("at least 0.8", ratio >= 0.8),
    );
    Ok(())
}

fn fill_in_another_process(directory: &Path, many: usize) -> Result<u64, Failed> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["bench", "fill"])
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
    let subject = Subject::new(open_store(directory)?);
    life::enqueue_many(&subject, many).await?;
    writeln!(std::io::stdout(), "{}", scale::resident_bytes())?;
    subject.store.close().await;
    Ok(())
}
