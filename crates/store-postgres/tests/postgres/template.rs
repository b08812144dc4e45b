//! A database with the schema in it, made once and copied for an arena; and what an arena leaves behind is cleared for the next one.
//! A copy takes a tenth of the time that the schema takes, and to clear it a tenth of that.
//!
//! In it the store's clock is a table: it stands still until it is moved.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use fencehold_contract::{CallContext, LeaseStore as _};
use fencehold_core::Namespace;
use fencehold_store_postgres::PostgresStore;
use fencehold_test_store::{block_on, pause};

use crate::clock::MovedClock;
use crate::cluster::fresh_schema;

/// The schema in every copy.
pub(crate) const SCHEMA: &str = "fencehold";
/// Where a test's clock starts: an ordinary moment, the same as that of a `ManualClock`'s wall.
pub(crate) const START_MS: u64 = 1_800_000_000_000;

const TEMPLATE: &str = "migrated";
/// How often it is looked whether those who are connected have gone.
const LOOKS_MAX: usize = 20_000;

/// What tests may make or change beyond rows: a database in which it differs is not used again. `xmin` tells of every change.
const MADE: &str = "SELECT md5(string_agg(what, ' ' ORDER BY what)) FROM (
    SELECT concat_ws(',', oid, relname, relacl, relhastriggers, relhasindex) AS what FROM pg_class WHERE oid >= 16384
    UNION ALL SELECT concat_ws(',', oid, xmin) FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT concat_ws(',', oid, nspname, nspacl) FROM pg_namespace WHERE nspname !~ '^pg_(temp|toast_temp)'
    UNION ALL SELECT concat_ws(',', oid, xmin) FROM pg_trigger
    UNION ALL SELECT concat_ws(',', starelid, staattnum) FROM pg_statistic WHERE starelid >= 16384
    UNION ALL SELECT concat_ws(',', attrelid, count(*)) FROM pg_attribute WHERE attrelid >= 16384 GROUP BY attrelid
    UNION ALL SELECT concat_ws(',', setrole, setconfig) FROM pg_db_role_setting
        WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())) AS made";

/// Makes every row as it was in the beginning. What has grown large is made anew, so that the next test does not go through it. Statistics go,
/// too: by those of another test's rows the planner looks into indexes, and a test that counts what is read counts that.
const CLEAR: &str = "DO $$
DECLARE
    one record;
BEGIN
    PERFORM set_config('session_replication_role', 'replica', true);
    FOR one IN SELECT oid::regclass AS name, relkind, pg_relation_size(oid) > 65536 AS large FROM pg_class
        WHERE relnamespace = 'fencehold'::regnamespace AND relkind IN ('r', 'S') AND relname NOT IN ('migration', 'test_clock')
    LOOP
        IF one.relkind = 'S' THEN
            PERFORM setval(one.name, 1, false);
        ELSIF one.large THEN
            EXECUTE format('TRUNCATE %s CASCADE', one.name);
        ELSE
            -- After any ANALYZE under way.
            EXECUTE format('LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE', one.name);
            EXECUTE format('DELETE FROM %s', one.name);
        END IF;
    END LOOP;
    DELETE FROM pg_statistic WHERE starelid >= 16384;
    INSERT INTO fencehold.store_state DEFAULT VALUES;
    INSERT INTO fencehold.job_counted DEFAULT VALUES;
END $$";

/// How databases are copied, and what is made in an unused copy.
struct Template {
    copying: String,
    made: String,
}

/// A database for one test, as good as new.
pub(crate) struct Database {
    pub(crate) name: String,
}

impl Database {
    pub(crate) fn new() -> Self {
        let template = Template::get();
        // A name of its own: a session that still knows the one before finds nothing under it.
        let name = fresh_schema();
        let cleared = spare().pop();
        crate::cluster().shared().run(&match cleared {
            Some(old) => {
                format!("ALTER DATABASE {old} RENAME TO {name}; ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            }
            None => format!("CREATE DATABASE {name} {}", template.copying),
        });
        Database { name }
    }

    /// Clears it, with no session connected to it at the end. False: there is more in it than rows.
    fn clear(&self) -> bool {
        let admin = crate::cluster().admin_in(&self.name);
        crate::cluster()
            .shared()
            .run(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS false", self.name));
        // A session that is still connected was started by this test.
        admin.end_sessions("datname = current_database() AND pid <> pg_backend_pid()");
        let clear = format!("{CLEAR}; UPDATE {SCHEMA}.test_clock SET at_ms = {START_MS}");
        let cleared = admin.try_run(&clear).is_ok() && admin.value(MADE) == Template::get().made;
        drop(admin);
        until_unused(&self.name);
        cleared
    }
}

impl Drop for Database {
    #[expect(clippy::print_stderr, reason = "what the server said explains why a test failed")]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the server's log ends with:\n{}", crate::cluster().end_of_log());
        }
        if !thread::panicking() && self.clear() {
            spare().push(self.name.clone());
        } else {
            let _ = crate::cluster()
                .shared()
                .try_run(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

impl Template {
    fn get() -> &'static Self {
        static TEMPLATE: OnceLock<Template> = OnceLock::new();
        TEMPLATE.get_or_init(Self::make)
    }

    fn make() -> Self {
        crate::cluster().shared().run(&format!("CREATE DATABASE {TEMPLATE}"));
        let url = crate::cluster().url_in(TEMPLATE, SCHEMA);
        let store = PostgresStore::open(&url, Arc::new(MovedClock::default())).unwrap();
        block_on(store.migrate(&CallContext::new(Namespace::default()))).unwrap();
        block_on(store.close());
        let admin = crate::cluster().admin_in(TEMPLATE);
        admin.run(&format!(
            "CREATE TABLE {SCHEMA}.test_clock (at_ms bigint NOT NULL);
             INSERT INTO {SCHEMA}.test_clock VALUES ({START_MS});
             CREATE OR REPLACE FUNCTION {SCHEMA}.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
             'SELECT at_ms FROM {SCHEMA}.test_clock';"
        ));
        let made = admin.value(MADE);
        drop(admin);
        // Nothing can be copied while a session is connected to it.
        until_unused(TEMPLATE);
        // Through files rather than through the log; older servers know no other way.
        let strategy = crate::cluster()
            .shared()
            .value("SELECT current_setting('server_version_num')::int >= 150000")
            == "t";
        let copying = format!("TEMPLATE {TEMPLATE}{}", if strategy { " STRATEGY file_copy" } else { "" });
        Template { copying, made }
    }
}

/// Databases that were cleared.
fn spare() -> MutexGuard<'static, Vec<String>> {
    static SPARE: Mutex<Vec<String>> = Mutex::new(Vec::new());
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns when no session is connected to a database any more.
fn until_unused(name: &str) {
    let connected = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'");
    let unused = (0..LOOKS_MAX).any(|_| {
        crate::cluster().shared().value(&connected) == "0" || {
            pause();
            false
        }
    });
    assert!(unused, "{name} is in use");
}
