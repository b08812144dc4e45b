//! A server of this program in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::bench::Failed;
use crate::bench::scale::resident_bytes_of;

/// A server on a directory of its own, until it is dropped.
pub(super) struct Served {
    child: Child,
    url: String,
}

impl Served {
    pub(super) fn start(directory: &Path) -> Result<Served, Failed> {
        std::fs::create_dir_all(directory)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--create", "--listen", "127.0.0.1:0", "--set", "log.level=warn", "--store"])
            .arg(format!("file:{}", directory.canonicalize()?.display()))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let said = child.stderr.take().ok_or("the server has no voice")?;
        let mut lines = BufReader::new(said).lines();
        let url = lines.by_ref().find_map(|line| {
            let line = line.ok()?;
            let (_, address) = line.split_once(" at http://")?;
            Some(format!("http://{}", address.trim()))
        });
        // What else it says is of no interest, but it must not be kept from saying it.
        std::thread::spawn(move || lines.for_each(drop));
        match url {
            Some(url) => Ok(Served { child, url }),
            None => Err("the server did not start".into()),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Its address, for whoever speaks to it in plain bytes.
    pub(super) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// How much memory it has, in bytes.
    pub(super) fn resident_bytes(&self) -> u64 {
        resident_bytes_of(&self.child.id().to_string())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
