//! Grants while others watch: a thousand a prefix each, and a hundred everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencehold_contract::{HoldRef, StoreError};
use fencehold_core::Key;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::served::Served;
use super::{CLIENTS, TURNS, raw};
use crate::bench::load::{Measured, Subject, fresh, hold_id, repeat};
use crate::bench::percentile::Latencies;
use crate::bench::{Failed, Line};

/// How many watch everything.
const EVERYTHING: usize = 100;
/// What every event of a grant or a release has once, and every message. A byte that is looked for costs next to nothing.
const EVENT: u8 = b'{';
const MESSAGE: u8 = b'[';

/// What watchers were told.
#[derive(Debug, Default)]
struct Told {
    events: AtomicU64,
    messages: AtomicU64,
}

/// Watchers, until they are dropped.
struct Watchers {
    told: Arc<Told>,
    /// Ends them when it is dropped.
    _reading: JoinSet<()>,
}

impl Watchers {
    async fn begin(served: &Served, queries: impl Iterator<Item = String>) -> Result<Watchers, Failed> {
        let told = Arc::new(Told::default());
        let mut reading = JoinSet::new();
        for query in queries {
            let stream = raw::watch(served.address(), &query).await?;
            reading.spawn(read(stream, Arc::clone(&told)));
        }
        Ok(Watchers { told, _reading: reading })
    }
}

#[expect(clippy::naive_bytecount, reason = "the compiler is good at it, and a crate is not worth it")]
async fn read(mut stream: TcpStream, told: Arc<Told>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = stream.read(&mut bytes).await {
        let count = |what: u8| bytes[..read].iter().filter(|byte| **byte == what).count() as u64;
        told.events.fetch_add(count(EVENT), Ordering::Relaxed);
        told.messages.fetch_add(count(MESSAGE), Ordering::Relaxed);
    }
}

/// Every client takes and gives back one key after the other, each under the next prefix.
async fn grants(subject: &Subject, prefixes: usize, time: Duration) -> Result<Measured, StoreError> {
    repeat(subject, CLIENTS, time, move |subject, client| async move {
        let mut latencies = Latencies::default();
        let started = Instant::now();
        let mut done = 0;
        while started.elapsed() < time {
            let nth = fresh();
            let prefix = nth % prefixes as u64;
            let key = Key::new(format!("watched/{prefix:04}/{client}"))?;
            let hold = hold_id(client, nth);
            let before = Instant::now();
            let token = subject.take(key.clone(), hold, 60_000).await?;
            latencies.add(before.elapsed());
            subject.give_back(HoldRef { key, hold, token }).await?;
            done += 1;
        }
        Ok((done, latencies))
    })
    .await
}

/// Grants with a watcher for each prefix and without, in turns.
pub(super) async fn of_prefixes(
    served: &Served,
    subject: &Subject,
    many: usize,
    time: Duration,
) -> Result<Line, Failed> {
    raw::allow_connections(many)?;
    let (mut watched, mut alone) = (Measured::default(), Measured::default());
    let mut events = 0;
    for _ in 0..TURNS {
        alone.add(grants(subject, many, time / TURNS).await?);
        let newest = subject.store.status(&subject.call).await?.last_event;
        let queries = (0..many).map(|nth| format!("after={newest}&prefix=watched/{nth:04}/"));
        let watchers = Watchers::begin(served, queries).await?;
        watched.add(grants(subject, many, time / TURNS).await?);
        events += watchers.told.events.load(Ordering::Relaxed);
    }
    let (watched, alone) = (watched.sorted(), alone.sorted());
    let ratio = watched.per_second() / alone.per_second();
    let what = format!("acquire + release, {many} watchers of {many} prefixes (told of {events} events)");
    Ok(Line::new(what, CLIENTS)
        .measured(&watched)
        .ratio("without watchers", ratio)
        .bar("at least 0.8", ratio >= 0.8 && events > 0))
}

/// What a hundred that watch everything are told, and in how many messages.
pub(super) async fn of_everything(
    served: &Served,
    subject: &Subject,
    time: Duration,
) -> Result<Line, Failed> {
    let newest = subject.store.status(&subject.call).await?.last_event;
    let queries = (0..EVERYTHING).map(|_| format!("after={newest}"));
    let watchers = Watchers::begin(served, queries).await?;
    let measured = grants(subject, 1_000, time).await?;
    let events = watchers.told.events.load(Ordering::Relaxed);
    let messages = watchers.told.messages.load(Ordering::Relaxed).max(1);
    let ratio = events as f64 / messages as f64;
    let what = format!("acquire + release, {EVERYTHING} watchers of everything (told {events} times)");
    Ok(Line::new(what, CLIENTS)
        .measured(&measured)
        .ratio("events in a message", ratio)
        .bar("more than 1", ratio > 1.0))
}
