//! R27: the statement was carried out, and its answer never came.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use fencehold_core::{HoldId, Key, Namespace, Owner, Reason};
use fencehold_store::clock::SystemClock;
use fencehold_store::conformance::block_on;
use fencehold_store::postgres::PostgresStore;
use fencehold_store::{
    AcquireRequest, Call, HoldRef, LeaseStore as _, PostgresUrl, RevokeRequest, StoreError, StoreUrl, Which,
};

use crate::cluster::fresh_schema;

/// Stands between a store and the server. Some answers do not come through: the connection breaks instead.
struct Wire {
    port: u16,
    /// How many of the next answers are lost.
    losing: Arc<AtomicU32>,
}

impl Wire {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let losing: Arc<AtomicU32> = Arc::default();
        let wire = Wire { port: listener.local_addr().unwrap().port(), losing: Arc::clone(&losing) };
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap());
                let (asking, asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || carry(asking, asked, |_| true));
                let losing = Arc::clone(&losing);
                thread::spawn(move || {
                    // The server has answered, so it was carried out.
                    carry(server, client, |_| {
                        losing
                            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                            .is_err()
                    });
                });
            }
        });
        wire
    }

    fn url(&self, schema: &str) -> PostgresUrl {
        let text = format!(
            "postgres://postgres@127.0.0.1:{}/postgres?schema={schema}&connections=1&sslmode=disable",
            self.port
        );
        match text.parse().unwrap() {
            StoreUrl::Postgres(url) => *url,
            other => panic!("{other}"),
        }
    }
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

fn call() -> Call {
    Call::new(Namespace::default())
}

#[test]
fn a_lost_answer_is_resolved_by_the_hold_id() {
    let schema = fresh_schema();
    let wire = Wire::to(crate::cluster().url(&schema).hosts[0].1);
    let store = PostgresStore::open(&wire.url(&schema), Arc::new(SystemClock)).unwrap();
    let key = || Key::new("k").unwrap();
    let hold = HoldId::from_random([7; 16]);
    let request = AcquireRequest::new(key(), hold, Owner::new("A").unwrap(), 30_000);
    block_on(store.status(&call())).unwrap();

    wire.losing.store(1, Ordering::SeqCst);
    let acquired = block_on(store.acquire(&call(), request)).unwrap();
    assert_eq!(wire.losing.load(Ordering::SeqCst), 0, "an answer was lost");
    assert_eq!(
        (acquired.grant.token.get(), acquired.grant.resumed),
        (1, true),
        "not held by somebody else: itself"
    );

    let mine = HoldRef { key: key(), hold, token: acquired.grant.token };
    wire.losing.store(1, Ordering::SeqCst);
    assert!(block_on(store.renew(&call(), vec![mine.clone()])).unwrap().answers[0].is_ok());
    wire.losing.store(1, Ordering::SeqCst);
    let released = block_on(store.release(&call(), vec![mine.clone()])).unwrap();
    assert_eq!(released[0], Ok(mine.token), "the same release, the same answer");
    let view = block_on(store.get(&call(), key())).unwrap().unwrap();
    assert_eq!((view.endings.len(), view.holder), (1, None), "one grant, one ending");
}

#[test]
fn force_whose_answer_was_lost_is_not_used_again() {
    let schema = fresh_schema();
    let wire = Wire::to(crate::cluster().url(&schema).hosts[0].1);
    let store = PostgresStore::open(&wire.url(&schema), Arc::new(SystemClock)).unwrap();
    let key = || Key::new("k").unwrap();
    let request = AcquireRequest::new(key(), HoldId::from_random([8; 16]), Owner::new("A").unwrap(), 30_000);
    block_on(store.acquire(&call(), request)).unwrap();
    wire.losing.store(1, Ordering::SeqCst);
    let which = Which::Key { key: key(), only_token: None };
    let (by, reason) = (Owner::new("P").unwrap(), Reason::new("stuck").unwrap());
    match block_on(store.revoke(&call(), RevokeRequest { which, by, reason })) {
        Err(StoreError::Unknown { .. }) => {}
        other => panic!("{other:?}"),
    }
    let view = block_on(store.get(&call(), key())).unwrap().unwrap();
    assert_eq!((view.token.get(), view.holder), (2, None), "it was carried out, once");
}
