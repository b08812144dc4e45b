//! For stores that keep the records of [`fencehold_core::lease`]: which command a request is, which holds it means, and what
//! people may see of one.

use std::num::NonZeroU64;

use fencehold_core::lease::{Acquire, Hold};
use fencehold_core::{Key, Owner, Task};

use crate::{AcquireLeaseRequest, HolderView, ListLeasesRequest, RevokeTarget};

/// What takes one of the keys of a request. What was seen of the first key says nothing of another.
pub fn acquire(request: &AcquireLeaseRequest, key: &Key) -> Acquire {
    Acquire {
        hash: request.hold_id.hash(),
        hold_age_ms: request.hold_id_age_ms,
        owner: request.owner.clone(),
        task: request.task.clone(),
        ttl_ms: request.ttl_ms,
        max_age_ms: request.max_age_ms.and_then(NonZeroU64::new),
        priority: request.priority,
        seen_token: request.seen_token.filter(|_| request.any_of.first() == Some(key)),
    }
}

/// Whether the hold on a key is to be ended.
pub fn is_meant(target: &RevokeTarget, key: &Key, hold: &Hold) -> bool {
    match target {
        RevokeTarget::Key { key: meant, .. } => meant == key,
        RevokeTarget::Task(task) => hold.task.as_ref() == Some(task),
        RevokeTarget::Owner(owner) => hold.owner == *owner,
        RevokeTarget::Prefix(prefix) => key.as_str().starts_with(prefix.as_str()),
        RevokeTarget::TaskPrefix(above) => hold.task.as_ref().is_some_and(|task| above.covers(task)),
    }
}

/// Whether a key is listed on which this hold is live; `None`: it is free.
pub fn is_listed(request: &ListLeasesRequest, live: Option<&Hold>) -> bool {
    let owner = |wanted: &Owner| live.is_some_and(|hold| hold.owner == *wanted);
    let task = |wanted: &Task| live.is_some_and(|hold| hold.task.as_ref() == Some(wanted));
    let below =
        |above: &Task| live.and_then(|hold| hold.task.as_ref()).is_some_and(|task| above.covers(task));
    (live.is_some() || request.include_free)
        && request.owner.as_ref().is_none_or(owner)
        && request.task.as_ref().is_none_or(task)
        && request.task_prefix.as_ref().is_none_or(below)
}

/// What people may see of a live hold, where no holder is asked to yield.
pub fn holder_view(hold: &Hold, age_ms: u64, remaining_ms: u64, renewed_ago_ms: Option<u64>) -> HolderView {
    HolderView {
        owner: hold.owner.clone(),
        task: hold.task.clone(),
        ttl_ms: hold.ttl_ms,
        max_age_ms: hold.max_age_ms.map(NonZeroU64::get),
        priority: hold.priority,
        age_ms,
        acquired_at_ms: hold.since.wall_ms,
        remaining_ms,
        renewed_ago_ms,
        yield_request: None,
    }
}
