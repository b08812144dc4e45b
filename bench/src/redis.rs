//! The peer: Debian's `redis-server`, synced on every write, with the usual scripts of a lock on it. Just enough of its
//! protocol to call them: a client with a task and a queue of its own would cost more than the server's part.

use std::path::{Path, PathBuf};
use std::process::Command;

use fencehold_load::{Failed, LoadClient, Timer, together};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::server::Server;

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
pub(crate) struct Redis {
    socket: PathBuf,
    _server: Server,
}

impl Redis {
    pub(crate) async fn start(directory: &Path) -> Result<Redis, Failed> {
        std::fs::create_dir_all(directory)?;
        let socket = directory.join("redis.sock");
        let mut command = Command::new("redis-server");
        command
            .current_dir(directory)
            .args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always"])
            .args(["--unixsocket", "redis.sock", "--daemonize", "no"]);
        let ready = || async { Connection::open(&socket).await?.call(&["PING"]).await.map(drop) };
        let server = Server::start(&mut command, "redis-server", ready).await?;
        Ok(Redis { socket, _server: server })
    }

    /// Clients that take a key of their own and give it back, each over a connection of its own.
    pub(crate) async fn pairs(&self, clients: usize) -> Result<Vec<RedisPairs>, Failed> {
        let client = |nth: usize| {
            let socket = self.socket.clone();
            async move {
                let mut connection = Connection::open(&socket).await?;
                let (acquire, release) = (connection.load(ACQUIRE).await?, connection.load(RELEASE).await?);
                let (key, counter) = (format!("lock:{nth}"), format!("token:{nth}"));
                Ok(RedisPairs { connection, acquire, release, key, counter, rounds: 0 })
            }
        };
        together((0..clients).map(client)).await
    }

    /// Clients that renew keys of their own, `pipeline` calls in one sending.
    pub(crate) async fn renewals(
        &self,
        clients: usize,
        pipeline: usize,
    ) -> Result<Vec<RedisRenewals>, Failed> {
        let client = |nth: usize| {
            let socket = self.socket.clone();
            async move {
                let mut connection = Connection::open(&socket).await?;
                let (acquire, renew) = (connection.load(ACQUIRE).await?, connection.load(RENEW).await?);
                let keys: Vec<String> =
                    (0..pipeline).map(|key| format!("held:{nth}:{key}:{pipeline}")).collect();
                for key in &keys {
                    connection
                        .call(&["EVALSHA", &acquire, "2", key, "token", "me", "600000"])
                        .await?;
                }
                Ok(RedisRenewals { connection, renew, keys })
            }
        };
        together((0..clients).map(client)).await
    }
}

pub(crate) struct RedisPairs {
    connection: Connection,
    acquire: String,
    release: String,
    key: String,
    counter: String,
    rounds: u64,
}

impl LoadClient for RedisPairs {
    async fn round(&mut self, timer: &Timer) -> Result<u64, Failed> {
        let RedisPairs { connection, acquire, release, key, counter, rounds } = self;
        let hold = format!("{key}-{rounds}");
        let words = ["EVALSHA", acquire, "2", key, counter, &hold, "60000"];
        more_than_zero(timer.time(0, connection.call(&words)).await?)?;
        more_than_zero(connection.call(&["EVALSHA", release, "1", key, &hold]).await?)?;
        *rounds += 1;
        Ok(1)
    }
}

pub(crate) struct RedisRenewals {
    connection: Connection,
    renew: String,
    keys: Vec<String>,
}

impl RedisRenewals {
    async fn renew_all(&mut self) -> Result<(), Failed> {
        for key in &self.keys {
            self.connection.put(&["EVALSHA", &self.renew, "1", key, "me", "600000"]);
        }
        self.connection.flush().await?;
        for _ in &self.keys {
            more_than_zero(self.connection.reply().await?)?;
        }
        Ok(())
    }
}

impl LoadClient for RedisRenewals {
    async fn round(&mut self, timer: &Timer) -> Result<u64, Failed> {
        timer.time(0, self.renew_all()).await?;
        Ok(self.keys.len() as u64)
    }
}

fn more_than_zero(reply: Reply) -> Result<(), Failed> {
    match reply {
        Reply::Number(number) if number > 0 => Ok(()),
        reply => Err(format!("redis-server replied {reply:?}").into()),
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
    async fn open(socket: &Path) -> Result<Connection, Failed> {
        Ok(Connection { stream: BufReader::new(UnixStream::connect(socket).await?), buffer: Vec::new() })
    }

    async fn call(&mut self, words: &[&str]) -> Result<Reply, Failed> {
        self.put(words);
        self.flush().await?;
        self.reply().await
    }

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
        match self.call(&["SCRIPT", "LOAD", script]).await? {
            Reply::Text(name) => Ok(name),
            Reply::Number(number) => Err(format!("redis-server replied {number} to a script").into()),
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
            _ => Err(format!("redis-server replied {line}").into()),
        }
    }
}
