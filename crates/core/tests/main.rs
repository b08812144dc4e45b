//! The rules, and what every invariant refuses.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

/// Fails with the value, unless it has this shape. Behind `=>` stands what is wanted of it, last what is said of it.
macro_rules! assert_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)? $(, $($what:tt)+)?) => {
        assert_matches!($value, $pattern $(if $guard)? => {} $(, $($what)+)?)
    };
    ($value:expr, $pattern:pat $(if $guard:expr)? => $wanted:expr $(, $($what:tt)+)?) => {
        match $value {
            $pattern $(if $guard)? => $wanted,
            ref other => panic!("{}{other:?}", String::new() $(+ &format!($($what)+) + ": ")?),
        }
    };
}

mod invariants;
mod job_claim;
mod job_force;
mod job_invariants;
mod job_late_reports;
mod job_properties;
mod job_report;
mod lease_acquire;
mod lease_force;
mod lease_hold_id;
mod lease_preempt;
mod lease_properties;
mod lease_renew_release;
mod ledger;
mod messages;
mod schedule_clock_changes;
mod schedule_lines;
mod schedule_properties;
mod support;

/// What the tests of leases and jobs speak of.
mod prelude {
    pub(crate) use fencehold_core::job::{
        AttemptOutcome, AttemptProof, AttemptRenewal, AttemptWrite, CompensationState, Due, ForcedState,
        JobCommand, JobCommandResult, JobDecision, JobOptions, JobRecord, JobRefusal, JobState, PastAttempt,
        ReportedAttempt,
    };
    pub(crate) use fencehold_core::lease::{
        Acquire, DeadlineChange, Ending, Grant, Hold, HoldHistory, LeaseCommand, LeaseCommandResult,
        LeaseDecision, LeaseOutcome, LeaseRecord, LeaseRenewal, PreemptRequest, Revoked, YieldRequest,
    };
    pub(crate) use fencehold_core::limits::{
        ADVANCE_BY, COLLECT_AFTER_FREE_MS, CRASH_NOTICED_MS, CRASH_SPREAD_MS, ERROR_BYTES_KEPT, HISTORY_MAX,
        HOLD_AGE_MS_MAX, TOKEN_MAX, TRAIL_MAX,
    };
    pub(crate) use fencehold_core::{BlockedAction, EventData, Reason, Refusal, Timestamp, Token};

    pub(crate) use crate::support::job::{
        OneJob, RETRY_MS, cancelling, claiming, failing, late, operator, over, preempting, reason, reported,
        stale, terms,
    };
    pub(crate) use crate::support::job_model::JobModel;
    pub(crate) use crate::support::model::LeaseModel;
    pub(crate) use crate::support::{
        OneKey, ROUNDING_MS, TTL_MS, ask, ask_with_max_age, expired, forgotten, hold, lost, owner,
        revocation, task,
    };
}
