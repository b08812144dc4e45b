//! R27: the statement was carried out, and its answer never came.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::job::{AttemptRef, AttemptReport, ClaimJobsRequest, NewJob, Report};
use fencehold_contract::{
    AcquireLeaseRequest, CallContext, HoldRef, LeaseStore as _, PostgresUrl, ReleasedLease,
    RevokeLeasesRequest, RevokeTarget, StoreError, StoreUrl,
};
use fencehold_core::job::{JobId, JobKind, JobState, QueueName};
use fencehold_core::{HoldId, Key, Namespace, Owner, Reason};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_store::block_on;

use crate::cluster::fresh_schema;
use crate::session::{Calls, LOOKS_MAX};

/// Stands between a store and the server. Some answers do not come through: the connection breaks instead.
struct LossyProxy {
    port: u16,
    /// The function whose next answer is lost.
    losing: Losing,
    cut: Cut,
}

/// The connections; none: it is cut.
type Cut = Arc<Mutex<Option<Vec<TcpStream>>>>;

type Losing = Arc<Mutex<Option<&'static str>>>;

impl LossyProxy {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let losing: Losing = Arc::default();
        let cut: Cut = Arc::new(Mutex::new(Some(Vec::new())));
        let wire = LossyProxy {
            port: listener.local_addr().unwrap().port(),
            losing: Arc::clone(&losing),
            cut: Arc::clone(&cut),
        };
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                match cut.lock().unwrap().as_mut() {
                    Some(connections) => connections.push(client.try_clone().unwrap()),
                    None => continue,
                }
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let (asking, asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                // On one connection one question is answered after the other.
                let doomed: Losing = Arc::default();
                let (losing, dooms) = (Arc::clone(&losing), Arc::clone(&doomed));
                let again = Arc::clone(&losing);
                thread::spawn(move || {
                    carry(asking, asked, |bytes| {
                        let mut losing = losing.lock().unwrap();
                        let meant =
                            |name: &mut &str| bytes.windows(name.len()).any(|part| part == name.as_bytes());
                        if let Some(name) = losing.take_if(|name| meant(name)) {
                            *dooms.lock().unwrap() = Some(name);
                        }
                        true
                    });
                });
                thread::spawn(move || {
                    carry(server, client, |bytes| match doomed.lock().unwrap().take() {
                        // An error comes through, and the next try is meant: nothing was carried out.
                        Some(name) if !was_carried_out(bytes) => {
                            *again.lock().unwrap() = Some(name);
                            true
                        }
                        doomed => doomed.is_none(),
                    });
                });
            }
        });
        wire
    }

    /// The next answer of this function does not come through.
    fn lose(&self, function: &'static str) {
        *self.losing.lock().unwrap() = Some(function);
    }

    /// Breaks every connection, and lets none be made.
    fn cut(&self) {
        for connection in self.cut.lock().unwrap().take().unwrap_or_default() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn has_lost(&self) -> bool {
        self.losing.lock().unwrap().is_none()
    }

    fn url(&self, schema: &str) -> PostgresUrl {
        let text = format!(
            "postgres://postgres@127.0.0.1:{}/postgres?schema={schema}&max_connections=1&sslmode=disable",
            self.port
        );
        match text.parse().unwrap() {
            StoreUrl::Postgres(url) => *url,
            other => panic!("{other}"),
        }
    }
}

/// Whether an answer of the server has a message of the type `CommandComplete`.
fn was_carried_out(mut answer: &[u8]) -> bool {
    while let [kind, a, b, c, d, ..] = *answer {
        if kind == b'C' {
            return true;
        }
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        answer = answer.get(1 + length..).unwrap_or_default();
    }
    false
}

fn carry(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut buffer = vec![0; 65536];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if !passes(&buffer[..read]) || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

#[test]
fn a_lost_answer_is_resolved_by_the_hold_id() {
    let schema = fresh_schema();
    let wire = LossyProxy::to(crate::cluster().url(&schema).hosts[0].1);
    let store = PostgresStore::open(&wire.url(&schema), Arc::new(SystemClock)).unwrap();
    let key = || Key::new("k").unwrap();
    let hold = HoldId::from_random([7; 16]);
    let request = AcquireLeaseRequest::new(key(), hold, Owner::new("A").unwrap(), 30_000);
    block_on(store.status(&call())).unwrap();

    wire.lose("lease_acquire");
    let acquired = block_on(store.acquire(&call(), request)).unwrap();
    assert!(wire.has_lost());
    assert_eq!(
        (acquired.grant.token.get(), acquired.grant.resumed),
        (1, true),
        "not held by another: itself"
    );

    let mine = HoldRef { key: key(), hold_id: hold, token: acquired.grant.token };
    wire.lose("lease_renew");
    assert!(block_on(store.renew(&call(), vec![mine.clone()])).unwrap().results[0].is_ok());
    wire.lose("lease_release");
    let released = block_on(store.release(&call(), vec![mine.clone()])).unwrap();
    let token = mine.token;
    assert_eq!(released[0], Ok(ReleasedLease { key: key(), token }), "the same release, the same answer");
    let view = block_on(store.get(&call(), key())).unwrap().unwrap();
    assert_eq!((view.endings.len(), view.holder), (1, None), "one grant, one ending");
}

/// A key that comes free is granted to the first in line, whether or not that one can be reached.
#[test]
fn a_waiter_that_cannot_be_reached_does_not_say_that_nothing_was_done() {
    let schema = fresh_schema();
    let wire = LossyProxy::to(crate::cluster().url(&schema).hosts[0].1);
    let store = PostgresStore::open(&wire.url(&schema), Arc::new(SystemClock)).unwrap();
    let (admin, calls) = (crate::cluster().admin(), Calls(&schema));
    block_on(store.status(&call())).unwrap();
    admin.run(&calls.acquire("k", 1, "A"));
    let mut request = AcquireLeaseRequest::new(
        Key::new("k").unwrap(),
        HoldId::from_random([2; 16]),
        Owner::new("B").unwrap(),
        60_000,
    );
    request.wait_ms = 10_000;
    let answer = thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(store.acquire(&call().with_timeout_ms(500), request)));
        // It stands in line, has looked, and asks nothing.
        let in_line = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%\"{schema}\".lease_look%' AND state = 'idle'"
        );
        while admin.value(&in_line) == "0" {
            thread::yield_now();
        }
        wire.cut();
        admin.run(&calls.release("k", 1, 1));
        assert_eq!(admin.value(&calls.holder("k")), "B", "it was granted the key");
        waiting.join().unwrap()
    });
    assert!(matches!(answer, Err(StoreError::OutcomeUnknown { .. })), "{answer:?}");
}

/// The caller has gone, and it is not known whether the lease was granted: it is given back.
#[test]
fn a_grant_whose_answer_was_lost_is_given_back_once_its_caller_has_gone() {
    let schema = fresh_schema();
    let wire = LossyProxy::to(crate::cluster().url(&schema).hosts[0].1);
    let store = PostgresStore::open(&wire.url(&schema), Arc::new(SystemClock)).unwrap();
    let (admin, calls) = (crate::cluster().admin(), Calls(&schema));
    block_on(store.status(&call())).unwrap();
    let request = AcquireLeaseRequest::new(
        Key::new("k").unwrap(),
        HoldId::from_random([2; 16]),
        Owner::new("B").unwrap(),
        600_000,
    );
    wire.lose("lease_acquire");
    // The timeout is over: it is not sent again.
    let call = call().with_timeout_ms(0);
    let mut acquiring = Box::pin(store.acquire(&call, request));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(acquiring.as_mut().poll(&mut context).is_pending());
    while !wire.has_lost() {
        thread::yield_now();
    }
    drop(acquiring);
    let ending = format!("SELECT coalesce(max(outcome), 'held') FROM {schema}.lease_endings");
    let given_back = (0..LOOKS_MAX).any(|_| admin.value(&ending) == "abandoned");
    assert!(given_back, "{} holds it", admin.value(&calls.holder("k")));
}

/// The same of a claim: its jobs go back to their queue.
#[test]
fn jobs_whose_claim_was_lost_go_back_once_its_caller_has_gone() {
    let schema = fresh_schema();
    let wire = LossyProxy::to(crate::cluster().url(&schema).hosts[0].1);
    let store = PostgresStore::open(&wire.url(&schema), Arc::new(SystemClock)).unwrap();
    let admin = crate::cluster().admin();
    block_on(store.status(&call())).unwrap();
    admin.run(&format!("SELECT {schema}.enqueue_job('q', 'work', '1')"));
    let request = ClaimJobsRequest {
        queues: vec![(QueueName::new("q").unwrap(), 1)],
        limit: 1,
        hold_id: HoldId::from_random([2; 16]),
        owner: Owner::new("B").unwrap(),
        ttl_ms: 600_000,
        wait_ms: 0,
        waited_before_ms: 0,
    };
    wire.lose("job_claim");
    let call = call().with_timeout_ms(0);
    let mut claiming = Box::pin(store.jobs().unwrap().claim(&call, request));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(claiming.as_mut().poll(&mut context).is_pending());
    while !wire.has_lost() {
        thread::yield_now();
    }
    drop(claiming);
    let state = format!("SELECT concat(state, ' ', attempt_count) FROM {schema}.jobs");
    let given_back = (0..LOOKS_MAX).any(|_| admin.value(&state) == "queued 1");
    assert!(given_back, "it is {}", admin.value(&state));
}

#[test]
fn force_whose_answer_was_lost_is_not_used_again() {
    let schema = fresh_schema();
    let wire = LossyProxy::to(crate::cluster().url(&schema).hosts[0].1);
    let store = PostgresStore::open(&wire.url(&schema), Arc::new(SystemClock)).unwrap();
    let key = || Key::new("k").unwrap();
    let request =
        AcquireLeaseRequest::new(key(), HoldId::from_random([8; 16]), Owner::new("A").unwrap(), 30_000);
    block_on(store.acquire(&call(), request)).unwrap();
    wire.lose("lease_revoke");
    let which = RevokeTarget::Key { key: key(), only_token: None };
    let (by, reason) = (Owner::new("P").unwrap(), Reason::new("stuck").unwrap());
    match block_on(store.revoke(&call(), RevokeLeasesRequest { target: which, by, reason })) {
        Err(StoreError::OutcomeUnknown { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(wire.has_lost());
    let view = block_on(store.get(&call(), key())).unwrap().unwrap();
    assert_eq!((view.token.get(), view.holder), (2, None), "it was carried out, once");
}

/// The same of a job's whole life: each word is sent again, and happens once.
#[test]
fn a_job_whose_answers_are_all_lost_is_enqueued_claimed_renewed_and_completed_once() {
    let schema = fresh_schema();
    let wire = LossyProxy::to(crate::cluster().url(&schema).hosts[0].1);
    let store = PostgresStore::open(&wire.url(&schema), Arc::new(SystemClock)).unwrap();
    let jobs = store.jobs().unwrap();
    let (queue, hold, owner) =
        (QueueName::new("q").unwrap(), HoldId::from_random([9; 16]), Owner::new("A").unwrap());
    let id = JobId::from_random(1, [9; 10]);
    let job = NewJob::new(id, queue.clone(), JobKind::new("work").unwrap(), "{}".to_owned());

    wire.lose("job_enqueue_batch");
    let enqueued = block_on(jobs.enqueue(&call(), vec![job])).unwrap().remove(0).unwrap();
    assert_eq!(enqueued.job_id, id);
    assert!(wire.has_lost());

    wire.lose("job_claim");
    let request = ClaimJobsRequest {
        queues: vec![(queue, 1)],
        limit: 1,
        hold_id: hold,
        owner,
        ttl_ms: 30_000,
        wait_ms: 0,
        waited_before_ms: 0,
    };
    let claimed = block_on(jobs.claim(&call(), request)).unwrap().jobs;
    assert!(wire.has_lost());
    assert_eq!((claimed.len(), claimed[0].token.get()), (1, 1), "the claim that it has already");

    let attempt = AttemptRef { job_id: id, hold_id: hold, token: claimed[0].token };
    wire.lose("job_renew");
    block_on(jobs.renew_attempts(&call(), vec![attempt.clone()])).unwrap().results[0]
        .as_ref()
        .unwrap();
    assert!(wire.has_lost());

    wire.lose("job_complete_batch");
    let report = AttemptReport { attempt, report: Report::Complete { result: Some("7".into()) } };
    let reported = block_on(jobs.report(&call(), vec![report])).unwrap().remove(0).unwrap();
    assert!(wire.has_lost());
    assert!(reported.state == JobState::Completed && !reported.late, "{reported:?}");
    let detail = block_on(jobs.get_job(&call(), id)).unwrap().unwrap();
    assert_eq!(detail.attempts.len(), 1, "{detail:?}");
}
