//! `graphile_worker`, with and without its local queue.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};

use crate::Failed;
use crate::load::{Done, Peer, Settings};

/// As in its own benchmark.
const EVERY: Duration = Duration::from_millis(5);
const CONNECTIONS: u32 = 66;
/// Of a process that runs one job at a time: one to claim and complete, one that listens.
const WORKER_CONNECTIONS: u32 = 2;

#[derive(Clone)]
pub(crate) struct Graphile {
    url: String,
    utils: Arc<WorkerUtils>,
}

#[derive(Deserialize, Serialize)]
struct Bench {
    nth: String,
}

impl TaskHandler for Bench {
    const IDENTIFIER: &'static str = "bench";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        std::hint::black_box(self.nth);
        if let Some(done) = context.get_ext::<Done>() {
            done.one();
        }
        if context.get_ext::<OnStdout>().is_some() {
            say_one().map_err(|error| error.to_string())?;
        }
        Ok::<(), String>(())
    }
}

fn options(url: &str) -> WorkerOptions {
    WorkerOptions::default()
        .database_url(url)
        .max_pg_conn(CONNECTIONS)
        .schema("graphile_worker")
        .define_job::<Bench>()
}

fn failed(error: impl std::fmt::Display) -> Failed {
    error.to_string().into()
}

/// In a process that works one job at a time: stdout gets a byte for each.
#[derive(Clone, Copy, Debug)]
struct OnStdout;

/// Works one job at a time, without a local queue, until stdin ends. It says with a byte on stdout that it is ready, begins when it
/// reads a line, and says with a byte that a job was run.
pub(crate) async fn work_until_told(url: &str) -> Result<(), Failed> {
    let options = options(url)
        .max_pg_conn(WORKER_CONNECTIONS)
        .concurrency(1)
        .add_extension(OnStdout);
    let worker = options.init().await.map_err(failed)?;
    say_one()?;
    next_line().await?;
    tokio::select! {
        ended = worker.run() => ended.map_err(failed),
        ended = next_line() => ended,
    }
}

fn say_one() -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(b".")?;
    stdout.flush()
}

async fn next_line() -> Result<(), Failed> {
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    Ok(())
}

impl Graphile {
    pub(crate) async fn new(url: &str) -> Result<Self, Failed> {
        crate::load::forget_schema(url, "graphile_worker").await?;
        let worker = options(url).init().await.map_err(failed)?;
        Ok(Graphile { url: url.to_owned(), utils: Arc::new(worker.create_utils()) })
    }
}

impl Peer for Graphile {
    async fn bulk(&self, payloads: Vec<String>) -> Result<(), Failed> {
        let jobs: Vec<RawJobSpec> = payloads
            .into_iter()
            .map(|nth| RawJobSpec {
                identifier: "bench".to_owned(),
                payload: serde_json::json!({ "nth": nth }),
                spec: JobSpec::default(),
            })
            .collect();
        self.utils.add_raw_jobs(&jobs).await.map_err(failed).map(drop)
    }

    async fn one(&self, nth: String) -> Result<(), Failed> {
        self.utils
            .add_job(Bench { nth }, JobSpec::default())
            .await
            .map_err(failed)
            .map(drop)
    }

    async fn work(&self, settings: Settings, done: Done) -> Result<impl Sized, Failed> {
        let options = options(&self.url)
            .concurrency(settings.concurrency)
            .poll_interval(EVERY)
            .complete_job_batch_delay(EVERY)
            .add_extension(done)
            .local_queue(LocalQueueConfig::default().with_size(settings.batch));
        let worker: Arc<Worker> = Arc::new(options.init().await.map_err(failed)?);
        tokio::spawn(async move { worker.run().await.map_err(failed) });
        Ok(())
    }
}
