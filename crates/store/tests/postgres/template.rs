//! A database with the schema in it, made once and copied for each arena: the copy takes a tenth of the time that the schema takes.
//!
//! In it the store's clock is a table: it stands still until it is moved.

use std::sync::{Arc, OnceLock};

use fencehold_core::Namespace;
use fencehold_store::conformance::block_on;
use fencehold_store::postgres::PostgresStore;
use fencehold_store::{Call, LeaseStore as _};

use crate::clock::MovedClock;
use crate::cluster::fresh_schema;

/// The schema in every copy.
pub(crate) const SCHEMA: &str = "fencehold";
/// Where a test's clock starts: an ordinary moment, the same as that of a `ManualClock`'s wall.
pub(crate) const START_MS: u64 = 1_800_000_000_000;

const TEMPLATE: &str = "migrated";
/// How often it is looked whether those who made the template have gone.
const LOOKS_MAX: usize = 20_000;

/// A database that is gone with this.
pub(crate) struct Database {
    pub(crate) name: String,
}

impl Database {
    pub(crate) fn new() -> Self {
        static COPY: OnceLock<String> = OnceLock::new();
        let copy = COPY.get_or_init(make_template);
        let name = fresh_schema();
        crate::cluster().admin().run(&format!("CREATE DATABASE {name} {copy}"));
        Database { name }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Whoever is connected still is somebody whom this test started.
        let _ = crate::cluster()
            .admin()
            .try_run(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

/// Makes the template, and says how it is copied.
fn make_template() -> String {
    let admin = crate::cluster().admin();
    admin.run(&format!("CREATE DATABASE {TEMPLATE}"));
    let url = crate::cluster().url_in(TEMPLATE, SCHEMA);
    let store = PostgresStore::open(&url, Arc::new(MovedClock::default())).unwrap();
    block_on(store.migrate(&Call::new(Namespace::default()))).unwrap();
    block_on(store.close());
    crate::cluster().admin_in(TEMPLATE).run(&format!(
        "CREATE TABLE {SCHEMA}.test_clock (at_ms bigint NOT NULL);
         INSERT INTO {SCHEMA}.test_clock VALUES ({START_MS});
         CREATE OR REPLACE FUNCTION {SCHEMA}.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
         'SELECT at_ms FROM {SCHEMA}.test_clock';"
    ));
    // Nothing can be copied while somebody is connected to it.
    let connected = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'");
    assert!((0..LOOKS_MAX).any(|_| admin.value(&connected) == "0"), "the template is in use");
    // Through files rather than through the log; older servers know no other way.
    let strategy = admin.value("SELECT current_setting('server_version_num')::int >= 150000") == "t";
    format!("TEMPLATE {TEMPLATE}{}", if strategy { " STRATEGY file_copy" } else { "" })
}
