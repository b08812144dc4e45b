//! Another server has taken over, and may have lost what the one before gave last. It is noticed by its timeline, in the calls
//! themselves: behind a pooler there is no new connection. And `store advance`, which does the same by hand.

use fencehold_contract::job::{QueueMode, Report, SetQueueModeRequest};
use fencehold_test_servers::calls::{OneByOne as _, call, owner, queue};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture, claim, complete};
use crate::job_transactions::attempt;
use crate::session::Calls;

/// As the standby that takes over finds it: written by a server of another timeline.
fn take_over(fixture: &JobRaceFixture) {
    let session = fixture.session();
    session.value("SELECT notice_server()");
    session.value("UPDATE store_state SET timeline = 4711");
}

/// More than any token that can have been given before.
const LIFTED: u64 = 1_000_000;

#[test]
fn a_lease_after_a_failover_is_above_what_was_lost_on_the_same_connection_and_in_a_lost_namespace() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let calls = Calls(fixture.test_store.schema);
    session.value(&calls.acquire("before", 1, "A"));
    take_over(&fixture);
    assert!(session.take(&calls.acquire("k", 2, "A")) > LIFTED);
    assert_eq!(session.value(&calls.holder("before")), "A", "who holds goes on holding");
    session.value("DELETE FROM lease_hold");
    session.value("DELETE FROM lease_key");
    session.value("DELETE FROM namespace");
    assert!(session.take(&calls.acquire("k", 3, "A")) > LIFTED, "of a namespace that was lost too");
}

#[test]
fn a_claim_after_a_failover_is_above_what_was_lost_and_nothing_from_before_speaks_for_its_job() {
    let (fixture, [a, b]) = JobRaceFixture::with_sessions();
    assert_eq!(a.value(&claim(A)), "1");
    take_over(&fixture);
    let token = b.number(&claim(B));
    assert!(token > LIFTED, "{token}");
    assert_eq!(a.refusal(&complete(A, 1)).0, "FH001");
    b.value(&complete(B, token));
    assert_eq!(fixture.state(), "3");
}

/// Whichever call comes first: none of them takes the word of an attempt for which the new server cannot vouch.
#[test]
fn an_attempt_from_before_a_failover_is_over_whatever_its_holder_says_first() {
    let fence = format!("SELECT fence_job('{JOB}', 1)");
    let effect = format!("SELECT record_effect('{JOB}', '{}', 1, 'charge', '7')", A.0);
    for word in [complete(A, 1), fence, effect] {
        let (fixture, [session]) = JobRaceFixture::with_sessions();
        session.value(&claim(A));
        take_over(&fixture);
        assert_eq!(session.refusal(&word).0, "FH001", "{word}");
        assert_eq!(session.value("SELECT count(*) FROM job_effect"), "0");
        let token = session.number(&claim(B));
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
        fixture.session().value(&claim(A));
        // The handle's connections are there: none of them is made anew.
        fixture.sweep();
        take_over(&fixture);
        let refused = match word {
            None => store.renew_attempt(&attempt(A, 1)).is_err(),
            Some(word) => store.report_one(&attempt(A, 1), word).is_err(),
        };
        assert!(refused);
        assert_eq!(fixture.state(), "0");
    }
}

#[test]
fn a_queue_that_is_paused_first_after_a_failover_is_paused_and_nothing_is_left_of_the_attempt_before() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let store = fixture.test_store.store();
    let jobs = store.jobs().unwrap();
    session.value(&claim(A));
    block_on(jobs.list_queues(&call())).unwrap();
    take_over(&fixture);
    let order = |mode| SetQueueModeRequest { queue: queue("q"), mode, by: owner("P") };
    let view = block_on(jobs.set_queue_mode(&call(), order(QueueMode::Paused))).unwrap();
    assert_eq!(view.mode, QueueMode::Paused);
    assert_eq!(fixture.state(), "0", "the attempt is over");
    assert_eq!(session.value(&claim(B)), "", "paused");
    block_on(jobs.set_queue_mode(&call(), order(QueueMode::Open))).unwrap();
    let token = session.number(&claim(B));
    assert!(token > LIFTED, "{token}");
}

#[test]
fn a_claim_that_waits_for_an_advance_finds_the_store_closed() {
    let (fixture, [operator, worker]) = JobRaceFixture::with_sessions();
    operator.value("SELECT namespace_note_ttl('default', 30000)");
    operator.value("BEGIN");
    operator.value("SELECT * FROM lease_advance(1000, 'P', 60000)");
    let asking = claim(A)
        .replace("SELECT token", "SELECT remaining_ms")
        .replace("id IS NOT NULL", "queue = -1");
    let worker = worker.run_blocked_by(&operator, &asking);
    operator.value("COMMIT");
    assert_eq!(worker.value(), "30000", "for the longest ttl that was given");
    assert_eq!(fixture.state(), "0", "the job was not touched");
}

#[test]
fn an_advance_leaves_no_word_to_the_attempt_of_a_job_that_was_called_off() {
    let (_fixture, [worker]) = JobRaceFixture::with_sessions();
    worker.value(&claim(A));
    worker.value("UPDATE job_running SET asked = '{\"cancel\": {\"by\": \"P\", \"reason\": \"wrong\"}}'");
    worker.value("SELECT * FROM lease_advance(1000, 'P', 60000)");
    for word in [format!("SELECT fence_job('{JOB}', 1)"), complete(A, 1)] {
        assert_eq!(worker.refusal(&word).0, "FH001");
    }
    assert_eq!(
        worker.value("SELECT count(*) FROM job_running WHERE token > 1000"),
        "1",
        "the sweep has the rest of it"
    );
}

/// No call goes on before the tokens are lifted: so that waits for no transaction of a user's, which may be open for long.
#[test]
fn an_open_transaction_of_a_user_stalls_nobody_after_a_failover() {
    let (fixture, [user, other]) = JobRaceFixture::with_sessions();
    let calls = Calls(fixture.test_store.schema);
    other.value(&calls.acquire("k", 1, "A"));
    user.value("BEGIN");
    user.value(&calls.fence("k", 1));
    user.value("SELECT enqueue_job('mail', 'welcome', '{}')");
    take_over(&fixture);
    other.value("SET lock_timeout = '5s'");
    let token = other.number(&claim(B));
    assert!(token > LIFTED, "{token}");
    assert!(other.take(&calls.acquire("l", 2, "B")) > LIFTED);
    user.value("COMMIT");
    assert_eq!(other.value(&calls.holder("k")), "A", "who holds goes on holding");
}

/// A sweep hands what has run out to those in line: it too finds out first.
#[test]
fn what_a_sweep_grants_after_a_failover_is_above_what_was_lost() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let calls = Calls(fixture.test_store.schema);
    session.value(&calls.acquire("k", 1, "A"));
    calls.line_up(&session, "k", 2, "B", 60_000);
    take_over(&fixture);
    fixture.test_store.pass(30_000);
    session.value(&calls.sweep());
    let token = session.number("SELECT token FROM lease_hold");
    assert!(token > LIFTED, "{token}");
}
