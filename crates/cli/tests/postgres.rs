//! The command line on a PostgreSQL database.

use fencehold_test_servers::postgres::{Durable, PostgresServer};
use serde_json::json;

use crate::support::{TestDirectory, assert_has, eventually, said};

#[test]
fn a_database_is_a_store_like_any_other() {
    let (dir, cluster) = (TestDirectory::new(), PostgresServer::start(Durable::No));
    let store = cluster.url_text("fencehold");
    let fencehold = |words: &str| said(&mut dir.command_on(&store, words));
    let json = |words: &str| fencehold(&format!("{words} -o json")).ended(0).json();

    let before = json("store migrate --dry-run");
    assert_eq!(before["version"], 0, "looking makes nothing");
    let script = fencehold("store migrate --sql").ended(0).out;
    assert!(script.contains("CREATE SCHEMA \"fencehold\";") && script.ends_with("COMMIT;\n"), "{script}");
    let versions = json!({ "version": 0, "supported_version": before["supported_version"] });
    assert_has(&json("store status")["schema"], &versions);
    assert_eq!(json("store migrate --dry-run")["version"], 0, "nor does asking how it stands");
    fencehold("store status").ended(0).prints(&["not there yet"]);
    let made = json("store migrate");
    assert_eq!(made["version"], made["supported_version"]);
    assert!(!made["applied"].as_array().unwrap().is_empty());
    assert_eq!(json("store migrate")["applied"], json!([]));
    assert_eq!(before["pending"], made["applied"], "what would be carried out was said before");
    cluster.admin().run("CREATE ROLE hand LOGIN IN ROLE fencehold_worker");
    let worker = store.replacen("postgres@", "hand@", 1);
    said(&mut dir.command_on(&worker, "store migrate")).ended(0);

    let checks = json("doctor");
    let mut checks = checks["checks"].as_array().unwrap().iter();
    let clock = checks.find(|check| check["name"] == "database clock").unwrap();
    assert!(
        clock["verdict"] == "passed" && clock.to_string().contains("decides when leases expire"),
        "{clock}"
    );

    let token = fencehold("run --key k -- sh -c 'echo $FENCEHOLD_TOKEN'").ended(0);
    assert_eq!(token.out.trim(), "1");
    fencehold("lease acquire k --ttl 1m -o json").ended(0);
    // Its process has ended, and left that behind; but for one that the database kept waiting for over a second.
    eventually("contention is left behind", || {
        fencehold("run --key k -- true").ended(75);
        json("lease ls --contended")["keys"][0]["key"] == "k"
    });
    let status = json("store status");
    assert_eq!(status["held_count"], 1, "{status}");
    let supported = &made["supported_version"];
    let schema = json!({ "name": "fencehold", "version": made["version"], "supported_version": supported });
    assert_has(&status["schema"], &schema);
    let version = format!("fencehold, version {supported} of {supported}");
    fencehold("store status").ended(0).prints(&[&version]);
    fencehold("lease revoke k --by P --reason done").ended(0);
    let events = fencehold("event ls -o jsonl").ended(0);
    assert_eq!(events.out.lines().count(), 4, "{events:?}");

    let elsewhere = "--store postgres://me:secret@127.0.0.1:1/app store migrate";
    let elsewhere = dir.fails(elsewhere, 69, &["postgres://me@127.0.0.1:1/app"]);
    assert!(!elsewhere.err.contains("secret"), "{elsewhere:?}");
    cluster
        .admin()
        .run("INSERT INTO fencehold.migration VALUES (9999, 'of the future')");
    fencehold("store status")
        .ended(0)
        .prints(&["version 9999 of", "update this one"]);
    dir.fencehold("--store memory: store migrate").ended(2);
}

/// R43: the time for which the database's clock was set forward is no time that the claim stood in line.
#[test]
fn a_clock_set_forward_while_work_waits_runs_no_job_twice() {
    let (dir, cluster) = (TestDirectory::new(), PostgresServer::start(Durable::No));
    let store = cluster.url_text("fencehold");
    let fencehold = |words: &str| said(&mut dir.command_on(&store, words)).ended(0);
    fencehold("store migrate");
    let admin = cluster.admin();
    admin.run(
        "CREATE TABLE fencehold.test_ahead (ms bigint NOT NULL);
         INSERT INTO fencehold.test_ahead VALUES (0);
         CREATE OR REPLACE FUNCTION fencehold.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
         'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + (SELECT ms FROM fencehold.test_ahead)';",
    );
    // Two at a time: the second place takes the job if the first one's claim runs out under it.
    let command = "echo $FENCEHOLD_TOKEN >> begun; while [ ! -e end ]; do sleep 0.05; done";
    let words = format!("--store {store} work --queue q --ttl 6s --concurrency 2 -- sh -c '{command}'");
    let mut work = dir.start(&words);
    eventually("standing in line", || {
        fencehold("queue ls -o json").json()["queues"][0]["waiting_claim_count"] == 1
    });
    admin.run("UPDATE fencehold.test_ahead SET ms = 45000");
    let id = fencehold("job enqueue --queue q --kind k --payload 1").out;
    let job = || fencehold(&format!("job get {id} -o json")).json();
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
