//! A plain log: many clients append records, one thread writes all that wait and syncs once for them. Nothing durable that
//! serves many at once can be faster; what a store of jobs adds shows in the ratio.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fencehold_load::{Failed, LoadClient, Measured, Timer, run};
use tokio::sync::oneshot;

use crate::job::PAYLOAD_BYTES;

/// What the three calls of a life carry: the payload with an id, names and terms; a claim with its hold id and owner; a
/// completion with its proof.
const LIFE_BYTES: [usize; 3] = [PAYLOAD_BYTES + 60, 64, 48];

struct Append {
    bytes: usize,
    done: oneshot::Sender<()>,
}

/// Every client appends what a job's life is made of, one record after the other, each synced before the next. Counts
/// lives; the latency is that of the first record.
pub(crate) async fn lives(directory: &Path, clients: usize, time: Duration) -> Result<Measured, Failed> {
    let path = directory.join("bench-log.tmp");
    let file = OpenOptions::new().create(true).append(true).open(&path)?;
    let (appends, waiting) = channel();
    let writer = std::thread::spawn(move || write(file, &waiting));
    let all: Vec<Appender> = (0..clients).map(|_| Appender(appends.clone())).collect();
    drop(appends);
    let measured = run(all, time).await?;
    writer.join().map_err(|_| "the log's thread panicked")??;
    std::fs::remove_file(path)?;
    Ok(measured)
}

struct Appender(Sender<Append>);

impl Appender {
    async fn append(&self, bytes: usize) -> Result<(), Failed> {
        let (done, acknowledged) = oneshot::channel();
        self.0.send(Append { bytes, done })?;
        Ok(acknowledged.await?)
    }
}

impl LoadClient for Appender {
    async fn round(&mut self, timer: &Timer) -> Result<u64, Failed> {
        let [first, rest @ ..] = LIFE_BYTES;
        timer.time(0, self.append(first)).await?;
        for bytes in rest {
            self.append(bytes).await?;
        }
        Ok(1)
    }
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
