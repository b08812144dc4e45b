//! The peer: Debian's `beanstalkd`, synced on every write. Just enough of its protocol for the life of a job.

use std::path::{Path, PathBuf};
use std::process::Command;

use fencehold_load::{Failed, LoadClient, Timer};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::job::PAYLOAD_BYTES;
use crate::server::Server;

/// A private server, on a socket in a directory of its own.
pub(crate) struct Beanstalkd {
    socket: PathBuf,
    _server: Server,
}

impl Beanstalkd {
    pub(crate) async fn start(directory: &Path) -> Result<Beanstalkd, Failed> {
        std::fs::create_dir_all(directory.join("log"))?;
        // It runs there, so a path from here would lead it elsewhere.
        let directory = std::fs::canonicalize(directory)?;
        let socket = directory.join("socket");
        let mut command = Command::new("beanstalkd");
        command
            .current_dir(&directory)
            .args(["-b", "log", "-f0", "-l"])
            .arg(format!("unix:{}", socket.display()));
        let ready = || async { Ok(UnixStream::connect(&socket).await.map(drop)?) };
        let server = Server::start(&mut command, "beanstalkd", ready).await?;
        Ok(Beanstalkd { socket, _server: server })
    }

    /// Clients that put a job, reserve one and delete it, each over a connection of its own.
    pub(crate) async fn lives(&self, clients: usize) -> Result<Vec<BeanstalkdLives>, Failed> {
        let put = format!("put 0 0 60 {PAYLOAD_BYTES}\r\n{}\r\n", "x".repeat(PAYLOAD_BYTES));
        let mut all = Vec::with_capacity(clients);
        for _ in 0..clients {
            let connection = BufReader::new(UnixStream::connect(&self.socket).await?);
            all.push(BeanstalkdLives { connection, put: put.clone() });
        }
        Ok(all)
    }
}

pub(crate) struct BeanstalkdLives {
    connection: BufReader<UnixStream>,
    put: String,
}

impl LoadClient for BeanstalkdLives {
    async fn round(&mut self, timer: &Timer) -> Result<u64, Failed> {
        let BeanstalkdLives { connection, put } = self;
        timer.time(0, call(connection, put, "INSERTED")).await?;
        let reserved = call(connection, "reserve\r\n", "RESERVED").await?;
        connection.read_exact(&mut [0; PAYLOAD_BYTES + 2]).await?;
        let id = reserved.split(' ').nth(1).ok_or("a job without an id")?;
        call(connection, &format!("delete {id}\r\n"), "DELETED").await?;
        Ok(1)
    }
}

async fn call(
    connection: &mut BufReader<UnixStream>,
    request: &str,
    expected: &str,
) -> Result<String, Failed> {
    connection.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    if !line.starts_with(expected) {
        return Err(format!("beanstalkd responded {line:?}").into());
    }
    Ok(line.trim_end().to_owned())
}
