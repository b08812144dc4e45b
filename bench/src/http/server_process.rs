//! A Fencehold server in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use fencehold_load::Failed;

use crate::scale::resident_bytes;
use crate::server::Server;

/// A server on a directory of its own, until it is dropped.
pub(super) struct ServerProcess {
    server: Server,
    url: String,
}

impl ServerProcess {
    pub(super) fn start(directory: &Path) -> Result<ServerProcess, Failed> {
        std::fs::create_dir_all(directory)?;
        let program = std::env::current_exe()?.with_file_name("fencehold");
        let mut child = Command::new(&program)
            .args(["serve", "--create", "--listen", "127.0.0.1:0", "--set", "log.level=warn", "--store"])
            .arg(format!("file:{}", directory.canonicalize()?.display()))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                format!("{} cannot be started ({error}); build fencehold-cli first", program.display())
            })?;
        let said = child.stderr.take().ok_or("the server has no standard error")?;
        let server = Server::of(child);
        let mut lines = BufReader::new(said).lines();
        let url = lines.by_ref().find_map(|line| {
            let line = line.ok()?;
            let (_, address) = line.split_once(" at http://")?;
            Some(format!("http://{}", address.trim()))
        });
        // What else it says is of no interest, but it must not be kept from saying it.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(ServerProcess { server, url: url.ok_or("the server did not start")? })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Its address, for those who speak to it in plain bytes.
    pub(super) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// How much memory it has, in bytes.
    pub(super) fn resident_bytes(&self) -> u64 {
        resident_bytes(&self.server.pid().to_string())
    }
}
