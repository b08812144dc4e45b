//! `fencehold race`: what it prints, and its exit code.
#![cfg(all(feature = "file", feature = "race"))]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use fencehold_test_servers::etcd::EtcdCluster;
use fencehold_test_servers::object::{ACCOUNT, ACCOUNT_KEY, ObjectServer};
use fencehold_test_servers::postgres::{Durable, PostgresServer};
use rustix::process::Signal;

use crate::support::{CommandOutput, RunningProcess, TestDirectory, eventually, said, serve};

#[test]
fn a_race_that_holds_shows_trace_picture_promise_and_verdict() {
    let said = TestDirectory::new().fencehold(&["race", "run", "r06"]);
    assert_eq!(said.code, 0, "{said:?}");
    for part in [
        r#"{"event":"lease_expired","key":"job/7","token":1,"forced":true}"#,
        r#"{"event":"worker_exit","owner":"B","reason":"success"}"#,
        "complete … on its way",
        "At stake:   P5 Check and write are one act",
        "Verdict:    the promise held",
    ] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
}

#[test]
fn the_naive_twin_shows_its_damage_and_exits_with_1() {
    let dir = TestDirectory::new();
    let said = dir.fencehold(&["race", "run", "R06", "--naive"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("Verdict:    broken: the result of the holder stands"), "{}", said.out);
    assert_eq!(dir.fencehold(&["race", "run", "--all", "--naive"]).code, 1);
    let none = dir.fencehold(&["race", "run", "R20", "--naive"]);
    assert_eq!((none.code, none.out.as_str()), (2, ""), "{none:?}");
}

#[test]
fn a_race_that_the_store_cannot_show_is_not_taken_for_held() {
    let dir = TestDirectory::new();
    let said = dir.fencehold(&["race", "run", "R23", "--store", "memory:"]);
    assert_eq!(said.code, 77, "{said:?}");
    assert!(said.out.contains("Verdict:    not applicable: it cannot be restarted"), "{}", said.out);
    let all = dir.fencehold(&["race", "run", "--all", "--store", "memory:", "-o", "jsonl"]);
    assert_eq!(all.code, 0, "the others held: {all:?}");
    assert!(all.out.contains("not_applicable"), "{}", all.out);
}

#[test]
fn every_race_holds_on_the_store_that_was_named_and_nothing_is_left_there() {
    let dir = TestDirectory::new();
    let place = dir.path("races");
    let url = format!("file:{}", place.display());
    let said = dir.fencehold(&["race", "run", "--all", "--store", &url, "-o", "jsonl"]);
    assert_eq!(said.code, 0, "{said:?}");
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
    let said = dir.fencehold(&["race", "run", "--all", "--store", &url, "-o", "jsonl"]);
    assert_eq!(said.code, 0, "{said:?}");
    let lines: Vec<serde_json::Value> =
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdict = |id: &str| {
        let line = lines.iter().find(|line| line["id"] == id).unwrap();
        line["verdict"].as_str().unwrap().to_owned()
    };
    for id in ["R01", "R02", "R06", "R06-job", "R08-job", "R17", "R31", "R40"] {
        assert_eq!(verdict(id), "held", "{id}: {}", said.out);
    }
    for id in ["R03", "R13", "R20", "R23-job", "R43"] {
        assert_eq!(verdict(id), "not_applicable", "{id}: {}", said.out);
    }
    for noun in ["job", "queue", "lease"] {
        let left = dir.fencehold(&[noun, "ls", "--store", &url, "-o", "jsonl"]);
        assert_eq!((left.code, left.out.as_str()), (0, ""), "{noun}: {left:?}");
    }
}

/// A command on a store that is not on this machine, with the credentials that the servers for tests know.
fn on(dir: &TestDirectory, store: &str, words: &[&str]) -> Command {
    let mut command = dir.command(words);
    command
        .env("FENCEHOLD_STORE", store)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AZURE_STORAGE_ACCOUNT", ACCOUNT)
        .env("AZURE_STORAGE_KEY", ACCOUNT_KEY);
    command
}

/// What `race run --all -o jsonl` said on the store that was meant: each race, its verdict, and why.
fn verdicts(told: &CommandOutput, store: &str) -> Vec<[String; 3]> {
    let lines = told
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let verdict = |line: serde_json::Value| {
        // Without the options that say nothing about where it is.
        assert!(store.starts_with(line["store"].as_str().unwrap()), "{store}: {line}");
        ["id", "verdict", "message"].map(|name| line[name].as_str().unwrap().to_owned())
    };
    lines.map(verdict).collect()
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
                let run = |words: &[&str]| said(&mut on(&dir, store, words));
                let told = run(&["race", "run", "--all", "-o", "jsonl"]);
                assert_eq!(told.code, 0, "{store}: {told:?}");
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
                let nothing_is_left = || run(&["lease", "ls", "-o", "jsonl"]).out.is_empty();
                if any_slow {
                    eventually("what could not be released in time runs out", nothing_is_left);
                } else {
                    assert!(nothing_is_left(), "{store}");
                }
            });
        }
    });
}

/// A server on a store, and where it listens.
fn serve_on(dir: &TestDirectory, store: &str) -> (RunningProcess, String) {
    let mut command = on(dir, store, &["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        line.contains("serving ")
            .then(|| line.split_once("http://").unwrap().1.trim().to_owned())
    });
    // To the end: a full pipe would stop it.
    std::thread::spawn(move || lines.count());
    (RunningProcess::adopt(child), address.unwrap())
}

/// What people can see in a store: its queues, jobs, leases, schedules, and the series of its metrics.
fn seen_in(dir: &TestDirectory, store: &str, address: &str) -> Vec<String> {
    let nouns = ["queue", "job", "lease", "schedule", "effect"].map(|noun| {
        let list = said(&mut on(dir, store, &[noun, "ls", "-o", "jsonl"]));
        assert_eq!(list.code, 0, "{noun}: {list:?}");
        list.out
    });
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\nhost: {address}\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    // Counters count what happened, and ages grow; what there is has series of its own.
    let is_left = |line: &&str| {
        let names = [
            "fencehold_queue_",
            "fencehold_jobs_unfinished ",
            "fencehold_leases_held ",
            "fencehold_lease_waiters ",
        ];
        names.iter().any(|name| line.starts_with(name)) && !line.contains("_seconds")
    };
    let series: Vec<&str> = metrics.lines().filter(is_left).collect();
    assert!(series.iter().any(|line| line.starts_with("fencehold_queue_jobs{")), "{metrics}");
    nouns.into_iter().chain(series.into_iter().map(str::to_owned)).collect()
}

/// A PostgreSQL schema with a job in a queue of its own, and a server that shows its metrics.
fn in_use(dir: &TestDirectory, postgres: &PostgresServer) -> (String, RunningProcess, String) {
    let store = postgres.url_text("in_use");
    let words = ["job", "enqueue", "--queue", "mine", "--kind", "k", "--payload", "1"];
    let enqueued = said(&mut on(dir, &store, &words));
    assert_eq!(enqueued.code, 0, "{enqueued:?}");
    let (server, address) = serve_on(dir, &store);
    (store, server, address)
}

#[test]
fn races_leave_nothing_behind_in_a_database_that_is_in_use() {
    let (dir, postgres) = (TestDirectory::new(), PostgresServer::start(Durable::No));
    let (store, _server, address) = in_use(&dir, &postgres);
    let before = seen_in(&dir, &store, &address);
    let told = said(&mut on(&dir, &store, &["race", "run", "--all"]));
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(seen_in(&dir, &store, &address), before);
}

#[test]
fn races_that_a_signal_ends_leave_nothing_behind() {
    let (dir, postgres) = (TestDirectory::new(), PostgresServer::start(Durable::No));
    let (store, _server, address) = in_use(&dir, &postgres);
    let before = seen_in(&dir, &store, &address);
    for signal in [Signal::INT, Signal::TERM] {
        let mut races = RunningProcess::start(&mut on(&dir, &store, &["race", "run", "--all"]));
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
    let words = ["race", "run", "--all", "--repeat", "1000", "--store", &url];
    let mut races = RunningProcess::start(&mut dir.command(words));
    let count = || std::fs::read_dir(&place).map_or(0, Iterator::count);
    eventually("a race under way", || count() > 0);
    races.send(Signal::INT);
    assert_eq!(races.finish().code, 130);
    assert_eq!(count(), 0);
}

#[test]
fn a_race_runs_on_the_store_that_the_environment_names_and_says_which() {
    let dir = TestDirectory::new();
    let told = |words: &[&str], change: &dyn Fn(&mut Command)| {
        let mut command = dir.command([&["race", "run", "R23"], words].concat());
        change(&mut command);
        said(&mut command)
    };
    // It cannot be shown in memory, so it ran where it says.
    let named = told(&["-o", "json"], &|_| {});
    assert_eq!((named.code, &named.json()["store"]), (0, &dir.store().into()), "{named:?}");
    let shown = told(&[], &|_| {});
    assert!(shown.out.contains(&format!("Store:      {}", dir.store())), "{shown:?}");
    let unset = |command: &mut Command| {
        command.env_remove("FENCEHOLD_STORE").env_remove("HOME");
    };
    let nothing = |command: &mut Command| {
        command.env("FENCEHOLD_STORE", "");
    };
    let by_flag = told(&["--store", "memory:", "-o", "json"], &|_| {});
    for in_memory in [told(&["-o", "json"], &unset), told(&["-o", "json"], &nothing), by_flag] {
        assert_eq!((in_memory.code, &in_memory.json()["store"]), (77, &"memory:".into()), "{in_memory:?}");
    }
    let bad = told(&[], &|command| {
        command.env("FENCEHOLD_STORE", "redis://h");
    });
    assert!(bad.code == 2 && bad.err.contains("FENCEHOLD_STORE"), "{bad:?}");
}

/// A limit of the namespace refuses the ttl of every race: that says nothing about the store's promises.
#[cfg(all(feature = "remote", feature = "server"))]
#[test]
fn what_the_store_does_not_accept_cannot_be_arranged() {
    let dir = TestDirectory::new();
    let (_server, address) = serve(&dir, "127.0.0.1:0");
    let url = format!("http://{address}");
    let limit = dir.fencehold(&["quota", "set", "--max-ttl", "1s", "--store", &url]);
    assert_eq!(limit.code, 0, "{limit:?}");
    for race in ["R04", "R12-job"] {
        let told = dir.fencehold(&["race", "run", race, "--store", &url, "-o", "json"]);
        assert_eq!((told.code, &told.json()["verdict"]), (77, &"not_applicable".into()), "{told:?}");
        let why = told.json()["message"].as_str().unwrap().to_owned();
        assert!(why.contains("cannot be arranged") && why.contains("5000"), "{why}");
    }
}

#[test]
fn what_is_no_race_or_no_store_is_bad_usage() {
    let dir = TestDirectory::new();
    for words in [
        &["race", "run", "R99"] as &[&str],
        &["race", "run", "R06", "--repeat", "0"],
        &["race", "run", "R06", "--store", "redis://h"],
        &["race"],
    ] {
        let said = dir.fencehold(words);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{words:?}: {said:?}");
    }
    let said = dir.fencehold(&["race", "run", "R06", "--store", "file:/proc/no"]);
    assert_eq!(said.code, 74, "{said:?}");
}
