//! The event log of a server: nothing is missing and nothing is there twice, whenever the server is killed.
#![cfg(all(feature = "file", feature = "server"))]

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{CommandOutput, RunningProcess, TestDirectory, eventually, said};

/// Starts a server that logs, and says where it listens.
fn serve(dir: &TestDirectory, store: &str, log: &str, options: &[&str]) -> (RunningProcess, String) {
    let words = ["serve", "--listen", "127.0.0.1:0", "--store", store, "--event-log", log];
    let mut command = dir.command(&[&words, options].concat());
    command.env("FENCEHOLD_SERVE_ACCESS_FILE", dir.path(&format!("{log}.access.db")));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "a server that starts");
        if let Some((_, address)) = line.trim_end().split_once(" at http://") {
            break format!("http://{address}");
        }
    };
    std::thread::spawn(move || stderr.read_to_end(&mut Vec::new()));
    (RunningProcess::adopt(child), address)
}

fn kill(mut server: RunningProcess) {
    server.send(Signal::KILL);
    server.child.wait().unwrap();
}

/// The whole lines of a log, as they stand in its files.
fn lines(dir: &TestDirectory, log: &str) -> Vec<Value> {
    let mut files: Vec<_> = std::fs::read_dir(dir.path(log))
        .into_iter()
        .flatten()
        .map(|file| file.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let text: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
        .collect()
}

/// The events among them, without their namespace.
fn events(lines: &[Value]) -> Vec<Value> {
    let own = ["begin", "start", "gap", "audit"];
    let events = lines.iter().filter(|line| !own.contains(&line["type"].as_str().unwrap()));
    let mut events: Vec<Value> = events.cloned().collect();
    for event in &mut events {
        assert_eq!(event["namespace"], "default");
        event.as_object_mut().unwrap().remove("namespace");
    }
    events
}

fn of_type(lines: &[Value], kind: &str) -> Vec<Value> {
    lines.iter().filter(|line| line["type"] == kind).cloned().collect()
}

fn fencehold(dir: &TestDirectory, store: &str, words: &[&str]) -> CommandOutput {
    let said = dir.fencehold(&[&["--store", store, "--timeout", "2m"], words].concat());
    assert_eq!(said.code, 0, "{words:?}: {} {}", said.code, said.err);
    said
}

fn enqueue(dir: &TestDirectory, store: &str, count: usize) {
    std::fs::write(dir.path("jobs.jsonl"), "1\n".repeat(count)).unwrap();
    fencehold(dir, store, &["job", "enqueue", "--queue", "q", "--kind", "k", "--jsonl", "jobs.jsonl"]);
}

/// What the store itself has.
fn kept(dir: &TestDirectory, store: &str) -> Vec<Value> {
    let said = fencehold(dir, store, &["event", "ls", "-o", "jsonl"]);
    said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Kills the server while it logs, again and again. At the end the log is what the store has, each event once.
fn killed_again_and_again(dir: &TestDirectory, store: &str) {
    const ROUNDS: usize = 8;
    const EACH: usize = 250;
    let small = ["--event-log-file-bytes", "20000"];
    for round in 0..ROUNDS {
        let (server, _) = serve(dir, store, "log", &small);
        enqueue(dir, store, EACH);
        // At another place each time, most of them in the middle.
        let enough = round * EACH + round * EACH / ROUNDS;
        eventually("some are logged", || events(&lines(dir, "log")).len() >= enough);
        kill(server);
    }
    let (server, _) = serve(dir, store, "log", &small);
    let all = kept(dir, store);
    assert_eq!(all.len(), ROUNDS * EACH);
    eventually("all are logged", || events(&lines(dir, "log")).len() >= all.len());
    kill(server);
    let lines = lines(dir, "log");
    assert_eq!(events(&lines), all);
    assert_eq!((of_type(&lines, "gap").len(), of_type(&lines, "start").len()), (0, 1), "{lines:?}");
    assert!(of_type(&lines, "begin").len() > 3, "it has several files");
}

#[test]
fn a_server_that_is_killed_at_any_moment_logs_every_event_once() {
    let dir = TestDirectory::new();
    let store = dir.store();
    killed_again_and_again(&dir, &store);
    // Nor does the last line have to be whole.
    let newest = std::fs::read_dir(dir.path("log")).unwrap().map(|file| file.unwrap().path());
    let newest = newest.filter(|path| path.extension().is_some()).max().unwrap();
    let mut text = std::fs::read(&newest).unwrap();
    text.truncate(text.len() - 10);
    std::fs::write(&newest, text).unwrap();
    let (mut server, _) = serve(&dir, &store, "log", &[]);
    enqueue(&dir, &store, 1);
    let all = kept(&dir, &store);
    eventually("all are logged", || events(&lines(&dir, "log")).len() >= all.len());
    server.send(Signal::TERM);
    server.child.wait().unwrap();
    assert_eq!(events(&lines(&dir, "log")), all);
}

/// The others wait for the store or write to it by themselves; this one stops in good order.
#[test]
fn a_server_that_stops_logs_what_happened_until_then() {
    let dir = TestDirectory::new();
    let (mut server, address) = serve(&dir, &dir.store(), "log", &[]);
    for _ in 0..5 {
        fencehold(&dir, &address, &["run", "--key", "k", "--", "true"]);
    }
    server.send(Signal::TERM);
    server.child.wait().unwrap();
    assert_eq!(events(&lines(&dir, "log")), kept(&dir, &dir.store()));
}

#[test]
fn what_the_store_no_longer_keeps_is_a_line_and_said_once() {
    let dir = TestDirectory::new();
    let store = dir.store();
    let (server, _) = serve(&dir, &store, "log", &[]);
    enqueue(&dir, &store, 5);
    eventually("they are logged", || events(&lines(&dir, "log")).len() == 5);
    kill(server);
    enqueue(&dir, &store, 17_000);
    for _ in 0..2 {
        let (server, _) = serve(&dir, &store, "log", &[]);
        let newest = kept(&dir, &store).pop().unwrap()["seq"].to_string();
        let newest = format!("\"seq\":{newest},");
        let log = || std::fs::read_to_string(dir.path("log/events-0000000001.jsonl")).unwrap();
        eventually("all are logged", || log().lines().next_back().is_some_and(|line| line.contains(&newest)));
        kill(server);
    }
    let lines = lines(&dir, "log");
    let gaps = of_type(&lines, "gap");
    let (logged, oldest) = (events(&lines), kept(&dir, &store)[0]["seq"].as_u64().unwrap());
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    let gap = &gaps[0];
    assert_eq!(
        (&gap["namespace"], &gap["reason"], &gap["after"]),
        (&json!("default"), &json!("no_longer_kept"), &logged[4]["seq"])
    );
    assert_eq!(gap["seq"], oldest - 1, "it goes on with the oldest that is kept");
    assert_eq!(logged[5..], kept(&dir, &store));
    let shown = dir.fencehold(&["event", "ls", "--event-log", "log", "--since", "1h"]);
    assert!(
        shown.out.contains("GAP") && shown.out.contains("no longer keeps"),
        "{:?}",
        shown.out.get(..2_000)
    );
}

#[test]
fn a_store_that_was_restored_to_an_earlier_state_is_said_and_all_that_it_has_is_logged() {
    let dir = TestDirectory::new();
    let store = dir.store();
    enqueue(&dir, &store, 3);
    fencehold(&dir, &store, &["store", "backup", "backup"]);
    let (server, _) = serve(&dir, &store, "log", &[]);
    enqueue(&dir, &store, 40);
    eventually("they are logged", || events(&lines(&dir, "log")).len() == 43);
    kill(server);
    let other = format!("file:{}", dir.path("restored").display());
    fencehold(&dir, &other, &["store", "restore", "backup", "--by", "ada"]);
    let (server, _) = serve(&dir, &other, "log", &[]);
    eventually("what it has is logged", || {
        events(&lines(&dir, "log")).len() >= 43 + kept(&dir, &other).len()
    });
    kill(server);
    let lines = lines(&dir, "log");
    let gaps = of_type(&lines, "gap");
    assert_eq!((gaps.len(), &gaps[0]["reason"]), (1, &json!("store_behind")), "{gaps:?}");
    assert_eq!(events(&lines)[43..], kept(&dir, &other));
}

#[test]
fn force_is_logged_with_the_name_and_the_reason_and_the_log_is_read_by_time_and_namespace() {
    let dir = TestDirectory::new();
    let (mut server, address) = serve(&dir, &dir.store(), "log", &["--event-log-namespace", "quiet"]);
    fencehold(
        &dir,
        &address,
        &["lease", "acquire", "deploy", "--owner", "ci", "--task", "run-42/a", "--ttl", "1h"],
    );
    fencehold(&dir, &address, &["lease", "revoke", "deploy", "--by", "ada", "--reason", "wrong branch"]);
    fencehold(&dir, &address, &["quota", "set", "--max-keys", "10", "--by", "bob"]);
    fencehold(&dir, &address, &["--namespace", "team-a", "run", "--key", "theirs", "--", "true"]);
    let has = |text: &str| lines(&dir, "log").iter().any(|line| line.to_string().contains(text));
    eventually("all is logged", || has("revoke_lease") && has("set_quota") && has("theirs") && has("quiet"));
    server.send(Signal::TERM);
    server.child.wait().unwrap();

    let lines = lines(&dir, "log");
    let ended = &of_type(&lines, "lease_ended")[0];
    assert_eq!(
        (&ended["key"], &ended["by"], &ended["reason"], &ended["outcome"]),
        (&json!("deploy"), &json!("ada"), &json!("wrong branch"), &json!("revoked")),
    );
    let audit = of_type(&lines, "audit");
    let (revoked, quota) = (&audit[0], &audit[1]);
    assert_eq!(
        (&revoked["action"], &revoked["reason"], &revoked["outcome"], &revoked["namespace"]),
        (&json!("revoke_lease"), &json!("wrong branch (by ada)"), &json!("done"), &json!("default")),
    );
    assert!(quota["action"] == "set_quota" && quota["reason"].as_str().unwrap().contains("bob"), "{quota}");

    let log = |options: &[&str]| dir.fencehold(&[&["event", "ls", "--event-log", "log"], options].concat());
    let jsonl = log(&["--all-namespaces", "-o", "jsonl"]);
    let read: Vec<Value> = jsonl.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let all: Vec<Value> = lines.iter().filter(|line| line["type"] != "begin").cloned().collect();
    assert_eq!(read, all, "the lines, as they stand there");
    assert_eq!(log(&["--all-namespaces", "-o", "json"]).json(), json!({ "lines": all }));
    let table = log(&[]).out;
    assert!(table.contains("ended by ada, because wrong branch") && table.contains("set_quota"), "{table}");
    assert!(!table.contains("theirs"), "another namespace: {table}");
    assert!(log(&["--namespace", "team-a"]).out.contains("theirs"));
    assert_eq!(log(&["--until", "1h"]).out, "", "nothing is that old");
    assert_eq!(log(&["--since", "1h"]).out, table);
    assert_eq!(log(&["--since", "2026-01-01T00:00:00Z", "--until", "2026-01-02T00:00:00Z"]).out, "");
    let prefix = log(&["--prefix", "deploy", "-o", "jsonl"]).out;
    assert_eq!(prefix.lines().count(), 2, "{prefix}");
    assert_eq!(log(&["--task-prefix", "run-42", "-o", "jsonl"]).out, prefix);
    assert_eq!(log(&["--task-prefix", "run-4", "-o", "jsonl"]).out, "");
    let missing = dir.fencehold(&["event", "ls", "--event-log", "nowhere"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.err.contains("nowhere: No such file"), "{missing:?}");
}

#[test]
fn events_of_a_store_are_listed_by_time_too() {
    let dir = TestDirectory::new();
    assert_eq!(dir.fencehold(&["run", "--key", "k", "--", "true"]).code, 0);
    let count = |options: &[&str]| {
        let said = dir.fencehold(&[&["event", "ls", "-o", "jsonl"], options].concat());
        assert_eq!(said.code, 0, "{said:?}");
        said.out.lines().count()
    };
    assert_eq!((count(&[]), count(&["--since", "1h"]), count(&["--until", "1h"])), (2, 2, 0));
    assert_eq!(
        (count(&["--since", "2999-01-01T00:00:00Z"]), count(&["--until", "2999-01-01T00:00:00Z"])),
        (0, 2)
    );
    let bad = dir.fencehold(&["event", "ls", "--since", "yesterday"]);
    assert_eq!(bad.code, 2, "{bad:?}");
    assert!(bad.err.contains("neither a duration nor a moment"), "{bad:?}");
}

#[test]
fn a_directory_that_cannot_be_used_is_an_error_before_anything_is_served() {
    let dir = TestDirectory::new();
    let (server, _) = serve(&dir, &dir.store(), "log", &[]);
    let start = |log: &str, options: &[&str]| {
        let words = ["serve", "--listen", "127.0.0.1:0", "--event-log", log];
        let mut command = dir.command(&[&words, options].concat());
        said(command.env("FENCEHOLD_SERVE_ACCESS_FILE", dir.path("other.access.db")))
    };
    let second = start("log", &[]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.err.contains("in use by another server"), "{second:?}");
    assert!(second.err.contains("a directory of its own"), "{second:?}");
    kill(server);
    std::fs::write(dir.path("file"), "").unwrap();
    assert_eq!(start("file", &[]).code, 1);
    for (options, says) in [
        (["--event-log-file-bytes", "0"], "event_log.file_bytes"),
        (["--event-log-file-age", "soon"], "event_log.file_age"),
        (["--event-log-keep", "-1d"], "event_log.keep"),
        (["--event-log-namespace", "a,,\u{7}"], "event_log.namespaces"),
    ] {
        let said = start("log", &options);
        assert_eq!(said.code, 2, "{options:?}: {said:?}");
        assert!(said.err.contains(says), "{options:?}: {said:?}");
    }
    let damaged = std::fs::read_to_string(dir.path("log/events-0000000001.jsonl")).unwrap();
    std::fs::write(dir.path("log/events-0000000001.jsonl"), format!("x\n{damaged}")).unwrap();
    let said = start("log", &[]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("line 1 of") && said.err.contains("Move the file away"), "{said:?}");
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use fencehold_test_servers::postgres::{Durable, PostgresServer};

    use super::*;

    #[test]
    fn a_server_that_is_killed_at_any_moment_logs_every_event_once() {
        let cluster = PostgresServer::start(Durable::No);
        let (dir, store) = (TestDirectory::new(), cluster.url_text("fencehold"));
        fencehold(&dir, &store, &["store", "migrate"]);
        killed_again_and_again(&dir, &store);
    }

    #[test]
    fn each_of_several_servers_logs_everything_in_a_directory_of_its_own() {
        let cluster = PostgresServer::start(Durable::No);
        let (dir, store) = (TestDirectory::new(), cluster.url_text("fencehold"));
        fencehold(&dir, &store, &["store", "migrate"]);
        let (first, one) = serve(&dir, &store, "log-1", &[]);
        let (second, other) = serve(&dir, &store, "log-2", &[]);
        for through in [&one, &other, &store] {
            fencehold(&dir, through, &["run", "--key", "k", "--", "true"]);
        }
        let all = kept(&dir, &store);
        for log in ["log-1", "log-2"] {
            eventually("all are logged", || events(&lines(&dir, log)).len() >= all.len());
            assert_eq!(events(&lines(&dir, log)), all, "{log}");
        }
        kill(first);
        kill(second);
    }
}
