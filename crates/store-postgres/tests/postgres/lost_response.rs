//! R27: the statement was carried out, and its answer never came.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use fencehold_contract::job::{ClaimJobsRequest, Report};
use fencehold_contract::{AcquireLeaseRequest, HoldRef, LeaseStore as _, ReleasedLease, StoreError};
use fencehold_core::job::{JobId, JobState};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_servers::calls::{
    OneByOne as _, UnreadCall, call, claim_request, key, lease_request, new_job, revoke_key,
};
use fencehold_test_store::block_on;

use crate::cluster::{Admin, fresh_schema};
use crate::open_with;
use crate::session::{Calls, until};

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
                        let meant = |name: &mut &str| {
                            // Where it is called: a statement about the rights on all functions names it, too.
                            let call = format!(".{name}(");
                            bytes.windows(call.len()).any(|part| part == call.as_bytes())
                        };
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
}

/// A store in a fresh schema, behind such a wire.
fn behind_a_wire() -> (String, LossyProxy, PostgresStore, Admin) {
    let schema = fresh_schema();
    let wire = LossyProxy::to(crate::cluster().url(&schema).hosts[0].1);
    let store = open_with(&schema, |url| {
        url.hosts = vec![("127.0.0.1".to_owned(), wire.port)];
        url.connections = 1;
    });
    block_on(store.status(&call())).unwrap();
    (schema, wire, store, crate::cluster().admin())
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

#[test]
fn a_lost_answer_is_resolved_by_the_hold_id() {
    let (_, wire, store, _) = behind_a_wire();
    let request = lease_request("k", 7, "A");
    wire.lose("lease_acquire");
    block_on(store.migrate(&call())).unwrap();
    assert!(!wire.has_lost(), "rights on a function are no call of it");
    let acquired = block_on(store.acquire(&call(), request.clone())).unwrap();
    assert!(wire.has_lost());
    let (token, resumed) = (acquired.grant.token, acquired.grant.resumed);
    assert_eq!((token.get(), resumed), (1, true), "not held by another: itself");

    let mine = HoldRef { key: key("k"), hold_id: request.hold_id, token };
    wire.lose("lease_renew");
    store.renew_one(&mine).unwrap();
    wire.lose("lease_release");
    let released = Ok(ReleasedLease { key: key("k"), token });
    assert_eq!(store.release_one(&mine), released, "the same release, the same answer");
    let view = block_on(store.get(&call(), key("k"))).unwrap().unwrap();
    assert_eq!((view.endings.len(), view.holder), (1, None), "one grant, one ending");
}

/// A key that comes free is granted to the first in line, whether or not that one can be reached.
#[test]
fn a_waiter_that_cannot_be_reached_does_not_say_that_nothing_was_done() {
    let (schema, wire, store, admin) = behind_a_wire();
    let calls = Calls(&schema);
    admin.run(&calls.acquire("k", 1, "A"));
    let request = AcquireLeaseRequest { wait_ms: 10_000, ..lease_request("k", 2, "B") };
    let answer = thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(store.acquire(&call().with_timeout_ms(2_000), request)));
        // It stands in line, has looked, and asks nothing.
        let in_line = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%\"{schema}\".lease_look%' AND state = 'idle'"
        );
        until("in line", || admin.value(&in_line) != "0");
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
    let (schema, wire, store, admin) = behind_a_wire();
    let request = AcquireLeaseRequest { ttl_ms: 600_000, ..lease_request("k", 2, "B") };
    wire.lose("lease_acquire");
    // The timeout is over: it is not sent again.
    let call = call().with_timeout_ms(0);
    let acquiring = UnreadCall::send(store.acquire(&call, request));
    until("lost", || admin.value("SELECT 1") == "1" && wire.has_lost());
    drop(acquiring);
    let ending = format!("SELECT coalesce(max(outcome), 'held') FROM {schema}.lease_endings");
    until("given back", || admin.value(&ending) == "abandoned");
}

/// The same of a claim: its jobs go back to their queue.
#[test]
fn jobs_whose_claim_was_lost_go_back_once_its_caller_has_gone() {
    let (schema, wire, store, admin) = behind_a_wire();
    admin.run(&format!("SELECT {schema}.enqueue_job('q', 'work', '1')"));
    let request = ClaimJobsRequest { ttl_ms: 600_000, ..claim_request("q", 2, "B") };
    wire.lose("job_claim");
    let call = call().with_timeout_ms(0);
    let claiming = UnreadCall::send(store.jobs().unwrap().claim(&call, request));
    until("lost", || admin.value("SELECT 1") == "1" && wire.has_lost());
    drop(claiming);
    let state = format!("SELECT concat(state, ' ', attempt_count) FROM {schema}.jobs");
    until("given back", || admin.value(&state) == "queued 1");
}

#[test]
fn force_whose_answer_was_lost_is_not_used_again() {
    let (_, wire, store, _) = behind_a_wire();
    store.take(lease_request("k", 8, "A"));
    wire.lose("lease_revoke");
    let answer = block_on(store.revoke(&call(), revoke_key("k")));
    assert!(matches!(answer, Err(StoreError::OutcomeUnknown { .. })), "{answer:?}");
    assert!(wire.has_lost());
    let view = block_on(store.get(&call(), key("k"))).unwrap().unwrap();
    assert_eq!((view.token.get(), view.holder), (2, None), "it was carried out, once");
}

/// The same of a job's whole life: each word is sent again, and happens once.
#[test]
fn a_job_whose_answers_are_all_lost_is_enqueued_claimed_renewed_and_completed_once() {
    let (_, wire, store, _) = behind_a_wire();
    let id = JobId::from_random(1, [9; 10]);
    wire.lose("job_enqueue_batch");
    assert_eq!(store.enqueue_one(new_job(id, "q", "{}")).unwrap().job_id, id);
    assert!(wire.has_lost());

    wire.lose("job_claim");
    let attempt = store.claim_one(claim_request("q", 9, "A"));
    assert!(wire.has_lost());
    assert_eq!(attempt.token.get(), 1, "the claim that it has already");

    wire.lose("job_renew");
    store.renew_attempt(&attempt).unwrap();
    assert!(wire.has_lost());

    wire.lose("job_complete_batch");
    let reported = store
        .report_one(&attempt, Report::Complete { result: Some("7".into()) })
        .unwrap();
    assert!(wire.has_lost());
    assert!(reported.state == JobState::Completed && !reported.late, "{reported:?}");
    let detail = block_on(store.jobs().unwrap().get_job(&call(), id)).unwrap().unwrap();
    assert_eq!(detail.attempts.len(), 1, "{detail:?}");
}
