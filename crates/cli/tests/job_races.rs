//! R06 and R09 by real processes: a worker that lost its claim cannot report on the job, whatever its name.
#![cfg(feature = "file")]

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{RunningProcess, TestDirectory, assert_has};

/// A worker that claims, waits for its turn to speak, and completes. Each step is printed to stdout.
fn worker(dir: &TestDirectory, name: &str, ttl: &str) -> RunningProcess {
    let binary = env!("CARGO_BIN_EXE_fencehold");
    let script = format!(
        "vars=$({binary} job claim --queue q --owner {name} --ttl {ttl} --wait 60s -o env) || exit
         eval \"$vars\"; echo $FENCEHOLD_TOKEN
         read -r go; {binary} job complete --result '\"{name}\"' >/dev/null; echo $?"
    );
    RunningProcess::start(dir.shell(&script).stdin(Stdio::piped()))
}

/// The trace without what differs from run to run.
fn trace(dir: &TestDirectory) -> Vec<Value> {
    let told = ["type", "token", "owner", "attempt", "outcome", "current_token", "action"];
    let plain = |event: Value| {
        let kept = event.as_object().unwrap().clone().into_iter();
        let kept = kept.filter(|(name, value)| told.contains(&name.as_str()) && !value.is_null());
        Value::Object(kept.collect())
    };
    dir.events().into_iter().map(plain).collect()
}

/// A's claim runs out, B claims and completes, then A completes.
fn overtaken(first: &str, second: &str) {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "");
    let mut a = worker(&dir, first, "100ms");
    let old: u64 = a.line().parse().unwrap();
    // Its claim expires: it is not renewed. B has stood in line for it, and gets it when it comes back.
    let mut b = worker(&dir, second, "1h");
    let new: u64 = b.line().parse().unwrap();
    assert!(new > old, "a later attempt has a larger token: {new}, {old}");
    b.say("go");
    assert_eq!(b.line(), "0");
    a.say("go");
    assert_eq!(a.line(), "76", "lost");
    a.finish()
        .says(&[&format!("token {old} is stale: the job went on under token {new}")]);

    let job = dir.job(&id);
    assert_has(&job, &json!({ "state": "completed", "result": second, "token": new }));
    assert_has(&job, &json!({ "crash_count": 1, "failure_count": 0 }));
    let expected = [
        json!({"type": "job_enqueued"}),
        json!({"type": "job_claimed", "token": old, "owner": first, "attempt": 1}),
        json!({"type": "job_attempt_ended", "token": old, "owner": first, "outcome": "crashed"}),
        json!({"type": "job_claimed", "token": new, "owner": second, "attempt": 2}),
        json!({"type": "job_attempt_ended", "token": new, "owner": second, "outcome": "completed"}),
        json!({"type": "stale_write_blocked", "token": old, "current_token": new, "action": "complete", "outcome": "expired"}),
    ];
    assert_eq!(trace(&dir), expected);
}

#[test]
fn r06_a_completion_after_a_takeover_is_refused_and_seen() {
    overtaken("a", "b");
}

#[test]
fn r09_the_same_worker_cannot_complete_its_first_attempt_after_its_second() {
    overtaken("w", "w");
}
