//! A charge that happens once, although its job is tried twice: `cargo run --example once [STORE]`.

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fencehold::job::RetryPolicy;
use fencehold::{Error, Fencehold, Job, JobError};

/// A payment provider. It knows a repetition by its idempotency key.
#[derive(Default)]
struct Provider {
    charges: AtomicU32,
}

impl Provider {
    fn charge(&self, key: &str, cents: u64) -> String {
        self.charges.fetch_add(1, Ordering::SeqCst);
        println!("the provider charges {cents} cents under {key}");
        format!("receipt for {cents}")
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let fh = Fencehold::connect(&store).await?;
    let provider = Arc::new(Provider::default());

    let of_handler = Arc::clone(&provider);
    let worker = fh
        .worker()
        .queue("orders")
        .handle("pay", move |job, cents| pay(job, cents, Arc::clone(&of_handler)))
        .start()?;

    let soon = RetryPolicy::fixed(Duration::from_millis(10));
    let order = fh.queue("orders").job("pay", &990_u64).retry(soon).enqueue().await?;
    let receipt: String = fh.jobs().result(order.job_id, Duration::from_secs(30)).await?;
    println!("{receipt}");
    assert_eq!(provider.charges.load(Ordering::SeqCst), 1, "two attempts, one charge");

    worker.drain().await?;
    fh.close().await;
    Ok(())
}

async fn pay(job: Job, cents: u64, provider: Arc<Provider>) -> Result<String, JobError> {
    // Recorded under this attempt's token. Should the worker die between the charge and the record, the next attempt
    // charges again under the same key, and the provider knows it.
    let receipt = job.once("charge", async |key| Ok(provider.charge(&key, cents))).await?;
    if job.attempt() == 1 {
        return Err(JobError::new("the mail with the receipt could not be sent"));
    }
    Ok(format!("{receipt}, mailed at attempt {}", job.attempt()))
}
