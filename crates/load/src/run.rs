//! Clients side by side, and what they did.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::{Failed, Latencies};

/// Repeats its calls.
pub trait LoadClient: Sized + Send + 'static {
    /// What is done once, before the time that is measured.
    fn begin(&mut self) -> impl Future<Output = Result<(), Failed>> + Send {
        async { Ok(()) }
    }

    /// One round. Returns how many things it did.
    fn round(&mut self, timer: &Timer) -> impl Future<Output = Result<u64, Failed>> + Send;

    /// What is done once, after the time that is measured.
    fn end(self) -> impl Future<Output = Result<(), Failed>> + Send {
        async { Ok(()) }
    }
}

/// What clients did in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// How many things.
    pub done: u64,
    /// From the start of the first round to the end of the last.
    pub time: Duration,
    /// Of each call of a round, in order.
    pub calls: Vec<Latencies>,
}

impl Measured {
    /// How many things in a second.
    pub fn per_second(&self) -> f64 {
        self.done as f64 / self.time.as_secs_f64().max(f64::EPSILON)
    }

    /// The latency that this many of a hundred first calls of a round did not exceed, in microseconds.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.calls.first().map_or(0.0, |call| call.percentile_us(percent))
    }

    /// Adds what was measured after this.
    pub fn then(&mut self, later: Measured) {
        self.time += later.time;
        self.add(later);
    }

    /// Adds what was measured at the same time.
    pub fn beside(&mut self, other: Measured) {
        self.time = self.time.max(other.time);
        self.add(other);
    }

    fn add(&mut self, other: Measured) {
        self.done += other.done;
        if self.calls.len() < other.calls.len() {
            self.calls.resize(other.calls.len(), Latencies::default());
        }
        for (call, more) in self.calls.iter_mut().zip(&other.calls) {
            call.merge(more);
        }
    }
}

/// Times the calls of all clients.
#[derive(Clone, Debug, Default)]
pub struct Timer(Arc<Mutex<Vec<Latencies>>>);

impl Timer {
    /// Makes a call: the first of a round is 0.
    pub async fn time<T>(&self, call: usize, making: impl Future<Output = T>) -> T {
        let before = Instant::now();
        let made = making.await;
        let latency = before.elapsed();
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() <= call {
            calls.resize(call + 1, Latencies::default());
        }
        calls[call].add(latency);
        made
    }
}

/// Has clients repeat their rounds for some time. A round that has begun is finished, and each has at least one.
pub async fn run<C: LoadClient>(
    clients: impl IntoIterator<Item = C>,
    time: Duration,
) -> Result<Measured, Failed> {
    run_after(clients, time, async { Ok(()) }).await
}

/// The same, where the time begins when `start` says so; by then every client has begun.
pub async fn run_after<C: LoadClient>(
    clients: impl IntoIterator<Item = C>,
    time: Duration,
    start: impl Future<Output = Result<(), Failed>>,
) -> Result<Measured, Failed> {
    let begin = |mut client: C| async move { client.begin().await.map(|()| client) };
    let clients = together(clients.into_iter().map(begin)).await?;
    start.await?;
    let (timer, started) = (Timer::default(), Instant::now());
    let repeat = |mut client: C| {
        let timer = timer.clone();
        async move {
            let mut done = 0;
            loop {
                done += client.round(&timer).await?;
                if started.elapsed() >= time {
                    return Ok((client, done));
                }
            }
        }
    };
    let clients = together(clients.into_iter().map(repeat)).await?;
    let time = started.elapsed();
    let done = clients.iter().map(|(_, done)| done).sum();
    together(clients.into_iter().map(|(client, _)| client.end())).await?;
    let calls = std::mem::take(&mut *timer.0.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Measured { done, time, calls })
}

/// Does all of this side by side; the first failure ends the rest.
pub async fn together<T: Send + 'static>(
    all: impl Iterator<Item = impl Future<Output = Result<T, Failed>> + Send + 'static>,
) -> Result<Vec<T>, Failed> {
    let mut running: JoinSet<_> = all.collect();
    let mut done = Vec::with_capacity(running.len());
    while let Some(ended) = running.join_next().await {
        done.push(ended??);
    }
    Ok(done)
}
