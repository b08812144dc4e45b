//! Clients side by side, and what they did.

use std::sync::atomic::{AtomicBool, Ordering};
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

/// Ends a measurement before its time: calls that have begun are finished, so that none has an effect later.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// No client begins another round.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Has clients repeat their rounds for some time. A round that has begun is finished, and each has at least one.
pub async fn run<C: LoadClient>(
    clients: impl IntoIterator<Item = C>,
    time: Duration,
) -> Result<Measured, Failed> {
    run_after(clients, time, &Stop::default(), async { Ok(()) }).await
}

/// The same, until it is stopped, where the time begins when `start` says so; by then every client has begun.
pub async fn run_after<C: LoadClient>(
    clients: impl IntoIterator<Item = C>,
    time: Duration,
    stop: &Stop,
    start: impl Future<Output = Result<(), Failed>>,
) -> Result<Measured, Failed> {
    let begin = |mut client: C| async move { client.begin().await.map(|()| client) };
    let clients = together(clients.into_iter().map(begin)).await?;
    start.await?;
    let (timer, started) = (Timer::default(), Instant::now());
    let repeat = |mut client: C| {
        let (timer, stop) = (timer.clone(), stop.clone());
        async move {
            let mut done = 0;
            loop {
                done += client.round(&timer).await?;
                if started.elapsed() >= time || stop.is_set() {
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

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    /// Says when a round begins, and ends it when that is allowed.
    struct Round {
        begun: Arc<Semaphore>,
        may_end: Arc<Semaphore>,
    }

    impl LoadClient for Round {
        async fn round(&mut self, _: &Timer) -> Result<u64, Failed> {
            self.begun.add_permits(1);
            self.may_end.acquire().await?.forget();
            Ok(1)
        }
    }

    #[tokio::test]
    async fn what_has_begun_is_finished_when_it_is_stopped_and_nothing_begins_after() {
        let [begun, may_end] = [0, 0].map(|permits| Arc::new(Semaphore::new(permits)));
        let stop = Stop::default();
        let client = Round { begun: begun.clone(), may_end: may_end.clone() };
        let stopping = async {
            let _ = begun.acquire().await;
            stop.set();
            may_end.add_permits(1);
        };
        let all = run_after([client], Duration::from_secs(600), &stop, async { Ok(()) });
        let (measured, ()) = tokio::join!(all, stopping);
        assert_eq!(measured.unwrap().done, 1);
        assert_eq!(begun.available_permits(), 1, "only one was begun");
    }
}
