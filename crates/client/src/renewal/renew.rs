//! One renewal call for many leases, on keys or on jobs, and what its answers mean.

use std::sync::Arc;

use fencehold_contract::job::AttemptRef;
use fencehold_contract::{HoldRef, StoreError};
use fencehold_core::job::AttemptRenewal;
use fencehold_core::lease::LeaseRenewal;

use crate::connection::ConnectionInner;
use crate::error::LostCause;
use crate::holding::{HoldGrant, HoldTarget, Holding};
use crate::metrics;
use crate::random::jitter;
use crate::wake::lock;

/// The store is given this part of the shortest ttl to answer, so that there is time for a second and a third try.
const PATIENCE_PART: u64 = 6;

/// What one renewal brought: more time, and whether someone called the job off; or how the lease was lost.
type RenewalResult = Result<(LeaseRenewal, bool), LostCause>;

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
    let why = "the call to the store broke off".to_owned();
    let mut unanswered = UnansweredRenewals { connection: &connection, due, why };
    let sent_ms = connection.now_ms();
    let limit_ms = timeout_ms.saturating_add(timeout_ms / 2);
    let sending = send(&connection, timeout_ms, holds, attempts);
    match connection.answer_within(limit_ms, false, sending).await {
        Ok((answers, waited_ms)) => {
            let trip_ms = connection.now_ms().saturating_sub(sent_ms).saturating_sub(waited_ms);
            connection.advisor.saw_round_trip(trip_ms);
            "the store left a renewal unanswered".clone_into(&mut unanswered.why);
            let answered = unanswered.due.len().min(answers.len());
            for (holding, answer) in unanswered.due.drain(..answered).zip(answers) {
                take_answer(&connection, &holding, sent_ms, waited_ms, answer);
            }
        }
        Err(error) => unanswered.why = error.to_string(),
    }
}

/// The answers to one call, in order, and how long it stood in line.
async fn send(
    connection: &ConnectionInner,
    timeout_ms: u64,
    holds: Vec<HoldRef>,
    attempts: Vec<AttemptRef>,
) -> Result<(Vec<RenewalResult>, u64), StoreError> {
    let call = connection.call(timeout_ms);
    if attempts.is_empty() {
        let renewed = connection.store.renew(&call, holds).await?;
        let answers = renewed.results.into_iter().map(|answer| match answer {
            Ok(renewal) => Ok((renewal, false)),
            Err(refusal) => Err(LostCause::from_refusal(&refusal)),
        });
        return Ok((answers.collect(), renewed.waited_ms));
    }
    let renewed = connection.jobs()?.renew_attempts(&call, attempts).await?;
    let answers = renewed.results.into_iter().map(|answer| match answer {
        Ok(AttemptRenewal { token, remaining_ms, yield_request, cancel_requested }) => {
            Ok((LeaseRenewal { token, remaining_ms, yield_request }, cancel_requested))
        }
        Err(refusal) => Err(LostCause::from_job_refusal(&refusal)),
    });
    Ok((answers.collect(), renewed.waited_ms))
}

fn take_answer(
    connection: &ConnectionInner,
    holding: &Holding,
    sent_ms: u64,
    waited_ms: u64,
    answer: RenewalResult,
) {
    match answer {
        Ok((renewal, called_off)) => {
            metrics::renewal_ended("renewed");
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
        Err(why) => {
            metrics::renewal_ended("refused");
            connection.ended(holding, why);
        }
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
            metrics::renewal_ended("failed");
            lock(&self.connection.renewals).failed(holding.serial, now_ms, jitter());
            holding.not_renewed(self.why.clone());
        }
    }
}
