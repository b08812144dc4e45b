//! What a call costs does not grow with all that is kept: counted in rows and calls, not in time.

use fencehold_test_store::TestStore as _;

use crate::session::{Calls, Session, any_of, with_sessions};
use crate::test_store::PostgresTestStore;

pub(crate) const MANY: u64 = 2_000;
/// So many that reading a part of a table looks cheaper than an index.
const DEEP: u64 = 50_000;

/// A fresh store, and a session with its transaction open, in which everything is counted.
fn counting() -> (PostgresTestStore, Session) {
    let (test_store, _, [session]) = with_sessions();
    for sql in ["SET track_functions = 'all'", "BEGIN"] {
        session.value(sql);
    }
    (test_store, session)
}

/// What is called, and how.
type NamedCall = (&'static str, String);

/// Which of the calls read that many rows of one of the tables, or more. Each is carried out once: before that, it is undone.
fn dear(session: &Session, calls: &[NamedCall], tables: &[&str], rows: u64) -> Vec<String> {
    let mut dear = Vec::new();
    for (what, sql) in calls {
        for (nth, table) in tables.iter().enumerate() {
            session.value("SAVEPOINT before");
            let looks = IndexScans::during(session, table, || drop(session.value(sql)));
            let read = looks.fetched + looks.read_whole;
            if read >= rows {
                dear.push(format!("{what}: {read} rows of {table}"));
            }
            session.value(if nth + 1 == tables.len() { "RELEASE before" } else { "ROLLBACK TO before" });
        }
    }
    dear
}

/// How many entries of all indexes a call reads.
pub(crate) fn entries_read(session: &Session, sql: &str) -> u64 {
    let read = "SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
        WHERE c.relnamespace = current_schema()::regnamespace";
    session.value("BEGIN");
    let before = session.number(read);
    session.value(sql);
    let entries = session.number(read) - before;
    session.value("COMMIT");
    entries
}

/// A claim past those in line. `heads`: where the lanes begin, as far as its client knows.
pub(crate) fn claim(who: &str, most: u64, heads: &str) -> String {
    format!(
        "job_claim('default', ARRAY['q'], ARRAY[1], ARRAY[0]::bigint[], {most}, md5('{who}')::uuid, 'a', 30000, {heads}, NULL, true)
         WHERE id IS NOT NULL"
    )
}

/// Claims and completes many jobs, by 500.
pub(crate) fn complete_many(session: &Session, round: u64) {
    for nth in 0..MANY / 500 {
        let who = format!("{round}/{nth}");
        let completed = format!(
            "WITH held AS MATERIALIZED (SELECT array_agg(id) AS ids, array_agg(token) AS tokens FROM {})
             SELECT cardinality(ids) FROM held, job_complete_batch('default', ids, array_fill(md5('{who}')::uuid, ARRAY[500]), tokens, NULL)",
            claim(&who, 500, "NULL, NULL")
        );
        assert_eq!(session.value(&completed), "500");
    }
}

#[test]
fn an_acquire_asks_no_key_but_its_own() {
    let (test_store, session) = counting();
    // The plans of its statements are made while there is little; with them a store lives on.
    for hold in 10..30 {
        session.value(&Calls(test_store.schema).acquire(&format!("early/{hold}"), hold, "a"));
    }
    let calls =
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_xact_user_functions WHERE funcname = 'lease_knows'";
    let before = session.number(calls);
    let keys = format!(
        "INSERT INTO lease_key (namespace, key, counter, look_at_ms)
         SELECT 'default', 'key/' || n, 1, 9000000000000000 FROM generate_series(1, {MANY}) AS n"
    );
    session.value(&keys);
    let granted = session.value(&Calls(test_store.schema).acquire("key/1", 7, "a"));
    assert!(granted.contains("Granted") || granted.contains("Ok"), "{granted}");
    let asked = session.number(calls) - before;
    assert!((1..=4).contains(&asked), "{asked} keys were asked whether they know a hold id");
}

#[test]
fn looking_for_claims_that_ran_out_visits_each_claim_a_few_times_at_most() {
    let (_test_store, session) = counting();
    // Whatever plan is chosen: here one that takes each claim and looks for it in what is picked, if that can be.
    for way in ["hashagg", "hashjoin", "mergejoin", "material", "sort"] {
        session.value(&format!("SET enable_{way} = off"));
    }
    let claims = format!(
        "INSERT INTO job_running (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, plain)
         SELECT md5(n::text)::uuid, n, 1, n, md5(n::text)::uuid, 'a', 60000, now_ms(), now_ms() + 60000, true
         FROM generate_series(1, {MANY}) AS n"
    );
    session.value(&claims);
    assert_eq!(session.value("SELECT count(*) FROM job_run_out(100)"), "0");
    let visited = session.number(
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
         WHERE relid = 'job_running'::regclass",
    );
    assert!((MANY..=5 * MANY).contains(&visited), "{visited} rows were visited for {MANY} claims");
}

#[test]
fn a_claim_reads_no_table_whole_because_it_was_small_when_that_was_planned() {
    let (_test_store, session) = counting();
    let claim = |nth: u64| {
        let enqueued = format!("SELECT enqueue_job('q', 'work', '{nth}')");
        let claimed = format!(
            "SELECT count(id) FROM job_claim('default', ARRAY['q'], ARRAY[1], ARRAY[0]::bigint[], 1, md5('{nth}')::uuid, 'a', 30000,
                 NULL, NULL, NULL, false)"
        );
        session.value(&enqueued);
        assert_eq!(session.value(&claimed), "1");
    };
    for nth in 1..=20 {
        claim(nth);
    }
    let claims = format!(
        "INSERT INTO job_running (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, plain)
         SELECT md5('more' || n)::uuid, 1000000 + n, 1, 1000000 + n, md5('more' || n)::uuid, 'a', 60000, now_ms(), now_ms() + 60000, true
         FROM generate_series(1, {MANY}) AS n"
    );
    session.value(&claims);
    let read_whole =
        "SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relid = 'job_running'::regclass";
    let before = session.number(read_whole);
    claim(21);
    let read = session.number(read_whole) - before;
    assert!(read < MANY, "{read} claims were read for one");
}

#[test]
fn what_was_claimed_together_is_renewed_and_completed_one_by_one() {
    let (_test_store, session) = counting();
    // Nothing is claimed when the statistics are made: plans that are right for one claim are then kept for many.
    session.value("ANALYZE job_running, job_body, job_ready");
    let live = |nth: u64, many: u64| {
        session.value(&format!(
            "SELECT count(enqueue_job('q', 'work', '{nth}')) FROM generate_series(1, {many})"
        ));
        let held = format!(
            "CREATE TEMP TABLE held AS
             SELECT array_agg(id) AS ids, array_agg(md5('{nth}')::uuid) AS hashes, array_agg(token) AS tokens
             FROM job_claim('default', ARRAY['q'], ARRAY[1], ARRAY[0]::bigint[], {many}, md5('{nth}')::uuid, 'a', 30000, NULL, NULL,
                 NULL, false) WHERE id IS NOT NULL"
        );
        let claiming = IndexScans::during(&session, "job_body", || drop(session.value(&held)));
        let renewing = IndexScans::during(&session, "job_running", || {
            let renewed = "SELECT count(*) - 1 FROM held, job_renew('default', ids, hashes, tokens)";
            assert_eq!(session.value(renewed), many.to_string());
        });
        let completing = IndexScans::during(&session, "job_running", || {
            let completed = "SELECT id IS NULL AND NOT late FROM held, job_complete_batch('default', ids, hashes, tokens, NULL)";
            assert_eq!(session.value(completed), "t", "all of them, in time");
        });
        session.value("DROP TABLE held");
        [claiming, renewing, completing]
    };
    for nth in 1..=10 {
        live(nth, 1);
    }
    let many = 300;
    for (what, looks) in ["claim", "renew", "complete"].into_iter().zip(live(11, many)) {
        assert!(looks.fetched <= 5 * many, "{} rows were fetched to {what} {many}", looks.fetched);
        assert!(looks.searches >= many, "{} searches to {what} {many}: not one by one", looks.searches);
    }
}

#[test]
fn leases_are_renewed_one_by_one() {
    let (test_store, session) = counting();
    session.value("ANALYZE lease_key, lease_hold");
    for nth in 1..=10 {
        session.value(&Calls(test_store.schema).acquire(&format!("early/{nth}"), nth, "a"));
        session.value(&format!(
            "SELECT count(*) FROM lease_hold h JOIN lease_key k ON k.id = h.key_id,
                 lease_renew('default', ARRAY[k.key], ARRAY[h.hash], ARRAY[h.token], 1000) WHERE k.key = 'early/{nth}'"
        ));
    }
    for nth in 1..=100 {
        session.value(&Calls(test_store.schema).acquire(&format!("key/{nth}"), 100 + nth, "a"));
    }
    let many: u64 = 100;
    let held = "CREATE TEMP TABLE held AS
        SELECT array_agg(k.key) AS keys, array_agg(h.hash) AS hashes, array_agg(h.token) AS tokens
        FROM lease_hold h JOIN lease_key k ON k.id = h.key_id WHERE k.key LIKE 'key/%'";
    session.value(held);
    let looks = IndexScans::during(&session, "lease_hold", || {
        let renewed = "SELECT count(*) - 1 FROM held, lease_renew('default', keys, hashes, tokens, 1000)";
        assert_eq!(session.value(renewed), many.to_string());
    });
    assert!(looks.fetched <= 5 * many, "{} holds were fetched to renew {many}", looks.fetched);
    assert!(looks.searches >= many, "{} searches to renew {many}: not one by one", looks.searches);
}

/// What is asked of one queue while a job is waited for, and while another comes due.
fn calls(nth: u64) -> Vec<NamedCall> {
    let [first, second, third, fourth] =
        ["", "second ", "third ", "fourth "].map(|who| format!("md5('{who}{nth}')::uuid"));
    let line_up =
        |who: &str| format!("SELECT count(*) FROM job_line_up('default', ARRAY['q'], {who}, 1, 600000, 0)");
    let beat = |who: &str| {
        format!(
            "SELECT count(*) FROM job_line_beat(ARRAY(SELECT sending FROM job_waiter WHERE hash = {who}))"
        )
    };
    let claim = |who: &str, queues: &str| {
        format!(
            "SELECT count(id) FROM job_claim('default', {queues}, array_fill(1, ARRAY[cardinality({queues})]),
                 array_fill(0::bigint, ARRAY[cardinality({queues})]), 1, {who}, 'a', 30000, NULL, NULL,
                 (SELECT sending FROM job_waiter WHERE hash = {who}), false)"
        )
    };
    let leave = |who: &str| {
        format!("SELECT job_leave_line('default', hash, sending) FROM job_waiter WHERE hash = {who}")
    };
    let enqueue = format!("SELECT enqueue_job('q', 'work', '{nth}')");
    vec![
        ("a claim of nothing", claim(&first, "ARRAY['q']")),
        ("lining up", line_up(&first)),
        ("lining up behind", line_up(&second)),
        ("a beat before", beat(&first)),
        ("an enqueue", enqueue.clone()),
        ("telling", "SELECT job_tell_lines(ARRAY['default'], ARRAY['q'])".to_owned()),
        ("a beat after", beat(&first)),
        ("a claim from behind", claim(&second, "ARRAY['q']")),
        ("a claim from the line", claim(&first, "ARRAY['q']")),
        ("leaving after", leave(&first)),
        ("leaving without", leave(&second)),
        ("another enqueue", enqueue),
        (
            "an enqueue for later",
            format!(
                "SELECT enqueue_job('q', 'work', '{nth}', run_at => to_timestamp(now_ms() / 1000.0) + interval '10 minutes')"
            ),
        ),
        (
            "its coming due",
            "UPDATE job_scheduled SET due_ms = now_ms() WHERE arrival = (SELECT max(arrival) FROM job_body)"
                .to_owned(),
        ),
        ("telling of what is due", "SELECT job_tell_lines(ARRAY['default'], ARRAY['q'])".to_owned()),
        ("tidying where something is due", "SELECT job_tidy(600000, 100)".to_owned()),
        ("a claim from two queues", claim(&third, "ARRAY['q', 'r']")),
        ("a claim of what was due", claim(&fourth, "ARRAY['q']")),
        ("tidying", "SELECT job_tidy(600000, 100)".to_owned()),
        ("a look for those who need room", "SELECT count(*) FROM job_room(100)".to_owned()),
    ]
}

#[test]
fn what_lies_in_other_queues_or_is_for_later_costs_nobody_anything() {
    let (_test_store, session) = counting();
    session.value("SELECT enqueue_job('deep', 'work', '0')");
    // As if what is there lay about as after a long life, where an index leads to a page of its own for every row.
    for way in ["enable_nestloop = off", "random_page_cost = 1000"] {
        session.value(&format!("SET {way}"));
    }
    // Nothing is there when the statistics are made: plans that are right then are kept.
    session.value("ANALYZE job_running, job_body, job_ready, job_scheduled, job_waiter");
    for nth in 1..=10 {
        for (_, sql) in calls(nth) {
            session.value(&sql);
        }
    }
    let deep = format!(
        "SELECT enqueue_job('deep', 'work', '0'), enqueue_job('deep', 'work', '0', run_at => to_timestamp(now_ms() / 1000.0) + interval '10 minutes');
         INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
             SELECT r.lane, 1000000 + n, 1, false, false, false FROM generate_series(1, {DEEP}) AS n,
                 (SELECT lane FROM job_ready ORDER BY arrival DESC LIMIT 1) r;
         INSERT INTO job_scheduled (arrival, lane, due_ms, bytes, past, urgent)
             SELECT 1000000 + n, s.lane, s.due_ms + n, 1, false, false FROM generate_series(1, {DEEP}) AS n,
                 (SELECT lane, due_ms FROM job_scheduled ORDER BY arrival DESC LIMIT 1) s;
         INSERT INTO job_scheduled (arrival, lane, due_ms, bytes, past, urgent)
             SELECT 2000000 + n, l.lane, now_ms() + 600000 + n, 1, false, false FROM generate_series(1, {DEEP}) AS n,
                 job_lane l JOIN job_queue q ON q.number = l.queue WHERE q.name = 'q'"
    );
    session.value(&deep);
    for (round, statistics) in [(11, "of before"), (12, "of now")] {
        let mut dear = dear(&session, &calls(round), &["job_ready", "job_scheduled"], DEEP / 4);
        dear.retain(|what| !what.starts_with("its coming due"));
        assert!(dear.is_empty(), "with the statistics {statistics}: {dear:#?}");
        session.value("ANALYZE job_ready, job_scheduled");
    }
}

#[test]
fn finished_jobs_whose_unique_key_is_taken_are_looked_at_once() {
    let (test_store, session) = counting();
    let finished = format!(
        "INSERT INTO job_body (arrival, id, lane, enqueued_ms, kind, payload, extra)
             SELECT n, md5(n::text)::uuid, 1, 0, 'work', '', '{{\"unique\": \"u\"}}' FROM generate_series(1, {MANY}) AS n;
         INSERT INTO job_settled (arrival, lane, state, since_ms, keeps) SELECT n, 1, 3, 0, false FROM generate_series(1, {MANY}) AS n;
         INSERT INTO job_unique (namespace, key, job, payload, until_ms)
             SELECT 'default', md5(n::text)::uuid, md5(n::text)::uuid, md5('')::uuid, now_ms() + 1000000 FROM generate_series(1, {MANY}) AS n"
    );
    session.value(&finished);
    let tidy = format!("SELECT job_tidy(600000, {MANY})");
    assert_eq!(session.value(&tidy), "t", "there may be more");
    let looks = IndexScans::during(&session, "job_body", || assert_eq!(session.value(&tidy), "f"));
    assert_eq!(looks.searches + looks.fetched + looks.read_whole, 0, "nothing is new about any of them");
    for (passing_ms, left) in [(999_999, MANY), (1, 0)] {
        test_store.pass(passing_ms);
        session.value(&tidy);
        assert_eq!(session.number("SELECT count(*) FROM job_settled"), left, "after {passing_ms} ms");
    }
}

/// While a session holds a snapshot, what is deleted stays in the indexes: those who begin to read where it lay read all of it again.
#[test]
fn a_held_snapshot_makes_no_call_read_what_was_removed() {
    let (test_store, _, [session, holder, late]) = with_sessions();
    // The maintenance of the arena's own store keeps finished jobs for longer: it takes no notes beside this session.
    session.value(
        "SELECT pg_advisory_lock(1179142483, hashtext(current_schema()));
             SELECT pg_advisory_lock(1179142484, hashtext(current_schema() || part))
             FROM unnest(ARRAY['finished jobs', 'events of jobs', 'dropped jobs']) AS part",
    );
    // The queue is there, and a claim waits.
    session.value("SELECT enqueue_job('q', 'work', '0')");
    session.value(&format!("SELECT count(*) FROM {}", claim("first", 1, "NULL, NULL")));
    session
        .value("SELECT count(*) FROM job_line_up('default', ARRAY['q'], md5('waits')::uuid, 1, 600000, 0)");
    session.value("UPDATE job_waiter SET beat = clock_timestamp() + interval '1 hour'");
    holder.value("BEGIN ISOLATION LEVEL REPEATABLE READ");
    holder.value("SELECT count(*) FROM job_body");
    for round in 0..2 {
        test_store.pass(1_000);
        if round == 1 {
            late.value("BEGIN");
            late.value("SELECT enqueue_job('q', 'work', '1')");
        }
        session
            .value(&format!("SELECT count(enqueue_job('q', 'work', '1')) FROM generate_series(1, {MANY})"));
        complete_many(&session, round);
        // The maintenance goes on for some seconds.
        for _ in 0..3 {
            test_store.pass(1_000);
            session.value("SELECT job_tidy(0, 5000)");
            for notes in ["job_head", "tidied", "job_counted"] {
                session.value(&format!("UPDATE {notes} SET at = at - interval '6 seconds'"));
            }
        }
    }
    assert_eq!(session.value("SELECT count(*) FROM job_settled"), "0", "it forgets what is finished");
    // However long this takes: now and then all of a lane is searched, and all that the maintenance removes from.
    session.value(
        "UPDATE job_head SET full_at = clock_timestamp() + interval '1 hour';
             UPDATE tidied SET full_at = clock_timestamp() + interval '1 hour'",
    );
    let mut dear = Vec::new();
    for (what, sql) in [
        ("an enqueue", "SELECT enqueue_job('q', 'work', '2')"),
        ("telling those in line", "SELECT job_tell_lines(ARRAY['default'], ARRAY['q'])"),
        ("a beat", "SELECT count(*) FROM job_line_beat(ARRAY(SELECT sending FROM job_waiter))"),
        ("tidying", "SELECT job_tidy(0, 5000)"),
    ] {
        let read = entries_read(&session, sql);
        if read >= MANY / 4 {
            dear.push(format!("{what}: {read} index entries"));
        }
    }
    assert!(dear.is_empty(), "{dear:#?}");
    // What is committed long after it got its place lies below: it is found when all of the lane is searched.
    session.value(&format!("SELECT count(*) FROM {}", claim("rest", 100, "NULL, NULL")));
    late.value("COMMIT");
    let beat = "SELECT count(*) FROM job_line_beat(ARRAY(SELECT sending FROM job_waiter))";
    assert_eq!(session.value(beat), "0");
    session.value("UPDATE job_head SET at = at - interval '6 seconds', full_at = at - interval '1 minute'");
    session.value("SELECT job_tidy(0, 5000)");
    assert_eq!(session.value(beat), "1", "the waiter is notified");
    holder.value("COMMIT");
}

/// Also where the planner takes the table for empty, as it does from when its last rows are removed until it is analysed: then every index that has
/// the column seems to be as short as the primary key.
#[test]
fn a_job_is_found_by_its_arrival_in_no_index_of_lists() {
    let (_test_store, session) = counting();
    session.value("SET enable_seqscan = off");
    for table in ["job_body", "job_scheduled", "job_settled", "job_past", "job_note", "job_effect"] {
        session.value(&format!(
            "UPDATE pg_class SET relpages = 1, reltuples = 0 WHERE oid = '{table}'::regclass"
        ));
        for one in ["= 7", "= ANY ('{7,8}')"] {
            let explain = format!("EXPLAIN (FORMAT JSON) DELETE FROM {table} WHERE arrival {one}");
            let plan = session.value(&explain);
            assert!(plan.contains(&format!("\"{table}_pkey\"")), "{table}, {one}: {plan}");
        }
    }
}

/// With plans that were made while there was nothing.
#[test]
fn what_is_asked_about_one_job_reads_no_others() {
    let (_test_store, session) = counting();
    session
        .value("ANALYZE job_running, job_body, job_ready, job_scheduled, job_settled, job_past, job_unique");
    // As a VACUUM leaves it that has found only dead rows: then the planner takes it for empty, however large it has become.
    session.value("UPDATE pg_class SET relpages = 1, reltuples = 0 WHERE oid = ANY (ARRAY['job_running', 'job_body', 'job_ready',
             'job_scheduled', 'job_settled', 'job_past', 'job_unique']::regclass[])");
    let calls = |nth: u64| {
        let id = format!("019a7afd-1e00-7000-8000-{nth:012}");
        [
            (
                "an enqueue with a key",
                format!("SELECT enqueue_job('q', 'work', '1', id => '{id}', unique_key => '{nth}')"),
            ),
            ("the same with another id", format!("SELECT enqueue_job('q', 'work', '1', unique_key => '{nth}')")),
            ("a look", format!("SELECT count(*) FROM job_look(ARRAY['{id}']::uuid[], 'default', true)")),
            (
                "a decision",
                format!(
                    "SELECT count(*) FROM job_load(ARRAY['{id}']::uuid[], 'default', '{{}}', '{{}}', true, true, 1000)"
                ),
            ),
            ("a sweep", "SELECT count(*) FROM job_run_out(10)".to_owned()),
            (
                "a page of those that wait",
                "SELECT count(*) FROM job_list('default', 0, NULL, NULL, ARRAY[0]::smallint[], '[]', NULL, NULL, 10, 10)".to_owned(),
            ),
            (
                "forgetting it",
                format!("SELECT job_forget(ARRAY(SELECT arrival FROM job_body WHERE id = '{id}'))"),
            ),
        ]
    };
    for nth in 1..=10 {
        for (_, sql) in calls(nth) {
            session.value(&sql);
        }
    }
    let many = format!(
        "INSERT INTO job_body (arrival, id, lane, enqueued_ms, kind, payload)
             SELECT 1000000 + n, md5(n::text)::uuid, 1, 0, 'work', '' FROM generate_series(1, {MANY}) AS n;
         INSERT INTO job_ready (lane, arrival, bytes, back, past, urgent)
             SELECT 1, 1000000 + n, 1, false, false, false FROM generate_series(1, {MANY}) AS n;
         INSERT INTO job_scheduled (arrival, lane, due_ms, bytes, past, urgent)
             SELECT 3000000 + n, 1, now_ms() + 600000, 1, false, false FROM generate_series(1, {MANY}) AS n;
         INSERT INTO job_settled (arrival, lane, state, since_ms, keeps)
             SELECT 2000000 + n, 1, 3, now_ms(), false FROM generate_series(1, {MANY}) AS n;
         INSERT INTO job_unique (namespace, key, job, payload, until_ms)
             SELECT 'default', md5(n::text)::uuid, md5(n::text)::uuid, md5('')::uuid, now_ms() FROM generate_series(1, {MANY}) AS n"
    );
    session.value(&many);
    let dear = dear(
        &session,
        &calls(11),
        &["job_body", "job_ready", "job_scheduled", "job_settled", "job_unique"],
        MANY / 4,
    );
    assert!(dear.is_empty(), "{dear:#?}");
}

/// With plans that were made while there was nothing.
#[test]
fn what_is_asked_about_one_lease_reads_no_others() {
    let (test_store, session) = counting();
    session.value("ANALYZE lease_key, lease_hold, lease_ending, lease_waiter, lease_line");
    let ask = Calls(test_store.schema);
    let calls = |nth: u8| {
        let key = format!("{nth}");
        let of_two = any_of(&[&key, &format!("other/{nth}")]);
        let in_line = format!("FROM lease_waiter WHERE hash = '\\x{:02x}'", 150 + nth);
        [
            ("an acquire", ask.acquire(&key, nth, "a")),
            ("the same again", ask.acquire_again(&key, nth, "a")),
            ("an acquire in vain", ask.acquire(&key, 100 + nth, "b")),
            ("one of two keys", ask.acquire(&of_two, 50 + nth, "b")),
            ("a renewal", ask.renew(&key, nth, 1)),
            ("a renewal that is checked", ask.renew_checked(&key, nth, 1)),
            ("standing in line", ask.acquire_waiting(&key, 150 + nth, "c", 0, 1000)),
            ("a look from there", format!("SELECT lease_look(id, hash, 1000) {in_line}")),
            ("leaving it", format!("SELECT lease_leave(id, hash, 1000) {in_line}")),
            ("a fence", ask.fence(&key, 1)),
            ("a look", ask.holder(&key)),
            ("a sweep", ask.sweep()),
            ("a release", ask.release(&key, nth, 1)),
            ("a revocation", ask.revoke(&format!("other/{nth}"))),
        ]
    };
    for nth in 1..=10 {
        for (_, sql) in calls(nth) {
            session.value(&sql);
        }
    }
    let many = format!(
        "INSERT INTO lease_key (id, namespace, key, counter, look_at_ms) OVERRIDING SYSTEM VALUE
             SELECT -n, 'default', 'key/' || n, 1, 9000000000000000 FROM generate_series(1, {MANY}) AS n;
         INSERT INTO lease_hold (key_id, token, hash, owner, ttl_ms, since_ms, priority, deadline_ms, lasts_ms, look_at_ms)
             SELECT -n, 1, '\\x00', 'a', 60000, now_ms(), 0, now_ms() + 60000, 60000, now_ms() + 60000
             FROM generate_series(1, {MANY}) AS n;
         INSERT INTO lease_ending (key_id, token, hash, owner, how, at_ms)
             SELECT -n, 1, '\\x00', 'a', 'released', now_ms() FROM generate_series(1, {MANY}) AS n"
    );
    session.value(&many);
    let dear = dear(&session, &calls(11), &["lease_key", "lease_hold", "lease_ending"], MANY / 4);
    assert!(dear.is_empty(), "{dear:#?}");
}

/// Claims and completes so many jobs in one call each.
fn live_with(session: &Session, who: &str, most: u64) {
    let lived = format!(
        "WITH held AS MATERIALIZED (SELECT array_agg(id) AS ids, array_agg(token) AS tokens FROM {})
         SELECT cardinality(ids) FROM held,
             job_complete_batch('default', ids, array_fill(md5('{who}')::uuid, ARRAY[{most}]), tokens, NULL, true)",
        claim(who, most, "NULL, NULL")
    );
    assert_eq!(session.value(&lived), most.to_string());
}

/// What a worker that runs one job at a time does again and again: counted, so that it does not grow.
#[test]
fn the_life_of_a_single_job_takes_few_statements_about_few_rows() {
    let (_test_store, _, [producer, worker]) = with_sessions();
    producer.value("SELECT count(enqueue_job('q', 'work', '1')) FROM generate_series(1, 10)");
    // The first one of all notes the server and the longest ttl.
    live_with(&producer, "first", 1);
    for nth in 1..=3 {
        live_with(&worker, &nth.to_string(), 1);
    }
    // A session keeps the plan of each statement of a function that it has come to.
    let statements = worker.number(
        "SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'CachedPlan' AND ident ~* '(select|insert|delete|update)\\s'",
    );
    assert!(statements <= 20, "{statements} statements for a claim and a completion");
    let counts = || {
        ["seq_tup_read", "idx_scan", "idx_tup_fetch", "n_tup_ins", "n_tup_upd", "n_tup_del"].map(|what| {
            // Without the clock of the tests.
            worker.number(&format!(
                "SELECT sum({what}) FROM pg_stat_xact_user_tables
                 WHERE schemaname = current_schema() AND relname <> 'test_clock'"
            ))
        })
    };
    for (most, searches_max, inserted, deleted) in [(1, 22, 6, 3), (4, 38, 9, 12)] {
        worker.value("BEGIN");
        let before = counts();
        live_with(&worker, &format!("{most} at once"), most);
        let after = counts();
        worker.value("COMMIT");
        let [read_whole, searches, fetched, ins, upd, del] =
            std::array::from_fn(|nth| after[nth] - before[nth]);
        assert!(read_whole <= 3, "{most} at once: {read_whole} rows of tables that were read whole");
        assert!(searches <= searches_max, "{most} at once: {searches} searches");
        assert!(fetched <= 4 + 6 * most, "{most} at once: {fetched} rows");
        assert_eq!([ins, upd, del], [inserted, 0, deleted], "{most} at once");
    }
}

#[test]
fn a_claim_of_a_few_jobs_is_bounded_by_all_that_they_carry() {
    let (_test_store, _, [session]) = with_sessions();
    session.value("SELECT count(enqueue_job('q', 'work', '1')) FROM generate_series(1, 3)");
    session.value("SELECT enqueue_job('q', 'work', '2', priority => -1)");
    for sql in [
        "UPDATE job_ready SET past = true",
        "INSERT INTO job_past (arrival, token, failures, crashes, attempts, undo, since_ms)
         SELECT arrival, arrival, 1, 0, 2, 0, 0 FROM job_ready",
        "INSERT INTO job_note (arrival, what, bytes) SELECT arrival, 0, convert_to(repeat('x', 3500000), 'UTF8') FROM job_ready",
    ] {
        session.value(sql);
    }
    let claimed = |who: &str| {
        let sql = format!(
            "SELECT string_agg(attempt || '/' || failures || '/' || octet_length(checkpoint) || '/' || priority, ' ' ORDER BY token) FROM {}",
            claim(who, 4, "NULL, NULL")
        );
        session.value(&sql)
    };
    assert_eq!(
        claimed("a"),
        "3/1/3500000/0 3/1/3500000/0",
        "a third has no room, nor has one of lesser priority"
    );
    let counted = "SELECT count FROM job_counts_now(NULL) WHERE state = 2";
    assert_eq!(session.value(counted), "2");
    assert_eq!(claimed("b"), "3/1/3500000/0 3/1/3500000/-1");
    assert_eq!(session.value(counted), "4");
}

/// How often a table was searched by one of its indexes, how many rows came of it, and how many were read without one.
struct IndexScans {
    searches: u64,
    fetched: u64,
    read_whole: u64,
}

impl IndexScans {
    fn during(session: &Session, table: &str, work: impl FnOnce()) -> IndexScans {
        let of_table = format!("FROM pg_stat_xact_user_tables WHERE relid = '{table}'::regclass");
        let counts = || {
            ["idx_scan", "idx_tup_fetch", "seq_tup_read"]
                .map(|what| session.number(&format!("SELECT {what} {of_table}")))
        };
        let before = counts();
        work();
        let [searches, fetched, read_whole] = counts();
        IndexScans {
            searches: searches - before[0],
            fetched: fetched - before[1],
            read_whole: read_whole - before[2],
        }
    }
}
