//! The command line on a PostgreSQL database.

use std::process::{Command, Output};

use fencehold_test_servers::postgres::{Durable, PostgresServer};

use crate::support::{TestDirectory, eventually};

fn fencehold(store: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fencehold"))
        .args(["--store", store])
        .args(args)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_database_is_a_store_like_any_other() {
    let cluster = PostgresServer::start(Durable::No);
    let store = cluster.url_text("fencehold");
    let json =
        |args: &[&str]| serde_json::from_str::<serde_json::Value>(&said(&fencehold(&store, args))).unwrap();

    let before = json(&["store", "migrate", "--dry-run", "-o", "json"]);
    assert_eq!(before["version"], 0, "looking makes nothing");
    let script = said(&fencehold(&store, &["store", "migrate", "--sql"]));
    assert!(script.contains("CREATE SCHEMA \"fencehold\";") && script.ends_with("COMMIT;\n"), "{script}");
    let status = json(&["store", "status", "-o", "json"]);
    assert_eq!(
        (&status["schema"]["version"], &status["schema"]["supported_version"]),
        (&0.into(), &before["supported_version"])
    );
    assert_eq!(
        json(&["store", "migrate", "--dry-run", "-o", "json"])["version"],
        0,
        "nor does asking how it stands"
    );
    assert!(said(&fencehold(&store, &["store", "status"])).contains("not there yet"));
    let made = json(&["store", "migrate", "-o", "json"]);
    assert_eq!(made["version"], made["supported_version"]);
    assert!(!made["applied"].as_array().unwrap().is_empty());
    assert_eq!(json(&["store", "migrate", "-o", "json"])["applied"], serde_json::json!([]));
    assert_eq!(before["pending"], made["applied"], "what would be carried out was said before");
    cluster.admin().run("CREATE ROLE hand LOGIN IN ROLE fencehold_worker");
    let worker = store.replacen("postgres@", "hand@", 1);
    said(&fencehold(&worker, &["store", "migrate"]));

    let token = said(&fencehold(&store, &["run", "--key", "k", "--", "sh", "-c", "echo $FENCEHOLD_TOKEN"]));
    assert_eq!(token.trim(), "1");
    said(&fencehold(&store, &["lease", "acquire", "k", "--ttl", "1m", "-o", "json"]));
    let held = fencehold(&store, &["run", "--key", "k", "--", "true"]);
    assert_eq!(held.status.code(), Some(75), "{held:?}");
    let status = json(&["store", "status", "-o", "json"]);
    assert_eq!((&status["held_count"], &status["schema"]["name"]), (&1.into(), &"fencehold".into()));
    assert_eq!(
        (&status["schema"]["version"], &status["schema"]["supported_version"]),
        (&made["version"], &made["supported_version"])
    );
    let version = format!("fencehold, version {0} of {0}", made["supported_version"]);
    let shown = said(&fencehold(&store, &["store", "status"]));
    assert!(shown.contains(&version), "{shown}");
    said(&fencehold(&store, &["lease", "revoke", "k", "--by", "P", "--reason", "done"]));
    let events = said(&fencehold(&store, &["event", "ls", "-o", "jsonl"]));
    assert_eq!(events.lines().count(), 4, "{events}");

    let elsewhere = fencehold("postgres://me:secret@127.0.0.1:1/app", &["store", "migrate"]);
    let complaint = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    assert_eq!(elsewhere.status.code(), Some(69), "{complaint}");
    assert!(
        complaint.contains("postgres://me@127.0.0.1:1/app") && !complaint.contains("secret"),
        "{complaint}"
    );
    cluster
        .admin()
        .run("INSERT INTO fencehold.migration VALUES (9999, 'of the future')");
    let newer = said(&fencehold(&store, &["store", "status"]));
    assert!(newer.contains("version 9999 of") && newer.contains("update this one"), "{newer}");
    let other = fencehold("memory:", &["store", "migrate"]);
    assert_eq!(other.status.code(), Some(2));
}

/// R43: the time for which the database's clock was set forward is no time that the claim stood in line.
#[test]
fn a_clock_set_forward_while_work_waits_runs_no_job_twice() {
    let cluster = PostgresServer::start(Durable::No);
    let store = cluster.url_text("fencehold");
    said(&fencehold(&store, &["store", "migrate"]));
    let admin = cluster.admin();
    admin.run(
        "CREATE TABLE fencehold.test_ahead (ms bigint NOT NULL);
         INSERT INTO fencehold.test_ahead VALUES (0);
         CREATE OR REPLACE FUNCTION fencehold.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
         'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + (SELECT ms FROM fencehold.test_ahead)';",
    );
    let dir = TestDirectory::new();
    // Two at a time: the second place takes the job if the first one's claim runs out under it.
    let command = "echo $FENCEHOLD_TOKEN >> begun; while [ ! -e end ]; do sleep 0.05; done";
    let mut work = dir.start(&[
        "--store",
        &store,
        "work",
        "--queue",
        "q",
        "--ttl",
        "6s",
        "--concurrency",
        "2",
        "--",
        "sh",
        "-c",
        command,
    ]);
    let queue = || {
        let said = said(&fencehold(&store, &["queue", "ls", "-o", "json"]));
        serde_json::from_str::<serde_json::Value>(&said).unwrap()
    };
    eventually("standing in line", || queue().to_string().contains("\"waiting_claim_count\":1"));
    admin.run("UPDATE fencehold.test_ahead SET ms = 45000");
    let enqueued = fencehold(&store, &["job", "enqueue", "--queue", "q", "--kind", "k", "--payload", "1"]);
    let id = said(&enqueued).trim().to_owned();
    let job = || {
        let said = said(&fencehold(&store, &["job", "get", &id, "-o", "json"]));
        serde_json::from_str::<serde_json::Value>(&said).unwrap()
    };
    eventually("a run", || !dir.lines("begun").is_empty());
    // Past its first term, by the database's own reckoning: only a renewal brings it there.
    eventually("a ttl after its claim", || {
        dir.lines("begun").len() > 1
            || job()["runner"]["age_ms"].as_u64().is_some_and(|age_ms| age_ms > 9_000)
    });
    std::fs::write(dir.path("end"), "").unwrap();
    eventually("its end", || job()["state"] == "completed");
    work.send(rustix::process::Signal::TERM);
    work.finish();
    assert_eq!(dir.lines("begun").len(), 1, "one run, and no second one beside it");
}
