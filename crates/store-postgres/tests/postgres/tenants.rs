//! What one namespace does to others, beyond what the conformance suite has: open transactions, what an earlier schema has on record, and
//! how much of the history is kept for whom.

use crate::job_races::JobRaceFixture;
use crate::session::Session;

fn acquire(namespace: &str, key: &str, ttl_ms: u64) -> String {
    format!(
        "SELECT lease_acquire('{namespace}', ARRAY['{key}'], decode(md5('{namespace}/{key}'), 'hex'), 0, 'A', NULL, {ttl_ms}, NULL, 0, 0, \
         0::smallint, NULL, NULL, NULL, 60000)->'Ok'->>'key'"
    )
}

fn claim(namespace: &str, ttl_ms: u64) -> String {
    format!(
        "SELECT count(*) FROM job_claim('{namespace}', ARRAY['q'], ARRAY[1], ARRAY[0]::bigint[], 1, gen_random_uuid(), 'A', {ttl_ms}, NULL, \
         NULL, NULL, true) WHERE id IS NOT NULL"
    )
}

const ADVANCE: &str = "SELECT closed_for_ms || ' ' || namespaces FROM lease_advance(10, 'P', 60000)";

/// A user's transaction may be open for long: what it was granted is longer than anything before, and still no other grant waits for it,
/// nor does a longer one.
#[test]
fn a_grant_in_an_open_transaction_keeps_no_other_grant_waiting() {
    let (_fixture, [user, other]) = JobRaceFixture::with_sessions();
    user.value(&acquire("team", "first", 1_000));
    user.value("SELECT enqueue_job('q', 'work', '1', namespace => 'team')");
    user.value("BEGIN");
    user.value(&acquire("team", "a", 30_000));
    other.value("SET lock_timeout = '1ms'");
    assert_eq!(other.value(&acquire("team", "b", 20_000)), "b");
    assert_eq!(other.value(&acquire("team", "c", 30_000)), "c");
    assert_eq!(other.value(&claim("team", 60_000)), "1");
    user.value("ROLLBACK");
    assert_eq!(user.value(ADVANCE), r#"60000 [{"namespace": "team", "closed_for_ms": 60000}]"#);
}

/// The longest ttl is noted with the grant: an advance waits for transactions that were granted something, and counts it.
#[test]
fn an_advance_counts_what_was_granted_while_it_waited() {
    let (_fixture, [user, operator]) = JobRaceFixture::with_sessions();
    user.value(&acquire("team", "first", 1_000));
    user.value("BEGIN");
    user.value(&acquire("team", "a", 30_000));
    let operator = operator.run_blocked_by(&user, ADVANCE);
    user.value("COMMIT");
    assert_eq!(operator.value(), r#"30000 [{"namespace": "team", "closed_for_ms": 30000}]"#);
}

/// What was granted before the longest ttl was kept by namespace may have been granted in any.
#[test]
fn the_longest_ttl_of_an_earlier_schema_counts_in_every_namespace() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    session.value("UPDATE store_state SET longest_ttl_ms = 60000");
    session.value(&acquire("team", "a", 1_000));
    session.value(&acquire("long", "a", 90_000));
    let closed =
        r#"[{"namespace": "long", "closed_for_ms": 90000}, {"namespace": "team", "closed_for_ms": 60000}]"#;
    assert_eq!(session.value(ADVANCE), format!("90000 {closed}"));
}

/// However often the longest ttl of a namespace grows, few rows are kept of it.
#[test]
fn a_ttl_that_grows_with_every_grant_leaves_one_row() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    for ttl_ms in 1_000..1_020 {
        session.value(&acquire("team", &format!("k/{ttl_ms}"), ttl_ms));
    }
    assert_eq!(session.value("SELECT count(*) || ' ' || max(ttl_ms) FROM namespace_ttl"), "1 1019");
}

/// No other handle sweeps in this store.
fn history() -> (JobRaceFixture, Session) {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    session.value("SELECT pg_advisory_lock(1179142480, hashtext(current_schema()))");
    (fixture, session)
}

fn happens(session: &Session, namespace: &str, times: u64) {
    session.value(&format!(
            "INSERT INTO event (at_ms, namespace, key, fact) SELECT 0, {namespace}, 'k', '{{}}' FROM generate_series(1, {times}) AS n"
        ));
}

/// How many events of a namespace can be read, and from which number on.
fn kept(session: &Session, namespace: &str) -> String {
    session.value(&format!("SELECT jsonb_array_length(events) || ' from ' || oldest FROM events_read('{namespace}', NULL, NULL, 100000, 0)"))
}

/// Also those of jobs that were made by one call and are one row.
#[test]
fn namespaces_with_few_events_keep_them_whatever_others_do() {
    let (_stage, session) = history();
    happens(&session, "'few'", 3);
    session.value(
        "SELECT count(enqueue_job('q', 'work', '1', namespace => 'jobs')) FROM generate_series(1, 10)",
    );
    for _ in 0..3 {
        happens(&session, "'loud'", 20_000);
        session.value("SELECT lease_sweep(100)");
        assert_eq!(kept(&session, "few"), "3 from 1");
        assert_eq!(kept(&session, "jobs"), "10 from 1");
    }
    assert_eq!(session.value("SELECT count(*) FROM event"), "16384", "the newest of all");
    let lost =
        session.value("SELECT string_agg(namespace || ' ' || (until_seq > 40000), ',') FROM event_lost");
    assert_eq!(lost, "loud true", "and no other has lost any");
    // Three that do much: what they had before makes room, each down to the same number, and those with few still lose nothing.
    happens(&session, "'loud/' || n % 3", 30_000);
    session.value("SELECT lease_sweep(100)");
    assert_eq!(kept(&session, "few"), "3 from 1");
    let most = session.value("SELECT count(*) <= 16384 FROM event_old");
    assert_eq!(most, "t", "what is kept beyond the newest is bounded");
}

/// A history in which no namespace could have a share keeps the newest of all, and no list of who lost what.
#[test]
fn of_more_namespaces_than_events_are_kept_the_newest_are() {
    let (_stage, session) = history();
    happens(&session, "'few'", 3);
    happens(&session, "'n' || n", 20_000);
    session.value("SELECT lease_sweep(100)");
    let left = "SELECT (SELECT count(*) FROM event) || ' ' || (SELECT count(*) FROM event_old) || ' ' || (SELECT count(*) FROM event_lost)";
    assert_eq!(session.value(left), "16384 0 0");
    let removed_to = session.number("SELECT events_removed_to FROM store_state");
    assert_eq!(kept(&session, "few"), format!("0 from {}", removed_to + 1));
}
