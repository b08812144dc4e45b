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
    /// When it was first asked, when it was last sent, and when its asker gives up, on the machine's own boot-time clock.
    pub(crate) asked_at_ms: u64,
    pub(crate) sent_at_ms: u64,
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

impl PendingRequest {
    /// Answers in the owner's place.
    pub(super) fn refuse(self, error: StoreError) {
        let (result, sent_at_ms) = (Box::new(Err(error)), self.sent_at_ms);
        let _ = self.reply.send(Delivery::Answer { result, sent_at_ms, sent_before: false });
    }

    /// The same, where an earlier sending may have been carried out.
    fn give_up(self, error: StoreError) {
        let error = or_unknown(error, &self.ask, self.uncertain);
        self.refuse(error);
    }
}

impl Service {
    pub(super) fn is_asked_for(&self, namespace: &Namespace, unclaimed: &UndeliveredGrant) -> bool {
        self.pending.values().any(|question| {
            question.namespace == *namespace
                && question.claim.is_some_and(|claim| claim.hold == unclaimed.hold)
        })
    }

    pub(super) fn answer_all(&mut self, error: &StoreError) {
        for question in std::mem::take(&mut self.pending).into_values() {
            question.give_up(error.clone());
        }
    }

    /// What was sent to an owner that has gone, and could strike another holder if it were sent again.
    pub(super) fn answer_those_that_may_not_be_repeated(&mut self) {
        let forceful = |question: &PendingRequest| question.uncertain && !question.ask.may_be_repeated();
        for (_, question) in self.pending.extract_if(.., |_, question| forceful(question)) {
            question.refuse(owner_went());
        }
    }

    /// Tells those who can wait no longer what stands in the way.
    pub(super) fn give_up_overdue(&mut self) {
        let now_ms = SystemClock.now().store_ms;
        self.left.retain(|_, question| question.give_up_ms > now_ms);
        for (_, question) in self.pending.extract_if(.., |_, question| question.give_up_ms <= now_ms) {
            question.give_up(StoreError::Unavailable { message: self.shared.obstacle() });
        }
    }
}

/// The end of a request that may have been carried out, and may not be repeated.
pub(crate) fn owner_went() -> StoreError {
    let why = "the owner of the directory went before it answered; look before you try again";
    StoreError::OutcomeUnknown { message: why.to_owned() }
}

/// 'Nothing was done' is true of the last sending; an earlier one may have been carried out.
pub(crate) fn or_unknown(error: StoreError, ask: &StoreRequest, sent_before: bool) -> StoreError {
    if sent_before && !ask.only_reads() { error.or_unknown() } else { error }
}
