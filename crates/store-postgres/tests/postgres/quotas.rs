//! Limits of a namespace beyond what the conformance suite has: producers in SQL, open transactions, and namespaces that have so much that
//! only the maintenance counts it.

use crate::job_races::JobRaceFixture;
use crate::session::Session;

const ENQUEUE: &str = "SELECT enqueue_job('mail', 'work', '1', namespace => 'team')";

fn limit_jobs(session: &Session, jobs: u64) {
    session.value(&format!("SELECT store_limits_set('team', NULL, NULL, {jobs}, NULL, NULL, NULL)"));
}

/// What a producer gets where there is no room.
fn refused(producer: &Session, limit: u64) {
    let (code, message) = producer.refusal(ENQUEUE);
    assert_eq!(code, "FH006", "{message}");
    assert!(message.starts_with("jobs that are not done of namespace team ("), "{message}");
    assert!(message.ends_with(&format!("the limit of {limit} is reached")), "{message}");
}

#[test]
fn a_producer_in_sql_is_told_which_limit_is_reached() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    limit_jobs(&session, 1);
    let named = "SELECT enqueue_job('mail', 'work', '1', namespace => 'team', unique_key => 'k')";
    let first = session.value(named);
    refused(&session, 1);
    assert_eq!(session.value(named), first, "what is there is returned again");
    session.value("SELECT store_limits_set('team', 1, NULL, 5, NULL, NULL, NULL)");
    let (code, message) = session.refusal("SELECT enqueue_job('another', 'work', '1', namespace => 'team')");
    assert!(code == "FH006" && message.starts_with("queues of namespace team (remove queues;"), "{message}");
    session.value(ENQUEUE);
}

/// A queue counts in its namespace alone: however many others have, the first job of a new one needs no rules.
#[test]
fn the_queues_of_other_namespaces_keep_nobody_from_a_new_one() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    session.value("INSERT INTO job_queue (namespace, name) SELECT 'other', 'q' || n FROM generate_series(1, 100000) AS n");
    let enqueued = "SELECT count(*) FROM job_enqueue_batch('team', ARRAY[gen_random_uuid()], ARRAY['mail'], ARRAY[0]::smallint[], ARRAY['work'],
        ARRAY['1'], ARRAY[NULL]::jsonb[], ARRAY[NULL]::jsonb[], ARRAY[NULL]::bigint[], ARRAY[NULL]::bigint[], ARRAY[false], NULL, NULL, NULL)";
    assert_eq!(session.value(enqueued), "1");
}

/// Neither waits for the other, and each is refused by what is committed and by what it has added itself.
#[test]
fn a_producer_in_a_limited_namespace_waits_for_no_open_transaction() {
    let (_fixture, [first, second]) = JobRaceFixture::with_sessions();
    first.value(ENQUEUE);
    limit_jobs(&first, 2);
    for session in [&first, &second] {
        session.value("SET lock_timeout = '1ms'");
        session.value("BEGIN");
    }
    first.value(ENQUEUE);
    second.value(ENQUEUE);
    second.value("SAVEPOINT before");
    refused(&second, 2);
    second.value("ROLLBACK TO before");
    first.value("COMMIT");
    second.value("COMMIT");
    refused(&first, 2);
}

#[test]
fn producers_in_a_limited_namespace_do_not_fail_each_other_under_serializable() {
    let (_fixture, [first, second]) = JobRaceFixture::with_sessions();
    first.value(ENQUEUE);
    limit_jobs(&first, 10);
    for session in [&first, &second] {
        session.value("BEGIN ISOLATION LEVEL SERIALIZABLE");
        session.value(ENQUEUE);
    }
    first.value("COMMIT");
    second.value("COMMIT");
    first.value("SELECT namespace_count()");
    limit_jobs(&first, 3);
    first.value("BEGIN ISOLATION LEVEL SERIALIZABLE");
    refused(&first, 3);
}

/// A call counts up to 1 000. Of more it goes by what the maintenance counted, unless that was long ago.
#[test]
fn a_namespace_that_has_much_is_held_to_what_the_maintenance_counted() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    assert_eq!(session.value("SELECT namespace_count()"), "f", "nothing is limited");
    session.value(
        "SELECT count(enqueue_job('mail', 'work', '1', namespace => 'team')) FROM generate_series(1, 1200)",
    );
    limit_jobs(&session, 1_100);
    session.value(ENQUEUE);
    assert_eq!(session.value("SELECT namespace_count()"), "t");
    assert_eq!(session.value("SELECT namespace_count()"), "f", "it was counted just now");
    assert_eq!(session.value("SELECT jobs FROM namespace_use WHERE namespace = 'team'"), "1201");
    refused(&session, 1_100);
    limit_jobs(&session, 1_202);
    session.value(ENQUEUE);
    limit_jobs(&session, 1_000);
    session.value("UPDATE namespace_use SET at = at - interval '1 hour'");
    refused(&session, 1_000);
    limit_jobs(&session, 1_100);
    session.value(ENQUEUE);
}
