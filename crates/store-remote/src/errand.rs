//! One call on its way to a server: how long its caller bears with it, and whether anything may have been done.

use std::sync::Arc;
use std::time::Duration;

use fencehold_api::{Kind, Problem};
use fencehold_contract::StoreError;
use fencehold_contract::clock::Clock;
use fencehold_contract::wire::store_error;
use fencehold_core::Key;
use fencehold_net::Patience;

use super::wire::Wire;

/// The first rest between two tries, so that a server that has just gone is not flooded when it comes back.
const REST: Duration = Duration::from_millis(10);

/// Why no answer came of one sending.
#[derive(Debug)]
pub(super) enum Fault {
    /// Nothing was sent.
    Unreached(String),
    /// Nothing was sent, because its certificate was not accepted.
    Distrusted(String),
    /// It was sent, and what came of it is not known.
    Unclear(String),
    /// The server said no.
    Problem(Box<Problem>),
    /// What answered is no Fencehold server, or does not want us.
    Stranger(String),
}

pub(super) struct Errand<'p> {
    patience: Patience,
    place: &'p str,
    /// Something was sent whose outcome is not known.
    pub(super) uncertain: bool,
    /// Servers that have not been asked yet.
    others: usize,
    /// How many shares a sending that does not wait has of the time that is left: while there are others, they need some.
    waits: bool,
}

impl<'p> Errand<'p> {
    /// Sets out now, and is given up when patience ends, on top of any waiting in line.
    pub(super) fn new(clock: &Arc<dyn Clock>, wire: &'p Wire, patience_ms: u64, wait_ms: u64) -> Self {
        let patience = Patience::new(clock, patience_ms, wait_ms, REST);
        let others = wire.servers().saturating_sub(1);
        Errand { patience, place: wire.place(), uncertain: false, others, waits: wait_ms > 0 }
    }

    /// How long it has been under way.
    pub(super) fn so_far_ms(&self) -> u64 {
        self.patience.so_far_ms()
    }

    /// Waits for one sending, but not beyond the end of patience.
    pub(super) async fn limit<T>(&self, sending: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        // A server that hangs must leave time for the others.
        let share = if self.others > 0 && !self.waits { 2 } else { 1 };
        let left = (self.patience.left() / share).max(Duration::from_millis(1));
        tokio::time::timeout(left, sending)
            .await
            .unwrap_or_else(|_| Err(Fault::Unclear("no answer came in time".to_owned())))
    }

    /// Bears with a fault for a moment; or, when patience has ended or it would not help, says what stands in the way.
    /// `about` is the key that was asked about; `repeatable` is what may be sent although it may have been carried out.
    pub(super) async fn bear(
        &mut self,
        fault: Fault,
        about: Option<&Key>,
        repeatable: bool,
    ) -> Result<(), StoreError> {
        let mut at_least = Duration::ZERO;
        let why = match fault {
            Fault::Unreached(why) | Fault::Distrusted(why) => why,
            Fault::Unclear(why) => {
                self.uncertain = true;
                why
            }
            Fault::Stranger(why) => {
                return Err(self.or_unknown(StoreError::Unusable { place: self.place.to_owned(), why }));
            }
            Fault::Problem(problem) => {
                match problem.kind {
                    // Nothing was done, and another server may be able to.
                    Kind::Unavailable if self.others > 0 => {}
                    // Nothing was done, and it may work in a moment: here, or at this server's successor.
                    Kind::Stopping | Kind::Limited => {}
                    _ => return Err(self.or_unknown(store_error(*problem, about))),
                }
                if self.others == 0 {
                    at_least = Duration::from_millis(problem.retry_after_ms.unwrap_or(0));
                }
                problem.why.unwrap_or(problem.detail)
            }
        };
        if self.patience.is_over() || self.uncertain && !repeatable {
            let why = format!("{}: {why}", self.place);
            return Err(self.or_unknown(StoreError::Unavailable { why }));
        }
        tracing::debug!(place = self.place, why, "the server did not answer; asking again");
        if self.others > 0 {
            self.others -= 1;
            return Ok(());
        }
        self.patience.rest(at_least).await;
        Ok(())
    }

    /// 'Nothing was done' is true of the last sending; of an earlier one nobody knows.
    fn or_unknown(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Unavailable { why } | StoreError::Unusable { why, .. } if self.uncertain => {
                StoreError::Unknown { why }
            }
            error => error,
        }
    }
}
