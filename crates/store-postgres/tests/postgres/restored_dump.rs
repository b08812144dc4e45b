//! R24: a dump is put back, counters and all.

use std::process::{Command, Stdio};

use fencehold_contract::{AcquireLeaseRequest, HoldRef, LeaseStore as _, StoreError};
use fencehold_core::Refusal;
use fencehold_store_postgres::PostgresStore;
use fencehold_test_servers::calls::{OneByOne as _, call, lease_request, owner};
use fencehold_test_store::block_on;

use crate::cluster::fresh_schema;
use crate::{open, open_with};

/// One of PostgreSQL's programs for clients, which are on the path.
fn client(program: &str, database: &str, port: u16) -> Command {
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-d", database]);
    command
}

#[test]
fn a_restored_dump_gives_no_token_twice_once_it_was_advanced() {
    let schema = fresh_schema();
    let port = crate::cluster().url(&schema).hosts[0].1;
    let store = open(&schema);
    let take = |store: &PostgresStore, hold: u8| {
        let request = AcquireLeaseRequest { ttl_ms: 300, ..lease_request("k", hold, "A") };
        let acquired = block_on(store.acquire(&call(), request.clone()))?;
        let held = HoldRef { key: acquired.key, hold_id: request.hold_id, token: acquired.grant.token };
        store.release_one(&held).unwrap();
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
    let restored = open_with(&schema, |url| url.database = database);

    match restored.renew_one(&newest) {
        Err(Refusal::StoreRewound { token: shown, current_token: current }) => {
            assert!(shown == newest.token && current < shown);
        }
        other => panic!("{other:?}"),
    }
    let advanced = block_on(restored.advance(&call(), owner("P"), 1_000)).unwrap();
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
