//! Sessions that take their steps in a stated order, as in PostgreSQL's own isolation tests: a step either ends, or is seen
//! to be blocked by another session, before the next one is taken.

use std::thread::{self, JoinHandle};

use fencehold_test_store::pause;
use serde_json::Value;

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
        admin.run(&format!("SET search_path = {}; SET timezone = 'UTC'", test_store.schema));
        let pid = admin.value("SELECT pg_backend_pid()");
        Session { admin, pid }
    }

    /// A step that ends.
    pub(crate) fn run(&self, sql: &str) -> StatementResult {
        run(&self.admin, sql)
    }

    /// A step that ends well, and its first value; empty: it has none.
    pub(crate) fn value(&self, sql: &str) -> String {
        value(self.run(sql)).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// The same of a step whose value is a number.
    pub(crate) fn number(&self, sql: &str) -> u64 {
        let value = self.value(sql);
        value.parse().unwrap_or_else(|_| panic!("{sql}: {value:?} is no number"))
    }

    /// The same of a step whose value is JSON.
    pub(crate) fn json(&self, sql: &str) -> Value {
        json(&self.value(sql))
    }

    /// The token that an acquisition is granted.
    pub(crate) fn take(&self, acquire: &str) -> u64 {
        let said = self.json(acquire);
        said["Ok"]["grant"]["token"].as_u64().unwrap_or_else(|| panic!("{said}"))
    }

    /// The SQLSTATE and the message of a step that is refused.
    pub(crate) fn refusal(&self, sql: &str) -> (String, String) {
        self.run(sql).expect_err(sql)
    }

    /// A step that does not end before another session does something: that is waited for.
    pub(crate) fn run_blocked_by(self, by: &Session, sql: &str) -> PendingStep {
        let step = self.start(sql);
        let blocked = step.is_blocked_by(by);
        until(&format!("blocked: {sql}"), || {
            assert!(!step.thread.is_finished(), "it was not blocked: {sql}");
            is_so(&blocked)
        });
        step
    }

    /// A step that waits for another session: that is waited for.
    pub(crate) fn start_blocked(self, sql: &str) -> PendingStep {
        let step = self.start(sql);
        let blocked = format!("SELECT cardinality(pg_blocking_pids({})) > 0", step.pid);
        until(&format!("blocked: {sql}"), || is_so(&blocked));
        step
    }

    /// Returns when another session, which need not be one of the test's, waits for this one.
    pub(crate) fn wait_until_in_the_way(&self) {
        let sql = format!(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE '{}' = ANY (pg_blocking_pids(pid)::text[])",
            self.pid
        );
        until("a session that waits for this one", || is_so(&sql));
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
    fn is_blocked_by(&self, by: &Session) -> String {
        format!("SELECT '{}' = ANY (pg_blocking_pids({})::text[])", by.pid, self.pid)
    }

    /// Returns when this step waits for another session.
    pub(crate) fn wait_until_blocked_by(&self, by: &Session) {
        let blocked = self.is_blocked_by(by);
        until("blocked by that session", || is_so(&blocked));
    }

    /// Waits for the end of the step.
    pub(crate) fn end(self) -> (Session, StatementResult) {
        let (admin, said) = self.thread.join().unwrap();
        (Session { admin, pid: self.pid }, said)
    }

    /// The same of a step that ends well: its session, and its first value.
    pub(crate) fn ends_well(self) -> (Session, String) {
        let (session, said) = self.end();
        (session, value(said).unwrap())
    }

    /// Its first value alone.
    pub(crate) fn value(self) -> String {
        self.ends_well().1
    }

    /// The same of a step whose value is JSON.
    pub(crate) fn json(self) -> Value {
        json(&self.value())
    }
}

fn run(admin: &Admin, sql: &str) -> StatementResult {
    admin.try_run(sql).map_err(|error| {
        let said = error.as_db_error().expect("an answer of the server");
        (said.code().code().to_owned(), said.message().to_owned())
    })
}

/// The first value of the last row.
fn value(said: StatementResult) -> Result<String, (String, String)> {
    Ok(said?.pop().and_then(|row| row.into_iter().next().flatten()).unwrap_or_default())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Asks a session that belongs to no test.
fn is_so(sql: &str) -> bool {
    crate::cluster().shared().value(sql) == "t"
}

/// Looks until something is so. Each look is a round trip, and there is a pause between two of them.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let seen = (0..LOOKS_MAX).any(|_| {
        is_so() || {
            pause();
            false
        }
    });
    assert!(seen, "never: {what}");
}

/// A fresh store that nothing sweeps unless the test opens a handle; its calls, and sessions on it.
pub(crate) fn with_sessions<const N: usize>() -> (PostgresTestStore, Calls<'static>, [Session; N]) {
    let test_store = PostgresTestStore::new();
    let sessions = [(); N].map(|()| Session::new(&test_store));
    let calls = Calls(test_store.schema);
    (test_store, calls, sessions)
}

/// In place of one key: the first of these that is free.
pub(crate) fn any_of(keys: &[&str]) -> String {
    keys.join("', '")
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

    /// Has a session stand in line: its party, and its place.
    pub(crate) fn line_up(&self, by: &Session, key: &str, hold: u8, owner: &str, ms: u64) -> (String, u64) {
        let party = by.value("SELECT party_lives(NULL)");
        let waiting = self.acquire_waiting(key, hold, owner, 0, ms);
        let said = by.json(&waiting.replace("NULL, 60000)", &format!("{party}, 60000)")));
        (party, said["Waiting"]["id"].as_u64().unwrap_or_else(|| panic!("{said}")))
    }

    /// How the one in that place looks after it.
    pub(crate) fn look(&self, waiter: u64, hold: u8) -> String {
        format!("SELECT {}.lease_look({waiter}, '\\x{hold:02x}', 60000)", self.0)
    }

    /// Renews as a client does: what is not live is asked about again, and told why.
    pub(crate) fn renew(&self, key: &str, hold: u8, token: u64) -> String {
        format!("SELECT count(*) FROM {}.lease_renew({}) WHERE nth > 0", self.0, of(key, hold, token))
    }

    pub(crate) fn renew_checked(&self, key: &str, hold: u8, token: u64) -> String {
        format!("SELECT ({}.lease_renew_checked({}))[1]", self.0, of(key, hold, token))
    }

    pub(crate) fn release(&self, key: &str, hold: u8, token: u64) -> String {
        format!("SELECT ({}.lease_release({}))[1]", self.0, of(key, hold, token))
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

/// The arguments of a call about one hold.
fn of(key: &str, hold: u8, token: u64) -> String {
    format!("'default', ARRAY['{key}'], ARRAY['\\x{hold:02x}'::bytea], ARRAY[{token}::bigint], 60000")
}
