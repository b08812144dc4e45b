//! Every race, in a fresh arena each.

use std::sync::Arc;

use fencehold_races::{RACES, Race, Side, Verdict, World, play};
use fencehold_test_store::Arena;

/// Plays every race, and gives those that the store or its arena cannot show.
pub(crate) fn not_applicable(arena: impl Fn() -> Arc<dyn Arena>) -> Vec<&'static str> {
    let mut lacking = Vec::new();
    for (nth, race) in (0_u64..).zip(RACES) {
        let report = play(race, &World::in_arena(arena()), Side::Ours, nth.to_le_bytes());
        match report.verdict {
            Verdict::Held => {}
            Verdict::NotApplicable(_) => lacking.push(race.id),
            _ => panic!("{}: {}\n{}", race.id, report.verdict, report.picture()),
        }
    }
    lacking
}

/// Whether it needs a store that keeps jobs.
#[allow(dead_code, reason = "some stores keep everything")]
pub(crate) fn is_about_jobs(race: &Race) -> bool {
    race.id.ends_with("-job")
        || ["R07", "R16", "R17", "R31", "R33", "R40", "R42", "R43", "R45", "R47"].contains(&race.id)
}
