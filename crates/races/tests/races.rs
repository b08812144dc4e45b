//! Every race holds on `memory:` and `file:`, and every naive twin breaks.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use std::sync::Arc;

use fencehold_contract::{LeaseStore, StoreUrl};
use fencehold_engine::MemoryStore;
use fencehold_races::{Environment, RACES, Race, RaceReport, RaceVerdict, Side, play, play_all};
use fencehold_test_store::{ClockedTestStore, TestCapability, TestStore};

fn run(race: &Race, url: &StoreUrl, side: Side, nth: u64) -> RaceReport {
    play(race, &Environment::open(url).unwrap(), side, nth.to_le_bytes())
}

fn all_hold(url: &StoreUrl, times: usize) -> Vec<&'static str> {
    play_all(|| Environment::open(url).unwrap(), times).unwrap_or_else(|broken| panic!("{url}: {broken}"))
}

#[test]
fn every_race_holds_on_memory() {
    assert_eq!(
        all_hold(&StoreUrl::memory(), 20),
        ["R23", "R23-job", "R47"],
        "a store that keeps nothing cannot be restarted"
    );
}

#[cfg(feature = "file")]
#[test]
fn every_race_holds_on_file() {
    let room = tempfile::tempdir().unwrap();
    assert_eq!(all_hold(&StoreUrl::file(room.path()), 2), [""; 0]);
    assert_eq!(std::fs::read_dir(room.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn every_naive_twin_breaks_under_the_same_schedule() {
    for race in RACES.iter().filter(|race| race.naive.is_some()) {
        let report = run(race, &StoreUrl::memory(), Side::Naive, 0);
        assert!(
            matches!(report.verdict, RaceVerdict::Broken(_)),
            "{}: {}\n{}",
            race.id,
            report.verdict,
            report.picture()
        );
    }
    let twins = ["R01", "R02", "R03", "R06", "R08", "R09", "R12", "R13", "R15", "R19"];
    assert!(
        twins
            .iter()
            .all(|id| fencehold_races::find(id).is_some_and(|race| race.naive.is_some()))
    );
}

/// An arena whose ttl is shorter than its store accepts.
struct TooShort(ClockedTestStore);

impl TestStore for TooShort {
    fn store(&self) -> Arc<dyn LeaseStore> {
        self.0.store()
    }

    fn test_capabilities(&self) -> Vec<TestCapability> {
        self.0.test_capabilities()
    }

    fn ttl_ms(&self) -> u64 {
        self.store().capabilities().min_ttl_ms - 1
    }

    fn pass(&self, ms: u64) {
        self.0.pass(ms);
    }

    fn shift_wall(&self, by_ms: i64) {
        self.0.shift_wall(by_ms);
    }
}

#[test]
fn what_the_store_does_not_accept_is_not_taken_for_a_broken_promise() {
    for race in RACES {
        let test_store = TooShort(ClockedTestStore::new(MemoryStore::open));
        let environment = Environment::in_test_store(Arc::new(test_store));
        let report = play(race, &environment, Side::Ours, [0; 8]);
        let (said, cannot) =
            (report.verdict.to_string(), matches!(report.verdict, RaceVerdict::NotApplicable(_)));
        // R32 chooses its own ttl, and R45 has one that is long enough.
        assert!(cannot || ["R32", "R45"].contains(&race.id), "{}: {said}", race.id);
        if cannot && !said.contains("restarted") {
            assert!(said.contains("this store's least is 100 ms"), "{}: {said}", race.id);
        }
        assert!(!report.trace().contains("promise_broken"), "{}", report.trace());
    }
}

#[test]
fn a_trace_is_json_lines_in_order_and_names_no_hold_id() {
    let race = fencehold_races::find("r06").unwrap();
    let report = run(race, &StoreUrl::memory(), Side::Ours, 0);
    let events: Vec<String> = report
        .trace()
        .lines()
        .map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} {}", event["event"].as_str().unwrap(), event["token"])
        })
        .collect();
    let expected = [
        "lease_acquired 1",
        "lease_expired 1",
        "lease_acquired 2",
        "completed 2",
        "stale_write_blocked null",
        "worker_exit null",
        "worker_exit null",
    ];
    assert_eq!(events, expected);
    let blocked = r#"{"event":"stale_write_blocked","key":"job/7","stale_token":1,"current_token":2,"#;
    assert!(report.trace().contains(blocked), "{}", report.trace());
}
