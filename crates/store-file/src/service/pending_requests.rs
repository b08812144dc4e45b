//! Questions that wait for an answer, and what is answered when there is no owner.

use fencehold_contract::StoreError;
use fencehold_contract::clock::{Clock, SystemClock};
use fencehold_contract::operation::{CallHold, StoreRequest, StoreResponse, UndeliveredGrant};
use fencehold_core::Namespace;
use fencehold_engine::ResponseSender;

use super::Service;

/// A question on its way to the owner of the directory.
pub(crate) struct PendingRequest {
    pub(crate) namespace: Namespace,
    pub(crate) ask: StoreRequest,
    pub(crate) claim: Option<CallHold>,
    /// When it was first asked, and when its asker gives up, on the machine's own boot-time clock.
    pub(crate) asked_at_ms: u64,
    pub(crate) give_up_ms: u64,
    /// Whether it was sent before, so that it may have been carried out.
    pub(crate) uncertain: bool,
    /// The same, before the last sending.
    pub(crate) uncertain_before: bool,
    pub(crate) reply: ResponseSender<Delivery>,
}

/// What becomes of a question.
pub(crate) enum Delivery {
    /// Answered; the sending that was answered left at this moment, and was the first one or not.
    Answer { result: Box<Result<StoreResponse, StoreError>>, sent_at_ms: u64, sent_before: bool },
    /// This process owns the directory now: ask its own engine. An earlier sending elsewhere may have been carried out.
    AskHere { uncertain: bool },
}

pub(super) struct PendingRequests {
    pub(super) question: Box<PendingRequest>,
    pub(super) sent_at_ms: u64,
}

impl Service {
    pub(super) fn is_asked_for(&self, namespace: &Namespace, unclaimed: &UndeliveredGrant) -> bool {
        self.pending.values().any(|PendingRequests { question, .. }| {
            question.namespace == *namespace
                && question.claim.is_some_and(|claim| claim.hold == unclaimed.hold)
        })
    }

    pub(super) fn answer_all(&mut self, error: &StoreError) {
        for (_, PendingRequests { question, sent_at_ms }) in std::mem::take(&mut self.pending) {
            let result = Box::new(Err(or_unknown(error.clone(), &question.ask, question.uncertain)));
            let _ = question.reply.send(Delivery::Answer { result, sent_at_ms, sent_before: false });
        }
    }

    /// What was sent to an owner that has gone, and could strike another holder if it were sent again.
    pub(super) fn answer_those_that_may_not_be_repeated(&mut self) {
        let forceful =
            |pending: &PendingRequests| pending.question.uncertain && !pending.question.ask.may_be_repeated();
        let ids: Vec<u64> = self.pending.iter().filter(|(_, p)| forceful(p)).map(|(id, _)| *id).collect();
        for PendingRequests { question, sent_at_ms } in ids.iter().filter_map(|id| self.pending.remove(id)) {
            let why =
                "the owner of the directory went before it answered; look before you try again".to_owned();
            let result = Box::new(Err(StoreError::OutcomeUnknown { message: why }));
            let _ = question.reply.send(Delivery::Answer { result, sent_at_ms, sent_before: false });
        }
    }

    /// Tells those who can wait no longer what stands in the way.
    pub(super) fn give_up_overdue(&mut self) {
        let now_ms = SystemClock.now().store_ms;
        self.left.retain(|_, question| question.give_up_ms > now_ms);
        let overdue: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.question.give_up_ms <= now_ms)
            .map(|(id, _)| *id)
            .collect();
        for id in overdue {
            let Some(PendingRequests { question, sent_at_ms }) = self.pending.remove(&id) else { continue };
            let error = StoreError::Unavailable { message: self.shared.obstacle() };
            let result = Box::new(Err(or_unknown(error, &question.ask, question.uncertain)));
            let _ = question.reply.send(Delivery::Answer { result, sent_at_ms, sent_before: false });
        }
    }
}

/// 'Nothing was done' is true of the last sending; an earlier one may have been carried out.
pub(crate) fn or_unknown(error: StoreError, ask: &StoreRequest, sent_before: bool) -> StoreError {
    if sent_before && !ask.only_reads() { error.or_unknown() } else { error }
}
