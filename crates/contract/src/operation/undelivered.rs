//! What becomes of a grant that finds its asker gone.
//!
//! A *fresh* grant has one holder at most, its asker: it is given back at once. A *resumed* one was given to an earlier
//! sending of the same hold id, and what is right depends on who sent that:
//!
//! - If this call sent the hold id first, and sent it more than once (the owner or the connection went in between), every
//!   earlier sending was its own, and no answer to any of them arrived. No holder knows of the grant, so it is given back.
//! - In every other case an earlier sender may have been answered, and may work under the grant. A repetition that is
//!   dropped must not end it. It is left alone; if it has no holder after all, it runs out.
//!
//! A hold id that is being asked for again by then belongs to its new asker: that is for the place where questions meet
//! (the thread behind a handle, the engine's batch) to see.

use fencehold_core::HoldId;
use serde::{Deserialize, Serialize};

use super::{JobRequest, JobResponse, StoreRequest, StoreResponse};
use crate::job::{AttemptRef, AttemptReport, ClaimedJob, OperationStatus, Report};
use crate::{CallContext, HoldRef, StoreError};

/// A call's claim on what it asks for.
#[derive(Clone, Copy, Debug)]
pub struct CallHold {
    /// The hold id that the call sent.
    pub hold: HoldId,
    /// Whether every earlier sending of this hold id was this call's own.
    pub own: bool,
}

impl CallHold {
    /// The claim of a call, from its question as it was when the call began. What a server passes on may have been sent
    /// before, whatever the request says.
    pub fn of(call: &CallContext, ask: &StoreRequest) -> Option<CallHold> {
        let (hold, first) = match ask {
            StoreRequest::Acquire(request) => (request.hold_id, request.hold_id_age_ms == 0),
            StoreRequest::Job(JobRequest::Claim(request)) => (request.hold_id, true),
            StoreRequest::Job(JobRequest::BeginOperation(request)) => (request.hold_id, true),
            _ => return None,
        };
        Some(CallHold { hold, own: first && !call.relayed })
    }

    /// The same claim, by a call that has sent its question before, or has not.
    pub fn after_sending(self, sent_before: bool) -> CallHold {
        CallHold { own: self.own && sent_before, ..self }
    }

    /// What to give back, now that no caller is there to take this answer.
    pub fn unclaimed(self, answer: Result<StoreResponse, StoreError>) -> Option<UndeliveredGrant> {
        let hold = self.hold;
        let (resumed, ask) = match answer {
            Ok(StoreResponse::Acquired(acquired)) => {
                let lease = HoldRef { key: acquired.key, hold_id: hold, token: acquired.grant.token };
                (acquired.grant.resumed, StoreRequest::Release(vec![lease]))
            }
            Ok(StoreResponse::Job(JobResponse::Claimed(claimed))) if !claimed.jobs.is_empty() => {
                (claimed.resumed, hand_back(hold, &claimed.jobs))
            }
            Ok(StoreResponse::Job(JobResponse::BegunOperation(Ok(began)))) => match began.operation {
                OperationStatus::Started { job } => {
                    (began.resumed, hand_back(hold, std::slice::from_ref(&job)))
                }
                _ => return None,
            },
            _ => return None,
        };
        (self.own || !resumed).then_some(UndeliveredGrant { hold, ask, fresh: !resumed })
    }
}

/// What was granted and not taken: to whom, and the question that gives it back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UndeliveredGrant {
    /// The hold id that it was granted to.
    pub hold: HoldId,
    /// What gives it back.
    pub ask: StoreRequest,
    /// Whether it was this sending's grant: another one that was answered since has taken it up.
    pub fresh: bool,
}

fn hand_back(hold: HoldId, jobs: &[ClaimedJob]) -> StoreRequest {
    let attempt = |job: &ClaimedJob| AttemptRef { job_id: job.id, hold_id: hold, token: job.token };
    let report = |job| AttemptReport { attempt: attempt(job), report: Report::Release {} };
    StoreRequest::Job(JobRequest::Report(jobs.iter().map(report).collect()))
}
