//! Every race holds on `memory:` and `file:`, and every naive twin breaks.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use fencehold_contract::StoreUrl;
use fencehold_races::{Environment, RACES, Race, RaceReport, RaceVerdict, Side, play, play_all};

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
