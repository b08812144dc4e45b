//! Running a race, and what became of it.

use std::fmt::{self, Write as _};

use crate::picture;
use crate::scenario::{RACES, Race};
use crate::stage::{Stage, Stop};
use crate::trace::Entry;
use crate::world::{Side, World};

/// Whether the promise held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It did.
    Held,
    /// It did not, and what happened instead.
    Broken(String),
    /// This store cannot show the race, and why.
    NotApplicable(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Held => f.write_str("the promise held"),
            Verdict::Broken(what) => f.write_str(what),
            Verdict::NotApplicable(why) => write!(f, "not applicable: {why}"),
        }
    }
}

/// What became of one race.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What happened, in order.
    pub entries: Vec<Entry>,
    /// Whether the promise held.
    pub verdict: Verdict,
}

impl Report {
    /// What happened, as JSON lines.
    pub fn trace(&self) -> String {
        let events = self.entries.iter().filter_map(|entry| entry.event.as_ref());
        let mut lines = String::new();
        for event in events {
            let _ = writeln!(lines, "{event}");
        }
        lines
    }

    /// The schedule, one column for each actor.
    pub fn picture(&self) -> String {
        picture::draw(&self.entries)
    }
}

/// Runs a race once in a fresh world. `seed` keeps its hold ids apart from those of every other run.
pub fn play(race: &Race, world: &World, side: Side, seed: [u8; 8]) -> Report {
    let stage = Stage::new(world, side, seed);
    let played = (race.script)(&stage);
    if world.shared {
        stage.removes_its_job();
    }
    let verdict = match played {
        Ok(()) => Verdict::Held,
        Err(Stop::Broken(what)) => Verdict::Broken(what),
        Err(Stop::NotApplicable(why)) => Verdict::NotApplicable(why),
    };
    Report { entries: stage.trace.entries(), verdict }
}

/// Runs every race on our side so many times, each time in a fresh world. Gives the ids of those that cannot be shown there; an
/// error has the picture of one that broke its promise.
pub fn play_all(world: impl Fn() -> World, times: usize) -> Result<Vec<&'static str>, String> {
    let mut not_applicable = Vec::new();
    let runs = RACES.iter().flat_map(|race| std::iter::repeat_n(race, times));
    for (nth, race) in (0_u64..).zip(runs) {
        let report = play(race, &world(), Side::Ours, nth.to_le_bytes());
        match report.verdict {
            Verdict::Held => {}
            Verdict::NotApplicable(_) => not_applicable.push(race.id),
            Verdict::Broken(_) => {
                return Err(format!("{}: {}\n{}", race.id, report.verdict, report.picture()));
            }
        }
    }
    not_applicable.dedup();
    Ok(not_applicable)
}
