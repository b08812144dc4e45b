//! `bench job --store URL`: jobs on a store that somebody runs already, through the worker of the library, beside other
//! queues on the same server in the same run.
//!
//! Peers and ours take turns, so that all see the same weather. Of several settings the best counts, and all are shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencehold::{Fencehold, Job};
use fencehold_contract::LeaseStore;
use fencehold_contract::job::NewJob;
use fencehold_core::job::{Kind, Queue};
use tokio::sync::{Notify, mpsc};

use super::life::{self, refused};
use super::load::{Measured, Subject, repeat};
use super::peers::{Peers, Worked};
use super::percentile::Latencies;
use super::{Failed, Line};

/// As long as the peers'.
const PAYLOAD_BYTES: usize = 200;
/// How many jobs one call enqueues in bulk.
const BULK: usize = 1_000;
/// How many enqueue at once, one job at a time.
const CLIENTS: usize = 64;
/// How much larger than the others' the store with a held snapshot is.
const UNDER_SNAPSHOT: usize = 3;
/// Concurrency, and how many jobs are claimed ahead: three for each queue. The last of `graphile_worker`'s is its own benchmark's.
const OURS: [(usize, usize); 3] = [(8, 1_000), (4, 2_000), (16, 5_000)];
const AWA: [(usize, usize); 3] = [(50, 128), (100, 512), (500, 1_000)];
const GRAPHILE: [(usize, usize); 3] = [(64, 1_000), (24, 5_000), (500, 5_000)];

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How many jobs to work off.
    pub(crate) jobs: usize,
    /// How long a measurement takes that goes by time.
    pub(crate) time: Duration,
    pub(crate) peers: Option<Peers>,
}

/// Measures, calling `show` with each line as it is known.
pub(crate) async fn measure(
    store: Arc<dyn LeaseStore>,
    plan: &Plan,
    mut show: impl FnMut(Line),
) -> Result<(), Failed> {
    let subject = Subject::new(store);
    single(&subject, plan, &mut show).await?;
    process(&subject, plan, &mut show).await?;
    if let Some(peers) = &plan.peers {
        under_a_snapshot(&subject, plan, peers, &mut show).await?;
    }
    show(latency(&subject, plan).await?);
    Ok(())
}

/// One job at a time, by many.
async fn single(subject: &Subject, plan: &Plan, show: &mut impl FnMut(Line)) -> Result<(), Failed> {
    let queue = fresh_queue("single")?;
    // Connections are opened before the clock runs.
    singles(subject, &queue, plan.time / 10).await?;
    let raw = plan
        .peers
        .as_ref()
        .map(|peers| peers.single("plain", CLIENTS, plan.time))
        .transpose()?;
    let ours = singles(subject, &queue, plan.time).await?;
    let line = Line::new("single enqueues", CLIENTS).measured(&ours);
    let (Some(peers), Some(raw)) = (&plan.peers, raw) else {
        show(line);
        return Ok(());
    };
    let again = peers.single("plain", CLIENTS, plan.time)?;
    let raw = f64::midpoint(raw, again);
    show(Line { per_second: raw, ..Line::new("single INSERT into a plain table", CLIENTS) });
    let ratio = ours.per_second() / raw;
    show(line.ratio("plain INSERT", ratio).bar("at least 0.4", ratio >= 0.4));
    for peer in ["awa", "graphile_worker"] {
        let per_second = peers.single(peer, CLIENTS, plan.time)?;
        let line = Line { per_second, ..Line::new(format!("{peer}: single enqueues"), CLIENTS) };
        show(line.ratio("plain INSERT", per_second / raw));
    }
    Ok(())
}

async fn singles(subject: &Subject, queue: &Queue, time: Duration) -> Result<Measured, Failed> {
    let queue = queue.clone();
    let measured = repeat(subject, CLIENTS, time, move |subject, _| {
        let queue = queue.clone();
        async move {
            let mut latencies = Latencies::default();
            let (started, mut done) = (Instant::now(), 0);
            while started.elapsed() < time {
                let before = Instant::now();
                let job = new_job(&queue)?;
                for answer in life::jobs(&subject)?.enqueue(&subject.call, vec![job]).await? {
                    answer.map_err(refused)?;
                }
                latencies.add(before.elapsed());
                done += 1;
            }
            Ok((done, latencies))
        }
    });
    Ok(measured.await?)
}

/// All jobs are there before the first is taken.
async fn process(subject: &Subject, plan: &Plan, show: &mut impl FnMut(Line)) -> Result<(), Failed> {
    let mut best: [Option<Worked>; 3] = [None; 3];
    let names = ["fencehold", "awa", "graphile_worker"];
    for nth in 0..OURS.len() {
        for (which, settings) in [OURS[nth], AWA[nth], GRAPHILE[nth]].into_iter().enumerate() {
            let (concurrency, batch) = settings;
            let worked = match (&plan.peers, which) {
                (_, 0) => work_off(subject, plan.jobs, settings).await?.worked(),
                (Some(peers), _) => peers.process(names[which], plan.jobs, concurrency, batch)?,
                (None, _) => continue,
            };
            let what = format!("{}: process {} jobs, up to {batch} ahead", names[which], plan.jobs);
            show(Line { per_second: worked.process, ..Line::new(what, concurrency) });
            show(Line { per_second: worked.bulk, ..Line::new(format!("{}: bulk enqueue", names[which]), 1) });
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
        let line = Line { per_second: ours.process, ..Line::new("processing, the best of each", 0) };
        show(line.ratio(name, ratio).bar(format!("at least {bar}"), ratio >= bar));
    }
    let line = Line { per_second: ours.bulk, ..Line::new("bulk enqueue, the best of each", 1) };
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
async fn work_off(subject: &Subject, jobs: usize, settings: (usize, usize)) -> Result<WorkedOff, Failed> {
    let queue = fresh_queue("process")?;
    let began = Instant::now();
    for done in (0..jobs).step_by(BULK) {
        let batch: Result<Vec<NewJob>, _> = (done..jobs.min(done + BULK)).map(|_| new_job(&queue)).collect();
        for answer in life::jobs(subject)?.enqueue(&subject.call, batch?).await? {
            answer.map_err(refused)?;
        }
    }
    let bulk = began.elapsed();
    let fencehold = Fencehold::builder().store(Arc::clone(&subject.store)).connect().await?;
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
        .queue(queue.as_str(), 1)
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
    subject: &Subject,
    plan: &Plan,
    peers: &Peers,
    show: &mut impl FnMut(Line),
) -> Result<(), Failed> {
    let jobs = plan.jobs * UNDER_SNAPSHOT;
    let free = work_off(subject, jobs, OURS[0]).await?.last_third();
    let snapshot = peers.snapshot()?;
    let held = work_off(subject, jobs, OURS[0]).await?.last_third();
    drop(snapshot);
    let line = Line { per_second: free, ..Line::new(format!("the last third of {jobs} jobs"), OURS[0].0) };
    show(line);
    let ratio = held / free;
    let what = "the same, while another session holds a snapshot";
    let line = Line { per_second: held, ..Line::new(what, OURS[0].0) };
    show(line.ratio("without", ratio).bar("at least 0.6", ratio >= 0.6));
    Ok(())
}

/// From the call that enqueues, its commit included, to the start of the handler, while nothing else goes on.
async fn latency(subject: &Subject, plan: &Plan) -> Result<Line, Failed> {
    let queue = fresh_queue("idle")?;
    let fencehold = Fencehold::builder().store(Arc::clone(&subject.store)).connect().await?;
    let (tell, mut started) = mpsc::unbounded_channel();
    let handle = move |_: Job, _: serde_json::Value| {
        let _ = tell.send(Instant::now());
        async { Ok::<_, fencehold::JobError>(()) }
    };
    let worker = fencehold
        .worker()
        .queue(queue.as_str(), 1)
        .concurrency(1)
        .handle("bench", handle)
        .start()?;
    let mut latencies = Latencies::default();
    let began = Instant::now();
    while began.elapsed() < plan.time {
        let asked = Instant::now();
        for answer in life::jobs(subject)?.enqueue(&subject.call, vec![new_job(&queue)?]).await? {
            answer.map_err(refused)?;
        }
        let start = started.recv().await.ok_or("the worker has gone")?;
        latencies.add(start.saturating_duration_since(asked));
        // Idle means that the worker is waiting again when the next one comes.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    latencies.sort();
    worker.drain().await?;
    fencehold.close().await;
    let (p50_us, p99_us) = (latencies.at(50.0), latencies.at(99.0));
    let line = Line::new("from enqueue, commit included, to start of the handler, idle", 1);
    Ok(Line { p50_us, p99_us, ..line }.bar("p50 under 5 ms", p50_us < 5_000.0))
}

/// A queue that nobody else has.
fn fresh_queue(what: &str) -> Result<Queue, Failed> {
    Ok(Queue::new(format!("bench/{what}/{}/{}", std::process::id(), super::load::fresh()))?)
}

fn new_job(queue: &Queue) -> Result<NewJob, fencehold_contract::StoreError> {
    let (id, nth) = life::new_id();
    let payload = format!("{{\"nth\":\"{nth:0width$}\"}}", width = PAYLOAD_BYTES - 10);
    Ok(NewJob::new(id, queue.clone(), Kind::new("bench")?, payload))
}
