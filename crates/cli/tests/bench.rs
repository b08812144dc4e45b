//! `fencehold bench`: it measures, on any store and in several processes, and leaves nothing behind.
#![cfg(feature = "file")]

use rustix::process::Signal;

use serde_json::{Value, json};

use crate::support::{CommandOutput, TestDirectory, eventually, said, until};

/// What a verb lists in the namespace of the benchmark.
fn list(dir: &TestDirectory, verb: &str) -> Vec<Value> {
    let listed = dir.json(&format!("{verb} --namespace fencehold.bench"));
    let elements = listed.as_object().unwrap().values().find_map(|elements| elements.as_array());
    elements.unwrap().clone()
}

/// Every operation that was to be measured has figures.
fn measured(bench: &CommandOutput, operations: [&str; 3]) {
    assert_eq!(bench.code, 0, "{bench:?}");
    let report = bench.json();
    let names: Vec<&str> = report["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|operation| {
            let figure = |name: &str| operation[name].as_u64().unwrap();
            assert!(figure("per_second") > 0, "{operation}");
            let (p50, p99, max) = (figure("p50_us"), figure("p99_us"), figure("max_us"));
            assert!(0 < p50 && p50 <= p99 && p99 <= max, "{operation}");
            operation["name"].as_str().unwrap()
        })
        .collect();
    assert_eq!(names, operations);
}

#[test]
fn leases_are_measured_in_every_process_and_none_is_held_afterwards() {
    let dir = TestDirectory::new();
    let bench = dir.fencehold("bench lease --processes 3 --clients 4 --duration 100ms -o json");
    measured(&bench, ["acquire", "release", "renew"]);
    assert_eq!(list(&dir, "lease ls"), Vec::<Value>::new());
    let used = list(&dir, "lease ls --include-free");
    let pairs: Vec<&str> = used.iter().filter_map(|lease| lease["key"].as_str()).collect();
    for key in ["bench/0/00000000", "bench/0/00000001", "bench/1/00000000", "bench/2/00000000"] {
        assert!(pairs.contains(&key), "{key}: {pairs:?}");
    }
    assert!(!pairs.contains(&"bench/1/00000001"), "there are four clients: {pairs:?}");
    let default = dir.json("lease ls --include-free");
    assert_eq!(default, json!({ "leases": [] }), "the user's own namespace is left alone");
}

#[test]
fn jobs_are_measured_in_several_processes_and_none_is_left() {
    let dir = TestDirectory::new();
    let bench = dir.fencehold("bench job --processes 2 --batch-size 7 --duration 100ms -o json");
    measured(&bench, ["enqueue", "claim", "complete"]);
    assert_eq!(list(&dir, "job ls"), Vec::<Value>::new());
}

#[test]
fn a_run_that_is_interrupted_deletes_its_jobs() {
    // Again and again: a call that was abandoned rarely has its effect only after all was deleted.
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)].repeat(12) {
        let dir = TestDirectory::new();
        let mut run = dir.start("bench job --duration 10m --processes 2 --clients 64");
        eventually("jobs", || {
            let listed = dir.fencehold("job ls --namespace fencehold.bench -o json");
            listed.code == 0 && listed.json() != json!({ "jobs": [] })
        });
        run.send(signal);
        assert_eq!(run.finish().code, code);
        assert_eq!(list(&dir, "job ls"), Vec::<Value>::new());
    }
}

#[test]
fn what_a_killed_run_leaves_behind_the_next_one_deletes() {
    let dir = TestDirectory::new();
    let mut run = dir.start("bench job --duration 10m");
    eventually("jobs", || {
        let listed = dir.fencehold("job ls --namespace fencehold.bench -o json");
        listed.code == 0 && listed.json() != json!({ "jobs": [] })
    });
    run.send(Signal::KILL);
    until("its end", || run.is_over().then_some(()));
    assert!(!list(&dir, "job ls").is_empty(), "completed jobs are kept");
    let next = dir.fencehold("bench job --duration 100ms -o json");
    measured(&next, ["enqueue", "claim", "complete"]);
    assert_eq!(list(&dir, "job ls"), Vec::<Value>::new());
}

#[test]
fn a_run_waits_until_another_has_ended() {
    let dir = TestDirectory::new();
    let other = dir.json("lease acquire bench --ttl 10m --namespace fencehold.bench");
    let mut run = dir.start("bench lease --duration 100ms -o json");
    eventually("a run in line", || dir.json("store status")["waiter_count"] == 1);
    assert_eq!(list(&dir, "lease ls --include-free").len(), 1, "it has not begun");
    let mut release = dir.command("lease release bench --namespace fencehold.bench");
    release
        .env("FENCEHOLD_HOLD_ID", other["hold_id"].as_str().unwrap())
        .env("FENCEHOLD_TOKEN", other["token"].to_string());
    said(&mut release).ended(0);
    measured(&run.finish(), ["acquire", "release", "renew"]);
}

#[test]
fn the_report_fits_a_terminal_of_80_columns() {
    let dir = TestDirectory::new();
    for words in ["lease", "job", "lease --batch-size 1000 --clients 1"] {
        let bench = dir.succeeds(&format!("bench {words} --store memory: --duration 100ms"));
        let bench = bench.prints(&["memory:", "PER SECOND"]);
        assert!(bench.out.lines().all(|line| line.chars().count() <= 80), "{}", bench.out);
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let dir = TestDirectory::new();
    for (options, why) in [
        ("--store memory: --processes 2", "in one process"),
        ("--clients 1 --processes 2", "--clients is too small"),
        ("--duration 11m", "from 100ms to 10m"),
        ("--clients 0", "--clients"),
        ("--batch-size 1001", "--batch-size"),
    ] {
        dir.fails(&format!("bench job {options}"), 2, &[why]);
    }
}
