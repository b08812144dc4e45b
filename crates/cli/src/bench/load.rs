//! Clients that do one thing over and over, as fast as they are answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencehold_contract::{AcquireRequest, Call, HoldRef, LeaseStore, StoreError};
use fencehold_core::{HoldId, Key, Namespace, Owner, Task, Token};
use tokio::task::JoinSet;

use super::percentile::Latencies;

/// What a number of clients did in some time.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) done: u64,
    pub(super) time: Duration,
    /// Of one call each.
    pub(super) latencies: Latencies,
}

impl Measured {
    pub(super) fn per_second(&self) -> f64 {
        self.done as f64 / self.time.as_secs_f64()
    }

    /// Takes in another slice of the same measurement.
    pub(super) fn add(&mut self, slice: Measured) {
        self.done += slice.done;
        self.time += slice.time;
        self.latencies.merge(slice.latencies);
    }

    /// Ready to be looked at.
    pub(super) fn sorted(mut self) -> Self {
        self.latencies.sort();
        self
    }
}

/// A store under load.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) store: Arc<dyn LeaseStore>,
    pub(super) call: Call,
}

impl Subject {
    pub(super) fn new(store: Arc<dyn LeaseStore>) -> Self {
        Subject { store, call: Call::new(Namespace::default()).with_patience_ms(60_000) }
    }

    /// Takes a key with a 20-byte owner and a 20-byte task.
    pub(super) async fn take(&self, key: Key, hold: HoldId, ttl_ms: u64) -> Result<Token, StoreError> {
        let owner = Owner::new("bench-owner-of-20-by")?;
        let mut request = AcquireRequest::new(key, hold, owner, ttl_ms);
        request.task = Some(Task::new("bench-task-of-20-byt")?);
        self.store
            .acquire(&self.call, request)
            .await
            .map(|acquired| acquired.grant.token)
    }

    pub(super) async fn give_back(&self, hold: HoldRef) -> Result<(), StoreError> {
        let key = hold.key.clone();
        let answers = self.store.release(&self.call, vec![hold]).await?;
        match answers.into_iter().next() {
            Some(Err(refusal)) => Err(StoreError::Refused { key, refusal }),
            _ => Ok(()),
        }
    }
}

/// A hold id that nobody else in this run has.
pub(super) fn hold_id(client: usize, nth: u64) -> HoldId {
    let mut bits = [0; 16];
    bits[..8].copy_from_slice(&nth.to_le_bytes());
    bits[8..12].copy_from_slice(&u32::try_from(client).unwrap_or(u32::MAX).to_le_bytes());
    bits[12..].copy_from_slice(&std::process::id().to_le_bytes());
    HoldId::from_random(bits)
}

/// Every client takes its own key and gives it back. Counts pairs; the latency is that of taking.
pub(super) async fn pairs(subject: &Subject, clients: usize, time: Duration) -> Result<Measured, StoreError> {
    repeat(subject, clients, time, |subject, client| async move {
        let key = Key::new(format!("bench/{}/{client:08}", std::process::id()))?;
        let mut latencies = Latencies::default();
        let started = Instant::now();
        let mut done = 0;
        while started.elapsed() < time {
            let hold = hold_id(client, fresh());
            let before = Instant::now();
            let token = subject.take(key.clone(), hold, 60_000).await?;
            latencies.add(before.elapsed());
            subject.give_back(HoldRef { key: key.clone(), hold, token }).await?;
            done += 1;
        }
        Ok((done, latencies))
    })
    .await
}

/// Numbers that do not come back in this process.
pub(super) fn fresh() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Every client renews a batch of its own holds over and over. Counts renewals; the latency is that of a batch.
pub(super) async fn renewals(
    subject: &Subject,
    clients: usize,
    batch: usize,
    time: Duration,
) -> Result<Measured, StoreError> {
    repeat(subject, clients, time, move |subject, client| async move {
        let holds = hold_many(&subject, client, batch, 60_000).await?;
        let mut latencies = Latencies::default();
        let started = Instant::now();
        let mut done = 0;
        while started.elapsed() < time {
            let before = Instant::now();
            renew_all(&subject, &holds).await?;
            latencies.add(before.elapsed());
            done += batch as u64;
        }
        // Those that are not live any more were refused above.
        subject.store.release(&subject.call, holds).await?;
        Ok((done, latencies))
    })
    .await
}

/// Takes so many keys, each its own.
pub(super) async fn hold_many(
    subject: &Subject,
    client: usize,
    many: usize,
    ttl_ms: u64,
) -> Result<Vec<HoldRef>, StoreError> {
    let mut holds = Vec::with_capacity(many);
    for _ in 0..many {
        let nth = fresh();
        let key = Key::new(format!("bench/hold/{nth:013}"))?;
        let hold = hold_id(client, nth);
        let token = subject.take(key.clone(), hold, ttl_ms).await?;
        holds.push(HoldRef { key, hold, token });
    }
    Ok(holds)
}

/// Renews holds that must all be live.
pub(super) async fn renew_all(subject: &Subject, holds: &[HoldRef]) -> Result<(), StoreError> {
    let renewed = subject.store.renew(&subject.call, holds.to_vec()).await?;
    let refused = renewed
        .answers
        .into_iter()
        .zip(holds)
        .find_map(|(answer, hold)| Some((answer.err()?, hold)));
    match refused {
        Some((refusal, hold)) => Err(StoreError::Refused { key: hold.key.clone(), refusal }),
        None => Ok(()),
    }
}

/// Runs clients side by side and adds up what they did.
pub(super) async fn repeat<F, R>(
    subject: &Subject,
    clients: usize,
    time: Duration,
    client: F,
) -> Result<Measured, StoreError>
where
    F: Fn(Subject, usize) -> R,
    R: Future<Output = Result<(u64, Latencies), StoreError>> + Send + 'static,
{
    let mut running = JoinSet::new();
    for nth in 0..clients {
        running.spawn(client(subject.clone(), nth));
    }
    let mut measured = Measured { done: 0, time, latencies: Latencies::default() };
    while let Some(ended) = running.join_next().await {
        let (done, latencies) = ended
            .map_err(|error| StoreError::Unknown { why: error.to_string() })
            .flatten()?;
        measured.done += done;
        measured.latencies.merge(latencies);
    }
    measured.latencies.sort();
    Ok(measured)
}
