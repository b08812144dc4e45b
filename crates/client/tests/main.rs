//! The library as its users see it.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod acquire;
mod blocking;
mod blocking_jobs;
mod breaker;
mod chaos;
#[cfg(feature = "postgres")]
mod connect_postgres;
mod drain;
mod election;
mod enqueue;
#[cfg(all(feature = "metrics", feature = "tokio-util", feature = "uuid"))]
mod facades;
mod fence_file;
#[cfg(feature = "tower")]
mod fence_http;
#[cfg(feature = "object")]
mod fence_object;
mod gated_store;
mod guard;
mod job_kills;
#[cfg(feature = "postgres")]
mod job_postgres;
mod once;
mod operation;
mod renewal;
mod signals;
mod tracing_output;
#[cfg(all(feature = "diesel-async", feature = "postgres", feature = "sqlx"))]
mod transaction;
mod ttl_advice;
mod worker;
mod worker_processes;

/// A handle on a store that is another process, which a busy machine may keep waiting.
#[cfg(any(feature = "object", feature = "postgres"))]
async fn connect_patiently(url: &str) -> fencehold::Fencehold {
    let patience = std::time::Duration::from_secs(60);
    fencehold::Fencehold::builder()
        .url(url)
        .timeout(patience)
        .connect()
        .await
        .unwrap()
}
