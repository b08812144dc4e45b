//! R24: a dump is put back, counters and all.

use std::process::{Command, Stdio};
use std::sync::Arc;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{AcquireLeaseRequest, CallContext, HoldRef, LeaseStore as _, StoreError, StoreUrl};
use fencehold_core::{HoldId, Key, Namespace, Owner, Refusal};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_store::block_on;

use crate::cluster::fresh_schema;

fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

fn request(hold: u8) -> AcquireLeaseRequest {
    let hold = HoldId::from_random([hold; 16]);
    AcquireLeaseRequest::new(Key::new("k").unwrap(), hold, Owner::new("A").unwrap(), 300)
}

/// One of PostgreSQL's programs for clients, which are on the path.
fn client(program: &str, database: &str, port: u16) -> Command {
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-d", database]);
    command
}

#[test]
fn a_restored_dump_gives_no_token_twice_once_it_was_advanced() {
    let schema = fresh_schema();
    let url = crate::cluster().url(&schema);
    let port = url.hosts[0].1;
    let open = |url| PostgresStore::open(url, Arc::new(SystemClock)).unwrap();
    let store = open(&url);
    let take = |store: &PostgresStore, hold: u8| {
        let acquired = block_on(store.acquire(&call(), request(hold)))?;
        let held = HoldRef { key: acquired.key, hold_id: request(hold).hold_id, token: acquired.grant.token };
        block_on(store.release(&call(), vec![held.clone()])).unwrap()[0]
            .as_ref()
            .unwrap();
        Ok::<_, StoreError>(held)
    };
    take(&store, 1).unwrap();
    let mut dump = client("pg_dump", "postgres", port);
    let dumped = dump.args(["-n", &schema, "-O", "-x"]).output().unwrap();
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    // What was given after the dump is not in it.
    let later: Vec<HoldRef> = (2..=6).map(|hold| take(&store, hold).unwrap()).collect();
    let newest = later.last().unwrap().clone();

    let database = format!("restored_{schema}");
    crate::cluster().admin().run(&format!("CREATE DATABASE {database}"));
    let mut restore = client("psql", &database, port);
    let mut restoring = restore
        .args(["-q", "-v", "ON_ERROR_STOP=1"])
        .stdout(Stdio::null())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(restoring.stdin.as_mut().unwrap(), &dumped.stdout).unwrap();
    assert!(restoring.wait().unwrap().success());
    let url = crate::cluster()
        .url_text(&schema)
        .replace("/postgres?", &format!("/{database}?"));
    let StoreUrl::Postgres(url) = url.parse().unwrap() else { panic!("{url}") };
    let restored = open(&url);

    match block_on(restored.renew(&call(), vec![newest.clone()]))
        .unwrap()
        .results
        .remove(0)
    {
        Err(Refusal::StoreRewound { token: shown, current_token: current }) => {
            assert!(shown == newest.token && current < shown);
        }
        other => panic!("{other:?}"),
    }
    let advanced = block_on(restored.advance(&call(), Owner::new("P").unwrap(), 1_000)).unwrap();
    assert_eq!(advanced.closed_for_ms, 300, "the longest ttl that it knows of");
    let next = (0..1_000).find_map(|_| match take(&restored, 9) {
        Ok(held) => Some(held),
        Err(StoreError::Unavailable { .. }) => {
            // Closed for a moment of real time yet: every look is a round trip.
            block_on(restored.status(&call())).unwrap();
            None
        }
        Err(other) => panic!("{other}"),
    });
    assert!(next.unwrap().token > newest.token);
}
