//! The arena of a server: a process whose clock is moved by hand, and two clients that know it by its URL alone.

use std::sync::{Arc, Mutex};

use fencehold_contract::clock::{Clock, ManualClock, SystemClock};
use fencehold_contract::{LeaseStore, StoreUrl};
use fencehold_store_remote::RemoteStore;
use fencehold_test_store::{TestCapability, TestStore, block_on};

use super::ClockedServer;

/// A server process, and two clients that know it by its URL alone.
pub struct ServerTestStore {
    /// `file:` in this directory; `None`: `memory:`.
    directory: Option<tempfile::TempDir>,
    /// What the server's clock shows: it is moved with it.
    clock: ManualClock,
    /// Whether what may share a request always goes in a batch.
    batching: bool,
    running: Mutex<Option<Running>>,
}

struct Running {
    server: ClockedServer,
    store: Arc<dyn LeaseStore>,
    other: Arc<dyn LeaseStore>,
}

impl ServerTestStore {
    pub fn on(directory: Option<tempfile::TempDir>) -> Self {
        ServerTestStore { directory, clock: ManualClock::new(), batching: false, running: Mutex::new(None) }
    }

    /// The same with every call that may share a request in a batch.
    pub fn batching(directory: Option<tempfile::TempDir>) -> Self {
        ServerTestStore { batching: true, ..ServerTestStore::on(directory) }
    }

    /// Moves the server's clock as this one was moved. A server that is yet to start finds it so.
    fn order(&self, order: &str) {
        if let Some(running) = &mut *self.running.lock().unwrap() {
            running.server.order(order);
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Running) -> T) -> T {
        let mut running = self.running.lock().unwrap();
        act(running.get_or_insert_with(|| {
            let store = match &self.directory {
                Some(directory) => format!("file:{}?create=true", directory.path().display()),
                None => "memory:".to_owned(),
            };
            let now = self.clock.now();
            let server = ClockedServer::start(&store, Some((now.store_ms, now.wall_ms)));
            let client = || -> Arc<dyn LeaseStore> {
                let StoreUrl::Remote(url) = server.url.parse().unwrap() else {
                    unreachable!("{}", server.url)
                };
                let open = if self.batching { RemoteStore::open_batching } else { RemoteStore::open };
                Arc::new(open(&url, Arc::new(SystemClock)).unwrap())
            };
            Running { store: client(), other: client(), server }
        }))
    }
}

impl TestStore for ServerTestStore {
    fn store(&self) -> Arc<dyn LeaseStore> {
        self.with(|running| Arc::clone(&running.store))
    }

    fn other(&self) -> Arc<dyn LeaseStore> {
        self.with(|running| Arc::clone(&running.other))
    }

    fn test_capabilities(&self) -> Vec<TestCapability> {
        let can =
            |capability: &TestCapability| *capability != TestCapability::Restarts || self.directory.is_some();
        TestCapability::ALL.into_iter().filter(can).collect()
    }

    fn rounds(&self) -> usize {
        5
    }

    fn pass(&self, ms: u64) {
        self.clock.advance_ms(ms);
        self.order(&format!("pass {ms}"));
    }

    fn shift_wall(&self, by_ms: i64) {
        let wall_ms = self.clock.now().wall_ms.saturating_add_signed(by_ms);
        self.clock.set_wall(wall_ms);
        self.order(&format!("wall {wall_ms}"));
    }

    /// The server is killed; its clients are closed in good order.
    fn restart(&self) {
        let Some(mut running) = self.running.lock().unwrap().take() else { return };
        running.server.kill();
        block_on(async {
            running.other.close().await;
            running.store.close().await;
        });
    }
}
