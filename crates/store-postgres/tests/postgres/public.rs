//! What users call and read: the functions and views of decision 0084, under the names that are frozen there, with the public words.

use fencehold_test_servers::calls::call;
use fencehold_test_store::block_on;
use serde_json::{Value, json};
use tokio_postgres::error::SqlState;

use crate::job_races::{A, JOB, JobRaceFixture, claim, complete};
use crate::session::{Calls, Session};
use crate::template::START_MS;
use crate::upgraded::old_schema;
use crate::{migrated, open};

const VIEWS: [(&str, &str); 6] = [
    ("events", "namespace text, seq bigint, at timestamp with time zone, key text, type text, data jsonb"),
    (
        "jobs",
        "namespace text, id uuid, queue text, kind text, state text, priority smallint, token bigint, owner text, attempt_count bigint, \
         failure_count integer, crash_count integer, enqueued_at timestamp with time zone, state_changed_at timestamp with time zone, \
         due_at timestamp with time zone, deadline_at timestamp with time zone, unique_key_hash text, labels jsonb",
    ),
    (
        "lease_endings",
        "namespace text, key text, token bigint, owner text, task text, outcome text, ended_at timestamp with time zone, by text, reason text",
    ),
    (
        "leases",
        "namespace text, key text, token bigint, owner text, task text, ttl_ms bigint, max_age_ms bigint, priority smallint, \
         acquired_at timestamp with time zone, deadline_at timestamp with time zone, waiter_count bigint",
    ),
    (
        "queues",
        "namespace text, name text, mode text, queued_count bigint, scheduled_count bigint, running_count bigint, completed_count bigint, \
         failed_count bigint, cancelled_count bigint, quarantined_count bigint, in_doubt_count bigint",
    ),
    (
        "schedules",
        "namespace text, name text, cron text, time_zone text, queue text, kind text, next_run_at timestamp with time zone, \
         last_run_at timestamp with time zone",
    ),
];

const FUNCTIONS: [(&str, &str, &str); 13] = [
    ("complete_job", "job_id uuid, hold_id text, token bigint, result jsonb DEFAULT NULL::jsonb", "void"),
    (
        "enqueue_job",
        "queue text, kind text, payload jsonb, priority integer DEFAULT 0, run_at timestamp with time zone DEFAULT NULL::timestamp with time \
         zone, unique_key text DEFAULT NULL::text, unique_window interval DEFAULT '1 day'::interval, labels jsonb DEFAULT NULL::jsonb, \
         namespace text DEFAULT 'default'::text, id uuid DEFAULT NULL::uuid",
        "uuid",
    ),
    (
        "enqueue_jobs",
        "jobs json, namespace text DEFAULT 'default'::text",
        "TABLE(job_id uuid, existed boolean)",
    ),
    ("fence", "key text, token bigint, namespace text DEFAULT 'default'::text", "void"),
    ("fence_job", "job_id uuid, token bigint", "void"),
    ("fence_resource", "resource text, token bigint, namespace text DEFAULT 'default'::text", "void"),
    (
        "maintenance_errors",
        "",
        "TABLE(part text, first_failed_at timestamp with time zone, last_failed_at timestamp with time zone, failure_count bigint, message text)",
    ),
    (
        "open_fences",
        "",
        "TABLE(namespace text, key text, owner text, task text, job_id uuid, pid integer, age_ms bigint)",
    ),
    ("raise_mark", "resource text, token bigint, namespace text DEFAULT 'default'::text", "void"),
    ("record_effect", "job_id uuid, hold_id text, token bigint, effect text, value jsonb", "jsonb"),
    (
        "try_complete_job",
        "job_id uuid, hold_id text, token bigint, result jsonb DEFAULT NULL::jsonb",
        "boolean",
    ),
    ("try_fence", "key text, token bigint, namespace text DEFAULT 'default'::text", "boolean"),
    ("try_record_effect", "job_id uuid, hold_id text, token bigint, effect text, value jsonb", "jsonb"),
];

/// A row of one column of JSON each.
fn rows(session: &Session, sql: &str) -> Vec<Value> {
    let rows = session.run(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let value = |row: Vec<Option<String>>| serde_json::from_str(row[0].as_deref().unwrap()).unwrap();
    rows.into_iter().map(value).collect()
}

/// So many milliseconds after the clock of the stage began.
fn after(ms: u64) -> String {
    let at_ms = START_MS + ms;
    let moment = fencehold_core::wire::Moment { wall_ms: at_ms }.to_string();
    // As PostgreSQL writes it: without what is zero.
    let (whole, part) = moment.trim_end_matches('Z').split_once('.').unwrap();
    let part = part.trim_end_matches('0');
    if part.is_empty() { format!("{whole}+00:00") } else { format!("{whole}.{part}+00:00") }
}

#[test]
fn functions_and_views_have_their_public_names_and_say_so() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    let private = "Private: any migration may change it.";
    let rows = |sql: &str| -> Vec<Vec<String>> {
        let rows = session.run(sql).unwrap().into_iter();
        rows.map(|row| row.into_iter().flatten().collect()).collect()
    };
    let functions = rows(&format!(
        "SELECT p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid) FROM pg_proc p
         WHERE p.pronamespace = 'fencehold'::regnamespace AND obj_description(p.oid, 'pg_proc') IS DISTINCT FROM '{private}' ORDER BY 1"
    ));
    assert_eq!(functions, FUNCTIONS.map(|(name, arguments, result)| vec![name, arguments, result]));
    let relations = rows(&format!(
        "SELECT c.relname, (SELECT string_agg(attname || ' ' || format_type(atttypid, NULL), ', ' ORDER BY attnum)
            FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0)
         FROM pg_class c WHERE c.relnamespace = 'fencehold'::regnamespace AND c.relkind IN ('r', 'v')
            AND c.relname NOT IN ('migration', 'test_clock')
            AND obj_description(c.oid, 'pg_class') IS DISTINCT FROM '{private}' ORDER BY 1"
    ));
    assert_eq!(relations, VIEWS.map(|(name, columns)| vec![name, columns]));
    let former = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'fencehold'::regnamespace AND proname IN
        ('enqueue', 'complete', 'once', 'raise', 'guard', 'fences_open', 'job_enqueue', 'job_complete', 'fence_job_before',
         'lease_sweep_before', 'maintenance_errors_before')";
    assert_eq!(session.value(former), "0", "no function has two names");
}

#[test]
fn arguments_can_be_named() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    session.value(&claim(A));
    let proof = format!("job_id => '{JOB}', hold_id => '{}', token => 1", A.0);
    session.value("SELECT raise_mark(resource => 'r', token => 2, namespace => 'n')");
    session.value("SELECT fence_resource(resource => 'r', token => 2, namespace => 'n')");
    session.value(&format!("SELECT fence_job(job_id => '{JOB}', token => 1)"));
    let recorded = session.value(&format!("SELECT record_effect({proof}, effect => 'charge', value => '7')"));
    assert_eq!(recorded, "7");
    session.value(&format!("SELECT complete_job({proof}, result => '8')"));
    assert_eq!(fixture.state(), "3");
}

#[test]
fn a_key_that_is_held_and_one_that_is_free_are_shown() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let calls = Calls("fencehold");
    session.value("SELECT lease_acquire('team', ARRAY['gpu'], '\\x01', 0, 'ada', 'train', 30000, 90000, 0, 0, 5::smallint, NULL, NULL, NULL, 60000)");
    session.value("SELECT lease_acquire('team', ARRAY['gpu'], '\\x02', 0, 'bob', NULL, 30000, NULL, 60000, 0, 0::smallint, NULL, NULL, party_lives(NULL), \
         60000)");
    let held = json!({
        "namespace": "team", "key": "gpu", "token": 1, "owner": "ada", "task": "train", "ttl_ms": 30_000, "max_age_ms": 90_000,
        "priority": 5, "acquired_at": after(0), "deadline_at": after(30_000), "waiter_count": 1,
    });
    assert_eq!(rows(&session, "SELECT to_jsonb(l) FROM leases l"), [held]);
    session.value(&calls.acquire("k", 3, "eve"));
    fixture.test_store.shift(20_000);
    session.value(&calls.release("k", 3, 1));
    let of_k = "SELECT to_jsonb(l) FROM leases l WHERE namespace = 'default' AND key = 'k'";
    let free = json!({
        "namespace": "default", "key": "k", "token": 1, "owner": null, "task": null, "ttl_ms": null, "max_age_ms": null,
        "priority": null, "acquired_at": null, "deadline_at": null, "waiter_count": 0,
    });
    assert_eq!(rows(&session, of_k), [free]);
    let ending = json!({
        "namespace": "default", "key": "k", "token": 1, "owner": "eve", "task": null, "outcome": "released", "ended_at": after(20_000),
        "by": null, "reason": null,
    });
    assert_eq!(rows(&session, "SELECT to_jsonb(e) FROM lease_endings e"), [ending]);
    session.value(&calls.acquire("k", 4, "fay"));
    session.value(&calls.revoke("k"));
    let by_force =
        "SELECT to_jsonb(e) FROM (SELECT outcome, by, reason FROM lease_endings WHERE owner = 'fay') e";
    assert_eq!(
        rows(&session, by_force),
        [json!({"outcome": "revoked", "by": "P", "reason": "it was stuck"})]
    );
}

/// What the view says is what the library says: a key is free at its deadline, but for a fence; and a jump of the clock is allowed for.
#[test]
fn a_lease_is_shown_as_held_for_as_long_as_it_is() {
    let (fixture, [session, other]) = JobRaceFixture::with_sessions();
    let calls = Calls("fencehold");
    let owner = "SELECT owner FROM leases WHERE key = 'k'";
    session.value(&calls.acquire("k", 1, "ada"));
    other.value("BEGIN");
    other.value(&calls.fence("k", 1));
    fixture.test_store.shift(30_000);
    assert_eq!(session.value(owner), "ada", "its fence is in the way of others");
    other.value("COMMIT");
    assert_eq!(session.value(owner), "", "it has run out, although no sweep has noted that");
    session.value("SELECT lease_suspend(0)");
    assert_eq!(session.value(owner), "ada", "the clock jumped");
    let deadline = "SELECT to_jsonb(deadline_at) FROM leases WHERE key = 'k'";
    assert_eq!(rows(&session, deadline), [json!(after(60_000))]);
    assert_eq!(session.value(&calls.holder("k")), "ada", "as the library has it");
}

#[test]
fn jobs_are_shown_in_every_state() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    session.value("DELETE FROM job_ready; DELETE FROM job_body");
    let later = format!("'{}'", after(60_000));
    session.value(&format!(
            "SELECT enqueue_job('q', 'work', '\"secret\"', 5, run_at => {later}, unique_key => 'u', labels => '{{\"a\": \"1\", \"b\": \"2\"}}', \
             namespace => 'team')"
        ));
    let shown = "SELECT to_jsonb(j) - 'id' FROM jobs j";
    let hash = "2d27bf5680ced39f68caa10b97984318";
    let scheduled = json!({
        "namespace": "team", "queue": "q", "kind": "work", "state": "scheduled", "priority": 5, "token": 0, "owner": null,
        "attempt_count": 0, "failure_count": 0, "crash_count": 0, "enqueued_at": after(0), "state_changed_at": after(0),
        "due_at": after(60_000), "deadline_at": null, "unique_key_hash": hash, "labels": {"a": "1", "b": "2"},
    });
    assert_eq!(rows(&session, shown), [scheduled]);
    fixture.test_store.shift(60_000);
    let due = "SELECT jsonb_build_array(state, due_at) FROM jobs";
    assert_eq!(rows(&session, due), [json!(["queued", null])], "its time has come");

    session.value("DELETE FROM job_scheduled; DELETE FROM job_unique; DELETE FROM job_body");
    session.value(&format!("SELECT enqueue_job('q', 'work', '{{}}', id => '{JOB}')"));
    let shown = "SELECT jsonb_build_array(state, token, owner, attempt_count, state_changed_at, deadline_at, unique_key_hash, labels) FROM jobs";
    assert_eq!(rows(&session, shown), [json!(["queued", 0, null, 0, after(60_000), null, null, {}])]);
    fixture.test_store.shift(1_500);
    session.value(&claim(A));
    let running = json!(["running", 1, "A", 1, after(61_500), after(91_500), null, {}]);
    assert_eq!(rows(&session, shown), [running]);
    // The clock jumped: the claim lasts one ttl from when that was noted.
    fixture.test_store.shift(20_000);
    session.value("SELECT lease_suspend(0)");
    assert_eq!(rows(&session, "SELECT to_jsonb(deadline_at) FROM jobs"), [json!(after(111_500))]);
    session.value(&complete(A, 1));
    assert_eq!(rows(&session, shown), [json!(["completed", 1, null, 1, after(81_500), null, null, {}])]);
    for (number, name) in [(4, "failed"), (5, "cancelled"), (6, "quarantined"), (7, "in_doubt")] {
        session.value(&format!(
            "INSERT INTO job_change (lane, was, becomes, count) SELECT lane, state, {number}, 1 FROM job_settled;
             UPDATE job_settled SET state = {number}"
        ));
        assert_eq!(session.value("SELECT state FROM jobs"), name);
        assert_eq!(
            session.value(&format!("SELECT {name}_count FROM queues WHERE namespace = 'default'")),
            "1"
        );
    }
    session.value("INSERT INTO job_past (arrival, token, failures, crashes, attempts, undo, since_ms) SELECT arrival, 9, 2, 3, 6, 0, 0 FROM job_body");
    let counts = "SELECT jsonb_build_array(token, attempt_count, failure_count, crash_count) FROM jobs";
    assert_eq!(
        rows(&session, counts),
        [json!([1, 7, 2, 3])],
        "the attempt that completed it is not among those"
    );
}

#[test]
fn queues_and_schedules_are_shown() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let schedule = include_str!("../../golden/schedule.v1.json");
    session.value(&format!(
            "INSERT INTO job_schedule (namespace, name, spec, next_ms) VALUES ('team', 'nightly', '{schedule}', {START_MS} + 1)"
        ));
    let shown = json!({
        "namespace": "team", "name": "nightly", "cron": "30 2 * * *", "time_zone": "Europe/Berlin", "queue": "reports", "kind": "daily",
        "next_run_at": after(1), "last_run_at": null,
    });
    assert_eq!(rows(&session, "SELECT to_jsonb(s) FROM schedules s"), [shown]);
    let later = format!("'{}'", after(60_000));
    session.value("SELECT enqueue_job('q', 'work', '1', 3)");
    session.value(&format!("SELECT enqueue_job('q', 'work', '1', run_at => {later})"));
    session.value(&claim(A));
    session.value("UPDATE job_queue SET mode = 1");
    session.value("INSERT INTO job_queue (namespace, name) VALUES ('team', 'reports'), ('team', 'unused')");
    let mut counts = json!({
        "namespace": "default", "name": "q", "mode": "paused", "queued_count": 1, "scheduled_count": 1, "running_count": 1,
        "completed_count": 0, "failed_count": 0, "cancelled_count": 0, "quarantined_count": 0, "in_doubt_count": 0,
    });
    let of_q = "SELECT to_jsonb(q) FROM queues q WHERE name = 'q'";
    assert_eq!(rows(&session, of_q), [counts.clone()]);
    assert_eq!(
        rows(
            &session,
            "SELECT jsonb_build_array(name, mode, queued_count) FROM queues WHERE namespace = 'team'"
        ),
        [json!(["reports", "open", 0])],
        "it has a schedule"
    );
    fixture.test_store.shift(60_000);
    session.value("UPDATE job_queue SET mode = 2");
    for (field, now) in
        [("mode", json!("draining")), ("queued_count", json!(2)), ("scheduled_count", json!(0))]
    {
        counts[field] = now;
    }
    assert_eq!(rows(&session, of_q), [counts]);
}

/// Every kind of event, as it is stored, and as the page of public names has it.
#[test]
fn events_are_shown_with_public_names_and_words() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    session.value("TRUNCATE event, job_event");
    let stored = include_str!("../../golden/event.v1.json");
    for event in stored.split("\n\n") {
        let event: Value = serde_json::from_str(event).unwrap();
        session.value(&format!(
            "INSERT INTO event (at_ms, namespace, key, fact) VALUES ({START_MS}, 'team', 'k', '{}')",
            event["fact"]
        ));
    }
    let shown =
        rows(&session, "SELECT jsonb_build_object('type', type, 'data', data) FROM events ORDER BY seq");
    let expected = include_str!("event_view.jsonl");
    let expected: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(shown.len(), expected.len());
    for (shown, expected) in shown.into_iter().zip(expected) {
        assert_eq!(shown, expected);
    }
    let first = "SELECT jsonb_build_array(namespace, at, key) FROM events ORDER BY seq LIMIT 1";
    assert_eq!(rows(&session, first), [json!(["team", after(0), "k"])]);
    session.value("UPDATE store_state SET events_removed_to = (SELECT max(seq) - 1 FROM event)");
    assert_eq!(session.value("SELECT count(*) FROM events"), "1", "others were moved or removed");
    session.value("INSERT INTO event_old (namespace, seq, at_ms, key, fact) SELECT namespace, seq, at_ms, key, fact FROM event WHERE seq < (SELECT max(seq) FROM event)");
    assert_eq!(rows(&session, "SELECT to_jsonb(count(*)) FROM events"), [json!(expected_count())]);
    session.value("INSERT INTO event_gap SELECT max(seq), max(seq), pg_current_xact_id() FROM event");
    assert_eq!(
        rows(&session, "SELECT to_jsonb(count(*)) FROM events"),
        [json!(expected_count() - 1)],
        "it gets a new number"
    );
}

fn expected_count() -> usize {
    include_str!("event_view.jsonl").lines().count()
}

/// Events of jobs that are written together, a row for each call.
#[test]
fn the_events_of_the_life_of_a_job_are_shown() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    session.value(&claim(A));
    session.value(&complete(A, 1));
    let key = format!("job/{JOB}");
    let shown = rows(&session, "SELECT jsonb_build_array(key, type, data) FROM events ORDER BY seq");
    let expected = [
        json!([key, "job_enqueued", {"queue": "q", "kind": "work", "state": "queued"}]),
        json!([key, "job_claimed", {"token": 1, "owner": "A", "attempt": 1}]),
        json!([key, "job_attempt_ended", {"token": 1, "owner": "A", "outcome": "completed", "state": "completed"}]),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn moments_beyond_every_calendar_are_shown_as_the_last() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    session.value("SELECT enqueue_job('q', 'work', '1', run_at => '2100-01-01')");
    session.value("UPDATE job_scheduled SET due_ms = 9223372036854775807");
    let due = "SELECT to_jsonb(due_at) FROM jobs WHERE due_at IS NOT NULL";
    assert_eq!(rows(&session, due), [json!("9999-12-31T23:59:59.999+00:00")]);
}

/// A reader sees the views and no table, and no payload by either.
#[test]
fn a_reader_reads_the_views_and_no_table() {
    let (schema, admin) = (migrated(), crate::cluster().admin());
    admin.run(&format!(
        "SELECT {schema}.enqueue_job('q', 'work', '\"secret\"', unique_key => 'hidden', labels => '{{\"a\": \"1\"}}');
         SELECT {schema}.lease_acquire('default', ARRAY['k'], '\\x01', 0, 'ada', NULL, 30000, NULL, 0, 0, 0::smallint, NULL, NULL, NULL, 60000);
         SELECT {schema}.lease_release('default', ARRAY['k'], ARRAY['\\x01'::bytea], ARRAY[1::bigint], 60000);
         INSERT INTO {schema}.job_schedule (namespace, name, spec) VALUES ('default', 'nightly', '{}')",
        include_str!("../../golden/schedule.v1.json")
    ));
    for role in ["reader", "worker", "admin"] {
        admin.run(&format!("SET ROLE fencehold_{schema}_{role}"));
        for (view, _) in VIEWS {
            let shown = admin.run(&format!("SELECT to_jsonb(v)::text FROM {schema}.{view} v"));
            let shown = format!("{shown:?}");
            assert!(shown.contains("default"), "{role}: nothing in {view}: {shown}");
            assert!(!shown.contains("secret") && !shown.contains("hidden"), "{role}: {view}: {shown}");
        }
        let tables = ["job_body", "job_unique", "event", "lease_hold"];
        let looks = tables.map(|table| format!("SELECT FROM {schema}.{table}"));
        let changes =
            [format!("DELETE FROM {schema}.schedules"), format!("UPDATE {schema}.schedules SET name = 'x'")];
        for refused in looks.into_iter().chain(changes) {
            let said = admin.try_run(&refused).unwrap_err();
            assert_eq!(said.code().map(SqlState::code), Some("42501"), "{role}: {refused}");
        }
        admin.run("RESET ROLE");
    }
}

/// A role that may call a function by a grant of the owner's may call it under its new name, and may pass that on as before.
#[test]
fn grants_follow_functions_to_their_new_names() {
    let (schema, admin) = (old_schema(), crate::cluster().admin());
    let shop = format!("shop_of_{schema}");
    admin.run(&format!("CREATE ROLE {shop}; GRANT USAGE ON SCHEMA {schema} TO {shop}"));
    let former = ["enqueue", "complete", "once", "fence_job", "raise", "guard", "fences_open", "lease_sweep"];
    for name in former {
        let grant = if name == "complete" { " WITH GRANT OPTION" } else { "" };
        admin.run(&format!("GRANT EXECUTE ON FUNCTION {schema}.{name} TO {shop}{grant}"));
    }
    block_on(open(&schema).migrate(&call())).unwrap();
    let may = |with: &str| {
        admin.value(&format!(
            "SELECT string_agg(p.proname, ' ' ORDER BY p.proname) FROM pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace
                AND has_function_privilege('{shop}', p.oid, 'EXECUTE{with}')"
        ))
    };
    assert_eq!(
        may(""),
        "complete_job enqueue_job fence_job fence_resource lease_sweep open_fences raise_mark record_effect"
    );
    assert_eq!(may(" WITH GRANT OPTION"), "complete_job");
    admin.run(&format!("SET ROLE {shop}"));
    admin.run(&format!("SELECT {schema}.enqueue_job('q', 'k', '{{}}')"));
    admin.run("RESET ROLE");
}

/// Settings have one name: the former one changes nothing.
#[test]
fn settings_are_read_by_their_new_names_alone() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    let limit = |setting: &str, call: &str, shows: &str| {
        session.value(&format!("BEGIN; SET LOCAL fencehold.{setting}"));
        session.value(&format!("SELECT {call}"));
        let limit = session.value(shows);
        session.value("ROLLBACK");
        limit
    };
    let idle = "SHOW idle_in_transaction_session_timeout";
    assert_eq!(limit("fence_idle_ms = 7000", "fence_idle_limit()", idle), "5min");
    assert_eq!(limit("fence_idle_timeout_ms = 7000", "fence_idle_limit()", idle), "7s");
    assert_eq!(limit("decision_idle_ms = 7000", "job_idle_limit()", idle), "5s");
    assert_eq!(limit("job_lock_idle_timeout_ms = 7000", "job_idle_limit()", idle), "7s");
    let bound = "SELECT job_producer_bound()";
    assert_eq!(limit("producer_wait_ms = 7", "1", bound), "2000");
    assert_eq!(limit("enqueue_wait_ms = 7", "1", bound), "7");
}

#[test]
fn what_fails_in_the_background_and_what_holds_a_fence_is_told() {
    let (fixture, [session, other]) = JobRaceFixture::with_sessions();
    session.value("SELECT maintenance_failed('retention', 'no room')");
    fixture.test_store.shift(1_000);
    session.value("SELECT maintenance_failed('retention', 'no room')");
    let failing = json!({
        "part": "retention", "first_failed_at": after(0), "last_failed_at": after(1_000), "failure_count": 2, "message": "no room",
    });
    assert_eq!(rows(&session, "SELECT to_jsonb(m) FROM maintenance_errors() m"), [failing]);
    session.value(&claim(A));
    session.value(&Calls("fencehold").acquire("k", 1, "ada"));
    other.value("BEGIN");
    other.value(&format!("SELECT fence_job('{JOB}', 1)"));
    other.value(&Calls("fencehold").fence("k", 1));
    let fences = "SELECT jsonb_build_array(namespace, key, owner, job_id, pid, age_ms >= 0) FROM open_fences() ORDER BY key NULLS LAST";
    let pid: u64 = other.pid.parse().unwrap();
    assert_eq!(
        rows(&session, fences),
        [json!(["default", "k", "ada", null, pid, true]), json!(["default", null, null, JOB, pid, true])]
    );
    other.value("ROLLBACK");
    assert_eq!(session.value(fences), "");
}
