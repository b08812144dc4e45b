//! The ground that workers stand on: which store it is, what befalls the process that serves it, and whether what is kept is sound.

use std::time::Instant;

use fencehold::store::file;

use super::Random;
use super::leader::Deed;
use crate::crew::{Process, Room, TTL};

pub(crate) trait Ground: Send {
    /// What is drawn from.
    fn deeds(&self) -> &'static [Deed];

    /// What must have befallen it while jobs ran; `share` of what a minute owes.
    fn owed(&self, share: &dyn Fn(usize) -> usize) -> Struck;

    /// What has.
    fn struck(&self) -> Struck {
        Struck::default()
    }

    /// Does to the process that serves the workers what was drawn.
    fn strike(&mut self, deed: Deed, jobs_run: bool, random: &mut Random) -> Strike;

    /// Continues those that were stopped for long enough, or `everybody`.
    fn wake(&mut self, _everybody: bool) {}

    /// When all workers have gone: ends who served them, if it stands in the way, and looks whether what is kept is sound.
    fn check(&mut self, room: &Room, jobs: usize);
}

/// What befell the process that serves the workers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Struck {
    pub(crate) deaths: usize,
    /// Connections that were ended.
    pub(crate) cut_off: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    Done,
    /// It cannot be done at the moment.
    NotNow,
    /// The one who serves is among the workers.
    AtAWorker,
}

const DEEDS: [Deed; 8] = [
    Deed::Kill,
    Deed::Kill,
    Deed::Kill,
    Deed::Stop,
    Deed::Stop,
    Deed::KillOwner,
    Deed::KillOwner,
    Deed::StopOwner,
];

/// Many times in a minute.
fn owed_to_owners(share: &dyn Fn(usize) -> usize) -> Struck {
    Struck { deaths: share(5), cut_off: 0 }
}

fn check_directory(room: &Room) {
    let report = file::check(&room.store()).unwrap();
    assert!(report.problems.is_empty() && report.set_aside == 0 && report.jobs == 0, "{report:?}");
}

/// A directory: one of the workers serves the others.
pub(crate) struct Directory;

impl Ground for Directory {
    fn deeds(&self) -> &'static [Deed] {
        &DEEDS
    }

    fn owed(&self, share: &dyn Fn(usize) -> usize) -> Struck {
        owed_to_owners(share)
    }

    fn strike(&mut self, _: Deed, _: bool, _: &mut Random) -> Strike {
        Strike::AtAWorker
    }

    fn check(&mut self, room: &Room, _: usize) {
        check_directory(room);
    }
}

/// A server with a directory behind it, in a process of its own.
pub(crate) struct Served {
    room: Room,
    process: Option<Process>,
    stopped: Option<Instant>,
    struck: Struck,
}

impl Served {
    pub(crate) fn new(room: &Room, process: Process) -> Self {
        Served { room: room.clone(), process: Some(process), stopped: None, struck: Struck::default() }
    }
}

impl Ground for Served {
    fn deeds(&self) -> &'static [Deed] {
        &DEEDS
    }

    fn owed(&self, share: &dyn Fn(usize) -> usize) -> Struck {
        owed_to_owners(share)
    }

    fn struck(&self) -> Struck {
        self.struck
    }

    /// Kills the server, which comes back at once, or stops it for a while.
    fn strike(&mut self, deed: Deed, jobs_run: bool, _: &mut Random) -> Strike {
        let Some(process) = self.process.as_mut().filter(|_| self.stopped.is_none()) else {
            return Strike::NotNow;
        };
        if deed == Deed::StopOwner {
            process.stop();
            self.stopped = Some(Instant::now());
        } else {
            process.kill();
            *process = process.again(&self.room);
            self.struck.deaths += usize::from(jobs_run);
        }
        Strike::Done
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

    fn check(&mut self, room: &Room, _: usize) {
        if let Some(process) = self.process.take() {
            process.finish();
        }
        // The books are read from the directory itself.
        std::fs::remove_file(room.sign()).unwrap();
        check_directory(room);
    }
}
