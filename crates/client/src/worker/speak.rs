//! What a worker tells the store of the attempts that ended. Nobody waits for it but whoever ends the worker.

use std::sync::Arc;

use fencehold_contract::job::{AttemptRef, Report, Word};

use super::floor::{Floor, Ready};
use crate::bell::lock;
use crate::error::LostReason;
use crate::holding::Holding;
use crate::job::last_try_ms;
use crate::renewal::Handle;
use crate::report::Spoken;

impl Floor {
    /// Has a word about an attempt sent that is over, and goes on.
    pub(super) fn say(
        self: &Arc<Self>,
        handle: &Arc<Handle>,
        attempt: AttemptRef,
        holding: Arc<Holding>,
        word: Word,
    ) {
        let handed_back = matches!(word, Word::HandBack);
        self.count(|tally| {
            tally.unheard += 1;
            tally.handed_back += u64::from(handed_back);
            tally.finished += u64::from(!handed_back);
        });
        let unheard = Unheard(Arc::clone(self));
        let until_ms = last_try_ms(handle, &holding);
        let hub = Arc::clone(&handle.hub);
        let told = Box::new(move |answer: Result<_, crate::error::Error>| {
            if let Err(error) = answer {
                tracing::warn!(parent: &holding.span, %error, "what the job had to say was not taken");
            }
            // Renewed until here, so that nobody else had it meanwhile.
            lock(&hub.book).remove(holding.serial);
            holding.lose(LostReason::Released);
            drop(unheard);
        });
        handle.hub.say(Spoken { report: Report { attempt, word }, until_ms, told });
    }

    /// Hands back jobs that were not begun.
    pub(super) fn hand_back(self: &Arc<Self>, handle: &Arc<Handle>, jobs: Vec<Ready>) {
        for Ready { claimed, holding, .. } in jobs {
            let attempt =
                AttemptRef { job: claimed.id, hold: holding.granted.hold, token: holding.granted.token };
            self.say(handle, attempt, holding, Word::HandBack);
        }
    }
}

/// A word that the store has not answered yet.
struct Unheard(Arc<Floor>);

impl Drop for Unheard {
    fn drop(&mut self) {
        self.0.count(|tally| tally.unheard -= 1);
    }
}
