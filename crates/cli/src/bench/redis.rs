//! The peer: Debian's `redis-server`, synced on every write, with the usual scripts of a lock on it. Just enough of its
//! protocol to call them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::load::Measured;
use super::percentile::Latencies;

/// Takes a key if it is free, and gives out the next token.
const ACQUIRE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) \
                       then return redis.call('INCR', KEYS[2]) else return 0 end";
/// Gives it back if it is still the caller's.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
/// Renews it if it is still the caller's.
const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] \
                     then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";

/// A private server, on a socket in a directory of its own.
pub(super) struct Redis {
    child: Child,
    socket: PathBuf,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Redis {
    pub(super) async fn start(directory: &Path) -> Result<Redis, Failed> {
        std::fs::create_dir_all(directory)?;
        let socket = directory.join("redis.sock");
        let child = Command::new("redis-server")
            .current_dir(directory)
            .args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always"])
            .args(["--unixsocket", "redis.sock", "--daemonize", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| {
                format!("redis-server cannot be started ({error}); install Debian's redis-server")
            })?;
        let redis = Redis { child, socket };
        let started = Instant::now();
        while redis.connect().await.is_err() {
            if started.elapsed() > Duration::from_secs(10) {
                return Err("redis-server did not answer within 10 s".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(redis)
    }

    async fn connect(&self) -> Result<Connection, Failed> {
        let stream = UnixStream::connect(&self.socket).await?;
        let mut connection = Connection { stream: BufReader::new(stream), buffer: Vec::new() };
        connection.put(&["PING"]);
        connection.flush().await?;
        connection.reply().await?;
        Ok(connection)
    }

    /// Every client takes its own key and gives it back, over a connection of its own.
    pub(super) async fn pairs(&self, clients: usize, time: Duration) -> Result<Measured, Failed> {
        let mut running = JoinSet::new();
        for client in 0..clients {
            let mut connection = self.connect().await?;
            running.spawn(async move {
                let (acquire, release) = (connection.load(ACQUIRE).await?, connection.load(RELEASE).await?);
                let (key, counter) = (format!("lock:{client}"), format!("token:{client}"));
                let mut tally = Tally::start(time);
                while tally.goes_on() {
                    let hold = format!("{client}-{}", tally.done);
                    let before = Instant::now();
                    connection.put(&["EVALSHA", &acquire, "2", &key, &counter, &hold, "60000"]);
                    connection.flush().await?;
                    expect_more_than_zero(connection.reply().await?)?;
                    tally.latencies.add(before.elapsed());
                    connection.put(&["EVALSHA", &release, "1", &key, &hold]);
                    connection.flush().await?;
                    expect_more_than_zero(connection.reply().await?)?;
                    tally.done += 1;
                }
                Ok::<_, Failed>(tally)
            });
        }
        add_up(running, time).await
    }

    /// Every client renews keys of its own, `pipeline` calls in one sending.
    pub(super) async fn renewals(
        &self,
        clients: usize,
        pipeline: usize,
        time: Duration,
    ) -> Result<Measured, Failed> {
        let mut running = JoinSet::new();
        for client in 0..clients {
            let mut connection = self.connect().await?;
            running.spawn(async move {
                let (acquire, renew) = (connection.load(ACQUIRE).await?, connection.load(RENEW).await?);
                let keys: Vec<String> =
                    (0..pipeline).map(|nth| format!("held:{client}:{nth}:{pipeline}")).collect();
                for key in &keys {
                    connection.put(&["EVALSHA", &acquire, "2", key, "token", "me", "600000"]);
                    connection.flush().await?;
                    connection.reply().await?;
                }
                let mut tally = Tally::start(time);
                while tally.goes_on() {
                    let before = Instant::now();
                    for key in &keys {
                        connection.put(&["EVALSHA", &renew, "1", key, "me", "600000"]);
                    }
                    connection.flush().await?;
                    for _ in &keys {
                        expect_more_than_zero(connection.reply().await?)?;
                    }
                    tally.latencies.add(before.elapsed());
                    tally.done += pipeline as u64;
                }
                Ok::<_, Failed>(tally)
            });
        }
        add_up(running, time).await
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Tally {
    started: Instant,
    time: Duration,
    done: u64,
    latencies: Latencies,
}

impl Tally {
    fn start(time: Duration) -> Self {
        Tally { started: Instant::now(), time, done: 0, latencies: Latencies::default() }
    }

    fn goes_on(&self) -> bool {
        self.started.elapsed() < self.time
    }
}

async fn add_up(mut running: JoinSet<Result<Tally, Failed>>, time: Duration) -> Result<Measured, Failed> {
    let mut measured = Measured { done: 0, time, latencies: Latencies::default() };
    while let Some(ended) = running.join_next().await {
        let tally = ended??;
        measured.done += tally.done;
        measured.latencies.merge(tally.latencies);
    }
    measured.latencies.sort();
    Ok(measured)
}

fn expect_more_than_zero(reply: Reply) -> Result<(), Failed> {
    match reply {
        Reply::Number(number) if number > 0 => Ok(()),
        reply => Err(format!("redis-server answered {reply:?}").into()),
    }
}

#[derive(Debug)]
enum Reply {
    Number(i64),
    Text(String),
}

struct Connection {
    stream: BufReader<UnixStream>,
    buffer: Vec<u8>,
}

impl Connection {
    fn put(&mut self, words: &[&str]) {
        self.buffer.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            self.buffer.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
    }

    async fn flush(&mut self) -> std::io::Result<()> {
        self.stream.get_mut().write_all(&self.buffer).await?;
        self.buffer.clear();
        Ok(())
    }

    /// Loads a script and gives its name.
    async fn load(&mut self, script: &str) -> Result<String, Failed> {
        self.put(&["SCRIPT", "LOAD", script]);
        self.flush().await?;
        match self.reply().await? {
            Reply::Text(name) => Ok(name),
            Reply::Number(number) => Err(format!("redis-server answered {number} to a script").into()),
        }
    }

    async fn reply(&mut self) -> Result<Reply, Failed> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or("redis-server closed the connection")?;
        match kind {
            ":" => Ok(Reply::Number(rest.parse()?)),
            "+" => Ok(Reply::Text(rest.to_owned())),
            "$" => {
                let mut text = vec![0; rest.parse::<usize>()? + 2];
                self.stream.read_exact(&mut text).await?;
                text.truncate(text.len() - 2);
                Ok(Reply::Text(String::from_utf8(text)?))
            }
            _ => Err(format!("redis-server answered {line}").into()),
        }
    }
}
