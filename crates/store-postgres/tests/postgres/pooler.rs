//! Through a pooler that gives every session, or every transaction, one of its few connections.

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread;

use fencehold_contract::job::{AttemptRef, AttemptReport, ClaimJobsRequest, NewJob, Report};
use fencehold_contract::{AcquireLeaseRequest, CallContext, HoldRef, LeaseStore, PostgresUrl};
use fencehold_core::job::{JobId, JobKind, JobState, QueueName};
use fencehold_core::{HoldId, Key, Namespace, Owner};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_store::block_on;

use crate::cluster::{as_server, free_port, give_to_server};
use crate::test_store::PostgresTestStore;

/// Debian's.
const PGBOUNCER: &str = "/usr/sbin/pgbouncer";
const TIMEOUT_MS: u64 = 60_000;

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

fn call() -> CallContext {
    CallContext::new(Namespace::default()).with_timeout_ms(TIMEOUT_MS)
}

fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

/// A lease that is renewed, and handed to one who waits.
fn leases_work(one: &dyn LeaseStore, other: &dyn LeaseStore) {
    let key = Key::new("k").unwrap();
    let request = |hold: u8, name| {
        AcquireLeaseRequest::new(key.clone(), HoldId::from_random([hold; 16]), owner(name), 30_000)
    };
    let held = block_on(one.acquire(&call(), request(1, "A"))).unwrap();
    let held = HoldRef { key: held.key, hold_id: request(1, "A").hold_id, token: held.grant.token };
    let waits = AcquireLeaseRequest { wait_ms: TIMEOUT_MS, ..request(2, "B") };
    let granted = thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(other.acquire(&call(), waits)));
        while block_on(one.get(&call(), key.clone()))
            .unwrap()
            .is_none_or(|view| view.waiter_count == 0)
        {
            thread::yield_now();
        }
        let renewed = block_on(one.renew(&call(), vec![held.clone()])).unwrap();
        renewed.results[0].as_ref().unwrap();
        block_on(one.release(&call(), vec![held.clone()])).unwrap()[0].as_ref().unwrap();
        waiting.join().unwrap().unwrap()
    });
    assert!(granted.grant.token > held.token);
}

/// A job that fails and is completed: one statement each, and a transaction of several.
fn jobs_work(store: &dyn LeaseStore, test_store: &PostgresTestStore) {
    let jobs = store.jobs().unwrap();
    let queue = QueueName::new("q").unwrap();
    let id = JobId::from_random(1, [7; 10]);
    let job = NewJob::new(id, queue.clone(), JobKind::new("work").unwrap(), "{}".to_owned());
    block_on(jobs.enqueue(&call(), vec![job])).unwrap()[0].as_ref().unwrap();
    let attempt = |hold: u8, word: Report| {
        let hold = HoldId::from_random([hold; 16]);
        let request = ClaimJobsRequest {
            queues: vec![(queue.clone(), 1)],
            limit: 1,
            hold_id: hold,
            owner: owner("A"),
            ttl_ms: 30_000,
            wait_ms: 0,
            waited_before_ms: 0,
        };
        let claimed = block_on(jobs.claim(&call(), request)).unwrap().jobs.remove(0);
        let attempt = AttemptRef { job_id: id, hold_id: hold, token: claimed.token };
        let report = AttemptReport { attempt, report: word };
        block_on(jobs.report(&call(), vec![report])).unwrap().remove(0).unwrap().state
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
