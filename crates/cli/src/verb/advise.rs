//! `fencehold advise`: which ttl would suit, from what the store has seen.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use clap::ArgGroup;
use fencehold::TtlAdvice;
use fencehold_core::job::{AttemptOutcome, QueueName};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{Event, EventData, Key, Token};
use serde::Serialize;

use crate::context::{Context, OpenStore};
use crate::duration::{show_exact_ms, show_ms};
use crate::failure::Failure;
use crate::follow::{self, EventFilter};
use crate::process::boot_ms;
use crate::show::facts;
use crate::verb::VerbResult;

/// How often the store is asked something, to see how long it takes.
const ROUND_TRIPS: usize = 20;

/// Suggest a ttl for a key or a queue, from what was seen
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold advise reports/daily
fencehold advise --queue emails")]
#[command(after_help = "\
The suggestion is the P99 of the work, plus the P99 of a round trip to the store, plus a margin of a quarter of both and \
half a second at least. With it, 99 of 100 pieces of work end in time even if no renewal gets through. It rests on the \
events that the store keeps: leases that were released, attempts that were completed.")]
#[command(override_usage = "\
fencehold advise [OPTIONS] <KEY>
       fencehold advise [OPTIONS] --queue <QUEUE>")]
#[command(group = ArgGroup::new("what").required(true).args(["key", "queue"]))]
pub(crate) struct Args {
    /// The key
    #[arg(value_name = "KEY")]
    key: Option<Key>,
    /// The queue
    #[arg(long)]
    queue: Option<QueueName>,
}

/// A ttl, and what it is made of.
#[derive(Debug, Serialize)]
struct Advice {
    suggested_ttl_ms: u64,
    p99_work_ms: u64,
    p99_round_trip_ms: u64,
    margin_ms: u64,
    sample_count: usize,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let advice = context.look(async |store| self.advice(store).await).await?;
        context.output.one(&advice, |style| {
            let samples = advice.sample_count;
            let lines = [
                ("suggested ttl", show_exact_ms(advice.suggested_ttl_ms)),
                ("P99 of the work", show_ms(advice.p99_work_ms)),
                ("P99 of a round trip", show_ms(advice.p99_round_trip_ms)),
                ("margin", show_ms(advice.margin_ms)),
                (
                    "from",
                    format!("{samples} {}", if samples == 1 { "piece of work" } else { "pieces of work" }),
                ),
            ];
            facts(style, lines)
        })
    }

    async fn advice(&self, store: &OpenStore) -> Result<Advice, Failure> {
        let (work, of) = match (&self.key, &self.queue) {
            (Some(key), _) => {
                let events = follow::past_if_told(store, EventFilter::of_keys(key.as_str())).await?;
                (held(&events, key), format!("key {key}: no lease that was released"))
            }
            (None, Some(queue)) => {
                let events = follow::past_if_told(store, EventFilter::of_keys("job/")).await?;
                (worked_on(&events, queue), format!("queue {queue}: no attempt that was completed"))
            }
            (None, None) => return Err(Failure::usage("neither a key nor a queue is named")),
        };
        let least = Duration::from_millis(store.leases.capabilities().min_ttl_ms);
        let advice = TtlAdvice::from_samples(&work, &round_trips(store).await?, least).ok_or_else(|| {
            Failure::failed(format!("{of} is among the events of this store"))
                .with_next("Use the default of 30s until there is something to go by.")
        })?;
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Ok(Advice {
            suggested_ttl_ms: ms(advice.suggested_ttl),
            p99_work_ms: ms(advice.p99_work),
            p99_round_trip_ms: ms(advice.p99_round_trip),
            margin_ms: ms(advice.margin),
            sample_count: advice.samples,
        })
    }
}

/// For how long each lease on a key was held that was given back.
fn held(events: &[Event], key: &Key) -> Vec<Duration> {
    let mut began: HashMap<Token, u64> = HashMap::new();
    let mut held = Vec::new();
    for event in events.iter().filter(|event| event.key == *key) {
        match &event.data {
            EventData::LeaseAcquired { token, .. } => {
                began.insert(*token, event.at_ms);
            }
            EventData::LeaseEnded { token, outcome: LeaseOutcome::Released, .. } => {
                held.extend(began.remove(token).map(|since_ms| since(since_ms, event.at_ms)));
            }
            _ => {}
        }
    }
    held
}

/// How long each attempt took that completed a job of a queue.
fn worked_on(events: &[Event], queue: &QueueName) -> Vec<Duration> {
    let mut jobs: HashSet<&Key> = HashSet::new();
    let mut began: HashMap<Token, u64> = HashMap::new();
    let mut worked = Vec::new();
    for event in events {
        match &event.data {
            EventData::JobEnqueued { queue: into, .. } if into == queue => {
                jobs.insert(&event.key);
            }
            EventData::JobClaimed { token, .. } if jobs.contains(&event.key) => {
                began.insert(*token, event.at_ms);
            }
            EventData::JobAttemptEnded { token, outcome: AttemptOutcome::Completed, .. } => {
                worked.extend(began.remove(token).map(|since_ms| since(since_ms, event.at_ms)));
            }
            _ => {}
        }
    }
    worked
}

fn since(began_ms: u64, ended_ms: u64) -> Duration {
    Duration::from_millis(ended_ms.saturating_sub(began_ms))
}

/// How long the store takes to answer.
async fn round_trips(store: &OpenStore) -> Result<Vec<Duration>, Failure> {
    let key = Key::new("fencehold.advise")?;
    let mut trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let began_ms = boot_ms();
        store.explained(store.leases.get(&store.call, key.clone())).await?;
        trips.push(since(began_ms, boot_ms()));
    }
    Ok(trips)
}
