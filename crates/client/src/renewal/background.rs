//! Tasks in the background that no caller waits for: giving back what a dropped guard held, freeing a grant that its caller never saw.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use fencehold_contract::job::{AttemptRef, AttemptReport, ClaimJobsRequest, Report};
use fencehold_contract::{AcquireLeaseRequest, HoldRef, StoreError};
use fencehold_core::limits::HOLD_AGE_MS_MAX;

use crate::connection::ConnectionInner;
use crate::retry::may_pass;
use crate::wake::{WatchValue, lock};

type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks that wait to be begun, and how many are not done yet.
#[derive(Default)]
pub(crate) struct Background {
    waiting: Mutex<Vec<BackgroundTask>>,
    open: WatchValue<usize>,
}

impl Background {
    pub(crate) fn add(
        &self,
        connection: Arc<ConnectionInner>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.open.change(|open| *open += 1);
        let open = OpenTask(connection);
        lock(&self.waiting).push(Box::pin(async move {
            let _open = open;
            task.await;
        }));
    }

    pub(super) fn take(&self) -> Vec<BackgroundTask> {
        std::mem::take(&mut lock(&self.waiting))
    }

    pub(crate) fn are_done(&self) -> bool {
        self.open.read(|open, _| *open == 0)
    }

    /// Waits until none is left.
    pub(crate) async fn all_done(&self) {
        self.open.when(|open, _| (*open == 0).then_some(())).await;
    }
}

/// One task that is not done yet.
struct OpenTask(Arc<ConnectionInner>);

impl Drop for OpenTask {
    fn drop(&mut self) {
        self.0.background.open.change(|open| *open -= 1);
    }
}

/// Gives a lease back, trying until it would have ended anyway.
pub(crate) async fn give_back(connection: Arc<ConnectionInner>, hold: HoldRef, until_ms: u64) {
    let send = || connection.send(0, |store, call| store.release(call, vec![hold.clone()]));
    // Released, or over in another way: either is fine.
    if retry_until(&connection, until_ms, send).await.is_none() {
        tracing::debug!(key = %hold.key, "the lease was left to run out: the store could not be reached");
    }
}

/// Hands a job back, trying until its claim would have run out anyway.
pub(crate) async fn hand_back(connection: Arc<ConnectionInner>, attempt: AttemptRef, until_ms: u64) {
    let report = AttemptReport { attempt, report: Report::Release {} };
    let send = || connection.send_job(0, |jobs, call| jobs.report(call, vec![report.clone()]));
    // Released, or over in another way: either is fine.
    if retry_until(&connection, until_ms, send).await.is_none() {
        tracing::debug!(job = %report.attempt.job_id, "the claim was left to run out: the store could not be reached");
    }
}

/// Frees what an acquisition may have been granted without its caller ever knowing. The token is not known; asking
/// again by the same hold id tells it. Where nothing was granted, this takes the request out of the line, and uses up
/// its hold id if the key is free, so that a sending that is still on its way comes too late.
pub(crate) async fn free_unseen_grant(
    connection: Arc<ConnectionInner>,
    request: AcquireLeaseRequest,
    sent_ms: u64,
    until_ms: u64,
) {
    let send = || {
        let again = AcquireLeaseRequest {
            // Never none: the store takes a hold id of no age for one that it has never seen.
            hold_id_age_ms: connection.now_ms().saturating_sub(sent_ms).max(1),
            wait_ms: 0,
            waited_before_ms: 0,
            preempt_within_ms: None,
            ..request.clone()
        };
        connection.send(0, |store, call| store.acquire(call, again))
    };
    // No store accepts an older hold id.
    let asks_until_ms = until_ms.min(sent_ms.saturating_add(HOLD_AGE_MS_MAX));
    // Held by another caller, ended, or refused: nothing is kept for us.
    if let Some(Ok(acquired)) = retry_until(&connection, asks_until_ms, send).await {
        tracing::debug!(key = %acquired.key, token = acquired.grant.token.get(), "freeing an unseen grant");
        let hold = HoldRef { key: acquired.key, hold_id: request.hold_id, token: acquired.grant.token };
        give_back(connection, hold, until_ms).await;
    }
}

/// Releases what a claim may have been given without its caller ever knowing. Asking again by the same hold id tells.
pub(crate) async fn free_unseen_claim(connection: Arc<ConnectionInner>, request: ClaimJobsRequest) {
    let request = ClaimJobsRequest { wait_ms: 0, ..request };
    let until_ms = connection.now_ms().saturating_add(request.ttl_ms);
    let send = || connection.send_job(0, |jobs, call| jobs.claim(call, request.clone()));
    let Some(Ok(claimed)) = retry_until(&connection, until_ms, send).await else { return };
    for job in claimed.jobs {
        let attempt = AttemptRef { job_id: job.id, hold_id: request.hold_id, token: job.token };
        hand_back(Arc::clone(&connection), attempt, until_ms).await;
    }
}

/// Sends a request until the store decides. `None`: it could not be reached in time.
async fn retry_until<T, F>(
    connection: &ConnectionInner,
    until_ms: u64,
    send: impl Fn() -> F,
) -> Option<Result<T, StoreError>>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut failures = 0;
    loop {
        match send().await {
            Err(error) if may_pass(&error) => failures += 1,
            decided => return Some(decided),
        }
        let at_ms = connection.now_ms().saturating_add(connection.retries.backoff_ms(failures));
        if at_ms >= until_ms {
            return None;
        }
        connection.timers.sleep_until(at_ms).await;
    }
}
