//! How many jobs stand in each state is kept, and not counted: it is exact at every moment, whatever is committed late or never, and no call waits
//! for another's open transaction to keep it.

use std::sync::Barrier;
use std::thread;

use fencehold_test_store::TestStore as _;

use crate::call_cost::{claim, complete_many, entries_read};
use crate::session::{Session, until, with_sessions};
use crate::test_store::WRONG_COUNTS;

/// More rows than the maintenance leaves for later.
const CHANGES: u64 = 1_200;

fn enqueue(queue: &str) -> String {
    format!("SELECT enqueue_job('{queue}', 'work', '1')")
}

/// The counts of the states of a queue, from queued to in doubt.
fn counts(session: &Session, queue: &str) -> String {
    session.value(&format!("SELECT counts FROM job_queues('default', '{queue}')"))
}

/// The next round of the maintenance adds what there is, however little or soon.
fn due(session: &Session) {
    session.value("UPDATE job_counted SET at = '-infinity'");
}

fn add(session: &Session) {
    due(session);
    session.value("SELECT job_counts_add()");
}

fn left(session: &Session) -> u64 {
    session.number("SELECT count(*) FROM job_change")
}

#[test]
fn what_is_committed_late_is_counted_once_and_from_its_commit_on() {
    let (_test_store, _, [session, late, later]) = with_sessions();
    session.value(&enqueue("q"));
    // Numbers on both sides of that of a transaction which is open all the time, and is seen by none of the rounds.
    late.value("BEGIN");
    late.value(&enqueue("q"));
    session.value(&enqueue("q"));
    add(&session);
    assert_eq!(left(&session), 0, "what is open is not seen, and not waited for");
    later.value("BEGIN");
    later.value("SAVEPOINT s");
    later.value(&enqueue("q"));
    later.value("ROLLBACK TO s");
    later.value(&enqueue("q"));
    session.value(&enqueue("q"));
    add(&session);
    assert_eq!(counts(&session, "q"), "{3,0,0,0,0,0,0,0}");
    late.value("COMMIT");
    assert_eq!(counts(&session, "q"), "{4,0,0,0,0,0,0,0}");
    session.value(&enqueue("q"));
    add(&session);
    assert_eq!(counts(&session, "q"), "{5,0,0,0,0,0,0,0}");
    later.value("COMMIT");
    assert_eq!(counts(&session, "q"), "{6,0,0,0,0,0,0,0}");
    add(&session);
    add(&session);
    assert_eq!((left(&session), session.value(WRONG_COUNTS)), (0, String::new()));
}

#[test]
fn what_is_rolled_back_or_killed_is_not_counted() {
    let (_test_store, _, [session, rolls_back, is_killed, adds]) = with_sessions();
    session.value(&enqueue("q"));
    rolls_back.value("BEGIN");
    rolls_back.value(&enqueue("q"));
    rolls_back.value("ROLLBACK");
    is_killed.value("BEGIN");
    is_killed.value(&enqueue("q"));
    // In the middle of adding, with rows deleted and counts changed.
    due(&session);
    adds.value("BEGIN");
    assert_eq!(adds.value("SELECT job_counts_add()"), "f");
    assert_eq!(left(&adds), 0);
    for killed in [&is_killed, &adds] {
        session.value(&format!("SELECT pg_terminate_backend({})", killed.pid));
        until("it is gone", || {
            session.value(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {}", killed.pid)) == "0"
        });
    }
    assert_eq!((left(&session), counts(&session, "q")), (1, "{1,0,0,0,0,0,0,0}".to_owned()));
    add(&session);
    assert_eq!((left(&session), session.value(WRONG_COUNTS)), (0, String::new()));
}

/// A round that runs in a transaction which has changed something is left out: its own rows would be passed over.
#[test]
fn a_transaction_that_changes_jobs_loses_none_of_its_own_changes() {
    let (_test_store, _, [session]) = with_sessions();
    session.value(&enqueue("q"));
    for order in [[0, 1], [1, 0]] {
        due(&session);
        session.value("BEGIN");
        for what in order {
            session.value(["SELECT job_counts_add()", &enqueue("q")][what]);
        }
        session.value("COMMIT");
        assert_eq!(session.value(WRONG_COUNTS), "");
        add(&session);
        assert_eq!(session.value(WRONG_COUNTS), "");
    }
}

#[test]
fn producers_and_workers_beside_each_other_and_the_maintenance_are_counted() {
    let (test_store, _, [session]) = with_sessions();
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for nth in 0..3 {
            let (worker, barrier) = (Session::new(&test_store), &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..25 {
                    worker.value("BEGIN");
                    worker.value(&enqueue("q"));
                    worker.value(&format!("SELECT enqueue_job('later', 'work', '1', run_at => now() + interval '{round} seconds')"));
                    worker.value(if round % 5 == nth { "ROLLBACK" } else { "COMMIT" });
                    let who = format!("{nth}/{round}");
                    worker.value(&format!("SELECT count(id) FROM {}", claim(&who, 2, "NULL, NULL")));
                    if round % 3 == 0 {
                        worker.value(&format!(
                            "WITH held AS MATERIALIZED (SELECT array_agg(id) AS ids, array_agg(token) AS tokens FROM job_running WHERE hash = md5('{who}')::uuid HAVING count(*) > 0)
                             SELECT count(c) FROM held, job_complete_batch('default', ids, array_fill(md5('{who}')::uuid, ARRAY[cardinality(ids)]), tokens, NULL, {}) AS c",
                            round % 2 == 0
                        ));
                    }
                }
            });
        }
        barrier.wait();
        for _ in 0..40 {
            add(&session);
            assert_eq!(session.value(WRONG_COUNTS), "", "at any moment");
        }
    });
    assert_eq!(session.value(WRONG_COUNTS), "");
    add(&session);
    assert_eq!((left(&session), session.value(WRONG_COUNTS)), (0, String::new()));
}

/// Retention, removed queues, and jobs that are deleted by hand.
#[test]
fn jobs_that_go_are_not_counted_any_more() {
    let (test_store, _, [session, late]) = with_sessions();
    session.value(&format!(
        "SELECT count(enqueue_job('q', 'work', to_jsonb(n))) FROM generate_series(1, {CHANGES}) AS n"
    ));
    complete_many_of(&session);
    add(&session);
    // One that comes into a queue which is removed meanwhile is moved to another one of that name.
    session.value(&enqueue("goes"));
    session.value("SELECT job_forget(array_agg(b.arrival)) FROM job_body b JOIN job_lane l USING (lane) JOIN job_queue q ON q.number = l.queue WHERE q.name = 'goes'");
    late.value("BEGIN");
    late.value(&enqueue("goes"));
    session.value("SELECT job_queue_drop(number) FROM job_queue WHERE name = 'goes'");
    late.value("COMMIT");
    add(&session);
    assert_eq!(counts(&session, "goes"), "");
    session.value("SELECT job_queues_tidy(10, true)");
    assert_eq!(counts(&session, "goes"), "{1,0,0,0,0,0,0,0}");
    test_store.pass(2_000);
    while session.value("SELECT job_tidy(1000, 500)") == "t" {}
    assert_eq!(session.value("SELECT count(*) FROM job_settled"), "0");
    assert_eq!(session.value(WRONG_COUNTS), "");
    add(&session);
    assert_eq!((left(&session), session.value(WRONG_COUNTS)), (0, String::new()));
}

fn complete_many_of(session: &Session) {
    let who = "all";
    let all = session.value(&format!(
        "WITH held AS MATERIALIZED (SELECT array_agg(id) AS ids, array_agg(token) AS tokens FROM {})
         SELECT cardinality(ids) FROM held, job_complete_batch('default', ids, array_fill(md5('{who}')::uuid, ARRAY[cardinality(ids)]), tokens, NULL)",
        claim(who, CHANGES, "NULL, NULL")
    ));
    assert_eq!(all, CHANGES.to_string());
}

/// A count that is wrong, whatever the reason, is right again after the next count, which loses nothing that is committed late.
#[test]
fn a_wrong_count_is_found_once_a_day() {
    let (_test_store, _, [session, late]) = with_sessions();
    session.value(&enqueue("q"));
    session.value("INSERT INTO job_count SELECT number, 5, 7 FROM job_queue");
    session.value("DELETE FROM job_change");
    assert_eq!(counts(&session, "q"), "{0,0,0,0,0,7,0,0}");
    assert_eq!(session.value("SELECT job_recount()"), "f", "it is not due");
    late.value("BEGIN");
    late.value(&enqueue("q"));
    session.value("UPDATE job_counted SET recount_at = '-infinity'");
    assert_eq!(session.value("SELECT job_recount()"), "t");
    assert_eq!(counts(&session, "q"), "{1,0,0,0,0,0,0,0}");
    late.value("COMMIT");
    assert_eq!(counts(&session, "q"), "{2,0,0,0,0,0,0,0}");
    assert_eq!(session.value("SELECT job_recount()"), "f", "it was done");
}

/// Numbers of transactions are those of a server: what was noted on another one, whose dump was restored here, is not gone by.
#[test]
fn counts_are_right_where_a_dump_of_a_server_with_higher_numbers_was_restored() {
    let (_test_store, _, [session]) = with_sessions();
    session.value(&enqueue("q"));
    session.value("UPDATE job_counted SET seen = '9000000000000:9000000000000:'");
    assert_eq!(counts(&session, "q"), "{1,0,0,0,0,0,0,0}");
    session.value(&enqueue("q"));
    assert_eq!(counts(&session, "q"), "{2,0,0,0,0,0,0,0}");
    add(&session);
    session.value(&enqueue("q"));
    assert_eq!((left(&session), counts(&session, "q")), (1, "{3,0,0,0,0,0,0,0}".to_owned()));
}

/// One row a call, however many jobs; and what was added is not read again, also while a session holds a snapshot.
#[test]
fn a_call_adds_one_row_and_what_was_added_is_not_read_again() {
    let (_test_store, _, [session, holder]) = with_sessions();
    session.value(&enqueue("q"));
    holder.value("BEGIN ISOLATION LEVEL REPEATABLE READ");
    holder.value("SELECT count(*) FROM job_body");
    let rows = |sql: &str| {
        let before = left(&session);
        session.value(sql);
        left(&session) - before
    };
    let many = "SELECT count(*) FROM enqueue_jobs((SELECT json_agg(json_build_object('queue', 'q', 'kind', 'work', 'payload', n)) FROM generate_series(1, 500) AS n))";
    assert_eq!([rows(&enqueue("q")), rows(many), rows(many), rows(many), rows(many)], [1; 5]);
    let before = left(&session);
    complete_many(&session, 1);
    assert_eq!(left(&session) - before, 8, "four claims and four completions");
    for _ in 0..3 {
        session.value(&format!(
            "SELECT count(enqueue_job('q', 'work', to_jsonb(n))) FROM generate_series(1, {CHANGES}) AS n"
        ));
        add(&session);
    }
    let read = entries_read(&session, "SELECT count(*) FROM job_queues('default', NULL)");
    assert!(read < 100, "{read} index entries for the counts of one queue");
    let read = entries_read(&session, "SELECT job_counts_add()");
    assert!(read < 100, "{read} index entries to learn that nothing is to be added");
    holder.value("COMMIT");
}
