//! The peer: Debian's `beanstalkd`, synced on every write. Just enough of its protocol for the life of a job.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::Failed;
use super::life::PAYLOAD_BYTES;
use super::load::Measured;
use super::percentile::Latencies;

/// A private server, on a socket in a directory of its own.
pub(super) struct Beanstalkd {
    child: Child,
    socket: PathBuf,
}

impl Beanstalkd {
    pub(super) async fn start(directory: &Path) -> Result<Beanstalkd, Failed> {
        std::fs::create_dir_all(directory.join("log"))?;
        // It runs there, so a path from here would lead it elsewhere.
        let directory = std::fs::canonicalize(directory)?;
        let socket = directory.join("socket");
        let child = Command::new("beanstalkd")
            .current_dir(&directory)
            .args(["-b", "log", "-f0", "-l"])
            .arg(format!("unix:{}", socket.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| {
                format!("beanstalkd cannot be started ({error}); install Debian's beanstalkd")
            })?;
        let peer = Beanstalkd { child, socket };
        let started = Instant::now();
        while UnixStream::connect(&peer.socket).await.is_err() {
            if started.elapsed() > Duration::from_secs(10) {
                return Err("beanstalkd did not answer within 10 s".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(peer)
    }

    /// Every client puts a job, reserves one and deletes it, over a connection of its own.
    pub(super) async fn lives(&self, clients: usize, time: Duration) -> Result<Measured, Failed> {
        let mut running = JoinSet::new();
        for _ in 0..clients {
            let mut connection = BufReader::new(UnixStream::connect(&self.socket).await?);
            running.spawn(async move {
                let put = format!("put 0 0 60 {PAYLOAD_BYTES}\r\n{}\r\n", "x".repeat(PAYLOAD_BYTES));
                let mut latencies = Latencies::default();
                let started = Instant::now();
                let mut done = 0;
                while started.elapsed() < time {
                    let before = Instant::now();
                    ask(&mut connection, &put, "INSERTED").await?;
                    latencies.add(before.elapsed());
                    let reserved = ask(&mut connection, "reserve\r\n", "RESERVED").await?;
                    connection.read_exact(&mut [0; PAYLOAD_BYTES + 2]).await?;
                    let id = reserved.split(' ').nth(1).ok_or("a job without an id")?.to_owned();
                    ask(&mut connection, &format!("delete {id}\r\n"), "DELETED").await?;
                    done += 1;
                }
                Ok::<_, Failed>((done, latencies))
            });
        }
        let mut measured = Measured { done: 0, time, latencies: Latencies::default() };
        while let Some(ended) = running.join_next().await {
            let (done, latencies) = ended??;
            measured.done += done;
            measured.latencies.merge(latencies);
        }
        measured.latencies.sort();
        Ok(measured)
    }
}

async fn ask(
    connection: &mut BufReader<UnixStream>,
    request: &str,
    expected: &str,
) -> Result<String, Failed> {
    connection.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    if !line.starts_with(expected) {
        return Err(format!("beanstalkd answered {line:?}").into());
    }
    Ok(line.trim_end().to_owned())
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
