//! `awa`, as its own guide sets it up.

use std::time::Duration;

use awa::{Client, InsertOpts, JobArgs, JobResult, QueueConfig};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::Failed;
use crate::load::{Done, Peer, Settings};

const CONNECTIONS: u32 = 66;
/// As in its own benchmark.
const POLL: Duration = Duration::from_millis(50);
/// Completed jobs are not kept for longer than it can help it.
const KEPT: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(crate) struct Awa {
    pool: PgPool,
}

#[derive(Debug, Deserialize, Serialize, JobArgs)]
struct Bench {
    nth: String,
}

impl Awa {
    pub(crate) async fn new(url: &str) -> Result<Self, Failed> {
        crate::load::forget_schema(url, "awa").await?;
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
        awa::migrations::run(&pool).await?;
        Ok(Awa { pool })
    }
}

fn opts() -> InsertOpts {
    InsertOpts { queue: "bench".into(), ..InsertOpts::default() }
}

impl Peer for Awa {
    async fn bulk(&self, payloads: Vec<String>) -> Result<(), Failed> {
        let jobs: Result<Vec<_>, _> = payloads
            .into_iter()
            .map(|nth| awa::model::insert::params_with(&Bench { nth }, opts()))
            .collect();
        awa::insert_many_copy_from_pool(&self.pool, &jobs?).await?;
        Ok(())
    }

    async fn one(&self, nth: String) -> Result<(), Failed> {
        awa::insert_with(&self.pool, &Bench { nth }, opts()).await?;
        Ok(())
    }

    async fn work(&self, settings: Settings, done: Done) -> Result<impl Sized, Failed> {
        let client = Client::builder(self.pool.clone())
            .queue(
                "bench",
                QueueConfig {
                    max_workers: u32::try_from(settings.concurrency)?,
                    claim_batch_size: settings.batch,
                    poll_interval: POLL,
                    deadline_duration: Duration::ZERO,
                    ..QueueConfig::default()
                },
            )
            .completed_retention(KEPT)
            .cleanup_interval(Duration::from_secs(1))
            .register::<Bench, _, _>(move |job: Bench, _| {
                std::hint::black_box(job.nth);
                done.one();
                async { Ok(JobResult::Completed) }
            })
            .build()?;
        client.start().await?;
        Ok(client)
    }
}
