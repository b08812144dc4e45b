//! Many worker processes on PostgreSQL, each of which runs one job at a time, beside as many of `graphile_worker`.
//!
//! All jobs are there, and all processes connected, before the first is taken. The clock runs from the end of the first quarter, by
//! when every session has planned its statements, until the last handler has run. A process writes one byte into a pipe that all share when it is ready, and one for each job. Ours and theirs take turns,
//! and what counts is the median of the rounds' ratios.

use std::io::{PipeReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use fencehold::{Fencehold, Job};
use fencehold_load::{Failed, Target, enqueue};

use crate::figure::{Figure, median};
use crate::job::BULK;
use crate::postgres::{PAYLOAD_BYTES, fresh_queue};
use crate::queues::PeerQueues;
use crate::scratch_dir::open_url;

const PROCESSES: [u16; 3] = [4, 16, 64];

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkersPlan {
    /// The store: postgres://…
    #[arg(long, value_name = "URL")]
    store: String,
    /// How many jobs to work off in a round
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    jobs: u32,
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Beside `graphile_worker` by this program (`bench/peers`), too, on the database that `DATABASE_URL` names
    #[arg(long, value_name = "PROGRAM")]
    peers: Option<PathBuf>,
}

/// One of the processes.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerProcessPlan {
    #[arg(long)]
    store: String,
    #[arg(long)]
    queue: String,
}

/// Measures, calling `show` with each line as it is known.
pub(crate) async fn measure(plan: &WorkersPlan, mut show: impl FnMut(Figure)) -> Result<(), Failed> {
    let target = open_url(&plan.store)?;
    let queues = plan.peers.clone().map(|program| PeerQueues { program });
    let jobs = plan.jobs as usize;
    let mut few = None;
    for processes in PROCESSES {
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            let rate = our_rate(&target, &plan.store, processes, jobs).await?;
            ours.push(rate);
            if let Some(queues) = &queues {
                queues.fill("graphile_worker", jobs)?;
                let peer = rate_of(processes, jobs, || queues.worker("graphile_worker"))?;
                theirs.push(peer);
                ratios.push(rate / peer);
            }
        }
        let per_second = median(ours);
        let what = format!("process {jobs} jobs by {processes} processes, one at a time each");
        let line = Figure { per_second, ..Figure::new(what, processes.into()) };
        if ratios.is_empty() {
            show(line);
        } else {
            let (per_second, ratio) = (median(theirs), median(ratios));
            show(line.ratio("graphile_worker", ratio).bar("at least 1.2", ratio >= 1.2));
            let what = format!("graphile_worker without its local queue, {processes} processes");
            show(Figure { per_second, ..Figure::new(what, processes.into()) });
        }
        let few = *few.get_or_insert(per_second);
        if processes > PROCESSES[0] {
            let ratio = per_second / few;
            let line = Figure::new(format!("{processes} processes"), processes.into());
            let line = line.ratio(format!("{} processes", PROCESSES[0]), ratio);
            show(if processes == 64 { line.bar("at least 0.8", ratio >= 0.8) } else { line });
        }
    }
    target.store.close().await;
    Ok(())
}

async fn our_rate(target: &Target, store: &str, processes: u16, jobs: usize) -> Result<f64, Failed> {
    let queue = fresh_queue(target, "processes")?;
    for done in (0..jobs).step_by(BULK) {
        enqueue(target, &queue, BULK.min(jobs - done), PAYLOAD_BYTES).await?;
    }
    let program = std::env::current_exe()?;
    rate_of(processes, jobs, || {
        let mut command = Command::new(&program);
        command.args(["worker-process", "--store", store, "--queue", queue.as_str()]);
        command
    })
}

/// Starts so many processes, waits until each is ready, lets them begin, and waits for so many jobs.
fn rate_of(processes: u16, jobs: usize, command: impl Fn() -> Command) -> Result<f64, Failed> {
    let (mut heard, said) = std::io::pipe()?;
    let mut workers = Vec::new();
    for _ in 0..processes {
        let child = command().stdin(Stdio::piped()).stdout(said.try_clone()?).spawn();
        workers.push(WorkerProcess(child.map_err(|error| format!("no worker can be started: {error}"))?));
    }
    drop(said);
    hear(&mut heard, processes.into())?;
    for WorkerProcess(child) in &mut workers {
        child.stdin.as_mut().ok_or("it has no stdin")?.write_all(b"\n")?;
    }
    hear(&mut heard, jobs / 4)?;
    let (counted, began) = (jobs - jobs / 4, Instant::now());
    hear(&mut heard, counted)?;
    Ok(counted as f64 / began.elapsed().as_secs_f64())
}

/// Waits for so many bytes.
fn hear(from: &mut PipeReader, mut bytes: usize) -> Result<(), Failed> {
    let mut buffer = [0; 4096];
    while bytes > 0 {
        let room = bytes.min(buffer.len());
        match from.read(&mut buffer[..room])? {
            0 => return Err("the workers have ended".into()),
            read => bytes -= read,
        }
    }
    Ok(())
}

/// One that works until its stdin ends, which it does when this is dropped.
struct WorkerProcess(Child);

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// What each process does.
pub(crate) async fn work_until_told(plan: &WorkerProcessPlan) -> Result<(), Failed> {
    let target = open_url(&plan.store)?;
    let fencehold = Fencehold::builder().store(Arc::clone(&target.store)).connect().await?;
    target.store.status(&target.call).await?;
    say_one()?;
    next_line().await?;
    let handle = |_: Job, payload: serde_json::Value| {
        std::hint::black_box(payload);
        let said = say_one();
        async move { said.map_err(fencehold::JobError::new) }
    };
    let worker = fencehold
        .worker()
        .queue(&plan.queue)
        .concurrency(1)
        .handle("bench", handle)
        .start()?;
    next_line().await?;
    worker.drain().await?;
    fencehold.close().await;
    Ok(())
}

/// Waits for a line from the first process, or its end.
async fn next_line() -> Result<(), Failed> {
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    Ok(())
}

fn say_one() -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(b".")?;
    stdout.flush()
}
