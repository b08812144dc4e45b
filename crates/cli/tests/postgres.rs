//! The command line on a PostgreSQL database.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

#[path = "../../store/tests/postgres/cluster.rs"]
mod cluster;

use std::process::{Command, Output};

use cluster::{Cluster, Durable};

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
    let cluster = Cluster::start(Durable::No);
    let store = cluster.url_text("fencehold");
    let json =
        |args: &[&str]| serde_json::from_str::<serde_json::Value>(&said(&fencehold(&store, args))).unwrap();

    let before = json(&["store", "migrate", "--dry-run", "-o", "json"]);
    assert_eq!(before["found"], 0, "looking makes nothing");
    let status = json(&["store", "status", "-o", "json"]);
    assert_eq!((&status["schema"]["found"], &status["schema"]["known"]), (&0.into(), &before["known"]));
    assert_eq!(
        json(&["store", "migrate", "--dry-run", "-o", "json"])["found"],
        0,
        "nor does asking how it stands"
    );
    assert!(said(&fencehold(&store, &["store", "status"])).contains("not there yet"));
    let made = json(&["store", "migrate", "-o", "json"]);
    assert_eq!(made["found"], made["known"]);
    assert!(!made["carried_out"].as_array().unwrap().is_empty());
    assert_eq!(json(&["store", "migrate", "-o", "json"])["carried_out"], serde_json::json!([]));

    let token = said(&fencehold(&store, &["run", "--key", "k", "--", "sh", "-c", "echo $FENCEHOLD_TOKEN"]));
    assert_eq!(token.trim(), "1");
    said(&fencehold(&store, &["lease", "acquire", "k", "--ttl", "1m", "-o", "json"]));
    let held = fencehold(&store, &["run", "--key", "k", "--", "true"]);
    assert_eq!(held.status.code(), Some(75), "{held:?}");
    let status = json(&["store", "status", "-o", "json"]);
    assert_eq!((&status["held"], &status["schema"]["name"]), (&1.into(), &"fencehold".into()));
    assert_eq!((&status["schema"]["found"], &status["schema"]["known"]), (&made["found"], &made["known"]));
    let version = format!("fencehold, version {0} of {0}", made["known"]);
    let shown = said(&fencehold(&store, &["store", "status"]));
    assert!(shown.contains(&version), "{shown}");
    said(&fencehold(&store, &["lease", "revoke", "k", "--by", "P", "--reason", "done"]));
    let events = said(&fencehold(&store, &["events", "-o", "jsonl"]));
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
