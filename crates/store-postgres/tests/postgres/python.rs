//! What people do from Python: a fence, and a job, in a transaction of their own, through psycopg.

use std::process::Command;

use fencehold_test_servers::installed;

use crate::session::with_sessions;
use crate::test_store::PostgresTestStore;

const SCRIPT: &str = r#"
import sys
import psycopg

port, database, token = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname=database) as connection:
    try:
        with connection.transaction():
            connection.execute("SELECT fencehold.fence(%s, %s)", ("reports/daily", token))
            connection.execute("INSERT INTO fencehold.written VALUES (%s)", (token,))
        print("written")
    except psycopg.Error as error:
        print(error.sqlstate, error.diag.message_primary)
"#;

/// What a script says, run by the Python that `cargo xtask servers` has given psycopg to.
fn run(script: &str, test_store: &PostgresTestStore, argument: &str) -> String {
    let ran = Command::new(installed("python/bin/python"))
        .args(["-c", script, &test_store.url().hosts[0].1.to_string()])
        .args([&test_store.database.name, argument])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_stale_token_is_refused_with_its_sqlstate_and_nothing_is_written() {
    let (test_store, calls, [session]) = with_sessions();
    session.value("CREATE TABLE written (token bigint)");
    session.value(&calls.acquire("reports/daily", 1, "A"));
    let write = |token: u64| run(SCRIPT, &test_store, &token.to_string());
    assert_eq!(write(1), "written");
    session.value(&calls.revoke("reports/daily"));
    session.value(&calls.acquire("reports/daily", 2, "B"));
    assert_eq!(write(1), "FH001 reports/daily: token 1 is stale; the newest is 3");
    assert_eq!(write(3), "written");
    assert_eq!(session.value("SELECT string_agg(token::text, ' ') FROM written"), "1 3");
}

const ENQUEUES: &str = r#"
import sys
import psycopg

port, database, fate = int(sys.argv[1]), sys.argv[2], sys.argv[3]
with psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname=database) as connection:
    try:
        with connection.transaction():
            connection.execute("INSERT INTO fencehold.customer VALUES (%s)", (fate,))
            connection.execute(
                "SELECT fencehold.enqueue_job('mail', 'welcome', %s, unique_key => %s)", (f'{{"to": "{fate}"}}', fate))
            if fate == "rolled-back":
                raise RuntimeError("no")
        print("committed")
    except RuntimeError:
        print("rolled back")
"#;

#[test]
fn what_python_enqueues_in_its_own_transaction_is_there_if_that_commits() {
    let (test_store, _, [session]) = with_sessions();
    session.value("CREATE TABLE customer (name text)");
    for (fate, said) in [("rolled-back", "rolled back"), ("ada", "committed")] {
        assert_eq!(run(ENQUEUES, &test_store, fate), said);
    }
    let told = "SELECT (SELECT string_agg(name, ' ') FROM customer) || ': ' || string_agg(payload, ' ') FROM job_body";
    assert_eq!(session.value(told), "ada: {\"to\": \"ada\"}");
}
