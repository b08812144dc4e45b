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
use crate::error::StoreError;
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
            _ => None,
        }
    }

    /// What to give back, now that nobody is there to take this answer.
    pub(crate) fn unclaimed(self, answer: Result<Answer, StoreError>) -> Option<HoldRef> {
        match answer {
            Ok(Answer::Acquired(acquired)) if self.first || !acquired.grant.resumed => {
                Some(HoldRef { key: acquired.key, hold: self.hold, token: acquired.grant.token })
            }
            _ => None,
        }
    }
}
