//! What happens when there is a lot: a million held leases, and a hundred thousand that end at the same moment.

use std::time::{Duration, Instant};

use fencehold_contract::HoldRef;
use fencehold_core::limits::BATCH_MAX;
use fencehold_load::{Failed, Latencies, Measured, Target, hold_many, renew_all, together};

use crate::figure::Figure;

/// How much memory the process of this number (or `self`) has, in bytes.
pub(crate) fn resident_bytes(process: &str) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Takes many keys, many at a time.
pub(crate) async fn fill(target: &Target, many: usize, ttl_ms: u64) -> Result<Vec<HoldRef>, Failed> {
    const CLIENTS: usize = 512;
    let client = |nth: usize| {
        let target = target.clone();
        let share = many / CLIENTS + usize::from(nth < many % CLIENTS);
        async move { hold_many(&target, share, ttl_ms).await }
    };
    Ok(together((0..CLIENTS).map(client)).await?.concat())
}

/// The same, without keeping the holds: what is measured is the store, not the bench.
async fn fill_and_forget(target: &Target, many: usize) -> Result<(), Failed> {
    const STEP: usize = 20_000;
    for done in (0..many).step_by(STEP) {
        fill(target, STEP.min(many - done), 3_600_000).await?;
    }
    Ok(())
}

/// How much each of many held leases adds to this process, and how long it takes to open the directory again.
pub(crate) async fn many_held(
    open: impl Fn() -> Result<Target, Failed>,
    many: usize,
) -> Result<[Figure; 2], Failed> {
    let target = open()?;
    // What any store needs, however little is in it, is not growth.
    fill_and_forget(&target, 20_000).await?;
    let before = resident_bytes("self");
    fill_and_forget(&target, many).await?;
    let growth = resident_bytes("self").saturating_sub(before) as f64 / many as f64;
    target.store.close().await;
    drop(target);
    let started = Instant::now();
    let target = open()?;
    let status = target.store.status(&target.call).await?;
    let reopened = started.elapsed();
    target.store.close().await;
    let held = status.held_count;
    Ok([
        Figure::new(format!("memory of one held lease, of {held}: {growth:.0} bytes"), 0)
            .bar("at most 300 bytes", growth <= 300.0),
        Figure::new(format!("reopening with {held} held leases: {:.2} s", reopened.as_secs_f64()), 0)
            .bar("under 3 s", reopened < Duration::from_secs(3)),
    ])
}

/// How renewals fare while many leases end at the same moment.
pub(crate) async fn mass_expiry(target: &Target, many: usize) -> Result<Figure, Failed> {
    let ttl_ms = 10_000;
    let keeping = hold_many(target, 100, 60_000).await?;
    let ending = fill(target, many, ttl_ms).await?;
    // One renewal of all, sent at once: from here on they have one deadline.
    let renew = |holds: &[HoldRef]| {
        let (target, holds) = (target.clone(), holds.to_vec());
        async move { renew_all(&target, &holds).await }
    };
    together(ending.chunks(BATCH_MAX).map(renew)).await?;
    drop(ending);
    let deadline = Instant::now() + Duration::from_millis(ttl_ms);
    tokio::time::sleep(Duration::from_millis(ttl_ms - 500)).await;
    let held_before = target.store.status(&target.call).await?.held_count;
    let mut latencies = Latencies::default();
    let started = Instant::now();
    while Instant::now() < deadline + Duration::from_millis(2_500) {
        let before = Instant::now();
        renew_all(target, &keeping).await?;
        latencies.add(before.elapsed());
    }
    let done = latencies.len() * keeping.len() as u64;
    let measured = Measured { done, time: started.elapsed(), calls: vec![latencies] };
    let ended = held_before - target.store.status(&target.call).await?.held_count;
    let p99_us = measured.percentile_us(99.0);
    Ok(Figure::new(format!("renewals by 100 while {ended} leases end at one moment"), 1)
        .measured(&measured)
        .bar("p99 at most 50 ms", p99_us <= 50_000.0 && ended == many as u64))
}
