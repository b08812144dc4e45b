//! Whether a question can be answered at all, told from the question alone: before it travels, and again where it is
//! decided. What passes fits into one frame of the socket, and so does its answer.

use fencehold_core::limits::{
    BATCH_MAX, HOLD_AGE_MS_MAX, KEY_BYTES_MAX, KEYS_PER_ACQUIRE_MAX, PAGE_MAX, STATS_MS_MAX,
    STATS_STEP_MS_MIN, TTL_MS_MIN, WAIT_MS_MAX, YIELD_MS_MAX,
};
use fencehold_core::{BadInput, Token, ttl};

use super::StoreRequest;
use crate::{AcquireLeaseRequest, KeepFinished, RevokeTarget};

impl StoreRequest {
    /// Whether it can be answered at all.
    pub fn check(&self) -> Result<(), BadInput> {
        match self {
            StoreRequest::Acquire(request) => check_acquire(request),
            StoreRequest::Renew(holds) => check_count("renewals", holds.len(), BATCH_MAX),
            StoreRequest::Release(holds) => check_count("releases", holds.len(), BATCH_MAX),
            StoreRequest::Revoke { request, .. } => match &request.target {
                RevokeTarget::Prefix(prefix) => check_prefix(Some(prefix)),
                RevokeTarget::Key { .. }
                | RevokeTarget::Task(_)
                | RevokeTarget::Owner(_)
                | RevokeTarget::TaskPrefix(_) => Ok(()),
            },
            StoreRequest::List(request) => {
                check_limit(request.limit)?;
                check_prefix(request.prefix.as_ref())
            }
            StoreRequest::Events(request) => {
                check_limit(request.limit)?;
                check_prefix(request.prefix.as_ref())
            }
            StoreRequest::Advance { increment, .. } => {
                ensure(*increment > 0, "increment", || "must be more than 0".to_owned())
            }
            StoreRequest::Job(ask) => ask.check(),
            StoreRequest::KeepFinished { ms } => KeepFinished::for_ms(*ms).map(drop),
            StoreRequest::Quota(request) => request.quota.map_or(Ok(()), |set| set.check()),
            StoreRequest::Stats(request) => {
                ensure(request.since_ms > 0, "since_ms", || "must be more than 0".to_owned())?;
                check_ms("since_ms", request.since_ms, STATS_MS_MAX)?;
                let step_ms = request.step_ms.unwrap_or(STATS_STEP_MS_MIN);
                ensure(step_ms >= STATS_STEP_MS_MIN, "step_ms", || {
                    format!("must be at least {STATS_STEP_MS_MIN}")
                })?;
                check_ms("step_ms", step_ms, STATS_MS_MAX)
            }
            StoreRequest::ReportBlockedWrite(report) => {
                ensure(report.token > Token::NONE, "token", || "must be more than 0".to_owned())
            }
            StoreRequest::Contention(request) => check_prefix(request.prefix.as_ref()),
            StoreRequest::Get(_) | StoreRequest::Reopen { .. } | StoreRequest::Status => Ok(()),
        }
    }
}

/// Refuses what is not fine, and says why.
pub(super) fn ensure(
    fine: bool,
    field: &'static str,
    problem: impl FnOnce() -> String,
) -> Result<(), BadInput> {
    if fine { Ok(()) } else { Err(BadInput::new(field, problem())) }
}

/// Whether a request can be granted at all.
fn check_acquire(request: &AcquireLeaseRequest) -> Result<(), BadInput> {
    ttl::check(request.ttl_ms, TTL_MS_MIN)?;
    if let Some(max_age_ms) = request.max_age_ms {
        ttl::check_max_age(max_age_ms)?;
    }
    check_ms("wait", request.wait_ms, WAIT_MS_MAX)?;
    check_ms("age of the hold id", request.hold_id_age_ms, HOLD_AGE_MS_MAX)?;
    check_ms("yield time", request.preempt_within_ms.unwrap_or(0), YIELD_MS_MAX)?;
    let keys = request.any_of.len();
    ensure((1..=KEYS_PER_ACQUIRE_MAX).contains(&keys), "keys", || {
        format!("are {keys}; one acquire takes 1 to {KEYS_PER_ACQUIRE_MAX}")
    })?;
    let is_twice = |nth: usize| request.any_of[..nth].contains(&request.any_of[nth]);
    ensure(!(1..keys).any(is_twice), "keys", || "name the same key twice".to_owned())
}

/// Whether a stretch of time is no longer than it may be.
pub(super) fn check_ms(field: &'static str, ms: u64, max_ms: u64) -> Result<(), BadInput> {
    ensure(ms <= max_ms, field, || format!("is {ms} ms; the limit is {max_ms} ms"))
}

/// Whether so many items fit into one call.
pub(super) fn check_count(what: &'static str, count: usize, max: usize) -> Result<(), BadInput> {
    ensure(count <= max, what, || format!("are {count}; the limit of one call is {max}"))
}

/// Whether a page can have so many items.
pub(super) fn check_limit(limit: usize) -> Result<(), BadInput> {
    let problem = || format!("is {limit}; a page takes 1 to {PAGE_MAX}");
    ensure((1..=PAGE_MAX).contains(&limit), "limit", problem)
}

/// Whether a key can begin like this.
fn check_prefix(prefix: Option<&String>) -> Result<(), BadInput> {
    let bytes = prefix.map_or(0, String::len);
    let problem = || format!("has {bytes} bytes; the limit of a key is {KEY_BYTES_MAX}");
    ensure(bytes <= KEY_BYTES_MAX, "prefix", problem)
}
