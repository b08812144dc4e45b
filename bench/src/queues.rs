//! The program of `bench/peers`: other queues on the same PostgreSQL, started once for each figure.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fencehold_load::Failed;
use serde::Deserialize;

#[derive(Clone, Debug)]
pub(crate) struct PeerQueues {
    pub(crate) program: PathBuf,
}

/// What a peer made of its jobs, a second.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Worked {
    pub(crate) bulk: f64,
    pub(crate) process: f64,
}

#[derive(Deserialize)]
struct Single {
    single: f64,
}

impl PeerQueues {
    pub(crate) fn process(
        &self,
        peer: &str,
        jobs: usize,
        concurrency: usize,
        batch: usize,
    ) -> Result<Worked, Failed> {
        let words = ["process", &jobs.to_string(), &concurrency.to_string(), &batch.to_string()];
        self.ask(peer, &words)
    }

    pub(crate) fn single(&self, peer: &str, clients: usize, time: Duration) -> Result<f64, Failed> {
        let words = ["single", &clients.to_string(), &time.as_secs_f64().to_string()];
        self.ask(peer, &words).map(|Single { single }| single)
    }

    /// Enqueues so many jobs, in a schema that is made afresh.
    pub(crate) fn fill(&self, peer: &str, jobs: usize) -> Result<(), Failed> {
        self.ask(peer, &["fill", &jobs.to_string()])
    }

    /// A worker that runs one job at a time.
    pub(crate) fn worker(&self, peer: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([peer, "work"]);
        command
    }

    fn ask<T: for<'de> Deserialize<'de>>(&self, peer: &str, words: &[&str]) -> Result<T, Failed> {
        let answer = Command::new(&self.program)
            .arg(peer)
            .args(words)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("{} cannot be started: {error}", self.program.display()))?;
        if !answer.status.success() {
            return Err(format!("{peer} {}: {}", words.join(" "), answer.status).into());
        }
        Ok(serde_json::from_slice(&answer.stdout)?)
    }

    /// Another session holds a snapshot, until this is dropped.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Failed> {
        let mut child = Command::new(&self.program)
            .arg("snapshot")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", self.program.display()))?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        let snapshot = Snapshot(child);
        if said.trim() == "held" { Ok(snapshot) } else { Err("no snapshot could be held".into()) }
    }
}

pub(crate) struct Snapshot(Child);

impl Drop for Snapshot {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
