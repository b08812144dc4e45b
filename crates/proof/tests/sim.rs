//! The simulation holds, tells the same story twice, and meets every kind of trouble.

use fencehold_proof::sim::{self, SimStorage};

#[test]
fn no_seed_breaks_a_promise_and_no_trouble_is_missing() {
    let summary = sim::run(0, 400, SimStorage::Drawn);
    assert_eq!(summary.broken, None, "{summary}");
    assert_eq!(summary.missing(), [""; 0], "{summary}");
    assert!(summary.operations() > 400 * 200, "{summary}");
}

#[test]
fn no_seed_breaks_a_promise_on_sqlite_itself() {
    let summary = sim::run(1_000, 30, SimStorage::Sqlite);
    assert_eq!(summary.broken, None, "{summary}");
}

#[test]
fn one_seed_tells_one_story_byte_for_byte() {
    for (seed, under) in [
        (1, SimStorage::Drawn),
        (7, SimStorage::Drawn),
        (4_711, SimStorage::Drawn),
        (1, SimStorage::Sqlite),
        (12, SimStorage::Sqlite),
    ] {
        let (story, outcome) = sim::replay(seed, under);
        assert!(story.lines().count() > 400, "seed {seed} tells {} lines", story.lines().count());
        assert_eq!((story, outcome), sim::replay(seed, under));
    }
}
