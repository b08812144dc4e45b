//! What becomes of a grant that finds its asker gone.
//!
//! A *fresh* grant is nobody else's: it is given back at once. A *resumed* one was given to an earlier sending of the same
//! hold id, and what is right depends on whose sending that was:
//!
//! - If this call was the first to send the hold id, every earlier sending was its own (to an owner that has gone since),
//!   and no answer to any of them arrived. Nobody knows of the lease, so it is given back too.
//! - If the hold id was sent before this call began, whoever sent it may have been answered, and be at work under the
//!   lease. A repeat that is dropped must not end it. It is left alone; if nobody holds it after all, it runs out.
//!
//! A hold id that is being asked for again by then belongs to whoever asks: that is for the place where questions meet
//! (the thread behind a handle, the engine's batch) to see.

use fencehold_core::HoldId;

use super::ask::{Answer, Ask};
use super::jobs::{JobAnswer, JobAsk};
use crate::error::StoreError;
use crate::job::{AttemptRef, Begun, ClaimedJob, Report, Word};
use crate::lease::HoldRef;

/// A call's claim on what it asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) hold: HoldId,
    /// Whether nobody sent this hold id before this call.
    pub(crate) first: bool,
}

impl Claim {
    /// The claim of a call, from its question as it was when the call began.
    pub(crate) fn of(ask: &Ask) -> Option<Claim> {
        match ask {
            Ask::Acquire(request) => Some(Claim { hold: request.hold, first: request.hold_age_ms == 0 }),
            // Jobs are asked for by workers, which ask for the same ones again only when no answer came.
            Ask::Job(JobAsk::Claim(request)) => Some(Claim { hold: request.hold, first: true }),
            Ask::Job(JobAsk::Begin(request)) => Some(Claim { hold: request.hold, first: true }),
            _ => None,
        }
    }

    /// What to give back, now that nobody is there to take this answer.
    pub(crate) fn unclaimed(self, answer: Result<Answer, StoreError>) -> Option<Unclaimed> {
        let hold = self.hold;
        let ask = match answer {
            Ok(Answer::Acquired(acquired)) if self.first || !acquired.grant.resumed => {
                Ask::Release(vec![HoldRef { key: acquired.key, hold, token: acquired.grant.token }])
            }
            Ok(Answer::Job(JobAnswer::Claimed(claimed))) if !claimed.jobs.is_empty() => {
                hand_back(hold, &claimed.jobs)
            }
            Ok(Answer::Job(JobAnswer::Began(began))) => match began.what {
                Begun::New(job) => hand_back(hold, std::slice::from_ref(&job)),
                _ => return None,
            },
            _ => return None,
        };
        Some(Unclaimed { hold, ask })
    }
}

/// What was granted and not taken: to whom, and the question that gives it back.
#[derive(Clone, Debug)]
pub(crate) struct Unclaimed {
    pub(crate) hold: HoldId,
    pub(crate) ask: Ask,
}

fn hand_back(hold: HoldId, jobs: &[ClaimedJob]) -> Ask {
    let attempt = |job: &ClaimedJob| AttemptRef { job: job.id, hold, token: job.token };
    let report = |job| Report { attempt: attempt(job), word: Word::HandBack };
    Ask::Job(JobAsk::Report(jobs.iter().map(report).collect()))
}
