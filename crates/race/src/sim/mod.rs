//! The simulation: the real engine under virtual time and seeded trouble.
//!
//! Nouns: a *seed* decides everything; a *mix* is what one seed is made of (how many owners and keys, which faults, how
//! bad a network); the *auditor* keeps an account of its own and holds every answer against it; the *story* is what
//! happened, line by line. One seed, one story, byte for byte.
//!
//! Deliberately absent: threads, real time, real disks. The engine's own thread and SQLite have tests of their own.

mod audit;
mod chance;
mod deeds;
mod disk;
mod history;
mod mix;
mod owner;
mod store;
mod tally;
mod world;

use std::fmt;

use self::mix::Fault;
use self::tally::Tally;
use self::world::World;

/// What became of many seeds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// How many seeds were run.
    pub seeds: u64,
    /// The first seed that broke a promise, and which.
    pub broken: Option<(u64, String)>,
    tally: Tally,
}

impl Summary {
    /// What never happened, although it should have.
    pub fn missing(&self) -> Vec<&'static str> {
        let faults = Fault::ALL.into_iter().map(Fault::name);
        let others = [
            "message lost",
            "message doubled",
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
            "look",
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
            writeln!(f, "seed {seed} BROKEN: {why}\nreplay it with: proof sim replay {seed}")?;
        }
        Ok(())
    }
}

/// Runs seeds from `first` on, and stops at the first that breaks a promise.
pub fn run(first: u64, seeds: u64) -> Summary {
    let mut summary = Summary { seeds: 0, broken: None, tally: Tally::default() };
    for seed in first..first + seeds {
        let mut world = World::new(seed, false);
        let outcome = world.run();
        summary.seeds += 1;
        summary.tally.add(&world.tally);
        if let Err(why) = outcome {
            summary.broken = Some((seed, why));
            break;
        }
    }
    summary
}

/// The story of one seed, and whether a promise was broken.
pub fn replay(seed: u64) -> (String, Result<(), String>) {
    let mut world = World::new(seed, true);
    let outcome = world.run();
    (world.story.unwrap_or_default(), outcome)
}
