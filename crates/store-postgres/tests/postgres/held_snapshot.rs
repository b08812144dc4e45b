//! While a session holds a snapshot, what is deleted stays in the indexes. No call begins to read where it lies: counted in index entries.

use fencehold_core::limits::EVENTS_KEPT;
use fencehold_test_store::TestStore as _;

use crate::call_cost::{MANY, claim, complete_many, entries_read};
use crate::session::{Session, with_sessions};

/// More than the history keeps.
const EVENTS: u64 = 18_500;
/// More than the step in which it is cut.
const STEP: u64 = 4_200;
/// A free key is collected after this, and a unique key that has come free is forgotten.
const FORGOTTEN_MS: u64 = 7_300_000;
const LOOKS_MAX: u64 = 100;

/// Works until nothing is left in a table.
fn until_empty(session: &Session, table: &str, work: &str) {
    let left = || session.value(&format!("SELECT count(*) FROM {table}"));
    for _ in 0..LOOKS_MAX {
        if left() == "0" {
            return;
        }
        session.value(work);
    }
    panic!("{} rows are left in {table}", left());
}

/// Lets the next call write its notes again. They are not due to be checked against all that there is, however long this test takes.
fn let_notes_age(session: &Session) {
    for notes in ["job_head", "tidied"] {
        session.value(&format!(
                "UPDATE {notes} SET at = at - interval '6 seconds', full_at = clock_timestamp() + interval '1 hour'"
            ));
    }
}

/// Leases that run out a second later, each on a key of its own.
fn leases(round: u64) -> String {
    format!(
            "WITH k AS (
                 INSERT INTO lease_key (namespace, key, counter, look_at_ms)
                     SELECT 'default', '{round}/' || n, 1, now_ms() + limit_free_ms() FROM generate_series(1, {MANY}) AS n RETURNING id)
             INSERT INTO lease_hold (key_id, token, hash, owner, ttl_ms, since_ms, priority, deadline_ms, lasts_ms, look_at_ms)
                 SELECT k.id, 1, '\\x00', 'a', 1000, now_ms(), 0, now_ms() + 1000, 1000, now_ms() + 1000 FROM k"
        )
}

/// Those in line of a process that has gone.
fn waiters() -> String {
    format!(
        "WITH p AS (INSERT INTO party (alive_until) VALUES (clock_timestamp() - interval '1 second') RETURNING id)
         INSERT INTO lease_waiter (party, namespace, keys, hash, owner, ttl_ms, priority, arrived_ms, waited_before_ms, until_ms)
             SELECT p.id, 'default', '{{}}', decode(md5(n::text), 'hex'), 'b', 1000, 0, 0, 0, 0 FROM p, generate_series(1, {MANY}) AS n"
    )
}

#[test]
fn what_has_run_out_or_come_due_under_a_held_snapshot_is_not_read_again() {
    let (test_store, _, [session, holder]) = with_sessions();
    // The arena's own store neither sweeps nor takes notes beside this session.
    session.value("SELECT pg_advisory_lock(n, hashtext(current_schema())) FROM unnest(ARRAY[1179142480, 1179142483]) AS n;
             SELECT pg_advisory_lock(1179142484, hashtext(current_schema() || part)) FROM unnest(ARRAY['finished jobs', 'events of jobs',
                 'dropped jobs', 'due jobs', 'unique keys', 'holds', 'lease keys', 'far holds', 'waiters', 'events']) AS part");
    let lined_up =
        "SELECT count(*) FROM job_line_up('default', ARRAY['q'], md5('waits')::uuid, 1, 100000000, 0)";
    session.value(lined_up);
    session.value("UPDATE job_waiter SET beat = clock_timestamp() + interval '1 hour'");
    holder.value("BEGIN ISOLATION LEVEL REPEATABLE READ");
    holder.value("SELECT count(*) FROM job_body");
    for round in 0..2 {
        session.value(&leases(round));
        session.value(&format!(
            "SELECT count(enqueue_job('q', 'work', '1', run_at => to_timestamp(now_ms() / 1000.0) + interval '1 second',
                 unique_key => '{round}/' || n, unique_window => interval '1 second')) FROM generate_series(1, {MANY}) AS n"
        ));
        test_store.pass(1_001);
        until_empty(&session, "lease_hold", "SELECT lease_sweep(500)");
        session.value(&waiters());
        // However long that takes: after a minute only a look at all of them would find them.
        until_empty(
            &session,
            "lease_waiter",
            "UPDATE party SET alive_until = clock_timestamp() - interval '1 second'; SELECT lease_sweep(500)",
        );
        session.value("DELETE FROM party");
        complete_many(&session, round);
        test_store.pass(FORGOTTEN_MS);
        until_empty(&session, "lease_key", "SELECT lease_sweep(500)");
        until_empty(&session, "job_unique", "SELECT job_tidy(0, 500)");
        session.value(&format!("INSERT INTO event (at_ms, namespace, key, fact) SELECT 0, 'default', 'k', '{{}}' FROM generate_series(1, {EVENTS})"));
        for _ in 0..3 {
            session.value("SELECT lease_sweep(500)");
            session.value("SELECT job_tidy(0, 500)");
            let_notes_age(&session);
        }
    }
    // One more step of the history is to be cut.
    session.value(&format!("INSERT INTO event (at_ms, namespace, key, fact) SELECT 0, 'default', 'k', '{{}}' FROM generate_series(1, {STEP})"));
    // What was written before is put in order once.
    for _ in 0..2 {
        session.value("SELECT next FROM events_read('default', 0, NULL, 1, 0)");
    }
    let known = "ARRAY(SELECT lane FROM job_lane), array_fill((SELECT last_value FROM job_arrival), ARRAY[(SELECT count(*)::integer FROM job_lane)])";
    let mut dear = Vec::new();
    for (what, at_most, sql) in [
        // It counts all that are kept, and then removes.
        ("a sweep", EVENTS_KEPT as u64 + 3 * STEP + MANY / 4, "SELECT lease_sweep(500)".to_owned()),
        ("a sweep that cuts no history", MANY / 4, "SELECT lease_sweep(500)".to_owned()),
        ("tidying", MANY / 4, "SELECT job_tidy(0, 500)".to_owned()),
        ("telling those in line", MANY / 4, "SELECT job_tell_lines(ARRAY['default'], ARRAY['q'])".to_owned()),
        (
            "a beat",
            MANY / 4,
            "SELECT count(*) FROM job_line_beat(ARRAY(SELECT sending FROM job_waiter))".to_owned(),
        ),
        ("a claim", MANY / 4, format!("SELECT count(*) FROM {}", claim("last", 500, known))),
        ("the counts of queues", MANY / 4, "SELECT count(*) FROM job_queues('default', NULL)".to_owned()),
        (
            "a list of those that are queued",
            MANY / 4,
            "SELECT count(*) FROM job_list('default', 0, NULL, NULL, ARRAY[0]::smallint[], '[]', NULL, NULL, 100, 10000)"
                .to_owned(),
        ),
        (
            "a page of events",
            MANY / 4,
            "SELECT next FROM events_read('default', (SELECT max(seq) - 10 FROM event), NULL, 10, 0)"
                .to_owned(),
        ),
    ] {
        let read = entries_read(&session, &sql);
        if read >= at_most {
            dear.push(format!("{what}: {read} index entries"));
        }
    }
    assert!(dear.is_empty(), "{dear:#?}");
    what_lies_below_a_note_is_found(&session);
    holder.value("COMMIT");
}

fn what_lies_below_a_note_is_found(session: &Session) {
    let beat = || session.value("SELECT count(*) FROM job_line_beat(ARRAY(SELECT sending FROM job_waiter))");
    assert_eq!(beat(), "0", "there is nothing");
    session.value("INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent) SELECT lane, 1, 1, true, false, false FROM job_lane");
    assert_eq!(beat(), "1", "a job that comes back is found at its old place");
    session.value("DELETE FROM job_ready;
             INSERT INTO job_scheduled (arrival, lane, due_ms, bytes, past, urgent) SELECT 1, lane, 0, 1, false, false FROM job_lane");
    assert_eq!(beat(), "0", "it was due long before it was committed");
    session.value("UPDATE tidied SET full_at = clock_timestamp() - interval '1 minute'");
    session.value("SELECT job_tidy(0, 500)");
    assert_eq!(beat(), "1", "it is found once all of the index is read");
}
