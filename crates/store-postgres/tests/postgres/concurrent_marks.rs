//! Marks of resources, and effects that users' transactions record, when several come at once.

use std::thread;

use crate::job_races::{A, JOB, JobRaceFixture, claim, first, run};
use crate::session::LOOKS_MAX;

#[test]
fn two_transactions_of_a_new_holder_guard_a_resource_without_waiting_for_each_other_in_a_circle() {
    let fixture = JobRaceFixture::new();
    let (before, one, two) = (fixture.session(), fixture.session(), fixture.session());
    run(&before, "SELECT raise_mark('r', 1)");
    run(&before, "BEGIN");
    run(&before, "SELECT fence_resource('r', 1)");
    // Both wait for the transaction of the holder before, and not for each other once it has ended.
    thread::scope(|scope| {
        let guarding =
            [&one, &two].map(|session| scope.spawn(|| first(session.run("SELECT fence_resource('r', 2)"))));
        for session in [&one, &two] {
            let waits = format!("SELECT cardinality(pg_blocking_pids({})) > 0", session.pid);
            assert!((0..LOOKS_MAX).any(|_| fixture.watch.value(&waits) == "t"), "it never waited");
        }
        run(&before, "COMMIT");
        for step in guarding {
            step.join().unwrap().unwrap();
        }
    });
    let said = first(before.run("SELECT fence_resource('r', 1)")).unwrap_err();
    assert!(said.starts_with("FH001 "), "{said}");
}

/// P8: the rules and a user's transaction record the same effect: one of them is first, and the other decides again.
#[test]
fn what_a_users_transaction_has_recorded_is_not_written_over_by_the_rules() {
    let fixture = JobRaceFixture::new();
    let (user, rules) = (fixture.session(), fixture.session());
    run(&user, &claim(A));
    let arrival = run(&user, &format!("SELECT arrival FROM job_body WHERE id = '{JOB}'")).unwrap();
    let keep = |name: &str, nth: u64, was: &str| {
        format!(
            "SELECT job_keep('[{{\"what\": \"effect\", \"arrival\": {arrival}, \"was\": {was}, \"effect\": {{\"name\": \"{name}\",
             \"nth\": {nth}, \"token\": 1, \"at_wall_ms\": 0, \"state\": \"done\", \"value\": \"8\", \"undo\": null, \"undo_job\": null}}}}]')"
        )
    };
    run(&user, "BEGIN");
    run(&user, &format!("SELECT record_effect('{JOB}', '{}', 1, 'charge', '7')", A.0));
    let rules = rules.run_blocked_by(&user, &keep("charge", 0, "null"));
    run(&user, "COMMIT");
    let (rules, said) = rules.end();
    assert_eq!(first(said).unwrap().as_deref(), Some("f"), "it must be decided again");
    assert_eq!(run(&rules, &keep("other", 0, "null")).as_deref(), Some("f"), "its number is taken");
    let value = "SELECT effect->>'value' FROM job_effect";
    assert_eq!(run(&rules, value).as_deref(), Some("7"));
    assert_eq!(run(&rules, &keep("charge", 0, "\"done\"")).as_deref(), Some("t"), "decided on what is there");
    assert_eq!(run(&rules, value).as_deref(), Some("8"));
}

/// What a program shows that has lost its token: nothing passes under it.
#[test]
fn no_token_at_all_passes_no_mark_and_no_fence() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    run(&session, "SELECT raise_mark('r', 1)");
    run(&session, &claim(A));
    for (call, code) in [
        ("fence_resource('r', NULL)".to_owned(), "FH001"),
        ("fence_resource('never seen', NULL)".to_owned(), "23502"),
        ("raise_mark('r', NULL)".to_owned(), "23502"),
        ("fence('k', NULL)".to_owned(), "FH002"),
        (format!("fence_job('{JOB}', NULL)"), "FH001"),
        (format!("complete_job('{JOB}', '{}', NULL)", A.0), "FH001"),
    ] {
        let said = first(session.run(&format!("SELECT {call}"))).unwrap_err();
        assert!(said.starts_with(code), "{call}: {said}");
    }
    run(&session, "SELECT fence_resource('r', 1)");
}

/// A session that locks something until its transaction ends, and then does nothing, blocks all others.
#[test]
fn a_transaction_that_raises_a_mark_or_completes_a_job_is_not_left_idle_for_ever() {
    for call in [
        "raise_mark('r', 1)".to_owned(),
        "fence_resource('r', 1)".to_owned(),
        format!("complete_job('{JOB}', '{}', 1)", A.0),
    ] {
        let fixture = JobRaceFixture::new();
        let session = fixture.session();
        run(&session, &claim(A));
        run(&session, "BEGIN");
        run(&session, &format!("SELECT {call}"));
        let limit = run(&session, "SHOW idle_in_transaction_session_timeout");
        assert_eq!(limit.as_deref(), Some("5min"), "{call}");
        run(&session, "ROLLBACK");
    }
}
