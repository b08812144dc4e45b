//! The arena of the conformance suite: a fresh schema whose clock stands still until it is moved, and two handles on it.

use std::sync::{Arc, Mutex, PoisonError};

use fencehold_contract::{LeaseStore, PostgresUrl};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_store::{TestCapability, TestStore, block_on};

use crate::clock::MovedClock;
use crate::cluster::Admin;
use crate::template::{Database, SCHEMA};

pub(crate) struct PostgresTestStore {
    pub(crate) schema: &'static str,
    /// The boot clock of this machine, which goes with the store's: else the store's would be taken to have jumped.
    pub(crate) clock: Arc<MovedClock>,
    admin: Mutex<Admin>,
    handles: Mutex<Option<[Arc<PostgresStore>; 2]>>,
    /// Last: it is gone when nothing uses it any more.
    pub(crate) database: Database,
}

impl PostgresTestStore {
    pub(crate) fn new() -> Self {
        Self::with_clock(MovedClock::default())
    }

    /// With handles that never time out, and whose waiting ends at the very millisecond.
    pub(crate) fn standing_still() -> Self {
        Self::with_clock(MovedClock::standing_still())
    }

    fn with_clock(clock: MovedClock) -> Self {
        let database = Database::new();
        let admin = crate::cluster().admin_in(&database.name);
        PostgresTestStore {
            schema: SCHEMA,
            clock: Arc::new(clock),
            admin: Mutex::new(admin),
            handles: Mutex::new(None),
            database,
        }
    }

    /// The store that both handles are on.
    pub(crate) fn url(&self) -> PostgresUrl {
        crate::cluster().url_in(&self.database.name, self.schema)
    }

    /// The one value of one row, read by a session that belongs to no store.
    pub(crate) fn value(&self, sql: &str) -> String {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner).value(sql)
    }

    fn handle(&self, nth: usize) -> Arc<PostgresStore> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || Arc::new(PostgresStore::open(&self.url(), self.clock.clone()).unwrap());
        let handles = handles.get_or_insert_with(|| [open(), open()]);
        Arc::clone(&handles[nth])
    }

    /// Runs statements beside the store.
    pub(crate) fn admin(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner).run(sql)
    }

    /// Sets the store's clock forward or back, and wakes what waits for it to move.
    pub(crate) fn shift(&self, by_ms: i64) {
        let schema = &self.schema;
        self.admin(&format!(
            "UPDATE {schema}.test_clock SET at_ms = at_ms + {by_ms}; NOTIFY fencehold_{schema}, '*'"
        ));
    }
}

impl TestStore for PostgresTestStore {
    fn store(&self) -> Arc<dyn LeaseStore> {
        self.handle(0)
    }

    fn other(&self) -> Arc<dyn LeaseStore> {
        self.handle(1)
    }

    /// Everything but a wall clock beside the store's own: here they are one (`tests/postgres/clock_set.rs` sets it).
    fn test_capabilities(&self) -> Vec<TestCapability> {
        TestCapability::ALL
            .into_iter()
            .filter(|capability| {
                !matches!(capability, TestCapability::MovesWall | TestCapability::RemembersClaims)
            })
            .collect()
    }

    fn rounds(&self) -> usize {
        8
    }

    fn pass(&self, ms: u64) {
        self.clock.pass(ms, || self.shift(i64::try_from(ms).unwrap()));
    }

    fn restart(&self) {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner).take();
        for handle in handles.into_iter().flatten() {
            block_on(handle.close());
        }
    }
}
