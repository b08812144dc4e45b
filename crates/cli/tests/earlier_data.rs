//! What earlier versions wrote is opened by this one, and nothing is lost. See `fixtures/README.md`.
#![cfg(feature = "file")]

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fencehold_test_servers::postgres::{Durable, PostgresServer, as_server};
use serde_json::Value;

use crate::support::{TestDirectory, each, found};

const EARLIER: &str = "0c7405e";
const NAMESPACES: [&str; 2] = ["default", "tenant"];
/// Longer ago than any fixture was made: what has ended is not removed for its age.
const KEEP: &str = "keep_finished=3650d";

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join(EARLIER).join(name)
}

fn seen(name: &str) -> Value {
    serde_json::from_slice(&fs::read(fixture(name)).unwrap()).unwrap()
}

/// A store, as the command line shows it.
struct ShownStore<'a> {
    dir: &'a TestDirectory,
    store: String,
}

impl ShownStore<'_> {
    fn json(&self, namespace: &str, words: &[&str]) -> Value {
        let options = ["--store", &self.store, "--namespace", namespace, "-o", "json"];
        self.dir.fencehold(&[words, &options].concat()).json()
    }

    /// Everything that was shown then is shown now.
    fn assert_kept(&self, then: &Value) {
        for namespace in NAMESPACES {
            let then = &then[namespace];
            for job in then["jobs"].as_array().unwrap() {
                let id = job["id"].as_str().unwrap();
                assert_job(&self.json(namespace, &["job", "get", id]), job);
            }
            let queues = &self.json(namespace, &["queue", "ls"])["queues"];
            for queue in then["queues"].as_array().unwrap() {
                let now = found(queues, "name", queue["name"].clone());
                assert_eq!(now["mode"], queue["mode"], "{queue}");
            }
            let schedules = &self.json(namespace, &["schedule", "ls"])["schedules"];
            for schedule in then["schedules"].as_array().unwrap() {
                let now = found(schedules, "name", schedule["name"].clone());
                assert_keeps(now, schedule, &["last_run_at", "next_run_at"]);
            }
            assert_keeps(&self.json(namespace, &["effect", "ls"])["effects"], &then["effects"], &[]);
            let (now, then) = (self.json(namespace, &["event", "ls"]), then["events"].as_array().unwrap());
            let now = now["events"].as_array().unwrap();
            assert!(now.len() >= then.len(), "{} events of {}", now.len(), then.len());
            now.iter().zip(then).for_each(|(now, then)| assert_keeps(now, then, &[]));
        }
        for namespace in NAMESPACES {
            for lease in then[namespace]["leases"].as_array().unwrap() {
                self.assert_lease(namespace, lease);
            }
        }
    }

    /// Who held it holds it, and no token comes twice.
    fn assert_lease(&self, namespace: &str, then: &Value) {
        let key = then["key"].as_str().unwrap();
        let now = self.json(namespace, &["lease", "get", key]);
        if then["holder"].is_object() {
            let moving = ["age_ms", "remaining_ms", "renewed_ago_ms"];
            assert_keeps(&now["holder"], &then["holder"], &moving);
            assert_eq!(now["token"], then["token"], "{now}");
        } else {
            let taken = self.json(namespace, &["lease", "acquire", key, "--ttl", "1h"]);
            assert!(taken["token"].as_u64() > then["token"].as_u64(), "{key}: {taken} after {then}");
        }
    }
}

fn assert_job(now: &Value, then: &Value) {
    // Its time may have come since.
    let waits = then["state"] == "scheduled";
    let mut moving = vec!["due_in_ms", "remaining_ms", "age_ms", "checkpoint_bytes"];
    if waits {
        assert!(now["state"] == "scheduled" || now["state"] == "queued", "{now}");
        moving.extend(["state", "state_changed_at"]);
    }
    assert_keeps(now, then, &moving);
    // Only its length was shown then.
    if let Some(bytes) = then["checkpoint_bytes"].as_u64() {
        let base64 = now["checkpoint"].as_str().unwrap();
        assert_eq!(base64.trim_end_matches('=').len() as u64, (bytes * 8).div_ceil(6), "{now}");
    }
}

/// Whether all of an earlier answer is in one of now, but for what moves with time. An answer of now may have more.
fn assert_keeps(now: &Value, then: &Value, moving: &[&str]) {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            for (name, then) in then.iter().filter(|(name, _)| !moving.contains(&name.as_str())) {
                match now.get(name) {
                    Some(now) => assert_keeps(now, then, moving),
                    // A list that is empty is left out.
                    None => assert!(then.as_array().is_some_and(Vec::is_empty), "{name} is lost: {now:?}"),
                }
            }
        }
        (Value::Array(now), Value::Array(then)) => {
            assert_eq!(now.len(), then.len(), "{now:?} {then:?}");
            now.iter().zip(then).for_each(|(now, then)| assert_keeps(now, then, moving));
        }
        _ => assert_eq!(now, then),
    }
}

#[test]
fn a_directory_whose_owner_was_killed_is_opened_and_nothing_is_lost() {
    let dir = TestDirectory::new();
    let directory = dir.path("earlier");
    DirBuilder::new().mode(0o700).create(&directory).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(fixture("directory.tar.gz")).arg("-C").arg(&directory);
    assert!(tar.status().unwrap().success());
    let shown = ShownStore { dir: &dir, store: format!("file:{}?{KEEP}", directory.display()) };
    let then = seen("seen-file.json");
    shown.assert_kept(&then);
    let tokens = &shown.json("default", &["access-token", "ls", "--include-inactive"])["access_tokens"];
    for token in then["access_tokens"].as_array().unwrap() {
        assert_keeps(found(tokens, "id", token["id"].clone()), token, &[]);
    }
    // The audit calls what was done then by the names of now.
    let audit = shown.json("default", &["audit", "ls"]);
    let tokens = ["create_access_token", "create_access_token", "revoke_access_token"];
    let others = ["revoke_lease", "cancel_job", "set_schedule", "set_schedule", "pause_queue", "drain_queue"];
    assert_eq!(each(&audit["entries"], "action"), [&others[..], &tokens].concat());
}

#[test]
fn a_dump_of_a_database_is_opened_and_nothing_is_lost() {
    let (dir, cluster) = (TestDirectory::new(), PostgresServer::start(Durable::No));
    let url = cluster.url_text("fencehold");
    let mut gzip = Command::new("gzip");
    gzip.arg("-dc").arg(fixture("postgres.sql.gz")).stdout(Stdio::piped());
    let mut unzip = gzip.spawn().unwrap();
    let loaded = as_server("psql")
        .args(["-q", "-v", "ON_ERROR_STOP=1", "-d", url.split('?').next().unwrap()])
        .stdin(unzip.stdout.take().unwrap())
        .stdout(Stdio::null())
        .status();
    assert!(loaded.unwrap().success() && unzip.wait().unwrap().success());
    // What was held when the dump was made had a day left, by the database's clock. So it has now.
    let admin = cluster.admin();
    for table in ["lease_hold", "job_running"] {
        let again = "deadline_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + ttl_ms";
        admin.run(&format!("UPDATE fencehold.{table} SET {again}"));
    }
    let shown = ShownStore { dir: &dir, store: format!("{url}&{KEEP}") };
    shown.json("default", &["store", "migrate"]);
    let then = seen("seen-postgres.json");
    shown.assert_kept(&then);
    // The views show it, too.
    for namespace in NAMESPACES {
        let all = |what: &str| then[namespace][what].as_array().unwrap();
        for (view, name) in [("jobs", "id"), ("schedules", "name"), ("leases", "key")] {
            for known in all(view) {
                let known = known[name].as_str().unwrap();
                let sql = format!(
                    "SELECT count(*) FROM fencehold.{view} WHERE namespace = '{namespace}' AND {name}::text = '{known}'"
                );
                assert_eq!(admin.value(&sql), "1", "{view}: {known}");
            }
        }
        let events =
            admin.value(&format!("SELECT count(*) FROM fencehold.events WHERE namespace = '{namespace}'"));
        assert!(events.parse::<usize>().unwrap() >= all("events").len());
    }
    assert!(admin.value("SELECT count(*) FROM fencehold.jobs WHERE state = 'in_doubt'") != "0");
}
