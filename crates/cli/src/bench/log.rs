//! A plain log: many clients append records, one thread writes all that wait and syncs once for them. Nothing durable that
//! serves many at once can be faster; what a store of jobs adds shows in the ratio.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::Failed;
use super::life::LIFE_BYTES;
use super::load::Measured;
use super::percentile::Latencies;

struct Append {
    bytes: usize,
    done: oneshot::Sender<()>,
}

/// Every client appends what a job's life is made of, one record after the other, each synced before the next. Counts
/// lives; the latency is that of the first record.
pub(super) async fn lives(directory: &Path, clients: usize, time: Duration) -> Result<Measured, Failed> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(directory.join("bench-log.tmp"))?;
    let (appends, waiting) = channel();
    let writer = std::thread::spawn(move || write(file, &waiting));
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let appends: Sender<Append> = appends.clone();
        running.spawn(async move {
            let mut latencies = Latencies::default();
            let started = Instant::now();
            let mut done = 0;
            while started.elapsed() < time {
                let before = Instant::now();
                for (nth, bytes) in LIFE_BYTES.into_iter().enumerate() {
                    append(&appends, bytes).await?;
                    if nth == 0 {
                        latencies.add(before.elapsed());
                    }
                }
                done += 1;
            }
            Ok::<_, Failed>((done, latencies))
        });
    }
    drop(appends);
    let mut measured = Measured { done: 0, time, latencies: Latencies::default() };
    while let Some(ended) = running.join_next().await {
        let (done, latencies) = ended??;
        measured.done += done;
        measured.latencies.merge(latencies);
    }
    measured.latencies.sort();
    writer.join().map_err(|_| "the log's thread panicked")??;
    std::fs::remove_file(directory.join("bench-log.tmp"))?;
    Ok(measured)
}

async fn append(appends: &Sender<Append>, bytes: usize) -> Result<(), Failed> {
    let (done, acknowledged) = oneshot::channel();
    appends.send(Append { bytes, done })?;
    Ok(acknowledged.await?)
}

fn write(mut file: File, waiting: &Receiver<Append>) -> io::Result<()> {
    let record = vec![0x5a; LIFE_BYTES.into_iter().max().unwrap_or(0)];
    let mut batch = Vec::new();
    while let Ok(first) = waiting.recv() {
        let mut acknowledge = Vec::new();
        for append in std::iter::once(first).chain(waiting.try_iter()) {
            batch.extend_from_slice(&record[..append.bytes]);
            acknowledge.push(append.done);
        }
        file.write_all(&batch)?;
        file.sync_data()?;
        batch.clear();
        for done in acknowledge {
            let _ = done.send(());
        }
    }
    Ok(())
}
