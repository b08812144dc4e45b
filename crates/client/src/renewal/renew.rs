//! One renewal call for many leases, and what its answers mean.

use std::sync::Arc;

use fencehold_core::Refusal;
use fencehold_core::lease::Renewal;
use fencehold_store::HoldRef;

use crate::bell::lock;
use crate::holding::Holding;
use crate::hub::Hub;
use crate::random::jitter;

/// The store is given this part of the shortest ttl to answer, so that there is time for a second and a third try.
const PATIENCE_PART: u64 = 6;

/// Renews them all.
pub(super) async fn renew(hub: Arc<Hub>, due: Vec<Arc<Holding>>) {
    let shortest_ms = due.iter().map(|holding| holding.granted.ttl_ms).min().unwrap_or(0);
    let patience_ms = (shortest_ms / PATIENCE_PART).clamp(1, hub.patience_ms.max(1));
    let holds: Vec<HoldRef> = due.iter().map(|holding| holding.hold_ref()).collect();
    let call = hub.call(patience_ms);
    let mut unanswered = Unanswered { hub: &hub, due, why: "the call to the store broke off".to_owned() };
    let sent_ms = hub.now_ms();
    let limit_ms = patience_ms.saturating_add(patience_ms / 2);
    match hub.answer_within(limit_ms, hub.store.renew(&call, holds)).await {
        Ok(renewed) => {
            let trip_ms = hub.now_ms().saturating_sub(sent_ms).saturating_sub(renewed.waited_ms);
            hub.advisor.saw_round_trip(trip_ms);
            "the store left a renewal unanswered".clone_into(&mut unanswered.why);
            let answered = unanswered.due.len().min(renewed.answers.len());
            for (holding, answer) in unanswered.due.drain(..answered).zip(renewed.answers) {
                take_answer(&hub, &holding, sent_ms, renewed.waited_ms, answer);
            }
        }
        Err(error) => unanswered.why = error.to_string(),
    }
}

fn take_answer(
    hub: &Arc<Hub>,
    holding: &Arc<Holding>,
    sent_ms: u64,
    waited_ms: u64,
    answer: Result<Renewal, Refusal>,
) {
    match answer {
        Ok(renewal) => {
            if let Some(renewed) = holding.renewed(sent_ms, waited_ms, &renewal) {
                hub.advisor.saw_slack(&holding.granted.key, renewed.slack_ms);
                lock(&hub.book).renewed(holding.serial, renewed, jitter());
            }
        }
        // A store that refuses a renewal is sure: there is no way back.
        Err(refusal) => hub.refused(holding, &refusal),
    }
}

/// Leases whose renewal has not come through yet. Whatever way the call ends, also by a panic, they are tried again.
struct Unanswered<'a> {
    hub: &'a Hub,
    due: Vec<Arc<Holding>>,
    why: String,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let now_ms = self.hub.now_ms();
        for holding in &self.due {
            lock(&self.hub.book).failed(holding.serial, now_ms, jitter());
            holding.not_renewed(self.why.clone());
        }
    }
}
