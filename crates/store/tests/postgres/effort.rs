//! What a call costs does not grow with all that is kept: counted in rows and calls, not in time.

use crate::arena::PostgresArena;
use crate::session::{Calls, Session};

const MANY: u64 = 2_000;

/// A session with its transaction open, in which everything is counted.
fn counting(arena: &PostgresArena) -> Session {
    let session = Session::new(arena);
    for sql in [&format!("SET search_path = {}", arena.schema), "SET track_functions = 'all'", "BEGIN"] {
        session.run(sql).unwrap();
    }
    session
}

#[test]
fn an_acquire_asks_no_key_but_its_own() {
    let arena = PostgresArena::new();
    let session = counting(&arena);
    // The plans of its statements are made while there is little; with them a store lives on.
    for hold in 10..30 {
        session.value(&Calls(arena.schema).acquire(&format!("early/{hold}"), hold, "a"));
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
    let granted = session.value(&Calls(arena.schema).acquire("key/1", 7, "a"));
    assert!(granted.contains("Granted") || granted.contains("Ok"), "{granted}");
    let asked = count(&session) - before;
    assert!((1..=4).contains(&asked), "{asked} keys were asked whether they know a hold id");
}

#[test]
fn looking_for_claims_that_ran_out_visits_each_claim_a_few_times_at_most() {
    let arena = PostgresArena::new();
    let session = counting(&arena);
    // Whatever plan is chosen: here one that takes each claim and looks for it in what is picked, if that can be.
    for way in ["hashagg", "hashjoin", "mergejoin", "material", "sort"] {
        session.run(&format!("SET enable_{way} = off")).unwrap();
    }
    let claims = format!(
        "INSERT INTO job_running (id, arrival, lane, token, hash, owner, ttl_ms, since_ms, deadline_ms, look_ms, plain)
         SELECT md5(n::text)::uuid, n, 1, n, md5(n::text)::uuid, 'a', 60000, now_ms(), now_ms() + 60000, now_ms() + 60000, true
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
