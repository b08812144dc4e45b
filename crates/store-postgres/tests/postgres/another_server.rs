//! Another server has taken over, and may have lost what the one before gave last. It is noticed by its timeline, in the calls
//! themselves: behind a pooler there is no new connection. And `store advance`, which does the same by hand.

use fencehold_contract::job::{AttemptReport, QueueMode, Report, SetQueueModeRequest};
use fencehold_core::Owner;
use fencehold_core::job::QueueName;
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture, claim, complete, first, run};
use crate::job_transactions::{attempt, call};
use crate::session::Calls;

/// As the standby that takes over finds it: written by a server of another timeline.
fn take_over(fixture: &JobRaceFixture) {
    let session = fixture.session();
    run(&session, "SELECT notice_server()");
    run(&session, "UPDATE store_state SET timeline = 4711");
}

/// More than any token that can have been given before.
const LIFTED: u64 = 1_000_000;

#[test]
fn a_lease_after_a_failover_is_above_what_was_lost_on_the_same_connection_and_in_a_lost_namespace() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    let calls = Calls(fixture.test_store.schema);
    session.value(&calls.acquire("before", 1, "A"));
    take_over(&fixture);
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
    let fixture = JobRaceFixture::new();
    let (a, b) = (fixture.session(), fixture.session());
    assert_eq!(run(&a, &claim(A)).as_deref(), Some("1"));
    take_over(&fixture);
    let token: u64 = run(&b, &claim(B)).expect("the job came back").parse().unwrap();
    assert!(token > LIFTED, "{token}");
    let said = first(a.run(&complete(A, 1))).unwrap_err();
    assert!(said.starts_with("FH001 "), "{said}");
    run(&b, &complete(B, token));
    assert_eq!(fixture.state(), "3");
}

/// Whichever call comes first: none of them takes the word of an attempt for which the new server cannot vouch.
#[test]
fn an_attempt_from_before_a_failover_is_over_whatever_its_holder_says_first() {
    let finds = |said: Result<Option<String>, String>| said.is_err_and(|why| why.starts_with("FH001 "));
    let fence = format!("SELECT fence_job('{JOB}', 1)");
    let effect = format!("SELECT record_effect('{JOB}', '{}', 1, 'charge', '7')", A.0);
    for word in [complete(A, 1), fence, effect] {
        let fixture = JobRaceFixture::new();
        let session = fixture.session();
        run(&session, &claim(A));
        take_over(&fixture);
        assert!(finds(first(session.run(&word))), "{word}");
        assert_eq!(run(&session, "SELECT count(*) FROM job_effect").as_deref(), Some("0"));
        let token: u64 = run(&session, &claim(B)).expect("the job came back").parse().unwrap();
        assert!(token > LIFTED, "{token}");
    }
}

#[test]
fn a_handle_that_renews_or_reports_first_after_a_failover_is_refused_and_the_job_is_ready_again() {
    let words = [
        Report::Complete { result: None },
        Report::Fail { error: "no answer".to_owned(), retry_in_ms: None, permanent: false },
        Report::Snooze { delay_ms: 1_000 },
    ];
    for word in [None].into_iter().chain(words.map(Some)) {
        let fixture = JobRaceFixture::new();
        let store = fixture.test_store.store();
        let jobs = store.jobs().unwrap();
        run(&fixture.session(), &claim(A));
        // The handle's connections are there: none of them is made anew.
        block_on(jobs.list_queues(&call())).unwrap();
        take_over(&fixture);
        let refused = match word {
            None => block_on(jobs.renew_attempts(&call(), vec![attempt(A, 1)]))
                .unwrap()
                .results
                .remove(0)
                .is_err(),
            Some(word) => {
                let report = AttemptReport { attempt: attempt(A, 1), report: word };
                block_on(jobs.report(&call(), vec![report])).unwrap().remove(0).is_err()
            }
        };
        assert!(refused);
        assert_eq!(fixture.state(), "0");
    }
}

#[test]
fn a_queue_that_is_paused_first_after_a_failover_is_paused_and_nothing_is_left_of_the_attempt_before() {
    let fixture = JobRaceFixture::new();
    let (store, session) = (fixture.test_store.store(), fixture.session());
    let jobs = store.jobs().unwrap();
    run(&session, &claim(A));
    block_on(jobs.list_queues(&call())).unwrap();
    take_over(&fixture);
    let order = |mode| SetQueueModeRequest {
        queue: QueueName::new("q").unwrap(),
        mode,
        by: Owner::new("P").unwrap(),
    };
    let view = block_on(jobs.set_queue_mode(&call(), order(QueueMode::Paused))).unwrap();
    assert_eq!(view.mode, QueueMode::Paused);
    assert_eq!(fixture.state(), "0", "the attempt is over");
    assert_eq!(run(&session, &claim(B)), None, "paused");
    block_on(jobs.set_queue_mode(&call(), order(QueueMode::Open))).unwrap();
    let token: u64 = run(&session, &claim(B)).unwrap().parse().unwrap();
    assert!(token > LIFTED, "{token}");
}

#[test]
fn a_claim_that_waits_for_an_advance_finds_the_store_closed() {
    let fixture = JobRaceFixture::new();
    let (operator, worker) = (fixture.session(), fixture.session());
    run(&operator, "SELECT namespace_note_ttl('default', 30000)");
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
    assert_eq!(fixture.state(), "0", "the job was not touched");
}

#[test]
fn an_advance_leaves_no_word_to_the_attempt_of_a_job_that_was_called_off() {
    let fixture = JobRaceFixture::new();
    let worker = fixture.session();
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

/// No call goes on before the tokens are lifted: so that waits for no transaction of a user's, which may be open for long.
#[test]
fn an_open_transaction_of_a_user_stalls_nobody_after_a_failover() {
    let fixture = JobRaceFixture::new();
    let (user, other) = (fixture.session(), fixture.session());
    let calls = Calls(fixture.test_store.schema);
    other.value(&calls.acquire("k", 1, "A"));
    run(&user, "BEGIN");
    user.value(&calls.fence("k", 1));
    run(&user, "SELECT enqueue_job('mail', 'welcome', '{}')");
    take_over(&fixture);
    run(&other, "SET lock_timeout = '5s'");
    let token: u64 = run(&other, &claim(B)).expect("a job").parse().unwrap();
    assert!(token > LIFTED, "{token}");
    let granted: serde_json::Value = serde_json::from_str(&other.value(&calls.acquire("l", 2, "B"))).unwrap();
    assert!(granted["Ok"]["grant"]["token"].as_u64().unwrap() > LIFTED, "{granted}");
    run(&user, "COMMIT");
    assert_eq!(other.value(&calls.holder("k")), "A", "who holds goes on holding");
}

/// A sweep hands what has run out to those in line: it too finds out first.
#[test]
fn what_a_sweep_grants_after_a_failover_is_above_what_was_lost() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    let calls = Calls(fixture.test_store.schema);
    session.value(&calls.acquire("k", 1, "A"));
    let party = run(&session, "SELECT party_lives(NULL)").unwrap();
    let waiting = calls.acquire("k", 2, "B").replace(
        "NULL, 0, 0, 0::smallint, NULL, NULL, NULL",
        &format!("NULL, 60000, 0, 0::smallint, NULL, NULL, {party}"),
    );
    session.value(&waiting);
    take_over(&fixture);
    fixture.test_store.pass(30_000);
    session.value(&calls.sweep());
    let token: u64 = run(&session, "SELECT token FROM lease_hold").unwrap().parse().unwrap();
    assert!(token > LIFTED, "{token}");
}
