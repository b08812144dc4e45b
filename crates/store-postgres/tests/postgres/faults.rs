//! Holders that contend while backends are ended by force and the server is restarted: never two at once, and tokens only
//! grow. With a server whose commits wait for the disk.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::{AcquireLeaseRequest, CallContext, HoldRef, LeaseStore as _};
use fencehold_core::{HoldId, Namespace};
use fencehold_test_servers::calls::{key, owner};
use fencehold_test_store::{block_on, pause};

use crate::cluster::{Durable, PostgresServer};
use crate::open_url;

const HOLDERS: usize = 4;
const TTL_MS: u64 = 2_000;
/// How many leases are held between two faults.
const TURNS: usize = 15;
const ROUNDS: usize = 4;

#[derive(Default)]
struct FaultFixture {
    newest: AtomicU64,
    /// Each holder's token, and from and until when it knew that it held, by this machine's clock.
    stays: Mutex<Vec<(u64, u64, u64)>>,
    turns: AtomicUsize,
    over: AtomicBool,
}

fn hold(nth: usize, serial: u64) -> HoldId {
    let mut bits = [u8::try_from(nth).unwrap(); 16];
    bits[8..].copy_from_slice(&serial.to_be_bytes());
    HoldId::from_random(bits)
}

/// Takes turns until it is over. An error costs a turn, never a rule.
fn take_turns(cluster: &PostgresServer, ward: &FaultFixture, nth: usize) {
    let store = open_url(&cluster.url("faults"));
    let call = CallContext::new(Namespace::default());
    for serial in 0.. {
        if ward.over.load(Ordering::SeqCst) {
            return;
        }
        let owner = owner(&format!("holder-{nth}"));
        let mut request = AcquireLeaseRequest::new(key("k"), hold(nth, serial), owner, TTL_MS);
        request.wait_ms = 20_000;
        let asked_ms = SystemClock.now().store_ms;
        let Ok(acquired) = block_on(store.acquire(&call, request.clone())) else { continue };
        // The holder's side: from before it asked, and nine tenths of the way.
        let until_ms = asked_ms + acquired.waited_ms + acquired.grant.remaining_ms * 9 / 10;
        let since_ms = SystemClock.now().store_ms;
        if since_ms >= until_ms {
            continue;
        }
        let token = acquired.grant.token;
        let before = ward.newest.fetch_max(token.get(), Ordering::SeqCst);
        // It stays for a while: for as long as it takes to ask the store something, which the faults strike too.
        let _ = block_on(store.get(&call.clone().with_timeout_ms(TTL_MS / 4), acquired.key.clone()));
        let left_ms = SystemClock.now().store_ms.min(until_ms);
        assert!(token.get() > before || left_ms == until_ms, "token {token} after {before}");
        ward.stays.lock().unwrap().push((token.get(), since_ms, left_ms));
        ward.turns.fetch_add(1, Ordering::SeqCst);
        let mine = HoldRef { key: acquired.key, hold_id: request.hold_id, token };
        // If that is not answered, the ttl ends it.
        let _ = block_on(store.release(&call.clone().with_timeout_ms(3_000), vec![mine]));
    }
}

#[test]
fn contending_holders_survive_ended_backends_and_restarts() {
    let cluster = PostgresServer::start(Durable::Yes);
    let ward = FaultFixture::default();
    let started = Barrier::new(HOLDERS + 1);
    thread::scope(|scope| {
        for nth in 0..HOLDERS {
            let (cluster, ward, started) = (&cluster, &ward, &started);
            scope.spawn(move || {
                started.wait();
                take_turns(cluster, ward, nth);
            });
        }
        started.wait();
        let wait_for_turns = || {
            let target = ward.turns.load(Ordering::SeqCst) + TURNS;
            while ward.turns.load(Ordering::SeqCst) < target {
                pause();
            }
        };
        for round in 0..ROUNDS {
            wait_for_turns();
            if round % 2 == 0 {
                cluster.admin().run(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE application_name = 'fencehold' AND pid <> pg_backend_pid()",
                );
            } else {
                cluster.stop_at_once();
                cluster.start_server();
            }
        }
        wait_for_turns();
        ward.over.store(true, Ordering::SeqCst);
    });
    // Never two at once: the next holder came after the one before had gone, or its time was up.
    let mut stays = ward.stays.into_inner().unwrap();
    stays.sort_unstable();
    for pair in stays.windows(2) {
        let [(token, _, left_ms), (next, since_ms, _)] = [pair[0], pair[1]];
        assert!(token < next, "token {token} was given twice");
        assert!(left_ms <= since_ms, "two holders: {token} until {left_ms}, and {next} from {since_ms} on");
    }
    // Acknowledged is durable: the counter is not below what anybody was given.
    let counter = cluster.admin().value("SELECT counter FROM faults.lease_key WHERE key = 'k'");
    assert!(counter.parse::<u64>().unwrap() >= stays.last().unwrap().0);
}
