//! A store under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::{AcquireLeaseRequest, CallContext, HoldRef, JobStore, LeaseStore, StoreError};
use fencehold_core::job::JobId;
use fencehold_core::{HoldId, Key, Owner, Task};

use crate::Failed;

/// A store, and which names are used on it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The store.
    pub store: Arc<dyn LeaseStore>,
    /// How it is called.
    pub call: CallContext,
    /// What every key begins with.
    prefix: String,
    /// Makes ids that no other run makes.
    seed: u64,
    next: Arc<AtomicU64>,
    next_key: Arc<AtomicU64>,
}

impl Target {
    /// A store whose keys begin with `prefix`. The seed is random: it tells the ids of this run from those of others.
    pub fn new(store: Arc<dyn LeaseStore>, call: CallContext, prefix: impl Into<String>, seed: u64) -> Self {
        Target { store, call, prefix: prefix.into(), seed, next: Arc::default(), next_key: Arc::default() }
    }

    /// A number that comes only once.
    pub fn fresh(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A key that comes only once in a run. Every run has the same: free keys, too, take room.
    pub fn fresh_key(&self) -> Result<Key, Failed> {
        self.key(format_args!("hold/{:013}", self.next_key.fetch_add(1, Ordering::Relaxed)))
    }

    /// A key.
    pub fn key(&self, name: std::fmt::Arguments<'_>) -> Result<Key, Failed> {
        Ok(Key::new(format!("{}/{name}", self.prefix))?)
    }

    /// A hold id.
    pub fn hold_id(&self) -> HoldId {
        let mut bits = [0; 16];
        bits[..8].copy_from_slice(&self.seed.to_le_bytes());
        bits[8..].copy_from_slice(&self.fresh().to_le_bytes());
        HoldId::from_random(bits)
    }

    /// An id of a job, and its number.
    pub fn job_id(&self) -> (JobId, u64) {
        let nth = self.fresh();
        let mut bits = [0; 10];
        // As the library's: those of one millisecond are in order.
        bits[..8].copy_from_slice(&self.seed.wrapping_add(nth).to_be_bytes());
        bits[8..].copy_from_slice(&self.seed.to_le_bytes()[..2]);
        (JobId::from_random(SystemClock.now().wall_ms, bits), nth)
    }

    /// Acquires a key for an owner and a task of 20 bytes each, waiting for it for up to `wait_ms`.
    pub async fn acquire(&self, key: &Key, ttl_ms: u64, wait_ms: u64) -> Result<HoldRef, Failed> {
        let (hold, owner) = (self.hold_id(), Owner::new("bench-owner-of-20-by")?);
        let request = AcquireLeaseRequest {
            task: Some(Task::new("bench-task-of-20-byt")?),
            wait_ms,
            ..AcquireLeaseRequest::new(key.clone(), hold, owner, ttl_ms)
        };
        let token = self.store.acquire(&self.call, request).await?.grant.token;
        Ok(HoldRef { key: key.clone(), hold_id: hold, token })
    }

    /// Releases a lease.
    pub async fn release(&self, hold: HoldRef) -> Result<(), Failed> {
        let key = hold.key.clone();
        match self.store.release(&self.call, vec![hold]).await?.into_iter().next() {
            Some(Err(refusal)) => Err(StoreError::Refused { key, refusal }.into()),
            _ => Ok(()),
        }
    }

    /// The jobs of the store.
    pub fn jobs(&self) -> Result<&dyn JobStore, Failed> {
        let store = self.store.capabilities().store.to_owned();
        let unsupported = || StoreError::Unsupported { store, message: "keep jobs".to_owned() };
        Ok(self.store.jobs().ok_or_else(unsupported)?)
    }
}
