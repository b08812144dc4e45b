//! The story of a job, and effects that may or may not have happened.

use serde_json::{Value, json};

use super::claim;
use crate::support::{TestDirectory, assert_has};

#[test]
fn explain_tells_attempt_by_attempt_and_what_happens_next() {
    let dir = TestDirectory::new();
    let id = dir.enqueue("1", "--retry fixed:1h");
    dir.shows(&["explain", &id], &["is queued since", "none waits for jobs"]);

    let first = claim(&dir, "--ttl 1h --owner first");
    let running = dir.succeeds(&format!("explain job/{id}"));
    running.prints(&["first works on it under token 1, attempt 1", "the claim ends in"]);

    assert_eq!(first.say(&dir, &["job", "fail", "--error", "the printer\nis on fire"]).code, 0);
    let failed = dir.json(&["explain", &id]);
    assert_eq!(failed["state"], "scheduled");
    assert!(failed["next"].as_str().unwrap().contains("since it failed; then it is claimed"), "{failed}");
    let attempt = json!({ "token": 1, "owner": "first", "outcome": "failed" });
    assert_has(&failed["job"]["attempts"][0], &attempt);
    let table = dir.fencehold(&["explain", &id]).out;
    let is_told =
        |line: &str| line.starts_with("1 ") && line.contains("failed") && line.ends_with("is on fire");
    assert!(table.lines().any(is_told), "{table}");
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
            let effect = EffectName::new("charge").unwrap();
            let entry = LedgerEntry::Begin { effect, in_doubt_policy: InDoubtPolicy::Manual };
            let entry = AttemptLedgerEntry { attempt, entry };
            let answers = jobs.write_effects(&call, vec![entry]).await.unwrap();
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
        let id = dir.enqueue("1", "");
        leave_an_open_intent(&dir, &id);
        assert_eq!(dir.job(&id)["state"], "in_doubt");
        let listed = dir.json("effect ls");
        assert_has(
            &listed["effects"][0],
            &json!({ "finding": "in_doubt", "effect": "charge", "job_id": id }),
        );
        dir.shows(&["effect", "ls", &id], &["charge"]).says(&["effect resolve"]);
        let advice = format!("fencehold effect resolve {id} charge --happened JSON");
        dir.shows(&["explain", &id], &[&advice]);
        // `job wait` does not wait for a job that waits for a person.
        dir.fencehold(&["job", "wait", &id]).ended(1);

        dir.succeeds(&[&["effect", "resolve", &id, "charge", "--by", "ada"], outcome].concat());
        let job = dir.job(&id);
        assert!(matches!(job["state"].as_str(), Some("queued" | "scheduled")), "it goes on: {job}");
        assert_eq!(job["effects"][0]["value"], value);
        let again = dir.fencehold(&[&["effect", "resolve", &id, "charge"], outcome].concat());
        assert_ne!(again.code, 0, "there is no doubt any more: {again:?}");
        dir.fencehold(&["effect", "resolve", &id, "charge"]).ended(2);
    }
}
