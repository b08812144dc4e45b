//! What all calls of a handle share, and reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fencehold_contract::clock::Clock;
use fencehold_contract::contention::HandleContention;
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::{Capabilities, ObjectOptions, StoreError};
use fencehold_core::lease::LeaseRecord;
use fencehold_core::{Key, Namespace, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::body::{Floor, StoredLimits, decode, encode};
use super::cas::{Cas, CasError, ObjectVersion, WriteResult};
use super::change::ObjectCall;
use super::observations::{Observations, ObservedVersion, closed_in_ms};
use super::{NonceSeed, object_names};

/// How long one request may take where no ttl says so.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// One request gets this part of a ttl, so that there is time for more than one.
const LIMIT_PART: u64 = 6;
/// No request gets less: a short ttl makes no network faster.
const LIMIT_MS_MIN: u64 = 250;

/// What all calls of a handle share.
pub(super) struct ObjectStoreInner {
    pub(super) cas: Arc<dyn Cas>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) can: Capabilities,
    /// Its URL, without anything secret.
    pub(super) place: String,
    pub(super) options: ObjectOptions,
    pub(super) seen: Observations,
    pub(super) nonces: Nonces,
    /// The floor as it was last read, and since when.
    floor: std::sync::Mutex<Option<ObservedVersion<Floor>>>,
    /// The limits as they were last read, and when.
    pub(super) limits: std::sync::Mutex<Option<(StoredLimits, u64)>>,
    longest_ttl_ms: AtomicU64,
    /// What came of this handle's own writes.
    pub(super) measures: StoreMetrics,
    /// What this handle's own callers contended for.
    pub(super) contention: HandleContention,
}

impl ObjectStoreInner {
    pub(super) fn new(
        cas: Arc<dyn Cas>,
        clock: Arc<dyn Clock>,
        can: Capabilities,
        place: String,
        options: ObjectOptions,
        seed: NonceSeed,
    ) -> Self {
        ObjectStoreInner {
            contention: HandleContention::new(Arc::clone(&clock)),
            cas,
            clock,
            can,
            place,
            options,
            seen: Observations::default(),
            nonces: Nonces { seed, next: AtomicU64::new(0) },
            floor: std::sync::Mutex::default(),
            limits: std::sync::Mutex::default(),
            longest_ttl_ms: AtomicU64::new(0),
            measures: StoreMetrics::counts_only(),
        }
    }

    /// How long one request about a lease of this ttl may take.
    pub(super) fn limit(ttl_ms: u64) -> Duration {
        Duration::from_millis((ttl_ms / LIMIT_PART).max(LIMIT_MS_MIN)).min(LIMIT)
    }

    /// Reads one object, and remembers since when it is what it is.
    pub(super) async fn look(
        &self,
        name: &str,
        limit: Duration,
    ) -> Result<Option<ObservedVersion>, StoreError> {
        let began = self.seen.begin();
        let Some(object) = self.read(name, limit).await? else {
            self.seen.absent(name, began);
            return Ok(None);
        };
        // Only now: it may have been written at any moment before the answer arrived.
        let now_ms = self.clock.now().store_ms;
        Ok(Some(self.seen.saw(name, began, object, now_ms)))
    }

    /// What is in an object, and which version of it that is.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        name: &str,
        limit: Duration,
    ) -> Result<Option<(ObjectVersion, T)>, StoreError> {
        let read = self.cas.read(name, limit).await;
        let Some(object) = read.map_err(|error| self.refusal(error))? else { return Ok(None) };
        let body = decode(&object.body).map_err(|problem| self.unreadable(name, &problem))?;
        Ok(Some((object.version, body)))
    }

    /// What an error of the storage means for a caller.
    pub(super) fn refusal(&self, error: CasError) -> StoreError {
        error.into_store_error(&self.place)
    }

    pub(super) fn record_of(
        &self,
        key: &Key,
        seen: Option<&ObservedVersion>,
    ) -> Result<LeaseRecord, StoreError> {
        let Some(seen) = seen else { return Ok(LeaseRecord::default()) };
        if seen.body.key != *key {
            let problem = format!("it is the object of another key, {}", seen.body.key);
            return Err(self.unreadable(key.as_str(), &problem));
        }
        seen.record().map_err(|problem| self.unreadable(key.as_str(), &problem))
    }

    pub(super) fn unreadable(&self, what: &str, problem: &str) -> StoreError {
        StoreError::Unusable {
            store: self.place.clone(),
            message: format!("{what} cannot be read: {problem}"),
        }
    }

    /// The floor that `store advance` has left for keys without a record; while it keeps those of this namespace closed,
    /// for how long.
    pub(super) async fn floor_of_new_keys(
        &self,
        namespace: &Namespace,
        limit: Duration,
    ) -> Result<Result<Token, u64>, StoreError> {
        let Some(seen) = self.look_at_floor(limit).await? else { return Ok(Ok(Token::NONE)) };
        let closed_ms = closed_in_ms(seen.base_ms, seen.body.closed_ms_in(namespace), self.clock.now());
        Ok(closed_ms.map_or(Ok(seen.body.token), Err))
    }

    /// An error if the bucket is known to be missing.
    pub(super) async fn reach(&self, limit: Duration) -> Result<(), StoreError> {
        self.cas.reach(limit).await.map_err(|error| self.refusal(error))
    }

    /// Reads the floor, and remembers since when it is what it is.
    pub(super) async fn look_at_floor(
        &self,
        limit: Duration,
    ) -> Result<Option<ObservedVersion<Floor>>, StoreError> {
        let Some((version, body)) = self.read::<Floor>(object_names::FLOOR, limit).await? else {
            return Ok(None);
        };
        let mut known = self.floor.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = known.as_ref()
            && known.version == version
            && known.body.nonce == body.nonce
        {
            return Ok(Some(known.clone()));
        }
        let base_ms = self.clock.now().store_ms;
        *known = Some(ObservedVersion { version, body, base_ms, own: false, noted: 0 });
        Ok(known.clone())
    }

    /// The longest ttl that an advance has come across.
    pub(super) fn longest_ttl_ms(&self) -> u64 {
        self.longest_ttl_ms.load(Ordering::SeqCst)
    }

    pub(super) fn note_longest_ttl_ms(&self, ttl_ms: u64) {
        self.longest_ttl_ms.fetch_max(ttl_ms, Ordering::SeqCst);
    }
}

impl ObjectCall<'_> {
    /// Writes an object that is no lease's, unless another writer came first. False: it did, or the outcome is not known, as
    /// `last_why` then says.
    pub(super) async fn write_shared(
        &self,
        name: &str,
        version: Option<&ObjectVersion>,
        body: &impl Serialize,
        last_why: &mut String,
    ) -> Result<bool, StoreError> {
        let ObjectCall { inner, doubt, .. } = self;
        doubt.begin();
        match inner.cas.write(name, version, encode(body), LIMIT).await {
            Ok(WriteResult::Won(_)) => return Ok(true),
            Ok(WriteResult::Lost) => doubt.dispel(),
            Ok(WriteResult::Unknown { why }) => {
                doubt.note(name, &why);
                *last_why = why;
            }
            Err(error) => {
                doubt.dispel();
                return Err(inner.refusal(error));
            }
        }
        Ok(false)
    }
}

/// Unique numbers: a random seed, and a count.
#[derive(Debug)]
pub(super) struct Nonces {
    seed: NonceSeed,
    next: AtomicU64,
}

impl Nonces {
    pub(super) fn next(&self) -> String {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{:032x}-{next}", u128::from_be_bytes(self.seed.0))
    }
}
