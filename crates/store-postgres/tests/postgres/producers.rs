//! Producers and the open transactions of others: a call that needs what another transaction is about to make waits for a bounded
//! time, and its error names the transaction.

use std::thread;

use fencehold_contract::StoreError;
use fencehold_contract::job::{NewJob, Unique};
use fencehold_core::job::{JobId, JobKind, QueueName, UniqueKey};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, JOB, JobRaceFixture, claim, run};
use crate::job_transactions::call;
use crate::session::{LOOKS_MAX, Session};

fn enqueue(queue: &str, key: Option<&str>) -> String {
    let key = key.map_or_else(String::new, |key| format!(", unique_key => '{key}'"));
    format!("SELECT enqueue_job('{queue}', 'work', '1'{key})")
}

/// A session in which only the bound ends a wait.
fn producer(fixture: &JobRaceFixture) -> Session {
    let session = fixture.session();
    run(&session, "SET deadlock_timeout = '1h'");
    run(&session, "SET fencehold.enqueue_wait_ms = 50");
    session
}

/// The error of a producer that waited for another's transaction for too long.
fn told(said: crate::session::StatementResult, what: &str, by: &Session) {
    let (code, message) = said.expect_err("it waited for a bounded time");
    assert_eq!(code, "55P03", "{message}");
    assert!(message.starts_with(what), "{message}");
    assert!(message.contains(&format!("backend {}", by.pid)), "{message}");
}

#[test]
fn who_uses_a_queue_that_an_open_transaction_made_waits_for_a_bounded_time() {
    let fixture = JobRaceFixture::new();
    let (first, second) = (producer(&fixture), producer(&fixture));
    run(&first, "BEGIN");
    run(&first, &enqueue("new", None));
    told(second.run(&enqueue("new", None)), "queue new", &first);
    // Nothing is left behind that waits.
    assert_eq!(waiting(&fixture), "0");
    run(&first, "COMMIT");
    run(&second, &enqueue("new", None));
}

#[test]
fn who_uses_a_priority_that_an_open_transaction_made_waits_for_a_bounded_time() {
    let fixture = JobRaceFixture::new();
    let (first, second) = (producer(&fixture), producer(&fixture));
    run(&first, "BEGIN");
    run(&first, "SELECT enqueue_job('q', 'work', '1', 7::smallint)");
    told(second.run("SELECT enqueue_job('q', 'work', '1', 7::smallint)"), "queue q", &first);
    run(&second, &enqueue("q", None));
    run(&first, "ROLLBACK");
    run(&second, "SELECT enqueue_job('q', 'work', '1', 7::smallint)");
}

#[test]
fn two_transactions_that_make_two_queues_in_opposite_order_do_not_wait_for_each_other() {
    let fixture = JobRaceFixture::new();
    let (first, second) = (producer(&fixture), producer(&fixture));
    run(&first, "SET fencehold.enqueue_wait_ms = 60000");
    for session in [&first, &second] {
        run(session, "BEGIN");
    }
    run(&first, &enqueue("one", None));
    run(&second, &enqueue("two", None));
    let waits = first.run_blocked_by(&second, &enqueue("two", None));
    let (code, message) = second.run(&enqueue("one", None)).expect_err("one of them gives way");
    assert_eq!(code, "55P03", "{message}");
    run(&second, "ROLLBACK");
    let (first, said) = waits.end();
    said.unwrap();
    run(&first, "COMMIT");
}

#[test]
fn who_uses_a_unique_key_of_an_open_transaction_waits_for_a_bounded_time() {
    let fixture = JobRaceFixture::new();
    let (first, second) = (producer(&fixture), producer(&fixture));
    run(&first, "BEGIN");
    let id = run(&first, &enqueue("q", Some("k")));
    told(second.run(&enqueue("q", Some("k"))), "the unique key k", &first);
    assert_eq!(waiting(&fixture), "0");
    run(&first, "COMMIT");
    assert_eq!(run(&second, &enqueue("q", Some("k"))), id);
}

/// The same for those who enqueue by the library: the timeout is their bound, and meanwhile they have no connection.
#[test]
fn a_handle_waits_for_no_open_transaction_beyond_its_patience_and_leaves_nothing_waiting() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let first = fixture.session();
    run(&first, "BEGIN");
    run(&first, &enqueue("new", None));
    run(&first, &enqueue("q", Some("k")));
    let job = |queue: &str, nth: u8| {
        let (queue, kind) = (QueueName::new(queue).unwrap(), JobKind::new("work").unwrap());
        NewJob::new(JobId::from_bytes([nth; 16]), queue, kind, "1")
    };
    let key = UniqueKey::new("k").unwrap();
    let unique = NewJob { unique: Some(Unique { key, window_ms: 60_000 }), ..job("q", 8) };
    for (job, what) in [(job("new", 7), "queue new"), (unique, "the unique key k")] {
        let impatient = call().with_timeout_ms(600);
        match block_on(store.jobs().unwrap().enqueue(&impatient, vec![job])) {
            Err(StoreError::Unavailable { message: why }) => {
                assert!(why.contains(what), "{why}");
                assert!(why.contains(&format!("backend {}", first.pid)), "{why}");
            }
            other => panic!("{other:?}"),
        }
        let gone = (0..LOOKS_MAX).any(|_| waiting(&fixture) == "0");
        assert!(gone, "a backend still waits for what is not wanted any more");
        thread::yield_now();
    }
    run(&first, "ROLLBACK");
}

/// How many backends of this database wait for a lock.
fn waiting(fixture: &JobRaceFixture) -> String {
    let waiting = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE NOT l.granted AND a.datname = current_database()";
    fixture.watch.value(waiting)
}

/// Transactions that are SERIALIZABLE and enqueue side by side fail no more often because a claim waits for jobs.
#[test]
fn serializable_producers_do_not_fail_each_other_while_a_claim_waits_in_line() {
    let fixture = JobRaceFixture::new();
    let (first, second) = (fixture.session(), fixture.session());
    run(&first, "SELECT job_line_up('default', ARRAY['q'], md5('w')::uuid, 1, 600000, 0)");
    for session in [&first, &second] {
        run(session, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    }
    run(&first, &enqueue("q", None));
    run(&second, &enqueue("q", None));
    run(&first, "COMMIT");
    let said = second.run("COMMIT");
    assert!(said.is_ok(), "{said:?}");
}

/// The identity of a request is its queue, its kind and its payload, which is compared as JSON.
#[test]
fn a_unique_key_or_an_id_is_for_one_queue_kind_and_payload_however_that_is_written() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let user = fixture.session();
    let key = UniqueKey::new("k").unwrap();
    let (queue, kind) = (QueueName::new("q").unwrap(), JobKind::new("work").unwrap());
    let id = JobId::from_bytes([9; 16]);
    let job = NewJob::new(id, queue, kind, r#"{"to":"bob","n":1}"#);
    let job = NewJob { unique: Some(Unique { key, window_ms: 60_000 }), ..job };
    block_on(store.jobs().unwrap().enqueue(&call(), vec![job])).unwrap()[0]
        .as_ref()
        .unwrap();
    let ask = |queue: &str, kind: &str, payload: &str, by: &str| {
        user.run(&format!("SELECT enqueue_job('{queue}', '{kind}', '{payload}', {by})"))
    };
    for by in ["unique_key => 'k'".to_owned(), format!("id => '{id}'")] {
        let same = ask("q", "work", r#"{"n": 1, "to": "bob"}"#, &by).unwrap();
        assert_eq!(same[0][0].as_deref(), Some(id.to_string().as_str()));
        for (queue, kind, payload, differs) in [
            ("r", "work", r#"{"n": 1, "to": "bob"}"#, "another queue (q)"),
            ("q", "play", r#"{"n": 1, "to": "bob"}"#, "another kind (work)"),
            ("q", "work", r#"{"n": 2, "to": "bob"}"#, "another payload"),
        ] {
            let (code, message) = ask(queue, kind, payload, &by).expect_err("it is another job");
            assert_eq!(code, "23505", "{message}");
            assert!(message.ends_with(differs), "{message}");
        }
    }
}

/// As every Rust program reads it: the 128th level is refused.
#[test]
fn json_that_is_nested_too_deeply_is_refused_by_what_users_call() {
    let fixture = JobRaceFixture::new();
    let user = fixture.session();
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let mixed = |levels: usize| format!("{}1{}", "{\"[\": [".repeat(levels / 2), "]}".repeat(levels / 2));
    for json in [nested(127), mixed(126), format!("\"{}\"", "[".repeat(500))] {
        run(&user, &format!("SELECT enqueue_job('q', 'work', '{json}')"));
    }
    for json in [nested(128), mixed(128), nested(1_000)] {
        let said = user.run(&format!("SELECT enqueue_job('q', 'work', '{json}')"));
        let (code, message) = said.expect_err("it is too deep");
        assert_eq!(
            (code.as_str(), message.as_str()),
            ("22023", "payload is nested more than 127 levels deep")
        );
    }
    run(&user, &claim(A));
    let (hold, _) = A;
    for call in [
        format!("SELECT complete_job('{JOB}', '{hold}', 1, '{}')", nested(128)),
        format!("SELECT record_effect('{JOB}', '{hold}', 1, 'e', '{}')", nested(128)),
    ] {
        assert_eq!(user.run(&call).expect_err("it is too deep").0, "22023");
    }
}

#[test]
fn a_completion_that_is_repeated_with_another_result_is_a_conflict() {
    let fixture = JobRaceFixture::new();
    let user = fixture.session();
    run(&user, &claim(A));
    let complete = |result: &str| user.run(&format!("SELECT complete_job('{JOB}', '{}', 1, {result})", A.0));
    complete(r#"'{"n": 1, "m": 2}'"#).unwrap();
    complete(r#"'{"m": 2, "n": 1}'"#).unwrap();
    for other in [r#"'{"n": 2}'"#, "NULL"] {
        let (code, message) = complete(other).expect_err("it is another completion");
        assert_eq!(code, "23505");
        assert!(message.ends_with("it was completed under token 1 with another result"), "{message}");
    }
}
