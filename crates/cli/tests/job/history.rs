//! The story of a job, and effects that may or may not have happened.

use serde_json::{Value, json};

use super::claim;
use crate::support::TestDirectory;

#[test]
fn explain_tells_attempt_by_attempt_and_what_happens_next() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", &["--retry", "fixed:1h"]);
    let waiting = dir.fencehold(&["explain", &id]);
    assert!(
        waiting.out.contains("is queued since") && waiting.out.contains("none waits for jobs"),
        "{waiting:?}"
    );

    let first = claim(&dir, &["--ttl", "1h", "--owner", "first"]);
    let running = dir.fencehold(&["explain", &format!("job/{id}")]);
    assert!(running.out.contains("first works on it under token 1, attempt 1"), "{running:?}");
    assert!(running.out.contains("the claim ends in"), "{running:?}");

    assert_eq!(first.say(&dir, &["job", "fail", "--error", "the printer\nis on fire"]).code, 0);
    let failed = dir.fencehold(&["explain", &id, "-o", "json"]).json();
    assert_eq!(failed["state"], "scheduled");
    assert!(failed["next"].as_str().unwrap().contains("since it failed; then it is claimed"), "{failed}");
    let attempt = &failed["job"]["attempts"][0];
    assert_eq!(
        (&attempt["token"], &attempt["owner"], &attempt["outcome"]),
        (&json!(1), &json!("first"), &json!("failed"))
    );
    let table = dir.fencehold(&["explain", &id]).out;
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("1 ") && line.contains("failed") && line.ends_with("is on fire")),
        "{table}"
    );
}

/// What the library does, in this process: two attempts that announce the same effect and die.
fn leave_an_open_intent(dir: &TestDirectory, id: &str) {
    use std::sync::Arc;

    use fencehold_contract::CallContext;
    use fencehold_contract::clock::SystemClock;
    use fencehold_contract::job::{
        AttemptLedgerEntry, AttemptRef, ClaimJobsRequest, LedgerEntry, LedgerResponse,
    };
    use fencehold_core::job::{EffectName, QueueName};
    use fencehold_core::ledger::InDoubtPolicy;
    use fencehold_core::{HoldId, Namespace, Owner};
    use fencehold_stores::open;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open(&dir.store().parse().unwrap(), Arc::new(SystemClock)).unwrap();
        let (jobs, call) = (store.jobs().unwrap(), CallContext::new(Namespace::default()));
        for (attempt, expected) in [(1, LedgerResponse::Proceed {}), (2, LedgerResponse::InDoubt {})] {
            let hold = HoldId::from_random([attempt; 16]);
            let request = ClaimJobsRequest {
                queues: vec![(QueueName::new("q").unwrap(), 1)],
                limit: 1,
                hold_id: hold,
                owner: Owner::new(format!("attempt-{attempt}")).unwrap(),
                ttl_ms: 4_000,
                wait_ms: 60_000,
                waited_before_ms: 0,
            };
            let claimed = jobs.claim(&call, request).await.unwrap();
            let job = &claimed.jobs[0];
            assert_eq!(job.id.to_string(), id);
            let attempt = AttemptRef { job_id: job.id, hold_id: hold, token: job.token };
            let act = LedgerEntry::Begin {
                effect: EffectName::new("charge").unwrap(),
                in_doubt_policy: InDoubtPolicy::Manual,
            };
            let answers = jobs
                .write_effects(&call, vec![AttemptLedgerEntry { attempt, entry: act }])
                .await
                .unwrap();
            assert_eq!(answers[0], Ok(expected));
        }
        store.close().await;
    });
}

#[test]
fn an_effect_in_doubt_stops_its_job_until_a_person_says_what_happened() {
    for (outcome, value) in [
        (&["--happened", "{\"receipt\":7}"] as &[&str], json!({"receipt": 7})),
        (&["--did-not-happen"], Value::Null),
    ] {
        let dir = TestDirectory::new();
        let id = dir.enqueue("1", &[]);
        leave_an_open_intent(&dir, &id);
        assert_eq!(dir.job(&id)["state"], "in_doubt");
        let listed = dir.fencehold(&["effect", "ls", "-o", "json"]).json();
        let listed = &listed["effects"];
        assert_eq!(
            (&listed[0]["finding"], &listed[0]["effect"], &listed[0]["job_id"]),
            (&json!("in_doubt"), &json!("charge"), &json!(id))
        );
        let table = dir.fencehold(&["effect", "ls", &id]);
        assert!(table.out.contains("charge") && table.err.contains("effect resolve"), "{table:?}");
        let explained = dir.fencehold(&["explain", &id]);
        assert!(
            explained
                .out
                .contains(&format!("fencehold effect resolve {id} charge --happened JSON")),
            "{explained:?}"
        );
        let waited = dir.fencehold(&["job", "wait", &id]);
        assert_eq!(waited.code, 1, "`job wait` does not wait for a job that waits for a person: {waited:?}");

        let said = dir.fencehold(&[&["effect", "resolve", &id, "charge", "--by", "ada"], outcome].concat());
        assert_eq!(said.code, 0, "{said:?}");
        let job = dir.job(&id);
        assert!(matches!(job["state"].as_str(), Some("queued" | "scheduled")), "it goes on: {job}");
        assert_eq!(
            job["effects"]
                .as_array()
                .and_then(|effects| effects.first())
                .map_or(Value::Null, |effect| effect["value"].clone()),
            value
        );
        let again = dir.fencehold(&[&["effect", "resolve", &id, "charge"], outcome].concat());
        assert_ne!(again.code, 0, "there is no doubt any more: {again:?}");
        let unclear = dir.fencehold(&["effect", "resolve", &id, "charge"]);
        assert_eq!(unclear.code, 2, "{unclear:?}");
    }
}
