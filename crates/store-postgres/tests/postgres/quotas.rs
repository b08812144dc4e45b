//! Limits of a namespace beyond what the conformance suite has: producers in SQL, open transactions, and namespaces that have so much that
//! only the maintenance counts it.

use crate::job_races::{JobRaceFixture, run};
use crate::session::{Session, StatementResult};

const ENQUEUE: &str = "SELECT enqueue_job('mail', 'work', '1', namespace => 'team')";

fn limit_jobs(session: &Session, jobs: u64) {
    run(session, &format!("SELECT store_limits_set('team', NULL, NULL, {jobs}, NULL, NULL, NULL)"));
}

/// What a producer gets where there is no room.
fn refused(said: StatementResult, limit: u64) {
    let (code, message) = said.expect_err("there is no room");
    assert_eq!(code, "FH006", "{message}");
    assert!(message.starts_with("jobs that are not done of namespace team ("), "{message}");
    assert!(message.ends_with(&format!("the limit of {limit} is reached")), "{message}");
}

#[test]
fn a_producer_in_sql_is_told_which_limit_is_reached() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    limit_jobs(&session, 1);
    let named = "SELECT enqueue_job('mail', 'work', '1', namespace => 'team', unique_key => 'k')";
    let first = run(&session, named);
    refused(session.run(ENQUEUE), 1);
    assert_eq!(run(&session, named), first, "what is there is returned again");
    run(&session, "SELECT store_limits_set('team', 1, NULL, 5, NULL, NULL, NULL)");
    let (code, message) = session
        .run("SELECT enqueue_job('another', 'work', '1', namespace => 'team')")
        .expect_err("a second queue");
    assert!(code == "FH006" && message.starts_with("queues of namespace team (remove queues;"), "{message}");
    run(&session, ENQUEUE);
}

/// A queue counts in its namespace alone: however many others have, the first job of a new one needs no rules.
#[test]
fn the_queues_of_other_namespaces_keep_nobody_from_a_new_one() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    run(
        &session,
        "INSERT INTO job_queue (namespace, name) SELECT 'other', 'q' || n FROM generate_series(1, 100000) AS n",
    );
    let enqueued = "SELECT count(*) FROM job_enqueue_batch('team', ARRAY[gen_random_uuid()], ARRAY['mail'], ARRAY[0]::smallint[], ARRAY['work'],
        ARRAY['1'], ARRAY[NULL]::jsonb[], ARRAY[NULL]::jsonb[], ARRAY[NULL]::bigint[], ARRAY[NULL]::bigint[], ARRAY[false], NULL, NULL, NULL)";
    assert_eq!(run(&session, enqueued).as_deref(), Some("1"));
}

/// Neither waits for the other, and each is refused by what is committed and by what it has added itself.
#[test]
fn a_producer_in_a_limited_namespace_waits_for_no_open_transaction() {
    let fixture = JobRaceFixture::new();
    let (first, second) = (fixture.session(), fixture.session());
    run(&first, ENQUEUE);
    limit_jobs(&first, 2);
    for session in [&first, &second] {
        run(session, "SET lock_timeout = '1ms'");
        run(session, "BEGIN");
    }
    run(&first, ENQUEUE);
    run(&second, ENQUEUE);
    run(&second, "SAVEPOINT before");
    refused(second.run(ENQUEUE), 2);
    run(&second, "ROLLBACK TO before");
    run(&first, "COMMIT");
    run(&second, "COMMIT");
    refused(first.run(ENQUEUE), 2);
}

#[test]
fn producers_in_a_limited_namespace_do_not_fail_each_other_under_serializable() {
    let fixture = JobRaceFixture::new();
    let (first, second) = (fixture.session(), fixture.session());
    run(&first, ENQUEUE);
    limit_jobs(&first, 10);
    for session in [&first, &second] {
        run(session, "BEGIN ISOLATION LEVEL SERIALIZABLE");
        run(session, ENQUEUE);
    }
    run(&first, "COMMIT");
    run(&second, "COMMIT");
    run(&first, "SELECT namespace_count()");
    limit_jobs(&first, 3);
    run(&first, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    refused(first.run(ENQUEUE), 3);
}

/// A call counts up to 1 000. Of more it goes by what the maintenance counted, unless that was long ago.
#[test]
fn a_namespace_that_has_much_is_held_to_what_the_maintenance_counted() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    assert_eq!(run(&session, "SELECT namespace_count()").as_deref(), Some("f"), "nothing is limited");
    run(
        &session,
        "SELECT count(enqueue_job('mail', 'work', '1', namespace => 'team')) FROM generate_series(1, 1200)",
    );
    limit_jobs(&session, 1_100);
    run(&session, ENQUEUE);
    assert_eq!(run(&session, "SELECT namespace_count()").as_deref(), Some("t"));
    assert_eq!(run(&session, "SELECT namespace_count()").as_deref(), Some("f"), "it was counted just now");
    assert_eq!(
        run(&session, "SELECT jobs FROM namespace_use WHERE namespace = 'team'").as_deref(),
        Some("1201")
    );
    refused(session.run(ENQUEUE), 1_100);
    limit_jobs(&session, 1_202);
    run(&session, ENQUEUE);
    limit_jobs(&session, 1_000);
    run(&session, "UPDATE namespace_use SET at = at - interval '1 hour'");
    refused(session.run(ENQUEUE), 1_000);
    limit_jobs(&session, 1_100);
    run(&session, ENQUEUE);
}
