//! What a process counts of its own leases and jobs, for the facade of the crate `metrics`: under the names that a server has for the same
//! things, so that one dashboard shows both.
//!
//! Without the feature `metrics` nothing is counted, and none of this is compiled.

#[cfg(feature = "metrics")]
use std::time::Duration;

use fencehold_core::job::{AttemptOutcome, JobKind, QueueName};

use crate::error::LostCause;

/// Functions that do nothing without the feature.
macro_rules! counted {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            $(#[$doc])*
            #[cfg(feature = "metrics")]
            pub(crate) fn $name($($argument: $type),*) $body

            $(#[$doc])*
            #[cfg(not(feature = "metrics"))]
            pub(crate) const fn $name($(_: $type),*) {}
        )*
    };
}

counted! {
    fn lease_acquired(waited_ms: u64) {
        metrics::counter!("fencehold_leases_acquired_total").increment(1);
        metrics::histogram!("fencehold_acquire_wait_duration_seconds").record(Duration::from_millis(waited_ms));
    }

    fn lease_ended(cause: &LostCause) {
        metrics::counter!("fencehold_leases_ended_total", "outcome" => outcome_of(cause)).increment(1);
    }

    /// `outcome`: renewed, refused or failed.
    fn renewal_ended(outcome: &'static str) {
        metrics::counter!("fencehold_renewals_total", "outcome" => outcome).increment(1);
    }

    fn jobs_enqueued(count: u64) {
        metrics::counter!("fencehold_jobs_enqueued_total").increment(count);
    }

    fn attempt_started(queue: &QueueName, kind: &JobKind) {
        let (queue, kind) = (queue.to_string(), kind.to_string());
        metrics::counter!("fencehold_job_attempts_started_total", "queue" => queue, "kind" => kind).increment(1);
    }

    /// `outcome`: as its handler ended. `None`: its claim was lost, or left to expire.
    fn attempt_ended(queue: &QueueName, kind: &JobKind, outcome: Option<AttemptOutcome>, took_ms: u64) {
        let outcome = outcome.map_or_else(|| "lost".to_owned(), |outcome| outcome.to_string());
        let labels = [("queue", queue.to_string()), ("kind", kind.to_string()), ("outcome", outcome)];
        metrics::counter!("fencehold_job_attempts_ended_total", &labels).increment(1);
        let took = Duration::from_millis(took_ms);
        metrics::histogram!("fencehold_job_attempt_duration_seconds", &labels).record(took);
    }
}

/// As the server calls it; what the server cannot see is `lost`.
#[cfg(feature = "metrics")]
fn outcome_of(cause: &LostCause) -> String {
    use fencehold_core::lease::LeaseOutcome;
    match cause {
        LostCause::Released => LeaseOutcome::Released.to_string(),
        LostCause::Ended { outcome: Some(outcome), .. } => outcome.to_string(),
        LostCause::NotRenewed { .. } => LeaseOutcome::Expired.to_string(),
        _ => "lost".to_owned(),
    }
}
