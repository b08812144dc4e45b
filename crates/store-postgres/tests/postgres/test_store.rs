//! The arena of the conformance suite: a fresh schema whose clock stands still until it is moved, and two handles on it.

use std::sync::{Arc, Mutex, PoisonError};

use fencehold_contract::{LeaseStore, PostgresUrl};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_store::{TestCapability, TestStore, block_on};

use crate::clock::MovedClock;
use crate::cluster::Admin;
use crate::template::{Database, SCHEMA};

/// Queues and states in which there are not as many jobs as is kept, with both counts; in one snapshot.
pub(crate) const WRONG_COUNTS: &str = "
    SELECT coalesce(string_agg(format('queue %s, state %s: kept %s, there are %s', queue, state, k.count, t.count), '; '), '')
    FROM job_counts_now(NULL) AS k FULL JOIN (
        SELECT l.queue, j.state::smallint, count(*) FROM (
            SELECT r.lane, 0 AS state FROM job_ready r
            UNION ALL
            SELECT s.lane, CASE WHEN s.due_ms <= now_ms() THEN 0 ELSE 1 END FROM job_scheduled s
            UNION ALL
            SELECT r.lane, 2 FROM job_running r
            UNION ALL
            SELECT s.lane, s.state FROM job_settled s) AS j
        JOIN job_lane l ON l.lane = j.lane GROUP BY 1, 2) AS t USING (queue, state)
    WHERE k.count IS DISTINCT FROM t.count";

pub(crate) struct PostgresTestStore {
    pub(crate) schema: &'static str,
    /// The boot clock of this machine, which goes with the store's: else the store's would be taken to have jumped.
    pub(crate) clock: Arc<MovedClock>,
    admin: Mutex<Admin>,
    handles: Mutex<Option<[Arc<PostgresStore>; 2]>>,
    /// Whether the counts that are kept are compared with the jobs in the end.
    compares_counts: bool,
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

    /// With a look at the end whether the jobs in each state are as many as is kept. Not for tests that write into the tables themselves.
    pub(crate) fn comparing_counts() -> Self {
        let mut test_store = Self::new();
        test_store.compares_counts = true;
        test_store
    }

    fn with_clock(clock: MovedClock) -> Self {
        let database = Database::new();
        let admin = crate::cluster().admin_in(&database.name);
        PostgresTestStore {
            schema: SCHEMA,
            clock: Arc::new(clock),
            admin: Mutex::new(admin),
            handles: Mutex::new(None),
            compares_counts: false,
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

impl Drop for PostgresTestStore {
    fn drop(&mut self) {
        if self.compares_counts && !std::thread::panicking() {
            let sql = format!("SET search_path = {}, pg_temp; {WRONG_COUNTS}", self.schema);
            assert_eq!(self.value(&sql), "", "the counts that are kept are not those of the jobs");
        }
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
