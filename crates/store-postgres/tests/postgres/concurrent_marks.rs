//! Marks of resources, and effects that users' transactions record, when several come at once.

use crate::job_races::{A, JOB, JobRaceFixture, claim};

#[test]
fn two_transactions_of_a_new_holder_guard_a_resource_without_waiting_for_each_other_in_a_circle() {
    let (_fixture, [before, one, two]) = JobRaceFixture::with_sessions();
    before.value("SELECT raise_mark('r', 1)");
    before.value("BEGIN");
    before.value("SELECT fence_resource('r', 1)");
    // Both wait for the transaction of the holder before, and not for each other once it has ended.
    let guarding = [one, two].map(|session| session.start_blocked("SELECT fence_resource('r', 2)"));
    before.value("COMMIT");
    for step in guarding {
        step.value();
    }
    assert_eq!(before.refusal("SELECT fence_resource('r', 1)").0, "FH001");
}

/// P8: the rules and a user's transaction record the same effect: one of them is first, and the other decides again.
#[test]
fn what_a_users_transaction_has_recorded_is_not_written_over_by_the_rules() {
    let (_fixture, [user, rules]) = JobRaceFixture::with_sessions();
    user.value(&claim(A));
    let arrival = user.value(&format!("SELECT arrival FROM job_body WHERE id = '{JOB}'"));
    let keep = |name: &str, nth: u64, was: &str| {
        format!(
            "SELECT job_keep('[{{\"what\": \"effect\", \"arrival\": {arrival}, \"was\": {was}, \"effect\": {{\"name\": \"{name}\",
             \"nth\": {nth}, \"token\": 1, \"at_wall_ms\": 0, \"state\": \"done\", \"value\": \"8\", \"undo\": null, \"undo_job\": null}}}}]')"
        )
    };
    user.value("BEGIN");
    user.value(&format!("SELECT record_effect('{JOB}', '{}', 1, 'charge', '7')", A.0));
    let rules = rules.run_blocked_by(&user, &keep("charge", 0, "null"));
    user.value("COMMIT");
    let (rules, said) = rules.ends_well();
    assert_eq!(said, "f", "it must be decided again");
    assert_eq!(rules.value(&keep("other", 0, "null")), "f", "its number is taken");
    let value = "SELECT effect->>'value' FROM job_effect";
    assert_eq!(rules.value(value), "7");
    assert_eq!(rules.value(&keep("charge", 0, "\"done\"")), "t", "decided on what is there");
    assert_eq!(rules.value(value), "8");
}

/// What a program shows that has lost its token: nothing passes under it.
#[test]
fn no_token_at_all_passes_no_mark_and_no_fence() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    session.value("SELECT raise_mark('r', 1)");
    session.value(&claim(A));
    for (call, code) in [
        ("fence_resource('r', NULL)".to_owned(), "FH001"),
        ("fence_resource('never seen', NULL)".to_owned(), "23502"),
        ("raise_mark('r', NULL)".to_owned(), "23502"),
        ("fence('k', NULL)".to_owned(), "FH002"),
        (format!("fence_job('{JOB}', NULL)"), "FH001"),
        (format!("complete_job('{JOB}', '{}', NULL)", A.0), "FH001"),
    ] {
        assert_eq!(session.refusal(&format!("SELECT {call}")).0, code, "{call}");
    }
    session.value("SELECT fence_resource('r', 1)");
}

/// A session that locks something until its transaction ends, and then does nothing, blocks all others.
#[test]
fn a_transaction_that_raises_a_mark_or_completes_a_job_is_not_left_idle_for_ever() {
    for call in [
        "raise_mark('r', 1)".to_owned(),
        "fence_resource('r', 1)".to_owned(),
        format!("complete_job('{JOB}', '{}', 1)", A.0),
    ] {
        let (_fixture, [session]) = JobRaceFixture::with_sessions();
        session.value(&claim(A));
        session.value("BEGIN");
        session.value(&format!("SELECT {call}"));
        let limit = session.value("SHOW idle_in_transaction_session_timeout");
        assert_eq!(limit, "5min", "{call}");
        session.value("ROLLBACK");
    }
}
