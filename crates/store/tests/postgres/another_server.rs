//! Another server has taken over, and may have lost what the one before gave last. It is noticed by its timeline, in the calls
//! themselves: behind a pooler nobody connects anew. And `store advance`, which does the same by hand.

use crate::job_races::{A, B, JOB, Stage, claim, complete, first, run};
use crate::session::Calls;

/// As the standby that takes over finds it: written by a server of another timeline.
fn take_over(stage: &Stage) {
    let session = stage.session();
    run(&session, "SELECT notice_server()");
    run(&session, "UPDATE store_state SET timeline = 4711");
}

/// More than any token that can have been given before.
const LIFTED: u64 = 1_000_000;

#[test]
fn a_lease_after_a_failover_is_above_what_was_lost_on_the_same_connection_and_in_a_lost_namespace() {
    let stage = Stage::new();
    let session = stage.session();
    let calls = Calls(stage.arena.schema);
    session.value(&calls.acquire("before", 1, "A"));
    take_over(&stage);
    let token = |said: &str| {
        let said: serde_json::Value = serde_json::from_str(said).unwrap();
        said["Ok"]["grant"]["token"].as_u64().unwrap()
    };
    assert!(token(&session.value(&calls.acquire("k", 2, "A"))) > LIFTED);
    assert_eq!(session.value(&calls.holder("before")), "A", "who holds goes on holding");
    run(&session, "DELETE FROM lease_hold");
    run(&session, "DELETE FROM lease_key");
    run(&session, "DELETE FROM namespace");
    assert!(token(&session.value(&calls.acquire("k", 3, "A"))) > LIFTED, "of a namespace that was lost too");
}

#[test]
fn a_claim_after_a_failover_is_above_what_was_lost_and_nothing_from_before_speaks_for_its_job() {
    let stage = Stage::new();
    let (a, b) = (stage.session(), stage.session());
    assert_eq!(run(&a, &claim(A)).as_deref(), Some("1"));
    take_over(&stage);
    let token: u64 = run(&b, &claim(B)).expect("the job came back").parse().unwrap();
    assert!(token > LIFTED, "{token}");
    let said = first(a.run(&complete(A, 1))).unwrap_err();
    assert!(said.starts_with("FH001 "), "{said}");
    run(&b, &complete(B, token));
    assert_eq!(stage.state(), "3");
}

#[test]
fn a_claim_that_waits_for_an_advance_finds_the_store_closed() {
    let stage = Stage::new();
    let (operator, worker) = (stage.session(), stage.session());
    run(&operator, "BEGIN");
    run(&operator, "SELECT * FROM lease_advance(1000, 'P', 60000)");
    let asking = claim(A)
        .replace("SELECT token", "SELECT remaining_ms")
        .replace("id IS NOT NULL", "queue = -1");
    let worker = worker.run_blocked_by(&operator, &asking);
    run(&operator, "COMMIT");
    assert_eq!(
        first(worker.end().1).unwrap().as_deref(),
        Some("30000"),
        "for the longest ttl that was given"
    );
    assert_eq!(stage.state(), "0", "the job was not touched");
}

#[test]
fn an_advance_leaves_no_word_to_the_attempt_of_a_job_that_was_called_off() {
    let stage = Stage::new();
    let worker = stage.session();
    run(&worker, &claim(A));
    run(&worker, "UPDATE job_running SET asked = '{\"cancel\": {\"by\": \"P\", \"reason\": \"wrong\"}}'");
    run(&worker, "SELECT * FROM lease_advance(1000, 'P', 60000)");
    for word in [format!("SELECT fence_job('{JOB}', 1)"), complete(A, 1)] {
        let said = first(worker.run(&word)).unwrap_err();
        assert!(said.starts_with("FH001 "), "{said}");
    }
    assert_eq!(
        run(&worker, "SELECT count(*) FROM job_running WHERE token > 1000").as_deref(),
        Some("1"),
        "the sweep has the rest of it"
    );
}
