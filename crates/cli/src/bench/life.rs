//! The life of a job, over and over: enqueued, claimed, completed.

use std::time::{Duration, Instant};

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::job::{AttemptRef, ClaimRequest, NewJob, Report, Word};
use fencehold_contract::{JobStore, StoreError};
use fencehold_core::Owner;
use fencehold_core::job::{JobId, Kind, Queue};

use super::load::{Measured, Subject, fresh, hold_id, repeat};
use super::percentile::Latencies;

/// How long a payload is.
pub(super) const PAYLOAD_BYTES: usize = 300;
/// What the three calls of a life carry: the payload with an id, names and terms; a claim with its hold id and owner; a
/// completion with its proof.
pub(super) const LIFE_BYTES: [usize; 3] = [PAYLOAD_BYTES + 60, 64, 48];

pub(super) fn queue() -> Result<Queue, StoreError> {
    Ok(Queue::new("bench")?)
}

pub(super) fn jobs(subject: &Subject) -> Result<&dyn JobStore, StoreError> {
    let unsupported = || StoreError::Unsupported { store: "file:".to_owned(), what: "keep jobs".to_owned() };
    subject.store.jobs().ok_or_else(unsupported)
}

/// An id that nobody else in this run has, and its number.
pub(super) fn new_id() -> (JobId, u64) {
    let nth = fresh();
    let mut bits = [0; 10];
    bits[..8].copy_from_slice(&nth.to_be_bytes());
    bits[8..].copy_from_slice(&std::process::id().to_be_bytes()[2..]);
    (JobId::from_random(SystemClock.now().wall_ms, bits), nth)
}

/// A job with a payload of the usual length.
pub(super) fn new_job() -> Result<NewJob, StoreError> {
    let (id, nth) = new_id();
    let payload = format!("{{\"nth\":\"{nth:0width$}\"}}", width = PAYLOAD_BYTES - 10);
    Ok(NewJob::new(id, queue()?, Kind::new("bench")?, payload))
}

/// Enqueues many, by a thousand.
pub(super) async fn enqueue_many(subject: &Subject, many: usize) -> Result<(), StoreError> {
    const STEP: usize = 1_000;
    for done in (0..many).step_by(STEP) {
        let batch: Result<Vec<NewJob>, StoreError> = (0..STEP.min(many - done)).map(|_| new_job()).collect();
        for answer in jobs(subject)?.enqueue(&subject.call, batch?).await? {
            answer.map_err(refused)?;
        }
    }
    Ok(())
}

/// Every client enqueues a job, claims one (the oldest there is) and completes it. Counts lives; the latency is that of
/// the enqueue.
pub(super) async fn lives(subject: &Subject, clients: usize, time: Duration) -> Result<Measured, StoreError> {
    lives_by(subject, clients, 1, time).await
}

/// The same with so many jobs in each call.
pub(super) async fn lives_by(
    subject: &Subject,
    clients: usize,
    batch: usize,
    time: Duration,
) -> Result<Measured, StoreError> {
    repeat(subject, clients, time, move |subject, client| async move {
        let mut latencies = Latencies::default();
        let owner = Owner::new("bench-owner-of-20-by")?;
        let started = Instant::now();
        let mut done = 0;
        while started.elapsed() < time {
            let new: Result<Vec<NewJob>, StoreError> = (0..batch).map(|_| new_job()).collect();
            let new = new?;
            let before = Instant::now();
            for answer in jobs(&subject)?.enqueue(&subject.call, new).await? {
                answer.map_err(refused)?;
            }
            latencies.add(before.elapsed());
            let hold = hold_id(client, fresh());
            let request = ClaimRequest {
                queues: vec![(queue()?, 1)],
                limit: batch,
                hold,
                owner: owner.clone(),
                ttl_ms: 60_000,
                wait_ms: 60_000,
                waited_before_ms: 0,
            };
            let claimed = jobs(&subject)?.claim(&subject.call, request).await?;
            let reports = claimed.jobs.into_iter().map(|job| Report {
                attempt: AttemptRef { job: job.id, hold, token: job.token },
                word: Word::Complete { result: None },
            });
            for answer in jobs(&subject)?.report(&subject.call, reports.collect()).await? {
                answer.map_err(refused)?;
                done += 1;
            }
        }
        Ok((done, latencies))
    })
    .await
}

pub(super) fn refused(refusal: fencehold_core::job::Refusal) -> StoreError {
    StoreError::Unknown { why: format!("refused: {refusal}") }
}
