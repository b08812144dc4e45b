//! The load of leases.

use fencehold_contract::{HoldRef, StoreError};
use fencehold_core::Key;

use crate::{Failed, LoadClient, Target, Timer};

const TTL_MS: u64 = 30_000;
/// How long a client waits for its keys before the first round: those of a run that was killed end by themselves.
const WAIT_MS: u64 = 60_000;

/// Acquires a key of its own and releases it. Counts pairs; the calls are acquire and release.
#[derive(Debug)]
pub struct AcquireRelease {
    target: Target,
    key: Key,
}

impl AcquireRelease {
    /// So many clients.
    pub fn clients(target: &Target, clients: usize) -> Result<Vec<Self>, Failed> {
        (0..clients)
            .map(|nth| {
                Ok(AcquireRelease { target: target.clone(), key: target.key(format_args!("{nth:08}"))? })
            })
            .collect()
    }
}

impl LoadClient for AcquireRelease {
    async fn begin(&mut self) -> Result<(), Failed> {
        let hold = self.target.acquire(&self.key, TTL_MS, WAIT_MS).await?;
        self.target.release(hold).await
    }

    async fn round(&mut self, timer: &Timer) -> Result<u64, Failed> {
        let hold = timer.time(0, self.target.acquire(&self.key, TTL_MS, 0)).await?;
        timer.time(1, self.target.release(hold)).await?;
        Ok(1)
    }
}

/// Renews a batch of leases of its own. Counts renewals; the one call renews the batch.
#[derive(Debug)]
pub struct BatchRenewals {
    target: Target,
    batch: usize,
    holds: Vec<HoldRef>,
}

impl BatchRenewals {
    /// So many clients, each with a batch.
    pub fn clients(target: &Target, clients: usize, batch: usize) -> Vec<Self> {
        let client = |_| BatchRenewals { target: target.clone(), batch, holds: Vec::new() };
        (0..clients).map(client).collect()
    }
}

impl LoadClient for BatchRenewals {
    async fn begin(&mut self) -> Result<(), Failed> {
        self.holds = hold_many(&self.target, self.batch, TTL_MS).await?;
        Ok(())
    }

    async fn round(&mut self, timer: &Timer) -> Result<u64, Failed> {
        timer.time(0, renew_all(&self.target, &self.holds)).await?;
        Ok(self.holds.len() as u64)
    }

    async fn end(self) -> Result<(), Failed> {
        self.target.store.release(&self.target.call, self.holds).await?;
        Ok(())
    }
}

/// Acquires so many keys, one after the other.
pub async fn hold_many(target: &Target, many: usize, ttl_ms: u64) -> Result<Vec<HoldRef>, Failed> {
    let mut holds = Vec::with_capacity(many);
    for _ in 0..many {
        holds.push(target.acquire(&target.fresh_key()?, ttl_ms, WAIT_MS).await?);
    }
    Ok(holds)
}

/// Renews leases that must all be live.
pub async fn renew_all(target: &Target, holds: &[HoldRef]) -> Result<(), Failed> {
    let renewed = target.store.renew(&target.call, holds.to_vec()).await?;
    let mut answers = renewed.results.into_iter().zip(holds);
    match answers.find_map(|(answer, hold)| Some((answer.err()?, hold))) {
        Some((refusal, hold)) => Err(StoreError::Refused { key: hold.key.clone(), refusal }.into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use fencehold_contract::CallContext;
    use fencehold_contract::clock::SystemClock;
    use fencehold_core::Namespace;
    use fencehold_engine::MemoryStore;

    use super::*;
    use crate::{JobLives, run};

    fn target() -> Target {
        let store = Arc::new(MemoryStore::open(Arc::new(SystemClock)).unwrap());
        Target::new(store, CallContext::new(Namespace::default()), "load", 7)
    }

    #[tokio::test]
    async fn every_client_does_a_round_however_short_the_time_is_and_holds_nothing_afterwards() {
        let target = target();
        let pairs = run(AcquireRelease::clients(&target, 3).unwrap(), Duration::ZERO).await.unwrap();
        assert_eq!((pairs.done, pairs.calls.len(), pairs.calls[1].len()), (3, 2, 3));
        let renewed = run(BatchRenewals::clients(&target, 2, 5), Duration::ZERO).await.unwrap();
        assert_eq!((renewed.done, renewed.calls.len(), renewed.calls[0].len()), (10, 1, 2));
        let lives = JobLives::clients(&target, 4, "load", 2).unwrap();
        let lives = run(lives, Duration::ZERO).await.unwrap();
        assert_eq!((lives.done, lives.calls.len()), (8, 3));
        let status = target.store.status(&target.call).await.unwrap();
        assert_eq!(status.held_count, 0, "{status:?}");
    }

    #[tokio::test]
    async fn a_lease_that_is_lost_meanwhile_is_a_failure() {
        let target = target();
        let holds = hold_many(&target, 2, TTL_MS).await.unwrap();
        renew_all(&target, &holds).await.unwrap();
        target.release(holds[1].clone()).await.unwrap();
        let failed = renew_all(&target, &holds).await.unwrap_err().to_string();
        assert!(failed.contains(holds[1].key.as_str()), "{failed}");
    }
}
