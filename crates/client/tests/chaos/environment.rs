//! The ground that workers stand on: which store it is, what befalls the process that serves it, and whether what is kept is sound.

use std::time::Instant;

use fencehold::store::file;

use super::Random;
use super::leader::Fault;
use crate::worker_processes::{TTL, WorkDirectory, WorkerProcess};

pub(crate) trait Environment: Send {
    /// What is drawn from.
    fn deeds(&self) -> &'static [Fault];

    /// What must have befallen it while jobs ran; `share` of what a minute owes.
    fn owed(&self, share: &dyn Fn(usize) -> usize) -> FaultedServer;

    /// What has.
    fn struck(&self) -> FaultedServer {
        FaultedServer::default()
    }

    /// Does to the process that serves the workers what was drawn.
    fn strike(&mut self, fault: Fault, jobs_run: bool, random: &mut Random) -> ServerFault;

    /// Continues those that were stopped for long enough, or `everybody`.
    fn wake(&mut self, _everybody: bool) {}

    /// When all workers have gone: ends who served them, if it stands in the way, and looks whether what is kept is sound.
    fn check(&mut self, work_dir: &WorkDirectory, jobs: usize);
}

/// What befell the process that serves the workers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FaultedServer {
    pub(crate) deaths: usize,
    /// Connections that were ended.
    pub(crate) cut_off: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerFault {
    Done,
    /// It cannot be done at the moment.
    NotNow,
    /// The one who serves is among the workers.
    AtAWorker,
}

const DEEDS: [Fault; 8] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Stop,
    Fault::Stop,
    Fault::KillOwner,
    Fault::KillOwner,
    Fault::StopOwner,
];

/// Many times in a minute.
fn owed_to_owners(share: &dyn Fn(usize) -> usize) -> FaultedServer {
    FaultedServer { deaths: share(5), cut_off: 0 }
}

fn check_directory(work_dir: &WorkDirectory) {
    let report = file::check(&work_dir.store()).unwrap();
    assert!(report.problems.is_empty() && report.set_aside == 0 && report.jobs == 0, "{report:?}");
}

/// A directory: one of the workers serves the others.
pub(crate) struct Directory;

impl Environment for Directory {
    fn deeds(&self) -> &'static [Fault] {
        &DEEDS
    }

    fn owed(&self, share: &dyn Fn(usize) -> usize) -> FaultedServer {
        owed_to_owners(share)
    }

    fn strike(&mut self, _: Fault, _: bool, _: &mut Random) -> ServerFault {
        ServerFault::AtAWorker
    }

    fn check(&mut self, work_dir: &WorkDirectory, _: usize) {
        check_directory(work_dir);
    }
}

/// A server with a directory behind it, in a process of its own.
pub(crate) struct ServedDirectory {
    work_dir: WorkDirectory,
    process: Option<WorkerProcess>,
    stopped: Option<Instant>,
    struck: FaultedServer,
}

impl ServedDirectory {
    pub(crate) fn new(work_dir: &WorkDirectory, process: WorkerProcess) -> Self {
        ServedDirectory {
            work_dir: work_dir.clone(),
            process: Some(process),
            stopped: None,
            struck: FaultedServer::default(),
        }
    }
}

impl Environment for ServedDirectory {
    fn deeds(&self) -> &'static [Fault] {
        &DEEDS
    }

    fn owed(&self, share: &dyn Fn(usize) -> usize) -> FaultedServer {
        owed_to_owners(share)
    }

    fn struck(&self) -> FaultedServer {
        self.struck
    }

    /// Kills the server, which comes back at once, or stops it for a while.
    fn strike(&mut self, fault: Fault, jobs_run: bool, _: &mut Random) -> ServerFault {
        let Some(process) = self.process.as_mut().filter(|_| self.stopped.is_none()) else {
            return ServerFault::NotNow;
        };
        if fault == Fault::StopOwner {
            process.stop();
            self.stopped = Some(Instant::now());
        } else {
            process.kill();
            *process = process.again(&self.work_dir);
            self.struck.deaths += usize::from(jobs_run);
        }
        ServerFault::Done
    }

    fn wake(&mut self, everybody: bool) {
        if let Some(since) = self.stopped
            && let Some(process) = &self.process
            && (everybody || since.elapsed() > 2 * TTL)
        {
            process.resume();
            self.stopped = None;
        }
    }

    fn check(&mut self, work_dir: &WorkDirectory, _: usize) {
        if let Some(process) = self.process.take() {
            process.finish();
        }
        // The books are read from the directory itself.
        std::fs::remove_file(work_dir.sign()).unwrap();
        check_directory(work_dir);
    }
}
