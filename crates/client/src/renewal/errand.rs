//! What is done in the background, with nobody waiting for it: giving back what a dropped guard held, freeing a grant
//! that nobody saw.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use fencehold_contract::job::{AttemptRef, Report, Word};
use fencehold_contract::{AcquireRequest, HoldRef, StoreError};
use fencehold_core::limits::HOLD_AGE_MS_MAX;

use crate::bell::lock;
use crate::board::Board;
use crate::hub::Hub;

type Errand = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Errands that wait to be begun, and how many are not done yet.
#[derive(Default)]
pub(crate) struct Errands {
    waiting: Mutex<Vec<Errand>>,
    open: Board<usize>,
}

impl Errands {
    pub(crate) fn add(&self, hub: Arc<Hub>, errand: impl Future<Output = ()> + Send + 'static) {
        self.open.update(|open| {
            *open += 1;
            Some(())
        });
        let open = Open(hub);
        lock(&self.waiting).push(Box::pin(async move {
            let _open = open;
            errand.await;
        }));
    }

    pub(super) fn take(&self) -> Vec<Errand> {
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

/// One errand that is not done yet.
struct Open(Arc<Hub>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.errands.open.update(|open| {
            *open -= 1;
            Some(())
        });
    }
}

/// Gives a lease back, trying until it would have ended anyway.
pub(crate) async fn give_back(hub: Arc<Hub>, hold: HoldRef, until_ms: u64) {
    let mut failures = 0;
    loop {
        let call = hub.call(hub.patience_ms);
        let answer = hub.answer(hub.patience_ms, hub.store.release(&call, vec![hold.clone()])).await;
        match answer {
            Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. }) => {
                failures += 1;
                if !pause(&hub, failures, until_ms).await {
                    tracing::debug!(key = %hold.key, "the lease was left to run out: the store could not be reached");
                    return;
                }
            }
            // Released, or over in another way: either is fine.
            _ => return,
        }
    }
}

/// Hands a job back, trying until its claim would have run out anyway.
pub(crate) async fn hand_back(hub: Arc<Hub>, attempt: AttemptRef, until_ms: u64) {
    let mut failures = 0;
    while let Some(jobs) = hub.store.jobs() {
        let call = hub.call(hub.patience_ms);
        let report = Report { attempt: attempt.clone(), word: Word::HandBack };
        match hub.answer(hub.patience_ms, jobs.report(&call, vec![report])).await {
            Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. }) => {
                failures += 1;
                if !pause(&hub, failures, until_ms).await {
                    tracing::debug!(job = %attempt.job, "the claim was left to run out: the store could not be reached");
                    return;
                }
            }
            // Handed back, or over in another way: either is fine.
            _ => return,
        }
    }
}

/// Frees what an acquisition may have been granted without its caller ever knowing. The token is not known; asking
/// again by the same hold id tells it. Where nothing was granted, this takes the request out of the line, and uses up
/// its hold id if the key is free, so that a sending that is still on its way comes too late.
pub(crate) async fn free_unseen_grant(hub: Arc<Hub>, request: AcquireRequest, sent_ms: u64, until_ms: u64) {
    let mut failures = 0;
    loop {
        // Never none: the store takes a hold id of no age for one that it has never seen.
        let hold_age_ms = hub.now_ms().saturating_sub(sent_ms).max(1);
        if hold_age_ms > HOLD_AGE_MS_MAX {
            return;
        }
        let again = AcquireRequest {
            hold_age_ms,
            wait_ms: 0,
            waited_before_ms: 0,
            yield_within_ms: None,
            ..request.clone()
        };
        let call = hub.call(hub.patience_ms);
        match hub.answer(hub.patience_ms, hub.store.acquire(&call, again)).await {
            Ok(acquired) => {
                tracing::debug!(key = %acquired.key, token = acquired.grant.token.get(), "freeing an unseen grant");
                let hold = HoldRef { key: acquired.key, hold: request.hold, token: acquired.grant.token };
                return give_back(hub, hold, until_ms).await;
            }
            Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. } | StoreError::Full { .. }) => {
                failures += 1;
                if !pause(&hub, failures, until_ms).await {
                    return;
                }
            }
            // Held by somebody else, ended, or refused: nothing is kept for us.
            Err(_) => return,
        }
    }
}

/// Pauses before the next try. False: there is no time left for one.
async fn pause(hub: &Hub, failures: u32, until_ms: u64) -> bool {
    let at_ms = hub.now_ms().saturating_add(hub.retries.backoff_ms(failures));
    if at_ms >= until_ms {
        return false;
    }
    hub.timers.sleep_until(at_ms).await;
    true
}
