//! The simulation: the real engine under virtual time and seeded trouble.
//!
//! Nouns: a *seed* decides everything; a *mix* is what one seed is made of (how many owners and keys, which faults, how
//! bad a network); the *auditor* keeps an account of its own and holds every answer against it; the *story* is what
//! happened, line by line. One seed, one story, byte for byte.
//!
//! One seed in sixty-four has SQLite itself under it, on a simulated disk; the others have a simulated log.
//!
//! Deliberately absent: threads, real time, real disks. The engine's own thread has tests of its own.

mod audit;
mod counters;
mod disk;
mod final_checks;
mod history;
mod owner;
mod owner_steps;
mod plan;
mod possible_states;
mod random;
mod sqlite;
mod storage;
mod store;
mod worker_steps;
mod world;

use std::fmt;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use self::counters::{CLOCK_OFF, Counters, ON_SQLITE};
use self::plan::{SimFault, StorageKind};
use self::world::Simulation;

/// Of so many histories, at least one must have SQLite itself under it. One in sixty-four draws it.
const SQLITE_AT_LEAST_ONE_IN: u64 = 100;
/// With fewer seeds than this, shares are a matter of luck.
const SEEDS_THAT_HAVE_SHARES: u64 = 1_000;

/// What became of many seeds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// How many seeds were run.
    pub seeds: u64,
    /// The first seed that broke a promise, and which.
    pub broken: Option<(u64, String)>,
    /// What was under the store.
    pub under: SimStorage,
    tally: Counters,
}

impl Summary {
    fn new(under: SimStorage) -> Self {
        Summary { seeds: 0, broken: None, under, tally: Counters::default() }
    }

    /// Why so many seeds prove too little, each in a sentence: something never happened, or SQLite itself was hardly there.
    pub fn shortfalls(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let missing = self.missing();
        if !missing.is_empty() {
            sentences.push(format!("never happened: {}; more seeds are needed", missing.join(", ")));
        }
        let (least, there) = (self.seeds / SQLITE_AT_LEAST_ONE_IN, self.tally.of(ON_SQLITE));
        if self.seeds >= SEEDS_THAT_HAVE_SHARES && there < least {
            sentences.push(format!(
                "only {there} of {} histories drove SQLite itself, and {least} are the least",
                self.seeds
            ));
        }
        sentences
    }

    /// What never happened, although it should have.
    pub fn missing(&self) -> Vec<&'static str> {
        let faults = SimFault::ALL.into_iter().map(SimFault::name);
        let others = [
            "message lost",
            "message doubled",
            "answer not read",
            "message late",
            "sent again",
            "taken for lost",
            "acquire: granted",
            "acquire: granted in line",
            "acquire: resumed",
            "acquire: refused",
            "renew: done",
            "renew: refused",
            "release: done",
            "release: refused",
            "revoke: done",
            "revoke: not held",
            "look",
            "enqueue: made",
            "enqueue: known already",
            "enqueue: conflict",
            "claim: given",
            "claim: given in line",
            "claim: empty",
            "renew claim: done",
            "renew claim: called off",
            "renew claim: refused",
            "complete: done",
            "complete: late",
            "complete: refused",
            "fail: done",
            "fail: late",
            "fail: refused",
            "snooze: done",
            "hand back: done",
            "other words: refused",
            "checkpoint: done",
            "progress: done",
            "ledger: announced",
            "ledger: recorded",
            "ledger: in doubt",
            "ledger: refused",
            "cancel: done",
            "cancel: asked for",
            "cancel: refused",
            "start over: done",
            "start over: refused",
            "end by force: done",
            "end by force: refused",
            "queue: paused",
            "queue: opened",
            "look at a job",
            "undo job given",
            "schedule: set",
            "schedule: fired",
            CLOCK_OFF,
            ON_SQLITE,
            if self.under == SimStorage::Sqlite { ON_SQLITE } else { "history on a log" },
        ];
        faults.chain(others).filter(|what| !self.tally.has(what)).collect()
    }

    /// How many questions were decided.
    pub fn operations(&self) -> u64 {
        self.tally.operations
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tally)?;
        writeln!(f, "{} seeds, {} operations", self.seeds, self.operations())?;
        if let Some((seed, why)) = &self.broken {
            let under = if self.under == SimStorage::Sqlite { " --sqlite" } else { "" };
            writeln!(f, "seed {seed} BROKEN: {why}\nreplay it with: proof sim replay {seed}{under}")?;
        }
        Ok(())
    }
}

/// What is under the store in a run of seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimStorage {
    /// What each seed draws.
    #[default]
    Drawn,
    /// SQLite, whatever the seed draws.
    Sqlite,
}

impl SimStorage {
    fn instead(self) -> Option<StorageKind> {
        (self == SimStorage::Sqlite).then_some(StorageKind::Sqlite)
    }
}

/// Runs seeds from `first` on, as many at a time as the machine can, and stops at the first that breaks a promise.
pub fn run(first: u64, seeds: u64, under: SimStorage) -> Summary {
    let next = AtomicU64::new(first);
    // Seeds after this one need not be run: one before them is broken.
    let last = AtomicU64::new(first + seeds);
    let summary = Mutex::new(Summary::new(under));
    let run_some = || {
        let mut own = Summary::new(under);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last.load(Ordering::Relaxed) {
                break;
            }
            let mut world = Simulation::new(seed, under.instead(), false);
            let outcome = world.run();
            own.seeds += 1;
            own.tally.add(&world.tally);
            if let Err(why) = outcome {
                last.fetch_min(seed, Ordering::Relaxed);
                own.broken = Some((seed, why));
                break;
            }
        }
        let mut all = summary.lock().unwrap_or_else(PoisonError::into_inner);
        all.seeds += own.seeds;
        all.tally.add(&own.tally);
        let earlier = |broken: &(u64, String)| all.broken.as_ref().is_none_or(|(seed, _)| broken.0 < *seed);
        if let Some(broken) = own.broken.filter(earlier) {
            all.broken = Some(broken);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(run_some);
        }
    });
    summary.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The story of one seed, and whether a promise was broken.
pub fn replay(seed: u64, under: SimStorage) -> (String, Result<(), String>) {
    let mut world = Simulation::new(seed, under.instead(), true);
    let outcome = world.run();
    (world.story.unwrap_or_default(), outcome)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop at anything")]
mod tests;
