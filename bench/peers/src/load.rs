//! The load, the same for every peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Failed;

/// How long a payload is, as ours.
const PAYLOAD_BYTES: usize = 200;
/// How many jobs one bulk call carries.
pub(crate) const BULK: usize = 1_000;
/// A peer that gets nowhere for so long has stopped.
const STUCK: Duration = Duration::from_secs(60);

/// How a worker is set up.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    pub(crate) batch: usize,
}

/// Counts handlers that have run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done(Arc<AtomicUsize>);

impl Done {
    pub(crate) fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    async fn until(&self, jobs: usize) -> Result<(), Failed> {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            let now = self.0.load(Ordering::Relaxed);
            if now >= jobs {
                return Ok(());
            }
            if now > seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > STUCK {
                return Err(format!("stopped after {now} of {jobs} jobs").into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A queue under load.
pub(crate) trait Peer: Clone + Send + Sync + 'static {
    /// Enqueues jobs in one call, as fast as the peer can.
    fn bulk(&self, payloads: Vec<String>) -> impl Future<Output = Result<(), Failed>> + Send;
    /// Enqueues one job.
    fn one(&self, payload: String) -> impl Future<Output = Result<(), Failed>> + Send;
    /// Starts a worker that calls `done` for every job, and goes on until it is dropped.
    fn work(&self, settings: Settings, done: Done)
    -> impl Future<Output = Result<impl Sized, Failed>> + Send;
}

/// A payload of the usual length, when it is written as the only field of an object: `{"nth":"…"}`.
fn payload(nth: usize) -> String {
    format!("{nth:0width$}", width = PAYLOAD_BYTES - 10)
}

/// Enqueues in bulk.
pub(crate) async fn fill(peer: &impl Peer, jobs: usize) -> Result<(), Failed> {
    for first in (0..jobs).step_by(BULK) {
        peer.bulk((first..jobs.min(first + BULK)).map(payload).collect()).await?;
    }
    Ok(())
}

/// Enqueues in bulk, then starts a worker and waits until all handlers have run.
pub(crate) async fn process(peer: impl Peer, jobs: usize, settings: Settings) -> Result<Value, Failed> {
    let began = Instant::now();
    fill(&peer, jobs).await?;
    let bulk = jobs as f64 / began.elapsed().as_secs_f64();
    let done = Done::default();
    let began = Instant::now();
    let _worker = peer.work(settings, done.clone()).await?;
    done.until(jobs).await?;
    Ok(json!({ "bulk": bulk, "process": jobs as f64 / began.elapsed().as_secs_f64() }))
}

/// So many clients, each enqueuing one job after the other.
pub(crate) async fn single(peer: impl Peer, clients: usize, time: Duration) -> Result<Value, Failed> {
    // Connections are opened before the clock runs.
    let mut opening = JoinSet::new();
    for nth in 0..clients {
        let peer = peer.clone();
        opening.spawn(async move { peer.one(payload(nth)).await });
    }
    while let Some(opened) = opening.join_next().await {
        opened??;
    }
    let mut running = JoinSet::new();
    let began = Instant::now();
    for _ in 0..clients {
        let peer = peer.clone();
        running.spawn(async move {
            let mut enqueued = 0;
            while began.elapsed() < time {
                peer.one(payload(enqueued)).await?;
                enqueued += 1;
            }
            Ok::<usize, Failed>(enqueued)
        });
    }
    let mut enqueued = 0;
    while let Some(client) = running.join_next().await {
        enqueued += client??;
    }
    Ok(json!({ "single": enqueued as f64 / began.elapsed().as_secs_f64() }))
}

/// What an earlier run left behind is not built upon.
pub(crate) async fn forget_schema(url: &str, schema: &str) -> Result<(), Failed> {
    let pool = sqlx::PgPool::connect(url).await?;
    sqlx::query(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"))
        .execute(&pool)
        .await?;
    pool.close().await;
    Ok(())
}
