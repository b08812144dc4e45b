//! The simulation holds, tells the same story twice, and meets every kind of trouble.
#![cfg(feature = "sim")]
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use fencehold_race::sim;

#[test]
fn no_seed_breaks_a_promise_and_no_trouble_is_missing() {
    let summary = sim::run(0, 200);
    assert_eq!(summary.broken, None, "{summary}");
    assert_eq!(summary.missing(), [""; 0], "{summary}");
    assert!(summary.operations() > 200 * 200, "{summary}");
}

#[test]
fn one_seed_tells_one_story_byte_for_byte() {
    for seed in [1, 7, 4_711] {
        let (story, outcome) = sim::replay(seed);
        assert!(story.lines().count() > 400, "seed {seed} tells {} lines", story.lines().count());
        assert_eq!((story, outcome), sim::replay(seed));
    }
}
