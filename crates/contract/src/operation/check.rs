//! Whether a question can be answered at all, told from the question alone: before it travels, and again where it is
//! decided. What passes fits into one frame of the socket, and so does its answer.

use fencehold_core::limits::{
    BATCH_MAX, HOLD_AGE_MS_MAX, KEY_BYTES_MAX, KEYS_PER_ACQUIRE_MAX, PAGE_MAX, TTL_MS_MIN, WAIT_MS_MAX,
    YIELD_MS_MAX,
};
use fencehold_core::{BadInput, ttl};

use super::StoreRequest;
use crate::{AcquireLeaseRequest, HoldRef, KeepFinished, RevokeTarget};

impl StoreRequest {
    /// Whether it can be answered at all.
    pub fn check(&self) -> Result<(), BadInput> {
        match self {
            StoreRequest::Acquire(request) => check_acquire(request),
            StoreRequest::Renew(holds) => check_batch("renewals", holds),
            StoreRequest::Release(holds) => check_batch("releases", holds),
            StoreRequest::Revoke { request, .. } => match &request.target {
                RevokeTarget::Prefix(prefix) => check_prefix(Some(prefix)),
                RevokeTarget::Key { .. } | RevokeTarget::Task(_) | RevokeTarget::Owner(_) => Ok(()),
            },
            StoreRequest::List(request) => {
                check_limit(request.limit)?;
                check_prefix(request.prefix.as_ref())
            }
            StoreRequest::Events(request) => {
                check_limit(request.limit)?;
                check_prefix(request.prefix.as_ref())
            }
            StoreRequest::Advance { increment: 0, .. } => {
                Err(BadInput::new("increment", "must be more than 0"))
            }
            StoreRequest::Job(ask) => ask.check(),
            StoreRequest::KeepFinished { ms } => KeepFinished::for_ms(*ms).map(drop),
            StoreRequest::Quota(request) => request.quota.map_or(Ok(()), |set| set.check()),
            StoreRequest::Get(_)
            | StoreRequest::Advance { .. }
            | StoreRequest::Reopen { .. }
            | StoreRequest::Status => Ok(()),
        }
    }
}

/// Whether a request can be granted at all.
fn check_acquire(request: &AcquireLeaseRequest) -> Result<(), BadInput> {
    let over = |field, ms: u64, max_ms: u64| {
        if ms > max_ms {
            return Err(BadInput::new(field, format!("is {ms} ms; the limit is {max_ms} ms")));
        }
        Ok(())
    };
    ttl::check(request.ttl_ms, TTL_MS_MIN)?;
    if let Some(max_age_ms) = request.max_age_ms {
        ttl::check_max_age(max_age_ms)?;
    }
    over("wait", request.wait_ms, WAIT_MS_MAX)?;
    over("age of the hold id", request.hold_id_age_ms, HOLD_AGE_MS_MAX)?;
    over("yield time", request.preempt_within_ms.unwrap_or(0), YIELD_MS_MAX)?;
    let keys = request.any_of.len();
    if keys == 0 || keys > KEYS_PER_ACQUIRE_MAX {
        return Err(BadInput::new(
            "keys",
            format!("are {keys}; one acquire takes 1 to {KEYS_PER_ACQUIRE_MAX}"),
        ));
    }
    if (1..keys).any(|nth| request.any_of[..nth].contains(&request.any_of[nth])) {
        return Err(BadInput::new("keys", "name the same key twice"));
    }
    Ok(())
}

/// Whether so many holds fit into one call.
fn check_batch(what: &'static str, holds: &[HoldRef]) -> Result<(), BadInput> {
    if holds.len() > BATCH_MAX {
        return Err(BadInput::new(
            what,
            format!("are {}; the limit of one call is {BATCH_MAX}", holds.len()),
        ));
    }
    Ok(())
}

/// Whether a page can have so many items.
fn check_limit(limit: usize) -> Result<(), BadInput> {
    if limit == 0 || limit > PAGE_MAX {
        return Err(BadInput::new("limit", format!("is {limit}; a page takes 1 to {PAGE_MAX}")));
    }
    Ok(())
}

/// Whether a key can begin like this.
fn check_prefix(prefix: Option<&String>) -> Result<(), BadInput> {
    let bytes = prefix.map_or(0, String::len);
    if bytes > KEY_BYTES_MAX {
        return Err(BadInput::new(
            "prefix",
            format!("has {bytes} bytes; the limit of a key is {KEY_BYTES_MAX}"),
        ));
    }
    Ok(())
}
