//! What happens when there is a lot: a million held leases, and a hundred thousand that end at the same moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencehold_contract::{HoldRef, StoreError};
use fencehold_core::limits::BATCH_MAX;
use tokio::task::JoinSet;

use super::Line;
use super::load::{self, Measured, Subject};
use super::percentile::Latencies;

/// How much memory this process has, in bytes.
pub(super) fn resident_bytes() -> u64 {
    resident_bytes_of("self")
}

/// How much memory the process of this number has, in bytes.
pub(super) fn resident_bytes_of(process: &str) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Takes many keys, many at a time.
pub(super) async fn fill(subject: &Subject, many: usize, ttl_ms: u64) -> Result<Vec<HoldRef>, StoreError> {
    const CLIENTS: usize = 512;
    let mut running = JoinSet::new();
    for client in 0..CLIENTS {
        let subject = subject.clone();
        let share = many / CLIENTS + usize::from(client < many % CLIENTS);
        running.spawn(async move { load::hold_many(&subject, client, share, ttl_ms).await });
    }
    let mut holds = Vec::new();
    while let Some(ended) = running.join_next().await {
        holds.extend(
            ended
                .map_err(|error| StoreError::Unknown { why: error.to_string() })
                .flatten()?,
        );
    }
    Ok(holds)
}

/// The same, without keeping the holds: what is measured is the store, not the bench.
async fn fill_and_forget(subject: &Subject, many: usize) -> Result<(), StoreError> {
    const STEP: usize = 20_000;
    for done in (0..many).step_by(STEP) {
        fill(subject, STEP.min(many - done), 3_600_000).await?;
    }
    Ok(())
}

/// How much each of many held leases adds to this process, and how long it takes to open the directory again.
pub(super) async fn many_held(
    open: impl Fn() -> Result<Arc<dyn fencehold_contract::LeaseStore>, StoreError>,
    many: usize,
) -> Result<Vec<Line>, StoreError> {
    let subject = Subject::new(open()?);
    // What any store needs, however little is in it, is not growth.
    fill_and_forget(&subject, 20_000).await?;
    let before = resident_bytes();
    fill_and_forget(&subject, many).await?;
    let growth = resident_bytes().saturating_sub(before) as f64 / many as f64;
    subject.store.close().await;
    drop(subject);
    let started = Instant::now();
    let subject = Subject::new(open()?);
    let status = subject.store.status(&subject.call).await?;
    let reopened = started.elapsed();
    subject.store.close().await;
    let held = status.held;
    Ok(vec![
        Line::new(format!("memory of one held lease, of {held}: {growth:.0} bytes"), 0)
            .bar("at most 300 bytes", growth <= 300.0),
        Line::new(format!("reopening with {held} held leases: {:.2} s", reopened.as_secs_f64()), 0)
            .bar("under 3 s", reopened < Duration::from_secs(3)),
    ])
}

/// How renewals fare while many leases end at the same moment.
pub(super) async fn mass_expiry(subject: &Subject, many: usize) -> Result<Line, StoreError> {
    let ttl_ms = 10_000;
    let keeping = load::hold_many(subject, 0, 100, 60_000).await?;
    let ending = fill(subject, many, ttl_ms).await?;
    // One renewal of all, sent at once: from here on they have one deadline.
    let mut renewing = JoinSet::new();
    for holds in ending.chunks(BATCH_MAX) {
        let (subject, holds) = (subject.clone(), holds.to_vec());
        renewing.spawn(async move { load::renew_all(&subject, &holds).await });
    }
    while let Some(renewed) = renewing.join_next().await {
        renewed
            .map_err(|error| StoreError::Unknown { why: error.to_string() })
            .flatten()?;
    }
    drop(ending);
    let deadline = Instant::now() + Duration::from_millis(ttl_ms);
    tokio::time::sleep(Duration::from_millis(ttl_ms - 500)).await;
    let held_before = subject.store.status(&subject.call).await?.held;
    let mut latencies = Latencies::default();
    let started = Instant::now();
    let mut done = 0;
    while Instant::now() < deadline + Duration::from_millis(2_500) {
        let before = Instant::now();
        load::renew_all(subject, &keeping).await?;
        latencies.add(before.elapsed());
        done += keeping.len() as u64;
    }
    latencies.sort();
    let measured = Measured { done, time: started.elapsed(), latencies };
    let ended = held_before - subject.store.status(&subject.call).await?.held;
    let p99_us = measured.latencies.at(99.0);
    Ok(Line::new(format!("renewals by 100 while {ended} leases end at one moment"), 1)
        .measured(&measured)
        .bar("p99 at most 50 ms", p99_us <= 50_000.0 && ended == many as u64))
}
