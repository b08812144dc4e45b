//! What the tests of `file:` share: a directory, a clock, and short ways to ask.
#![allow(unreachable_pub, reason = "it is a module of a test program")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fencehold_contract::clock::ManualClock;
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, HoldRef, LeaseStore, LeaseView, StoreError,
};
use fencehold_core::{Namespace, Token};
use fencehold_store_file::FileStore;
use fencehold_test_servers::calls::{OneByOne as _, hold_id, lease_request};
pub use fencehold_test_servers::calls::{key, owner};
pub use fencehold_test_store::block_on;
use fencehold_test_store::pause;

pub const TTL_MS: u64 = 5_000;

/// A directory and a clock.
pub struct Fixture {
    directory: tempfile::TempDir,
    pub clock: ManualClock,
}

impl Fixture {
    pub fn new() -> Self {
        Fixture { directory: tempfile::tempdir().unwrap(), clock: ManualClock::new() }
    }

    /// The same with a store in it that is open.
    pub fn opened() -> (Self, FileStore) {
        let fixture = Self::new();
        let store = fixture.open();
        (fixture, store)
    }

    /// Another directory with these files, as the next process finds them after a kill.
    pub fn copied(&self, names: &[&str]) -> Self {
        let copy = Self::new();
        for name in names {
            std::fs::copy(self.path().join(name), copy.path().join(name)).unwrap();
        }
        copy
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn database(&self) -> PathBuf {
        self.path().join("fencehold.db")
    }

    pub fn open(&self) -> FileStore {
        self.try_open().unwrap()
    }

    pub fn try_open(&self) -> Result<FileStore, StoreError> {
        FileStore::open_or_create(self.path(), Arc::new(self.clock.clone()))
    }

    /// Closes a gate, or makes the disk fail, at a point of the store.
    pub fn set_gate(&self, name: &str) {
        std::fs::create_dir_all(self.path().join("gates")).unwrap();
        std::fs::write(self.path().join("gates").join(name), "").unwrap();
    }

    pub fn lift_gate(&self, name: &str) {
        std::fs::remove_file(self.path().join("gates").join(name)).unwrap();
    }

    /// Waits until a thread stands at a closed gate.
    pub fn await_gate(&self, name: &str) {
        self.await_file(&format!("{name}.reached"));
    }

    /// Waits until a thread that stood at a gate has gone on.
    pub fn await_passed(&self, name: &str) {
        self.await_file(&format!("{name}.passed"));
    }

    fn await_file(&self, name: &str) {
        let file = self.path().join("gates").join(name);
        while !file.exists() {
            pause();
        }
    }

    /// Changes what is kept, while no process serves it.
    pub fn tamper(&self, sql: &str) {
        let connection = rusqlite::Connection::open(self.database()).unwrap();
        connection.execute_batch(sql).unwrap();
    }
}

pub fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

pub fn request(name: &str, nth: u8) -> AcquireLeaseRequest {
    AcquireLeaseRequest { ttl_ms: TTL_MS, ..lease_request(name, nth, &format!("owner-{nth}")) }
}

pub fn acquire(store: &FileStore, name: &str, nth: u8) -> Result<AcquiredLease, StoreError> {
    block_on(store.acquire(&call(), request(name, nth)))
}

pub fn take(store: &FileStore, name: &str, nth: u8) -> Token {
    acquire(store, name, nth).unwrap().grant.token
}

pub fn hold(name: &str, nth: u8, token: Token) -> HoldRef {
    HoldRef { key: key(name), hold_id: hold_id(nth), token }
}

pub fn renew(store: &FileStore, name: &str, nth: u8, token: Token) -> u64 {
    store.renew_one(&hold(name, nth, token)).unwrap().remaining_ms
}

pub fn release(store: &FileStore, name: &str, nth: u8, token: Token) {
    store.release_one(&hold(name, nth, token)).unwrap();
}

pub fn view(store: &FileStore, name: &str) -> LeaseView {
    block_on(store.get(&call(), key(name))).unwrap().unwrap()
}

pub fn remaining_ms(store: &FileStore, name: &str) -> u64 {
    view(store, name).holder.unwrap().remaining_ms
}

/// Returns when one stands in line for a key.
pub fn until_waiting(store: &FileStore, name: &str) {
    while view(store, name).waiter_count == 0 {
        pause();
    }
}
