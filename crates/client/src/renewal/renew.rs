//! One renewal call for many leases, on keys or on jobs, and what its answers mean.

use std::sync::Arc;

use fencehold_contract::job::AttemptRef;
use fencehold_contract::{HoldRef, StoreError};
use fencehold_core::lease::LeaseRenewal;

use crate::connection::ConnectionInner;
use crate::error::LostCause;
use crate::holding::{HoldGrant, HoldTarget, Holding};
use crate::random::jitter;
use crate::wake::lock;

/// The store is given this part of the shortest ttl to answer, so that there is time for a second and a third try.
const PATIENCE_PART: u64 = 6;

/// What one renewal brought.
enum RenewalResult {
    Kept {
        renewal: LeaseRenewal,
        /// Someone called the job off.
        called_off: bool,
    },
    Lost(LostCause),
}

/// The answers to one call, in order, and how long it stood in line.
type RenewalResults = (Vec<RenewalResult>, u64);

/// Renews them all: either leases on keys, or leases on jobs.
pub(super) async fn renew(connection: Arc<ConnectionInner>, due: Vec<Arc<Holding>>) {
    let shortest_ms = due.iter().map(|holding| holding.granted.ttl_ms).min().unwrap_or(0);
    let timeout_ms = (shortest_ms / PATIENCE_PART).clamp(1, connection.timeout_ms.max(1));
    let (mut holds, mut attempts) = (Vec::new(), Vec::new());
    for HoldGrant { held, hold, token, .. } in due.iter().map(|holding| &holding.granted) {
        match held {
            HoldTarget::Key(key) => holds.push(HoldRef { key: key.clone(), hold_id: *hold, token: *token }),
            HoldTarget::Job(job) => attempts.push(AttemptRef { job_id: *job, hold_id: *hold, token: *token }),
        }
    }
    let mut unanswered = UnansweredRenewals {
        connection: &connection,
        due,
        why: "the call to the store broke off".to_owned(),
    };
    let sent_ms = connection.now_ms();
    let limit_ms = timeout_ms.saturating_add(timeout_ms / 2);
    let answers = async {
        if attempts.is_empty() {
            renew_keys(&connection, timeout_ms, holds).await
        } else {
            renew_jobs(&connection, timeout_ms, attempts).await
        }
    };
    match connection.answer_within(limit_ms, answers).await {
        Ok((answers, waited_ms)) => {
            connection
                .advisor
                .saw_round_trip(connection.now_ms().saturating_sub(sent_ms).saturating_sub(waited_ms));
            "the store left a renewal unanswered".clone_into(&mut unanswered.why);
            let answered = unanswered.due.len().min(answers.len());
            for (holding, answer) in unanswered.due.drain(..answered).zip(answers) {
                take_answer(&connection, &holding, sent_ms, waited_ms, answer);
            }
        }
        Err(error) => unanswered.why = error.to_string(),
    }
}

async fn renew_keys(
    connection: &ConnectionInner,
    timeout_ms: u64,
    holds: Vec<HoldRef>,
) -> Result<RenewalResults, StoreError> {
    let renewed = connection.store.renew(&connection.call(timeout_ms), holds).await?;
    let answers = renewed.results.into_iter().map(|answer| match answer {
        Ok(renewal) => RenewalResult::Kept { renewal, called_off: false },
        Err(refusal) => RenewalResult::Lost(LostCause::from_refusal(&refusal)),
    });
    Ok((answers.collect(), renewed.waited_ms))
}

async fn renew_jobs(
    connection: &ConnectionInner,
    timeout_ms: u64,
    attempts: Vec<AttemptRef>,
) -> Result<RenewalResults, StoreError> {
    let Some(jobs) = connection.store.jobs() else { return Ok((Vec::new(), 0)) };
    let renewed = jobs.renew_attempts(&connection.call(timeout_ms), attempts).await?;
    let answers = renewed.results.into_iter().map(|answer| match answer {
        Ok(renewal) => RenewalResult::Kept {
            called_off: renewal.cancel_requested,
            renewal: LeaseRenewal {
                token: renewal.token,
                remaining_ms: renewal.remaining_ms,
                yield_request: renewal.yield_request,
            },
        },
        Err(refusal) => RenewalResult::Lost(LostCause::from_job_refusal(&refusal)),
    });
    Ok((answers.collect(), renewed.waited_ms))
}

fn take_answer(
    connection: &Arc<ConnectionInner>,
    holding: &Arc<Holding>,
    sent_ms: u64,
    waited_ms: u64,
    answer: RenewalResult,
) {
    match answer {
        RenewalResult::Kept { renewal, called_off } => {
            if called_off {
                holding.call_off();
            }
            if let Some(renewed) = holding.renewed(sent_ms, waited_ms, &renewal) {
                if let Some(key) = holding.key() {
                    connection.advisor.saw_slack(key, renewed.slack_ms);
                }
                lock(&connection.renewals).renewed(holding.serial, renewed, jitter());
            }
        }
        // A store that refuses a renewal is sure: there is no way back.
        RenewalResult::Lost(why) => connection.refused(holding, why),
    }
}

/// Leases whose renewal has not come through yet. Whatever way the call ends, also by a panic, they are tried again.
struct UnansweredRenewals<'a> {
    connection: &'a ConnectionInner,
    due: Vec<Arc<Holding>>,
    why: String,
}

impl Drop for UnansweredRenewals<'_> {
    fn drop(&mut self) {
        let now_ms = self.connection.now_ms();
        for holding in &self.due {
            lock(&self.connection.renewals).failed(holding.serial, now_ms, jitter());
            holding.not_renewed(self.why.clone());
        }
    }
}
