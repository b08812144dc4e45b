//! What a namespace may have: how many lease keys, and the longest ttl.
//!
//! Limits are in an object of their own. A handle reads it once a minute, and before it refuses something, so that taking a key costs
//! what it did. Keys are counted by listing them, and only where a limit was set and the key is new. There is nothing that
//! two writers of different objects could agree on, so those who come at the same time do not count each other.

use std::sync::PoisonError;
use std::time::Duration;

use fencehold_contract::quota::full_of_kept_keys;
use fencehold_contract::{Quota, QuotaRequest, QuotaUsage, QuotaView, StoreError};
use fencehold_core::Namespace;

use super::body::StoredLimits;
use super::change::{BACKOFF, KeyContext, ObjectCall};
use super::force::{ROUNDS_MAX, never_written};
use super::object_names;
use super::shared::{LIMIT, ObjectStoreInner};

/// How long a handle goes by what it has read.
const READ_AGAIN_AFTER_MS: u64 = 60_000;

impl ObjectCall<'_> {
    /// Sets limits, if that is asked for, and tells those of a namespace with what it has.
    pub(super) async fn limits(&self, request: &QuotaRequest) -> Result<QuotaView, StoreError> {
        if let Some(set) = &request.quota {
            set.check_of_leases(self.inner.can.store, self.inner.options.ttl_ms_min)?;
            self.set_limits((!request.all_namespaces).then_some(self.namespace), set)
                .await?;
        }
        let keys = self.inner.count_keys(self.namespace).await?;
        let limits = self.inner.read_limits(LIMIT).await?.of(self.namespace).or(Quota::USUAL);
        Ok(QuotaView { quota: limits, usage: QuotaUsage { key_count: keys, ..QuotaUsage::default() } })
    }

    /// Sets what is set, and leaves the rest. Once more does no harm.
    async fn set_limits(&self, whose: Option<&Namespace>, set: &Quota) -> Result<(), StoreError> {
        let mut last_why = "another caller came first each time".to_owned();
        let mut backoff = BACKOFF;
        for _ in 0..ROUNDS_MAX {
            let before = self.inner.read::<StoredLimits>(object_names::LIMITS, LIMIT).await?;
            let (version, mut kept) =
                before.map_or_else(Default::default, |(version, kept)| (Some(version), kept));
            kept.set(whose, set);
            if self
                .write_shared(object_names::LIMITS, version.as_ref(), &kept, &mut last_why)
                .await?
            {
                return Ok(());
            }
            backoff.pause().await;
        }
        Err(never_written(object_names::LIMITS, &last_why))
    }
}

impl ObjectStoreInner {
    /// Reads the limits, and remembers them.
    pub(super) async fn read_limits(&self, limit: Duration) -> Result<StoredLimits, StoreError> {
        let now_ms = self.clock.now().store_ms;
        let read = self.read(object_names::LIMITS, limit).await?;
        let kept: StoredLimits = read.map(|(_, kept)| kept).unwrap_or_default();
        let mut known = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((kept.clone(), now_ms));
        Ok(kept)
    }

    /// The limits as they were within the last minute.
    pub(super) async fn known_limits(&self, limit: Duration) -> Result<StoredLimits, StoreError> {
        let now_ms = self.clock.now().store_ms;
        let known = self.limits.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known.filter(|(_, read_at_ms)| now_ms.saturating_sub(*read_at_ms) < READ_AGAIN_AFTER_MS) {
            Some((kept, _)) => Ok(kept),
            None => self.read_limits(limit).await,
        }
    }

    /// Whether a key may be granted for so long; a new one, whether there is room for it.
    pub(super) async fn check_limits(
        &self,
        context: &KeyContext<'_>,
        ttl_ms: u64,
        is_new: bool,
    ) -> Result<(), StoreError> {
        let known = self.known_limits(context.limit).await?.of(context.call.namespace);
        if self.fits(&known, context.call.namespace, ttl_ms, is_new).await.is_ok() {
            return Ok(());
        }
        // Nothing is refused for what may no longer be so.
        let read = self.read_limits(context.limit).await?.of(context.call.namespace);
        self.fits(&read, context.call.namespace, ttl_ms, is_new).await
    }

    async fn fits(
        &self,
        limits: &Quota,
        namespace: &Namespace,
        ttl_ms: u64,
        is_new: bool,
    ) -> Result<(), StoreError> {
        limits.check_ttl(namespace, ttl_ms)?;
        match limits.max_keys {
            Some(limit) if is_new && self.count_keys(namespace).await? >= limit => {
                Err(full_of_kept_keys(namespace, limit))
            }
            _ => Ok(()),
        }
    }

    async fn count_keys(&self, namespace: &Namespace) -> Result<u64, StoreError> {
        let names = self.names(&object_names::folder(namespace)).await?;
        let keys = names.iter().filter(|name| object_names::has_prefix(name, namespace, ""));
        Ok(keys.count() as u64)
    }
}
