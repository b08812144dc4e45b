//! What each namespace may have, and has. It is counted in the step that adds or removes it, so what is looked at is what is there.

use fencehold_contract::quota::{Limited, full};
use fencehold_contract::{Quota, QuotaRequest, QuotaUsage, QuotaView, StoreError};
use fencehold_core::{BadInput, Namespace};
use hashbrown::HashMap;

use super::persistence::Change;
use super::state::Engine;
use super::table::NOWHERE;

/// What was set.
#[derive(Debug, Default)]
pub(super) struct LimitsSet {
    every: Quota,
    own: HashMap<Namespace, Quota>,
}

impl LimitsSet {
    pub(super) fn put(&mut self, namespace: Option<Namespace>, limits: Quota) {
        match namespace {
            Some(namespace) => drop(self.own.insert(namespace, limits)),
            None => self.every = limits,
        }
    }

    /// Those that are in force in a namespace.
    fn of(&self, namespace: &Namespace) -> Quota {
        let own = self.own.get(namespace).copied().unwrap_or_default();
        own.or(self.every).or(Quota::USUAL)
    }
}

impl Engine {
    /// Sets limits, if that is asked for, and tells those that are in force.
    pub(super) fn quota(&mut self, namespace: &Namespace, request: &QuotaRequest) -> QuotaView {
        if let Some(set) = request.quota {
            let whose = (!request.all_namespaces).then(|| namespace.clone());
            let before = match &whose {
                Some(namespace) => self.limits.own.get(namespace).copied().unwrap_or_default(),
                None => self.limits.every,
            };
            let limits = set.or(before);
            self.limits.put(whose.clone(), limits);
            self.batch.others.push(Change::Limits { namespace: whose, limits });
            self.batch.durable = true;
        }
        let space = self.table.find_space(namespace).unwrap_or(NOWHERE);
        let used = self.table.space_at(space).map(|space| space.used).unwrap_or_default();
        let used = QuotaUsage { schedule_count: self.jobs.schedules_in(space), ..used };
        QuotaView { quota: self.limits.of(namespace), usage: used }
    }

    /// Whether a lease or a claim in a namespace may have this ttl.
    pub(super) fn check_ttl(&self, space: u32, ttl_ms: u64) -> Result<(), BadInput> {
        let Some(space) = self.table.space_at(space) else { return Ok(()) };
        self.limits.of(&space.name).check_ttl(&space.name, ttl_ms)
    }

    /// Whether a namespace has room for one more of something; of bytes, for so many more.
    pub(super) fn check_quota(&self, space: u32, limited: Limited, more: u64) -> Result<(), StoreError> {
        let Some(at) = self.table.space_at(space) else { return Ok(()) };
        let limits = self.limits.of(&at.name);
        let (has, limit) = match limited {
            Limited::Queues => (at.used.queue_count, limits.max_queues),
            Limited::Keys => (at.used.key_count, limits.max_keys),
            Limited::Jobs => (at.used.job_count, limits.max_jobs),
            Limited::Bytes => (at.used.payload_bytes, limits.max_bytes),
            Limited::Schedules => (self.jobs.schedules_in(space), limits.max_schedules),
        };
        match limit {
            Some(limit) if has.saturating_add(more) > limit => Err(full(limited, &at.name, limit)),
            _ => Ok(()),
        }
    }
}
