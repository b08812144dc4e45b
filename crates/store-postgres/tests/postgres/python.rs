//! What people do from Python: a fence, and a job, in a transaction of their own, through psycopg.

use std::path::PathBuf;
use std::process::Command;

use crate::session::{Calls, Session};
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

/// The Python that `cargo xtask servers` has given psycopg to.
fn python() -> PathBuf {
    fencehold_test_servers::installed("python/bin/python")
}

#[test]
fn a_stale_token_is_refused_with_its_sqlstate_and_nothing_is_written() {
    let test_store = PostgresTestStore::new();
    let (schema, calls, session) = (test_store.schema, Calls(test_store.schema), Session::new(&test_store));
    session.value(&format!("CREATE TABLE {schema}.written (token bigint)"));
    session.value(&calls.acquire("reports/daily", 1, "A"));
    let (port, database) = (test_store.url().hosts[0].1, &test_store.database.name);
    let write = |token: u64| {
        let ran = Command::new(python())
            .args(["-c", SCRIPT, &port.to_string(), database, &token.to_string()])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(write(1), "written");
    session.value(&calls.revoke("reports/daily"));
    session.value(&calls.acquire("reports/daily", 2, "B"));
    assert_eq!(write(1), "FH001 reports/daily: token 1 is stale; the newest is 3");
    assert_eq!(write(3), "written");
    assert_eq!(session.value(&format!("SELECT string_agg(token::text, ' ') FROM {schema}.written")), "1 3");
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
    let test_store = PostgresTestStore::new();
    let (schema, session) = (test_store.schema, Session::new(&test_store));
    session.value(&format!("CREATE TABLE {schema}.customer (name text)"));
    let (port, database) = (test_store.url().hosts[0].1, &test_store.database.name);
    for (fate, said) in [("rolled-back", "rolled back"), ("ada", "committed")] {
        let ran = Command::new(python())
            .args(["-c", ENQUEUES, &port.to_string(), database, fate])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(String::from_utf8(ran.stdout).unwrap().trim(), said);
    }
    let told = format!(
        "SELECT (SELECT string_agg(name, ' ') FROM {schema}.customer) || ': ' || string_agg(payload, ' ') FROM {schema}.job_body"
    );
    assert_eq!(session.value(&told), "ada: {\"to\": \"ada\"}");
}
