//! Producers and the open transactions of others: a call that needs what another transaction is about to make waits for a bounded
//! time, and its error names the transaction.

use fencehold_contract::job::NewJob;
use fencehold_core::job::JobId;
use fencehold_test_servers::calls::{OneByOne as _, call, new_job, unavailable, unique};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, JOB, JobRaceFixture, claim};
use crate::session::{Session, until};

fn enqueue(queue: &str, key: Option<&str>) -> String {
    let key = key.map_or_else(String::new, |key| format!(", unique_key => '{key}'"));
    format!("SELECT enqueue_job('{queue}', 'work', '1'{key})")
}

/// Two sessions in which only the bound ends a wait.
fn producers() -> (JobRaceFixture, [Session; 2]) {
    let (fixture, sessions) = JobRaceFixture::with_sessions();
    for session in &sessions {
        session.value("SET deadlock_timeout = '1h'; SET fencehold.enqueue_wait_ms = 50");
    }
    (fixture, sessions)
}

/// The error of a producer that waited for another's transaction for too long.
fn told((code, message): (String, String), what: &str, by: &Session) {
    assert_eq!(code, "55P03", "{message}");
    assert!(message.starts_with(what), "{message}");
    assert!(message.contains(&format!("backend {}", by.pid)), "{message}");
}

#[test]
fn who_uses_a_queue_that_an_open_transaction_made_waits_for_a_bounded_time() {
    let (fixture, [first, second]) = producers();
    first.value("BEGIN");
    first.value(&enqueue("new", None));
    told(second.refusal(&enqueue("new", None)), "queue new", &first);
    // Nothing is left behind that waits.
    assert_eq!(waiting(&fixture), "0");
    first.value("COMMIT");
    second.value(&enqueue("new", None));
}

#[test]
fn who_uses_a_priority_that_an_open_transaction_made_waits_for_a_bounded_time() {
    let (_fixture, [first, second]) = producers();
    first.value("BEGIN");
    first.value("SELECT enqueue_job('q', 'work', '1', 7::smallint)");
    told(second.refusal("SELECT enqueue_job('q', 'work', '1', 7::smallint)"), "queue q", &first);
    second.value(&enqueue("q", None));
    first.value("ROLLBACK");
    second.value("SELECT enqueue_job('q', 'work', '1', 7::smallint)");
}

#[test]
fn two_transactions_that_make_two_queues_in_opposite_order_do_not_wait_for_each_other() {
    let (_fixture, [first, second]) = producers();
    first.value("SET fencehold.enqueue_wait_ms = 60000");
    for session in [&first, &second] {
        session.value("BEGIN");
    }
    first.value(&enqueue("one", None));
    second.value(&enqueue("two", None));
    let waits = first.run_blocked_by(&second, &enqueue("two", None));
    let (code, message) = second.refusal(&enqueue("one", None));
    assert_eq!(code, "55P03", "{message}");
    second.value("ROLLBACK");
    waits.ends_well().0.value("COMMIT");
}

#[test]
fn who_uses_a_unique_key_of_an_open_transaction_waits_for_a_bounded_time() {
    let (fixture, [first, second]) = producers();
    first.value("BEGIN");
    let id = first.value(&enqueue("q", Some("k")));
    told(second.refusal(&enqueue("q", Some("k"))), "the unique key k", &first);
    assert_eq!(waiting(&fixture), "0");
    first.value("COMMIT");
    assert_eq!(second.value(&enqueue("q", Some("k"))), id);
}

/// The same for those who enqueue by the library: the timeout is their bound, and meanwhile they have no connection.
#[test]
fn a_handle_waits_for_no_open_transaction_beyond_its_patience_and_leaves_nothing_waiting() {
    let (fixture, [first]) = JobRaceFixture::with_sessions();
    let store = fixture.test_store.store();
    // It is connected: what it has of patience is for what follows.
    block_on(store.status(&call())).unwrap();
    first.value("BEGIN");
    first.value(&enqueue("new", None));
    first.value(&enqueue("q", Some("k")));
    let job = |queue: &str, nth: u8| new_job(JobId::from_bytes([nth; 16]), queue, "1");
    let with_key = NewJob { unique: unique("k", 60_000), ..job("q", 8) };
    for (job, what) in [(job("new", 7), "queue new"), (with_key, "the unique key k")] {
        let impatient = call().with_timeout_ms(1_500);
        let why = unavailable(block_on(store.jobs().unwrap().enqueue(&impatient, vec![job])));
        assert!(why.contains(what) && why.contains(&format!("backend {}", first.pid)), "{why}");
        until("no backend waits for what is not wanted any more", || waiting(&fixture) == "0");
    }
    first.value("ROLLBACK");
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
    let (_fixture, [first, second]) = JobRaceFixture::with_sessions();
    first.value("SELECT job_line_up('default', ARRAY['q'], md5('w')::uuid, 1, 600000, 0)");
    for session in [&first, &second] {
        session.value("BEGIN ISOLATION LEVEL SERIALIZABLE");
    }
    first.value(&enqueue("q", None));
    second.value(&enqueue("q", None));
    first.value("COMMIT");
    second.value("COMMIT");
}

/// The identity of a request is its queue, its kind and its payload, which is compared as JSON.
#[test]
fn a_unique_key_or_an_id_is_for_one_queue_kind_and_payload_however_that_is_written() {
    let (fixture, [user]) = JobRaceFixture::with_sessions();
    let store = fixture.test_store.store();
    let id = JobId::from_bytes([9; 16]);
    let job = new_job(id, "q", r#"{"to":"bob","n":1}"#);
    store.enqueue_one(NewJob { unique: unique("k", 60_000), ..job }).unwrap();
    let ask = |queue: &str, kind: &str, payload: &str, by: &str| {
        format!("SELECT enqueue_job('{queue}', '{kind}', '{payload}', {by})")
    };
    for by in ["unique_key => 'k'".to_owned(), format!("id => '{id}'")] {
        assert_eq!(user.value(&ask("q", "work", r#"{"n": 1, "to": "bob"}"#, &by)), id.to_string());
        for (queue, kind, payload, differs) in [
            ("r", "work", r#"{"n": 1, "to": "bob"}"#, "another queue (q)"),
            ("q", "play", r#"{"n": 1, "to": "bob"}"#, "another kind (work)"),
            ("q", "work", r#"{"n": 2, "to": "bob"}"#, "another payload"),
        ] {
            let (code, message) = user.refusal(&ask(queue, kind, payload, &by));
            assert_eq!(code, "23505", "{message}");
            assert!(message.ends_with(differs), "{message}");
        }
    }
}

/// As every Rust program reads it: the 128th level is refused.
#[test]
fn json_that_is_nested_too_deeply_is_refused_by_what_users_call() {
    let (_fixture, [user]) = JobRaceFixture::with_sessions();
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let mixed = |levels: usize| format!("{}1{}", "{\"[\": [".repeat(levels / 2), "]}".repeat(levels / 2));
    for json in [nested(127), mixed(126), format!("\"{}\"", "[".repeat(500))] {
        user.value(&format!("SELECT enqueue_job('q', 'work', '{json}')"));
    }
    for json in [nested(128), mixed(128), nested(1_000)] {
        let (code, message) = user.refusal(&format!("SELECT enqueue_job('q', 'work', '{json}')"));
        assert_eq!((&*code, &*message), ("22023", "payload is nested more than 127 levels deep"));
    }
    user.value(&claim(A));
    let (hold, _) = A;
    for call in [
        format!("SELECT complete_job('{JOB}', '{hold}', 1, '{}')", nested(128)),
        format!("SELECT record_effect('{JOB}', '{hold}', 1, 'e', '{}')", nested(128)),
    ] {
        assert_eq!(user.refusal(&call).0, "22023");
    }
}

#[test]
fn a_completion_that_is_repeated_with_another_result_is_a_conflict() {
    let (_fixture, [user]) = JobRaceFixture::with_sessions();
    user.value(&claim(A));
    let complete = |result: &str| format!("SELECT complete_job('{JOB}', '{}', 1, {result})", A.0);
    user.value(&complete(r#"'{"n": 1, "m": 2}'"#));
    user.value(&complete(r#"'{"m": 2, "n": 1}'"#));
    for other in [r#"'{"n": 2}'"#, "NULL"] {
        let (code, message) = user.refusal(&complete(other));
        assert_eq!(code, "23505");
        assert!(message.ends_with("it was completed under token 1 with another result"), "{message}");
    }
}
