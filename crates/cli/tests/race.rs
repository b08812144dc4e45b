//! `fencehold race`: what it prints, and its exit code.
#![cfg(all(feature = "file", feature = "race"))]

use fencehold_test_servers::etcd::EtcdCluster;
use fencehold_test_servers::object::ObjectServer;
use fencehold_test_servers::postgres::{Durable, PostgresServer};
use rustix::process::Signal;

use serde_json::Value;

use crate::support::{
    CommandOutput, RunningProcess, TestDirectory, eventually, found, get_page, said, serve, serve_with,
};

#[test]
fn a_race_that_holds_shows_trace_picture_promise_and_verdict() {
    TestDirectory::new().succeeds("race run r06").prints(&[
        r#"{"event":"lease_expired","key":"job/7","token":1,"forced":true}"#,
        r#"{"event":"worker_exit","owner":"B","reason":"success"}"#,
        "complete … on its way",
        "At stake:   P5 Check and write are one act",
        "Verdict:    the promise held",
    ]);
}

#[test]
fn the_naive_twin_shows_its_damage_and_exits_with_1() {
    let dir = TestDirectory::new();
    let said = dir.fencehold("race run R06 --naive").ended(1);
    said.prints(&["Verdict:    broken: the result of the holder stands"]);
    assert_eq!(dir.fencehold("race run --all --naive").code, 1);
    let none = dir.fencehold("race run R20 --naive");
    assert_eq!((none.code, none.out.as_str()), (2, ""), "{none:?}");
}

#[test]
fn a_race_that_the_store_cannot_show_is_not_taken_for_held() {
    let dir = TestDirectory::new();
    let said = dir.fencehold("race run R23 --store memory:").ended(77);
    assert!(said.out.contains("Verdict:    not applicable: it cannot be restarted"), "{}", said.out);
    // The others held.
    let all = dir.succeeds("race run --all --store memory: -o jsonl");
    assert!(all.out.contains("not_applicable"), "{}", all.out);
}

#[test]
fn every_race_holds_on_the_store_that_was_named_and_nothing_is_left_there() {
    let dir = TestDirectory::new();
    let place = dir.path("races");
    let url = format!("file:{}", place.display());
    let said = dir.succeeds(&["race", "run", "--all", "--store", &url, "-o", "jsonl"]);
    assert!(said.out.lines().count() > 20 && !said.out.contains("broken"), "{}", said.out);
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
}

/// A store whose time cannot be moved here: what runs out is waited for, what cannot be shown is said, nothing stays behind.
#[cfg(all(feature = "remote", feature = "server"))]
#[test]
fn races_run_on_a_server_that_is_in_use_and_leave_no_job_there() {
    let dir = TestDirectory::new();
    let (_server, address) = serve(&dir, "127.0.0.1:0");
    let url = format!("http://{address}");
    let said = dir.succeeds(&["race", "run", "--all", "--store", &url, "-o", "jsonl"]);
    let lines = Value::Array(said.json_lines());
    for id in ["R01", "R02", "R06", "R06-job", "R08-job", "R17", "R31", "R40"] {
        assert_eq!(found(&lines, "id", id)["verdict"], "held", "{id}: {lines}");
    }
    for id in ["R03", "R13", "R20", "R23-job", "R43"] {
        assert_eq!(found(&lines, "id", id)["verdict"], "not_applicable", "{id}: {lines}");
    }
    for noun in ["job", "queue", "lease"] {
        let left = dir.fencehold(&[noun, "ls", "--store", &url, "-o", "jsonl"]);
        assert_eq!((left.code, left.out.as_str()), (0, ""), "{noun}: {left:?}");
    }
}

/// What `race run --all -o jsonl` said on the store that was meant: each race, its verdict, and why.
fn verdicts(told: &CommandOutput, store: &str) -> Vec<[String; 3]> {
    let verdict = |line: Value| {
        // Without the options that say nothing about where it is.
        assert!(store.starts_with(line["store"].as_str().unwrap()), "{store}: {line}");
        ["id", "verdict", "message"].map(|name| line[name].as_str().unwrap().to_owned())
    };
    told.json_lines().into_iter().map(verdict).collect()
}

/// Default settings: on object storage the shortest ttl is 15 s, on etcd 2 s.
#[test]
fn every_race_holds_or_cannot_be_arranged_on_every_store_with_its_default_settings() {
    let (postgres, etcd) = (PostgresServer::start(Durable::No), EtcdCluster::start());
    let cloud = |scheme: &str, server: ObjectServer| {
        (format!("{scheme}://leases/races?endpoint={}", server.endpoint()), false)
    };
    let stores = [
        cloud("s3", ObjectServer::Moto),
        cloud("gs", ObjectServer::Gcs),
        cloud("az", ObjectServer::Azurite),
        (etcd.url("races").to_string(), false),
        (postgres.url_text("races"), true),
    ];
    let leases = ["R01", "R02", "R04", "R06", "R08", "R10", "R12", "R15", "R18", "R28", "R34"];
    let jobs = ["R06-job", "R17", "R31", "R40", "R45"];
    // Side by side, since leases are waited out.
    std::thread::scope(|scope| {
        for (store, keeps_jobs) in &stores {
            scope.spawn(move || {
                let dir = TestDirectory::new();
                let run = |words: &str| said(&mut dir.command_on(store, words));
                let told = run("race run --all -o jsonl").ended(0);
                // A machine that has too much to do may not answer in time, and that is said.
                let too_slow = ["is unavailable", "outcome is unknown", "in a ttl of"];
                let mut any_slow = false;
                for [id, verdict, why] in verdicts(&told, store) {
                    let id = id.as_str();
                    let shown = leases.contains(&id) || *keeps_jobs && jobs.contains(&id);
                    let slow = shown && too_slow.iter().any(|slow| why.contains(slow));
                    let expected = if shown && !slow { "held" } else { "not_applicable" };
                    if shown || jobs.contains(&id) {
                        assert_eq!(verdict, expected, "{store}, {id}: {why}");
                    }
                    any_slow |= too_slow.iter().any(|slow| why.contains(slow));
                    assert!(verdict != "broken" && !why.contains("least is"), "{store}, {id}: {why}");
                }
                let nothing_is_left = || run("lease ls -o jsonl").out.is_empty();
                if any_slow {
                    eventually("what could not be released in time runs out", nothing_is_left);
                } else {
                    assert!(nothing_is_left(), "{store}");
                }
            });
        }
    });
}

/// What people can see in a store: its queues, jobs, leases, schedules, and the series of its metrics.
fn seen_in(dir: &TestDirectory, store: &str, address: &str) -> Vec<String> {
    let nouns = ["queue", "job", "lease", "schedule", "effect"]
        .map(|noun| said(&mut dir.command_on(store, &[noun, "ls", "-o", "jsonl"])).ended(0).out);
    let metrics = get_page(address, "/metrics");
    // Counters count what happened, and ages grow; what there is has series of its own.
    let names = ["queue_", "jobs_unfinished ", "leases_held ", "lease_waiters "];
    let is_named = |rest: &str| names.iter().any(|name| rest.starts_with(name));
    let is_left =
        |line: &&str| line.strip_prefix("fencehold_").is_some_and(is_named) && !line.contains("_seconds");
    let series: Vec<&str> = metrics.lines().filter(is_left).collect();
    assert!(series.iter().any(|line| line.starts_with("fencehold_queue_jobs{")), "{metrics}");
    nouns.into_iter().chain(series.into_iter().map(str::to_owned)).collect()
}

/// A PostgreSQL schema with a job in a queue of its own, and a server that shows its metrics.
fn in_use(dir: &TestDirectory, postgres: &PostgresServer) -> (String, RunningProcess, String) {
    let store = postgres.url_text("in_use");
    said(&mut dir.command_on(&store, "job enqueue --queue mine --kind k --payload 1")).ended(0);
    let (server, address) = serve_with(dir.command_on(&store, "serve --listen 127.0.0.1:0"));
    (store, server, address)
}

#[test]
fn races_leave_nothing_behind_in_a_database_that_is_in_use() {
    let (dir, postgres) = (TestDirectory::new(), PostgresServer::start(Durable::No));
    let (store, _server, address) = in_use(&dir, &postgres);
    let before = seen_in(&dir, &store, &address);
    said(&mut dir.command_on(&store, "race run --all")).ended(0);
    assert_eq!(seen_in(&dir, &store, &address), before);
}

#[test]
fn races_that_a_signal_ends_leave_nothing_behind() {
    let (dir, postgres) = (TestDirectory::new(), PostgresServer::start(Durable::No));
    let (store, _server, address) = in_use(&dir, &postgres);
    let before = seen_in(&dir, &store, &address);
    for signal in [Signal::INT, Signal::TERM] {
        let mut races = RunningProcess::start(&mut dir.command_on(&store, "race run --all"));
        eventually("races under way", || {
            let seen = seen_in(&dir, &store, &address).concat();
            seen.contains("-work") && seen.contains("job/7")
        });
        races.send(signal);
        let told = races.finish();
        assert_eq!((told.code, told.out.as_str()), (128 + signal.as_raw(), ""), "{told:?}");
        assert_eq!(seen_in(&dir, &store, &address), before, "after {signal:?}");
    }
    // In a directory, each has one of its own, which goes with it.
    let place = dir.path("races");
    let url = format!("file:{}", place.display());
    let mut races = dir.start(&format!("race run --all --repeat 1000 --store {url}"));
    let count = || std::fs::read_dir(&place).map_or(0, Iterator::count);
    eventually("a race under way", || count() > 0);
    races.send(Signal::INT);
    assert_eq!(races.finish().code, 130);
    assert_eq!(count(), 0);
}

#[test]
fn a_race_runs_on_the_store_that_the_environment_names_and_says_which() {
    let dir = TestDirectory::new();
    let race = |options: &str| dir.command(&format!("race run R23 {options}"));
    // It cannot be shown in memory, so it ran where it says.
    assert_eq!(dir.json("race run R23")["store"], dir.store());
    said(&mut race("")).prints(&[&format!("Store:      {}", dir.store())]);
    for in_memory in [
        race("-o json").env_remove("FENCEHOLD_STORE").env_remove("HOME"),
        race("-o json").env("FENCEHOLD_STORE", ""),
        &mut race("--store memory: -o json"),
    ] {
        assert_eq!(said(in_memory).ended(77).json()["store"], "memory:");
    }
    said(race("").env("FENCEHOLD_STORE", "redis://h"))
        .ended(2)
        .says(&["FENCEHOLD_STORE"]);
}

/// A limit of the namespace refuses the ttl of every race: that says nothing about the store's promises.
#[cfg(all(feature = "remote", feature = "server"))]
#[test]
fn what_the_store_does_not_accept_cannot_be_arranged() {
    let dir = TestDirectory::new();
    let (_server, address) = serve(&dir, "127.0.0.1:0");
    let url = format!("http://{address}");
    dir.succeeds(&["quota", "set", "--max-ttl", "1s", "--store", &url]);
    for race in ["R04", "R12-job"] {
        let told = dir
            .fencehold(&format!("race run {race} --store {url} -o json"))
            .ended(77)
            .json();
        assert_eq!(told["verdict"], "not_applicable", "{told}");
        let why = told["message"].as_str().unwrap();
        assert!(why.contains("cannot be arranged") && why.contains("5000"), "{why}");
    }
    // Of all of them, none held: that is no success either.
    let all = dir.fencehold(&format!("race run --all --store {url} -o json")).ended(77).json();
    let reports = all["races"].as_array().unwrap();
    assert!(!reports.is_empty());
    for report in reports {
        assert_eq!(report["verdict"], "not_applicable", "{report}");
    }
}

#[test]
fn what_is_no_race_or_no_store_is_bad_usage() {
    let dir = TestDirectory::new();
    for words in ["race run R99", "race run R06 --repeat 0", "race run R06 --store redis://h", "race"] {
        let said = dir.fencehold(words).ended(2);
        assert_eq!(said.out, "", "{said:?}");
    }
    dir.fencehold("race run R06 --store file:/proc/no").ended(74);
}
