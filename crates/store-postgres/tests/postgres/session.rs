//! Sessions that take their steps in a stated order, as in PostgreSQL's own isolation tests: a step either ends, or is seen
//! to be blocked by another session, before the next one is taken.

use std::thread::{self, JoinHandle};

use crate::cluster::Admin;
use crate::test_store::PostgresTestStore;

/// How often something that must come is looked for.
pub(crate) const LOOKS_MAX: usize = 20_000;

/// What a statement gave, or its SQLSTATE and message.
pub(crate) type StatementResult = Result<Vec<Vec<Option<String>>>, (String, String)>;

/// A session, at rest.
pub(crate) struct Session {
    admin: Admin,
    pub(crate) pid: String,
}

/// A session with a step under way.
pub(crate) struct PendingStep {
    thread: JoinHandle<(Admin, StatementResult)>,
    pid: String,
}

impl Session {
    pub(crate) fn new(test_store: &PostgresTestStore) -> Self {
        let admin = crate::cluster().admin_in(&test_store.database.name);
        let pid = admin.value("SELECT pg_backend_pid()");
        Session { admin, pid }
    }

    /// A step that ends.
    pub(crate) fn run(&self, sql: &str) -> StatementResult {
        run(&self.admin, sql)
    }

    /// A step that ends well, and its first value.
    pub(crate) fn value(&self, sql: &str) -> String {
        match self.run(sql) {
            Ok(rows) => rows.last().and_then(|row| row[0].clone()).unwrap_or_default(),
            Err(error) => panic!("{sql}: {error:?}"),
        }
    }

    /// A step that does not end before another session does something: that is waited for.
    pub(crate) fn run_blocked_by(self, by: &Session, sql: &str) -> PendingStep {
        let step = self.start(sql);
        let blocked = format!("SELECT '{}' = ANY (pg_blocking_pids({})::text[])", by.pid, step.pid);
        let seen = (0..LOOKS_MAX).any(|_| {
            assert!(!step.thread.is_finished(), "it was not blocked: {sql}");
            crate::cluster().shared().value(&blocked) == "t"
        });
        assert!(seen, "never blocked: {sql}");
        step
    }

    /// A step that waits for another session: that is waited for.
    pub(crate) fn start_blocked(self, sql: &str) -> PendingStep {
        let step = self.start(sql);
        let blocked = format!("SELECT cardinality(pg_blocking_pids({})) > 0", step.pid);
        let seen = (0..LOOKS_MAX).any(|_| crate::cluster().shared().value(&blocked) == "t");
        assert!(seen, "never blocked: {sql}");
        step
    }

    /// Returns when another session, which need not be one of the test's, waits for this one.
    pub(crate) fn wait_until_in_the_way(&self) {
        let sql = format!(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE '{}' = ANY (pg_blocking_pids(pid)::text[])",
            self.pid
        );
        let seen = (0..LOOKS_MAX).any(|_| crate::cluster().shared().value(&sql) == "t");
        assert!(seen, "no session waits for this one");
    }

    fn start(self, sql: &str) -> PendingStep {
        let (admin, pid, sql) = (self.admin, self.pid, sql.to_owned());
        let thread = thread::spawn(move || {
            let said = run(&admin, &sql);
            (admin, said)
        });
        PendingStep { thread, pid }
    }
}

impl PendingStep {
    /// Returns when this step waits for another session.
    pub(crate) fn wait_until_blocked_by(&self, by: &Session) {
        let blocked = format!("SELECT '{}' = ANY (pg_blocking_pids({})::text[])", by.pid, self.pid);
        let seen = (0..LOOKS_MAX).any(|_| crate::cluster().shared().value(&blocked) == "t");
        assert!(seen, "never blocked by that session");
    }

    /// Waits for the end of the step.
    pub(crate) fn end(self) -> (Session, StatementResult) {
        let (admin, said) = self.thread.join().unwrap();
        (Session { admin, pid: self.pid }, said)
    }
}

fn run(admin: &Admin, sql: &str) -> StatementResult {
    admin.try_run(sql).map_err(|error| {
        let said = error.as_db_error().expect("an answer of the server");
        (said.code().code().to_owned(), said.message().to_owned())
    })
}

/// The calls of one schema, as SQL. Hold ids are numbers here.
pub(crate) struct Calls<'a>(pub(crate) &'a str);

impl Calls<'_> {
    pub(crate) fn acquire(&self, key: &str, hold: u8, owner: &str) -> String {
        self.acquire_waiting(key, hold, owner, 0, 0)
    }

    /// The same hold id again.
    pub(crate) fn acquire_again(&self, key: &str, hold: u8, owner: &str) -> String {
        self.acquire_waiting(key, hold, owner, 1, 0)
    }

    pub(crate) fn acquire_waiting(
        &self,
        key: &str,
        hold: u8,
        owner: &str,
        age_ms: u64,
        wait_ms: u64,
    ) -> String {
        format!(
            "SELECT {}.lease_acquire('default', ARRAY['{key}'], '\\x{hold:02x}', {age_ms}, '{owner}', NULL, 30000, NULL, \
             {wait_ms}, 0, 0::smallint, NULL, NULL, NULL, 60000)",
            self.0
        )
    }

    /// Renews as a client does: what is not live is asked about again, and told why.
    pub(crate) fn renew(&self, key: &str, hold: u8, token: u64) -> String {
        let hold =
            format!("'default', ARRAY['{key}'], ARRAY['\\x{hold:02x}'::bytea], ARRAY[{token}::bigint]");
        format!("SELECT count(*) FROM {}.lease_renew({hold}, 60000) WHERE nth > 0", self.0)
    }

    pub(crate) fn renew_checked(&self, key: &str, hold: u8, token: u64) -> String {
        let hold =
            format!("'default', ARRAY['{key}'], ARRAY['\\x{hold:02x}'::bytea], ARRAY[{token}::bigint]");
        format!("SELECT ({}.lease_renew_checked({hold}, 60000))[1]", self.0)
    }

    pub(crate) fn release(&self, key: &str, hold: u8, token: u64) -> String {
        let hold =
            format!("'default', ARRAY['{key}'], ARRAY['\\x{hold:02x}'::bytea], ARRAY[{token}::bigint]");
        format!("SELECT ({}.lease_release({hold}, 60000))[1]", self.0)
    }

    pub(crate) fn revoke(&self, key: &str) -> String {
        format!("SELECT {}.lease_revoke('default', '{key}', NULL, 'P', 'it was stuck', 60000)", self.0)
    }

    pub(crate) fn sweep(&self) -> String {
        format!("SELECT {}.lease_sweep(100)", self.0)
    }

    pub(crate) fn fence(&self, key: &str, token: u64) -> String {
        format!("SELECT {}.fence('{key}', {token})", self.0)
    }

    pub(crate) fn holder(&self, key: &str) -> String {
        format!("SELECT {}.lease_get('default', '{key}') -> 'holder' ->> 'owner'", self.0)
    }
}
