//! What the processes of the demo do that are no other verb.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use fencehold::{Job, JobError};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::context::{Context, CreateStore};
use crate::failure::Failure;
use crate::output::note;
use crate::verb::VerbResult;

/// What everything of the demo holds for at a time: short, so that people see it run out.
pub(super) const TTL: Duration = Duration::from_secs(2);
/// The key that the writers hold in turn.
pub(super) const REPORT: &str = "reports/daily";
/// The queue with orders.
pub(super) const ORDERS: &str = "orders";

/// An email to send, with what becomes of it.
#[derive(Serialize, Deserialize)]
pub(super) struct Email {
    pub(super) to: String,
    /// How many attempts fail.
    pub(super) failures: u32,
    pub(super) takes_ms: u64,
}

/// What `run` runs has no payload, and takes so long.
const WITHOUT_PAYLOAD_MS: u64 = 1_200;

/// What `work` and `run` run: takes its time, and fails as the payload says.
pub(super) fn step() -> ExitCode {
    let mut payload = String::new();
    // Without a payload it is a step all the same.
    let _ = std::io::stdin().read_to_string(&mut payload);
    let email = serde_json::from_str(&payload);
    let email = email.unwrap_or(Email { to: String::new(), failures: 0, takes_ms: WITHOUT_PAYLOAD_MS });
    std::thread::sleep(Duration::from_millis(email.takes_ms));
    let attempt = std::env::var("FENCEHOLD_ATTEMPT")
        .ok()
        .and_then(|attempt| attempt.parse().ok())
        .unwrap_or(1);
    if email.failures < attempt {
        return ExitCode::SUCCESS;
    }
    note(&format!("451 the mailbox of {} is busy, try again later", email.to));
    ExitCode::FAILURE
}

/// Holds the key for some seconds, gives it back, and stands in line again. It renews without a look at the clock, as scripts do: after a
/// stop the store refuses it.
pub(super) async fn write(context: &Context, name: &str) -> VerbResult {
    let store = context.open(CreateStore::default())?;
    let library = store.library().await?;
    let explain = |error| Failure::of_library(error, &store.name);
    for report in 1.. {
        let task = format!("{name}/report-{report}");
        let builder = library.lease(REPORT).owner(name).task(task).ttl(TTL);
        let lease = builder.wait(Duration::from_hours(1)).acquire().await.map_err(explain)?;
        let hold = lease.detach().map_err(explain)?;
        let mut is_held = true;
        for _ in 0..10 {
            sleep(TTL / 5).await;
            let renewed = store.explained(store.leases.renew(&store.call, vec![hold.clone()])).await?;
            if let Some(Err(refusal)) = renewed.results.first() {
                note(&format!("{name}: {refusal}"));
                is_held = false;
                break;
            }
        }
        if is_held {
            store.explained(store.leases.release(&store.call, vec![hold])).await?;
        }
    }
    Ok(())
}

/// An order of the shop.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) number: u64,
    pub(super) to: String,
    /// Whether a carrier goes there.
    pub(super) is_reachable: bool,
}

/// Works on orders, and undoes what was done for those that cannot be delivered.
pub(super) async fn sell(context: &Context, name: &str) -> VerbResult {
    let store = context.open(CreateStore::default())?;
    let library = store.library().await?;
    let worker = library.worker().queue(ORDERS).owner(name).ttl(TTL).concurrency(4);
    let worker = worker.handle("order", fulfil).handle("restock", undo).handle("refund", undo);
    let ended = worker.run().await;
    ended.map(drop).map_err(|error| Failure::of_library(error, &store.name))
}

async fn fulfil(job: Job, order: Order) -> Result<String, JobError> {
    job.once("reserve", async |_| with_time("one lamp".to_owned()).await)
        .compensate_with("restock", &order)
        .await?;
    job.once("charge", async |key| with_time(format!("receipt {key}")).await)
        .compensate_with("refund", &order)
        .await?;
    if !order.is_reachable {
        return Err(JobError::new(format!("no carrier goes to {}", order.to)).permanent());
    }
    job.once("ship", async |_| with_time(format!("on its way to {}", order.to)).await)
        .await
}

async fn undo(_job: Job, order: Order) -> Result<String, JobError> {
    with_time(format!("undone for order {}", order.number)).await
}

/// Others take their time.
async fn with_time(done: String) -> Result<String, JobError> {
    sleep(Duration::from_millis(200)).await;
    Ok(done)
}
