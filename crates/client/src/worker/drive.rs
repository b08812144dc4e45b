//! Driving a handler to its end, and what there is to report then: for workers, and for the tests of handlers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use fencehold_contract::job::Report;
use fencehold_core::lease::LeaseOutcome;

use super::handler::HandlerResult;
use crate::error::{LostCause, ShownTime};
use crate::holding::Holding;
use crate::job::JobError;

/// How a handler's run ended.
pub(crate) enum RunEnd<T> {
    /// By itself, or by a panic.
    Ended(T),
    /// The claim was lost, and the handler was dropped.
    Lost(LostCause),
    /// The worker, or the operator who called the job off, would not wait any longer, and the handler was dropped.
    Dropped,
}

/// Drives a handler to its end, unless its claim is lost or it is not waited for any longer. Then it is dropped.
pub(crate) async fn drive<T>(
    holding: &Holding,
    not_waited_for: impl Future,
    handler: impl Future<Output = T>,
) -> RunEnd<T> {
    let mut lost = pin!(holding.lost());
    let mut not_waited_for = pin!(not_waited_for);
    let mut handler = pin!(handler);
    std::future::poll_fn(|context| {
        // Looked at before the work goes on: time may have passed.
        holding.settle();
        if let Poll::Ready(why) = lost.as_mut().poll(context) {
            return Poll::Ready(RunEnd::Lost(why));
        }
        if not_waited_for.as_mut().poll(context).is_ready() {
            return Poll::Ready(RunEnd::Dropped);
        }
        handler.as_mut().poll(context).map(RunEnd::Ended)
    })
    .await
}

/// What to report of an attempt. `None`: nothing, for it is over already and others decide.
pub(crate) fn report_of(run: RunEnd<HandlerResult>, holding: &Holding) -> Option<Report> {
    match run {
        RunEnd::Ended(Ok(outcome)) => outcome.into_report(),
        RunEnd::Ended(Err(error)) => error.into_report(&holding.granted.held),
        RunEnd::Lost(LostCause::Ended {
            outcome: Some(LeaseOutcome::AgedOut), current_token: None, ..
        }) => {
            let limit = ShownTime(Duration::from_millis(holding.granted.max_age_ms.unwrap_or(0)));
            let after = ShownTime(Duration::from_millis(holding.age_ms()));
            let why = "and it must have stopped before another worker may begin";
            let text = format!("the attempt was ended after {after}: its time limit is {limit}, {why}");
            JobError::new(text).into_report(&holding.granted.held)
        }
        // Where the claim is lost by the holder's own reckoning, that is ahead of the store's: it may be live still. The
        // work has stopped, so another worker may begin at once.
        RunEnd::Dropped
        | RunEnd::Lost(
            LostCause::NotRenewed { .. }
            | LostCause::Ended { outcome: Some(LeaseOutcome::Yielded), current_token: None, .. },
        ) => Some(Report::Release {}),
        RunEnd::Lost(_) => None,
    }
}

/// Runs other people's code: where it panics, the attempt has failed.
pub(super) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, JobError> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        JobError::new(format!("the handler panicked: {}", said.unwrap_or("no words")))
    })
}
