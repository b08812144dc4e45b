//! What a call costs does not grow with all that is kept: counted in rows and calls, not in time.

use fencehold_test_store::TestStore as _;

use crate::session::{Calls, Session};
use crate::test_store::PostgresTestStore;

const MANY: u64 = 2_000;
/// So many that reading a part of a table looks cheaper than an index.
const DEEP: u64 = 50_000;

/// A session with its transaction open, in which everything is counted.
fn counting(test_store: &PostgresTestStore) -> Session {
    let session = Session::new(test_store);
    for sql in [&format!("SET search_path = {}", test_store.schema), "SET track_functions = 'all'", "BEGIN"] {
        session.run(sql).unwrap();
    }
    session
}

#[test]
fn an_acquire_asks_no_key_but_its_own() {
    let test_store = PostgresTestStore::new();
    let session = counting(&test_store);
    // The plans of its statements are made while there is little; with them a store lives on.
    for hold in 10..30 {
        session.value(&Calls(test_store.schema).acquire(&format!("early/{hold}"), hold, "a"));
    }
    let count = |session: &Session| -> u64 {
        let calls =
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_xact_user_functions WHERE funcname = 'lease_knows'";
        session.value(calls).parse().unwrap()
    };
    let before = count(&session);
    let keys = format!(
        "INSERT INTO lease_key (namespace, key, counter, look_at_ms)
         SELECT 'default', 'key/' || n, 1, 9000000000000000 FROM generate_series(1, {MANY}) AS n"
    );
    session.run(&keys).unwrap();
    let granted = session.value(&Calls(test_store.schema).acquire("key/1", 7, "a"));
    assert!(granted.contains("Granted") || granted.contains("Ok"), "{granted}");
    let asked = count(&session) - before;
    assert!((1..=4).contains(&asked), "{asked} keys were asked whether they know a hold id");
}

#[test]
fn looking_for_claims_that_ran_out_visits_each_claim_a_few_times_at_most() {
    let test_store = PostgresTestStore::new();
    let session = counting(&test_store);
    // Whatever plan is chosen: here one that takes each claim and looks for it in what is picked, if that can be.
    for way in ["hashagg", "hashjoin", "mergejoin", "material", "sort"] {
        session.run(&format!("SET enable_{way} = off")).unwrap();
    }
    let claims = format!(
        "INSERT INTO job_running (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, plain)
         SELECT md5(n::text)::uuid, n, 1, n, md5(n::text)::uuid, 'a', 60000, now_ms(), now_ms() + 60000, true
         FROM generate_series(1, {MANY}) AS n"
    );
    session.run(&claims).unwrap();
    assert_eq!(session.value("SELECT count(*) FROM job_run_out(100)"), "0");
    let visited = session.value(
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
         WHERE relid = 'job_running'::regclass",
    );
    let visited: u64 = visited.parse().unwrap();
    assert!((MANY..=5 * MANY).contains(&visited), "{visited} rows were visited for {MANY} claims");
}

#[test]
fn a_claim_reads_no_table_whole_because_it_was_small_when_that_was_planned() {
    let test_store = PostgresTestStore::new();
    let session = counting(&test_store);
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
    session.run(&claims).unwrap();
    let read_whole = || -> u64 {
        let read = "SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relid = 'job_running'::regclass";
        session.value(read).parse().unwrap()
    };
    let before = read_whole();
    claim(21);
    let read = read_whole() - before;
    assert!(read < MANY, "{read} claims were read for one");
}

#[test]
fn what_was_claimed_together_is_renewed_and_completed_one_by_one() {
    let test_store = PostgresTestStore::new();
    let session = counting(&test_store);
    // Nothing is claimed when the statistics are made: plans that are right for one claim are then kept for many.
    session.run("ANALYZE job_running, job_body, job_ready").unwrap();
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
        let claiming = IndexScans::during(&session, "job_body", || session.run(&held).map(drop).unwrap());
        let renewing = IndexScans::during(&session, "job_running", || {
            let renewed = "SELECT count(*) - 1 FROM held, job_renew('default', ids, hashes, tokens)";
            assert_eq!(session.value(renewed), many.to_string());
        });
        let completing = IndexScans::during(&session, "job_running", || {
            let completed = "SELECT id IS NULL AND NOT late FROM held, job_complete_batch('default', ids, hashes, tokens, NULL)";
            assert_eq!(session.value(completed), "t", "all of them, in time");
        });
        session.run("DROP TABLE held").unwrap();
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
    let test_store = PostgresTestStore::new();
    let session = counting(&test_store);
    session.run("ANALYZE lease_key, lease_hold").unwrap();
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
    session.run(held).unwrap();
    let looks = IndexScans::during(&session, "lease_hold", || {
        let renewed = "SELECT count(*) - 1 FROM held, lease_renew('default', keys, hashes, tokens, 1000)";
        assert_eq!(session.value(renewed), many.to_string());
    });
    assert!(looks.fetched <= 5 * many, "{} holds were fetched to renew {many}", looks.fetched);
    assert!(looks.searches >= many, "{} searches to renew {many}: not one by one", looks.searches);
}

/// What is asked of one queue while a job is waited for, and while another comes due.
fn calls(nth: u64) -> Vec<(&'static str, String)> {
    let first = format!("md5('{nth}')::uuid");
    let second = format!("md5('second {nth}')::uuid");
    let third = format!("md5('third {nth}')::uuid");
    let fourth = format!("md5('fourth {nth}')::uuid");
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
    let test_store = PostgresTestStore::new();
    let session = counting(&test_store);
    session.value("SELECT enqueue_job('deep', 'work', '0')");
    // As if what is there lay about as after a long life, where an index leads to a page of its own for every row.
    for way in ["enable_nestloop = off", "random_page_cost = 1000"] {
        session.run(&format!("SET {way}")).unwrap();
    }
    // Nothing is there when the statistics are made: plans that are right then are kept.
    session
        .run("ANALYZE job_running, job_body, job_ready, job_scheduled, job_waiter")
        .unwrap();
    for nth in 1..=10 {
        for (what, sql) in calls(nth) {
            session.run(&sql).unwrap_or_else(|error| panic!("{what}: {error:?}"));
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
    session.run(&deep).unwrap();
    let mut dear = Vec::new();
    for (round, statistics) in [(11, "of before"), (12, "of now")] {
        for (what, sql) in calls(round) {
            for table in ["job_ready", "job_scheduled"] {
                session.run("SAVEPOINT before").unwrap();
                let looks = IndexScans::during(&session, table, || session.run(&sql).map(drop).unwrap());
                let read = looks.fetched + looks.read_whole;
                if read >= DEEP / 4 && what != "its coming due" {
                    dear.push(format!("{what}: {read} rows of {table}, with the statistics {statistics}"));
                }
                session
                    .run(if table == "job_ready" { "ROLLBACK TO before" } else { "RELEASE before" })
                    .unwrap();
            }
        }
        session.run("ANALYZE job_ready, job_scheduled").unwrap();
    }
    assert!(dear.is_empty(), "{dear:#?}");
}

#[test]
fn finished_jobs_whose_unique_key_is_taken_are_looked_at_once() {
    let test_store = PostgresTestStore::new();
    let session = counting(&test_store);
    let finished = format!(
        "INSERT INTO job_body (arrival, id, lane, enqueued_ms, kind, payload, extra)
             SELECT n, md5(n::text)::uuid, 1, 0, 'work', '', '{{\"unique\": \"u\"}}' FROM generate_series(1, {MANY}) AS n;
         INSERT INTO job_settled (arrival, lane, state, since_ms, keeps) SELECT n, 1, 3, 0, false FROM generate_series(1, {MANY}) AS n;
         INSERT INTO job_unique (namespace, key, job, payload, until_ms)
             SELECT 'default', md5(n::text)::uuid, md5(n::text)::uuid, md5('')::uuid, now_ms() + 1000000 FROM generate_series(1, {MANY}) AS n"
    );
    session.run(&finished).unwrap();
    let tidy = format!("SELECT job_tidy(600000, {MANY})");
    assert_eq!(session.value(&tidy), "t", "there may be more");
    let looks = IndexScans::during(&session, "job_body", || assert_eq!(session.value(&tidy), "f"));
    assert_eq!(looks.searches + looks.fetched + looks.read_whole, 0, "nothing is new about any of them");
    for (passing_ms, left) in [(999_999, MANY), (1, 0)] {
        test_store.pass(passing_ms);
        session.value(&tidy);
        assert_eq!(
            session.value("SELECT count(*) FROM job_settled"),
            left.to_string(),
            "after {passing_ms} ms"
        );
    }
}

/// While a session holds a snapshot, what is deleted stays in the indexes: those who begin to read where it lay read all of it again.
#[test]
fn a_held_snapshot_makes_no_call_read_what_was_removed() {
    let test_store = PostgresTestStore::new();
    let (session, holder) = (Session::new(&test_store), Session::new(&test_store));
    session.run(&format!("SET search_path = {}", test_store.schema)).unwrap();
    let claim = |who: &str, most: u64| {
        format!(
            "job_claim('default', ARRAY['q'], ARRAY[1], ARRAY[0]::bigint[], {most}, md5('{who}')::uuid, 'a', 30000, NULL, NULL, NULL, true)
             WHERE id IS NOT NULL"
        )
    };
    // The maintenance of the arena's own store keeps finished jobs for longer: it takes no notes beside this session.
    session
        .run(
            "SELECT pg_advisory_lock(1179142483, hashtext(current_schema()));
             SELECT pg_advisory_lock(1179142484, hashtext(current_schema() || part))
             FROM unnest(ARRAY['finished jobs', 'events of jobs', 'dropped jobs']) AS part",
        )
        .unwrap();
    // The queue is there, and a claim waits.
    session.value("SELECT enqueue_job('q', 'work', '0')");
    session.value(&format!("SELECT count(*) FROM {}", claim("first", 1)));
    session
        .value("SELECT count(*) FROM job_line_up('default', ARRAY['q'], md5('waits')::uuid, 1, 600000, 0)");
    session
        .run("UPDATE job_waiter SET beat = clock_timestamp() + interval '1 hour'")
        .unwrap();
    holder.value("BEGIN ISOLATION LEVEL REPEATABLE READ");
    holder.value(&format!("SELECT count(*) FROM {}.job_body", test_store.schema));
    let late = Session::new(&test_store);
    late.run(&format!("SET search_path = {}", test_store.schema)).unwrap();
    for round in 0..2 {
        test_store.pass(1_000);
        if round == 1 {
            late.value("BEGIN");
            late.value("SELECT enqueue_job('q', 'work', '1')");
        }
        session
            .value(&format!("SELECT count(enqueue_job('q', 'work', '1')) FROM generate_series(1, {MANY})"));
        for nth in 0..MANY / 500 {
            let who = format!("{round}/{nth}");
            let completed = format!(
                "WITH held AS MATERIALIZED (SELECT array_agg(id) AS ids, array_agg(token) AS tokens FROM {})
                 SELECT cardinality(ids) FROM held, job_complete_batch('default', ids, array_fill(md5('{who}')::uuid, ARRAY[500]), tokens, NULL)",
                claim(&who, 500)
            );
            assert_eq!(session.value(&completed), "500");
        }
        // The maintenance goes on for some seconds.
        for _ in 0..3 {
            test_store.pass(1_000);
            session.value("SELECT job_tidy(0, 5000)");
            for notes in ["job_head", "tidied"] {
                session
                    .run(&format!("UPDATE {notes} SET at = at - interval '6 seconds'"))
                    .unwrap();
            }
        }
    }
    assert_eq!(session.value("SELECT count(*) FROM job_settled"), "0", "it forgets what is finished");
    // However long this takes: now and then all of a lane is searched, and all that the maintenance removes from.
    session
        .run(
            "UPDATE job_head SET full_at = clock_timestamp() + interval '1 hour';
             UPDATE tidied SET full_at = clock_timestamp() + interval '1 hour'",
        )
        .unwrap();
    let entries = || -> u64 {
        let read = "SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
             WHERE c.relnamespace = current_schema()::regnamespace";
        session.value(read).parse().unwrap()
    };
    let mut dear = Vec::new();
    for (what, sql) in [
        ("an enqueue", "SELECT enqueue_job('q', 'work', '2')"),
        ("telling those in line", "SELECT job_tell_lines(ARRAY['default'], ARRAY['q'])"),
        ("a beat", "SELECT count(*) FROM job_line_beat(ARRAY(SELECT sending FROM job_waiter))"),
        ("tidying", "SELECT job_tidy(0, 5000)"),
    ] {
        session.value("BEGIN");
        let before = entries();
        session.value(sql);
        let read = entries() - before;
        session.value("COMMIT");
        if read >= MANY / 4 {
            dear.push(format!("{what}: {read} index entries"));
        }
    }
    assert!(dear.is_empty(), "{dear:#?}");
    // What is committed long after it got its place lies below: it is found when all of the lane is searched.
    session.value(&format!("SELECT count(*) FROM {}", claim("rest", 100)));
    late.value("COMMIT");
    let beat = "SELECT count(*) FROM job_line_beat(ARRAY(SELECT sending FROM job_waiter))";
    assert_eq!(session.value(beat), "0");
    session
        .run("UPDATE job_head SET at = at - interval '6 seconds', full_at = at - interval '1 minute'")
        .unwrap();
    session.value("SELECT job_tidy(0, 5000)");
    assert_eq!(session.value(beat), "1", "the waiter is notified");
    holder.value("COMMIT");
}

/// With plans that were made while there was nothing.
#[test]
fn what_is_asked_about_one_job_reads_no_others() {
    let test_store = PostgresTestStore::new();
    let session = counting(&test_store);
    session
        .run("ANALYZE job_running, job_body, job_ready, job_scheduled, job_settled, job_past, job_unique")
        .unwrap();
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
        for (what, sql) in calls(nth) {
            session.run(&sql).unwrap_or_else(|error| panic!("{what}: {error:?}"));
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
    session.run(&many).unwrap();
    let mut dear = Vec::new();
    for (what, sql) in calls(11) {
        for table in ["job_body", "job_ready", "job_scheduled", "job_settled", "job_unique"] {
            session.run("SAVEPOINT before").unwrap();
            let looks = IndexScans::during(&session, table, || session.run(&sql).map(drop).unwrap());
            let read = looks.fetched + looks.read_whole;
            if read >= MANY / 4 {
                dear.push(format!("{what}: {read} rows of {table}"));
            }
            let undone = if table == "job_unique" { "RELEASE before" } else { "ROLLBACK TO before" };
            session.run(undone).unwrap();
        }
    }
    assert!(dear.is_empty(), "{dear:#?}");
}

/// With plans that were made while there was nothing.
#[test]
fn what_is_asked_about_one_lease_reads_no_others() {
    let test_store = PostgresTestStore::new();
    let session = counting(&test_store);
    session
        .run("ANALYZE lease_key, lease_hold, lease_ending, lease_waiter, lease_line")
        .unwrap();
    let ask = Calls(test_store.schema);
    let calls = |nth: u8| {
        let key = format!("{nth}");
        let of_two = format!("ARRAY['{nth}', 'other/{nth}']");
        [
            ("an acquire", ask.acquire(&key, nth, "a")),
            ("the same again", ask.acquire_again(&key, nth, "a")),
            ("an acquire in vain", ask.acquire(&key, 100 + nth, "b")),
            (
                "one of two keys",
                ask.acquire(&key, 50 + nth, "b").replace(&format!("ARRAY['{nth}']"), &of_two),
            ),
            ("a renewal", ask.renew(&key, nth, 1)),
            ("a renewal that is checked", ask.renew_checked(&key, nth, 1)),
            ("standing in line", ask.acquire_waiting(&key, 150 + nth, "c", 0, 1000)),
            (
                "a look from there",
                format!(
                    "SELECT lease_look(id, hash, 1000) FROM lease_waiter WHERE hash = '\\x{:02x}'",
                    150 + nth
                ),
            ),
            (
                "leaving it",
                format!(
                    "SELECT lease_leave(id, hash, 1000) FROM lease_waiter WHERE hash = '\\x{:02x}'",
                    150 + nth
                ),
            ),
            ("a fence", ask.fence(&key, 1)),
            ("a look", ask.holder(&key)),
            ("a sweep", ask.sweep()),
            ("a release", ask.release(&key, nth, 1)),
            ("a revocation", ask.revoke(&format!("other/{nth}"))),
        ]
    };
    for nth in 1..=10 {
        for (what, sql) in calls(nth) {
            session.run(&sql).unwrap_or_else(|error| panic!("{what}: {error:?}"));
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
    session.run(&many).unwrap();
    let mut dear = Vec::new();
    for (what, sql) in calls(11) {
        for table in ["lease_key", "lease_hold", "lease_ending"] {
            session.run("SAVEPOINT before").unwrap();
            let looks = IndexScans::during(&session, table, || session.run(&sql).map(drop).unwrap());
            let read = looks.fetched + looks.read_whole;
            if read >= MANY / 4 {
                dear.push(format!("{what}: {read} rows of {table}"));
            }
            let undone = if table == "lease_ending" { "RELEASE before" } else { "ROLLBACK TO before" };
            session.run(undone).unwrap();
        }
    }
    assert!(dear.is_empty(), "{dear:#?}");
}

/// How often a table was searched by one of its indexes, how many rows came of it, and how many were read without one.
struct IndexScans {
    searches: u64,
    fetched: u64,
    read_whole: u64,
}

impl IndexScans {
    fn during(session: &Session, table: &str, work: impl FnOnce()) -> IndexScans {
        let count = |what: &str| -> u64 {
            let counted =
                format!("SELECT {what} FROM pg_stat_xact_user_tables WHERE relid = '{table}'::regclass");
            session.value(&counted).parse().unwrap()
        };
        let counts = || [count("idx_scan"), count("idx_tup_fetch"), count("seq_tup_read")];
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
