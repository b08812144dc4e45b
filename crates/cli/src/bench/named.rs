//! `bench lease|job --store URL`: a store that somebody runs already, and what each thing costs there in requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencehold_contract::{HoldRef, LeaseStore};
use fencehold_core::Key;

use super::load::{self, Measured, Subject, fresh, hold_id};
use super::percentile::Latencies;
use super::{Failed, Line, life, scale};

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How many clients at once, one measurement each.
    pub(crate) clients: Vec<usize>,
    /// How long one measurement takes.
    pub(crate) time: Duration,
    /// How many leases one call renews.
    pub(crate) batch: usize,
    /// How many leases to renew in one call where that is cheap; 0: none.
    pub(crate) held: usize,
}

/// Measures, calling `show` with each line as it is known. Keys that nobody else has are lease, and given back.
pub(crate) async fn measure(
    store: Arc<dyn LeaseStore>,
    plan: &Plan,
    mut show: impl FnMut(Line),
) -> Result<(), Failed> {
    let subject = Subject::new(store);
    for line in cost(&subject).await? {
        show(line);
    }
    for clients in &plan.clients {
        let pairs = load::pairs(&subject, *clients, plan.time).await?;
        show(Line::new("acquire + release", *clients).measured(&pairs));
    }
    for clients in &plan.clients {
        let renewed = load::renewals(&subject, *clients, plan.batch, plan.time).await?;
        show(Line::new(format!("renew, by {}", plan.batch), *clients).measured(&renewed));
    }
    // Elsewhere, ten thousand acquisitions take an hour, or a bill.
    if plan.held > 0 && subject.store.capabilities().store == "postgres:" {
        show(many_at_once(&subject, plan).await?);
    }
    Ok(())
}

/// How many clients live jobs at once, and how many jobs one call has.
const JOB_LOADS: [(usize, usize); 3] = [(1, 1), (64, 1), (64, 100)];

/// Lives of jobs in a queue of this program's own, which is empty afterwards.
pub(crate) async fn measure_jobs(
    store: Arc<dyn LeaseStore>,
    time: Duration,
    mut show: impl FnMut(Line),
) -> Result<(), Failed> {
    let subject = Subject::new(store);
    for (clients, batch) in JOB_LOADS {
        // Whatever is opened and planned once is so before the clock runs.
        life::lives_by(&subject, clients, batch, time / 3).await?;
        let lives = life::lives_by(&subject, clients, batch, time).await?;
        show(Line::new(format!("enqueue + claim + complete, by {batch}"), clients).measured(&lives));
    }
    Ok(())
}

/// Renews as many leases as one call takes, over and over.
async fn many_at_once(subject: &Subject, plan: &Plan) -> Result<Line, Failed> {
    let holds = scale::fill(subject, plan.held, 600_000).await?;
    let mut latencies = Latencies::default();
    let started = Instant::now();
    while latencies.len() < 3 || started.elapsed() < plan.time {
        let before = Instant::now();
        load::renew_all(subject, &holds).await?;
        latencies.add(before.elapsed());
    }
    latencies.sort();
    let (done, time) = ((latencies.len() * holds.len()) as u64, started.elapsed());
    let p50_us = latencies.at(50.0);
    let line = Line::new(format!("renew {} leases in one call", holds.len()), 1);
    subject.store.release(&subject.call, holds).await?;
    Ok(line
        .measured(&Measured { done, time, latencies })
        .bar("p50 under 300 ms", p50_us < 300_000.0))
}

/// How many requests each thing costs, where the store counts them.
async fn cost(subject: &Subject) -> Result<Vec<Line>, Failed> {
    let Some(mut before) = subject.store.requests_sent() else { return Ok(Vec::new()) };
    let mut lines = Vec::new();
    let mut say = |what: &str| {
        let now = subject.store.requests_sent().unwrap_or_default();
        lines.push(Line::new(format!("{what}: {} requests", now - before), 0));
        before = now;
    };
    let key = Key::new(format!("bench/{}/cost", std::process::id()))?;
    for what in ["a key that nobody ever held", "a free key"] {
        let hold = hold_id(0, fresh());
        let token = subject.take(key.clone(), hold, 60_000).await?;
        say(&format!("acquire of {what}"));
        let lease = HoldRef { key: key.clone(), hold, token };
        load::renew_all(subject, std::slice::from_ref(&lease)).await?;
        say("renewal");
        subject.give_back(lease).await?;
        say("release");
    }
    Ok(lines)
}
