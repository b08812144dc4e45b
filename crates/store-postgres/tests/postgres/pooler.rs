//! Through a pooler that gives every session, or every transaction, one of its few connections.

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread;

use fencehold_contract::job::Report;
use fencehold_contract::{AcquireLeaseRequest, LeaseStore, PostgresUrl};
use fencehold_core::job::{JobId, JobState};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_servers::calls::{OneByOne as _, call, claim_request, key, lease_request, new_job};
use fencehold_test_store::block_on;

use crate::cluster::{as_server, free_port, give_to_server};
use crate::session::until;
use crate::test_store::PostgresTestStore;

/// Debian's.
const PGBOUNCER: &str = "/usr/sbin/pgbouncer";

/// A pooler in front of the tests' server. It is gone with this.
struct Pooler {
    process: Child,
    _folder: tempfile::TempDir,
    port: u16,
}

impl Pooler {
    fn start(mode: &str, test_store: &PostgresTestStore) -> Self {
        let folder = tempfile::tempdir().unwrap();
        give_to_server(folder.path());
        let port = free_port();
        let settings = folder.path().join("pgbouncer.ini");
        let server = test_store.url().hosts[0].1;
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = {mode}\ndefault_pool_size = 20\n"
        );
        std::fs::write(&settings, text).unwrap();
        give_to_server(&settings);
        let mut program = as_server(PGBOUNCER);
        let process = program.arg(&settings).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.expect("there is no pgbouncer: `cargo xtask servers` installs it");
        Pooler { process, _folder: folder, port }
    }

    fn url(&self, test_store: &PostgresTestStore) -> PostgresUrl {
        let mut url = test_store.url();
        url.hosts = vec![("127.0.0.1".to_owned(), self.port)];
        url
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A lease that is renewed, and handed to one who waits.
fn leases_work(one: &dyn LeaseStore, other: &dyn LeaseStore) {
    let held = one.take(lease_request("k", 1, "A"));
    let waits = AcquireLeaseRequest { wait_ms: 60_000, ..lease_request("k", 2, "B") };
    let granted = thread::scope(|scope| {
        let waiting = scope.spawn(|| other.take(waits));
        let view = || block_on(one.get(&call(), key("k"))).unwrap();
        until("in line", || view().is_some_and(|view| view.waiter_count > 0));
        one.renew_one(&held).unwrap();
        one.release_one(&held).unwrap();
        waiting.join().unwrap()
    });
    assert!(granted.token > held.token);
}

/// A job that fails and is completed: one statement each, and a transaction of several.
fn jobs_work(store: &dyn LeaseStore, test_store: &PostgresTestStore) {
    store.enqueue_one(new_job(JobId::from_random(1, [7; 10]), "q", "{}")).unwrap();
    let attempt = |hold: u8, word: Report| {
        let attempt = store.claim_one(claim_request("q", hold, "A"));
        store.report_one(&attempt, word).unwrap().state
    };
    let failed = Report::Fail { error: "no".to_owned(), retry_in_ms: Some(1_000), permanent: false };
    assert_eq!(attempt(3, failed), JobState::Scheduled);
    test_store.clock.pass(1_000, || test_store.shift(1_000));
    assert_eq!(attempt(4, Report::Complete { result: None }), JobState::Completed);
}

#[test]
fn everything_works_through_a_pooler_in_session_and_in_transaction_mode() {
    for mode in ["session", "transaction"] {
        let test_store = PostgresTestStore::new();
        let pooler = Pooler::start(mode, &test_store);
        let open =
            || Arc::new(PostgresStore::open(&pooler.url(&test_store), test_store.clock.clone()).unwrap());
        let (one, other) = (open(), open());
        leases_work(&*one, &*other);
        jobs_work(&*one, &test_store);
        for store in [one, other] {
            block_on(store.close());
        }
    }
}
