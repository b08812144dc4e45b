//! Running a race, and what became of it.

use std::fmt::{self, Write as _};

use crate::environment::{Environment, Side};
use crate::scenario::{RACES, Race};
use crate::script::Script;
use crate::trace::TraceEntry;

/// Whether the promise held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RaceVerdict {
    /// It did.
    Held,
    /// It did not, and what happened instead.
    Broken(String),
    /// This store cannot show the race, and why.
    NotApplicable(String),
}

impl fmt::Display for RaceVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RaceVerdict::Held => f.write_str("the promise held"),
            RaceVerdict::Broken(what) => f.write_str(what),
            RaceVerdict::NotApplicable(why) => write!(f, "not applicable: {why}"),
        }
    }
}

/// What became of one race.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RaceReport {
    /// What happened, in order.
    pub entries: Vec<TraceEntry>,
    /// Whether the promise held.
    pub verdict: RaceVerdict,
}

impl RaceReport {
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
        draw(&self.entries)
    }
}

/// Runs a race once in a fresh world. `seed` keeps its hold ids apart from those of every other run.
pub fn play(race: &Race, environment: &Environment, side: Side, seed: [u8; 8]) -> RaceReport {
    let script = Script::new(environment, side, seed);
    let verdict = race.play(&script).map_or_else(|end| end, |()| RaceVerdict::Held);
    RaceReport { entries: script.trace.entries(), verdict }
}

/// Runs every race on our side so many times, each time in a fresh world. Gives the ids of those that cannot be shown there; an
/// error has the picture of one that broke its promise.
pub fn play_all(environment: impl Fn() -> Environment, times: usize) -> Result<Vec<&'static str>, String> {
    let mut not_applicable = Vec::new();
    let runs = RACES.iter().flat_map(|race| std::iter::repeat_n(race, times));
    for (nth, race) in (0_u64..).zip(runs) {
        let report = play(race, &environment(), Side::Ours, nth.to_le_bytes());
        match report.verdict {
            RaceVerdict::Held => {}
            RaceVerdict::NotApplicable(_) => not_applicable.push(race.id),
            RaceVerdict::Broken(_) => {
                return Err(format!("{}: {}\n{}", race.id, report.verdict, report.picture()));
            }
        }
    }
    not_applicable.dedup();
    Ok(not_applicable)
}

/// The schedule as people draw it: one column for each actor, time downwards. Columns are in the order of appearance, each as wide as what it says.
fn draw(entries: &[TraceEntry]) -> String {
    let mut actors: Vec<&str> = Vec::new();
    for entry in entries {
        if !actors.contains(&entry.actor.as_str()) {
            actors.push(&entry.actor);
        }
    }
    let width_of = |actor: &&str| {
        let said = entries.iter().filter(|entry| entry.actor == **actor);
        let widest = said.map(|entry| entry.says.chars().count()).max().unwrap_or(0);
        widest.max(actor.chars().count())
    };
    let widths: Vec<usize> = actors.iter().map(width_of).collect();
    let mut picture = String::new();
    let mut line = |cell: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = (0..actors.len())
            .map(|at| format!("{:<width$}", cell(at), width = widths[at]))
            .collect();
        let _ = writeln!(picture, "  {}", cells.join("   ").trim_end());
    };
    line(&|at| actors[at].to_owned());
    for entry in entries {
        line(&|at| if actors[at] == entry.actor { entry.says.clone() } else { "│".to_owned() });
    }
    picture
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_actor_has_a_column_and_time_runs_downwards() {
        let entry =
            |actor: &str, says: &str| TraceEntry { actor: actor.into(), says: says.into(), event: None };
        let picture =
            draw(&[entry("A", "takes it: token 1"), entry("clock", "ttl runs out"), entry("A", "renews")]);
        let expected = "  A                   clock\n  takes it: token 1   │\n  │                   ttl runs out\n  renews              │\n";
        assert_eq!(picture, expected);
    }
}
