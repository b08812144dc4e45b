//! Grants while others watch: a thousand a prefix each, and a hundred everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fencehold_load::{Failed, LoadClient, Measured, Target, Timer, run};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::server_process::ServerProcess;
use super::{CLIENTS, TURNS, raw};
use crate::figure::Figure;

/// How many watch everything.
const EVERYTHING: usize = 100;
/// What every event of a grant or a release has once, and every message. A byte that is looked for costs next to nothing.
const EVENT: u8 = b'{';
const MESSAGE: u8 = b'[';

/// What watchers received.
#[derive(Debug, Default)]
struct WatcherCounts {
    events: AtomicU64,
    messages: AtomicU64,
}

/// Watchers, until they are dropped.
struct Watchers {
    told: Arc<WatcherCounts>,
    /// Ends them when it is dropped.
    _reading: JoinSet<()>,
}

impl Watchers {
    async fn begin(
        served: &ServerProcess,
        queries: impl Iterator<Item = String>,
    ) -> Result<Watchers, Failed> {
        let told = Arc::new(WatcherCounts::default());
        let mut reading = JoinSet::new();
        for query in queries {
            let stream = raw::watch(served.address(), &query).await?;
            reading.spawn(read(stream, Arc::clone(&told)));
        }
        Ok(Watchers { told, _reading: reading })
    }
}

#[expect(clippy::naive_bytecount, reason = "the compiler is good at it, and a crate is not worth it")]
async fn read(mut stream: TcpStream, told: Arc<WatcherCounts>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = stream.read(&mut bytes).await {
        let count = |what: u8| bytes[..read].iter().filter(|byte| **byte == what).count() as u64;
        told.events.fetch_add(count(EVENT), Ordering::Relaxed);
        told.messages.fetch_add(count(MESSAGE), Ordering::Relaxed);
    }
}

/// Takes and gives back one key after the other, each under the next prefix.
struct Granted {
    target: Target,
    client: usize,
    prefixes: u64,
}

impl LoadClient for Granted {
    async fn round(&mut self, timer: &Timer) -> Result<u64, Failed> {
        let Granted { target, client, prefixes } = self;
        let key = target.key(format_args!("{:04}/{client}", target.fresh() % *prefixes))?;
        let hold = timer.time(0, target.acquire(&key, 60_000, 0)).await?;
        target.release(hold).await?;
        Ok(1)
    }
}

async fn grants(target: &Target, prefixes: usize, time: Duration) -> Result<Measured, Failed> {
    let client = |client| Granted { target: target.clone(), client, prefixes: prefixes as u64 };
    run((0..CLIENTS).map(client), time).await
}

/// Grants with a watcher for each prefix and without, in turns.
pub(super) async fn of_prefixes(
    served: &ServerProcess,
    target: &Target,
    many: usize,
    time: Duration,
) -> Result<Figure, Failed> {
    raw::allow_connections(many)?;
    let (mut watched, mut alone) = (Measured::default(), Measured::default());
    let mut events = 0;
    for _ in 0..TURNS {
        alone.then(grants(target, many, time / TURNS).await?);
        let newest = target.store.status(&target.call).await?.newest_event_seq;
        let queries = (0..many).map(|nth| format!("after={newest}&prefix=bench/{nth:04}/"));
        let watchers = Watchers::begin(served, queries).await?;
        watched.then(grants(target, many, time / TURNS).await?);
        events += watchers.told.events.load(Ordering::Relaxed);
    }
    let ratio = watched.per_second() / alone.per_second();
    let what = format!("acquire + release, {many} watchers of {many} prefixes (told of {events} events)");
    Ok(Figure::new(what, CLIENTS)
        .measured(&watched)
        .ratio("without watchers", ratio)
        .bar("at least 0.8", ratio >= 0.8 && events > 0))
}

/// What a hundred watchers of everything receive, and in how many messages.
pub(super) async fn of_everything(
    served: &ServerProcess,
    target: &Target,
    time: Duration,
) -> Result<Figure, Failed> {
    let newest = target.store.status(&target.call).await?.newest_event_seq;
    let queries = (0..EVERYTHING).map(|_| format!("after={newest}"));
    let watchers = Watchers::begin(served, queries).await?;
    let measured = grants(target, 1_000, time).await?;
    let events = watchers.told.events.load(Ordering::Relaxed);
    let messages = watchers.told.messages.load(Ordering::Relaxed).max(1);
    let ratio = events as f64 / messages as f64;
    let what = format!("acquire + release, {EVERYTHING} watchers of everything (told {events} times)");
    Ok(Figure::new(what, CLIENTS)
        .measured(&measured)
        .ratio("events in a message", ratio)
        .bar("more than 1", ratio > 1.0))
}
