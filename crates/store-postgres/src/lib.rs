//! `postgres://`: leases, jobs and fences in a database that people already run.
//!
//! The rules are functions in the database: an operation is one call and one round trip, and check and write are one
//! transaction. They answer as `fencehold-core` would, and are held against it by tests. What stands here is the way
//! there and back: connections (`pool`), the schema (`migrate`), waiting (`listen`), and what a lost answer means
//! (`fault`, `budget`).
//!
//! Deliberately absent: a coordinator of our own, and any clock but the database's.

mod acquire;
mod budget;
mod contract;
mod events;
mod fault;
mod fenced;
mod force;
mod holder;
mod job;
mod limits;
mod listen;
mod maintenance;
mod migrate;
mod password;
mod pool;
mod response;
mod tls;
mod trust;
mod view;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::url::quoted;
use fencehold_contract::{CallContext, PostgresUrl, StoreError};
use fencehold_net::{Actor, CallBudget, Closing, ResendPolicy};
use tokio_postgres::Client;

use self::budget::StatementBudget;
use self::fault::StatementError;
use self::listen::{Listener, TopicListener};
use self::pool::{Pool, PoolLane, PooledConnection};

const STORE: &str = "postgres:";
/// What an answer may take beyond its caller's timeout, which the server keeps to while it waits for locks: one that is
/// nearly there says more than that none came.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// What `lock_timeout` takes.
const LOCK_MS_MAX: i64 = 2_147_483_647;

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    actor: Actor<Rc<PostgresInner>>,
    url: PostgresUrl,
    hold_changes: Arc<HoldChanges>,
}

/// How the schema of a store stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaVersion {
    /// What is in the database; 0: nothing.
    pub found: i32,
    /// The newest that this program knows.
    pub known: i32,
    /// Whether this program can use what was found.
    pub usable: bool,
}

impl PostgresStore {
    /// A handle on the store that a URL names. The database is reached for when the first request comes.
    pub fn open(url: &PostgresUrl, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let hold_changes: Arc<HoldChanges> = Arc::default();
        let (place, changes) = (url.clone(), Arc::clone(&hold_changes));
        let actor = Actor::start("fencehold-postgres", move |closing| {
            PostgresInner::new(&place, clock, closing, changes).map(Rc::new)
        })?;
        Ok(PostgresStore { actor, url: url.clone(), hold_changes })
    }

    /// How the schema stands, without changing it.
    pub async fn schema_version(&self, call: &CallContext) -> Result<SchemaVersion, StoreError> {
        self.ask(call, async |core, budget| {
            loop {
                match core.version().await {
                    Ok((version, _)) => {
                        let (found, usable) = (version.found, version.is_usable());
                        return Ok(SchemaVersion { found, known: migrate::newest(), usable });
                    }
                    Err(fault) => budget.retry_or_fail(fault).await?,
                }
            }
        })
        .await
    }

    /// The migrations that the schema lacks, by name, and the statements that [`migrate`](Self::migrate) would carry out.
    pub async fn missing_migrations(&self, call: &CallContext) -> Result<(Vec<String>, String), StoreError> {
        self.ask(call, async |core, budget| {
            loop {
                let found = core.version().await.and_then(|(version, there)| {
                    let changes = migrate::missing(&core.schema, version.found)?;
                    let script = migrate::script(&core.schema, version.found, &changes, there);
                    Ok((changes.iter().map(|change| change.name.to_owned()).collect(), script))
                });
                match found {
                    Ok(found) => return Ok(found),
                    Err(fault) => budget.retry_or_fail(fault).await?,
                }
            }
        })
        .await
    }

    /// Proves that the database answers, and makes the schema where it is not there.
    pub(crate) async fn answer(&self, call: &CallContext) -> Result<(), StoreError> {
        self.ask(call, async |core, budget| {
            core.run(budget, ResendPolicy::Safe, async |client| {
                client.query_typed("SELECT 1", &[]).await.map(drop)
            })
            .await
        })
        .await
    }

    /// Brings the schema up to date, and gives its roles their rights. Gives the names of the migrations that were carried out.
    pub async fn migrate(&self, call: &CallContext) -> Result<Vec<String>, StoreError> {
        self.ask(call, async |core, budget| {
            loop {
                match core.migrate().await {
                    Ok(done) => return Ok(done.into_iter().map(str::to_owned).collect()),
                    Err(fault) => budget.retry_or_fail(fault).await?,
                }
            }
        })
        .await
    }

    /// Carries out a call on the thread of this handle.
    async fn ask<T: Send + 'static>(
        &self,
        call: &CallContext,
        work: impl AsyncFnOnce(&Rc<PostgresInner>, &mut StatementBudget) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let timeout_ms = call.timeout_ms;
        let work = async move |core: &Rc<PostgresInner>| {
            core.start_upkeep();
            work(core, &mut core.budget(timeout_ms, 0)).await
        };
        self.actor.call(work).await
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("url", &self.url).finish_non_exhaustive()
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable { message: "this store was closed".to_owned() }
}

/// What the thread behind a handle works with.
struct PostgresInner {
    pool: Rc<Pool>,
    listener: Rc<Listener>,
    hold_changes: Arc<HoldChanges>,
    clock: Arc<dyn Clock>,
    schema: String,
    at: migrate::SchemaTarget,
    /// What of the maintenance fails through this handle, and how often it did; none: it is not known yet.
    maintained: maintenance::MaintenanceState,
    /// The URL, without its password.
    place: Arc<str>,
    closing: Closing,
    upkeep_started: Cell<bool>,
    /// Under which number those who wait through this handle are known to be alive.
    party: Cell<Option<i64>>,
    sighting: RefCell<Option<maintenance::ClockReading>>,
    /// The version of a schema that is newer than this program, once that was said; 0: none is.
    outdated_by: Cell<i32>,
    jobs: job::PostgresJobs,
}

impl PostgresInner {
    fn new(
        url: &PostgresUrl,
        clock: Arc<dyn Clock>,
        closing: Closing,
        hold_changes: Arc<HoldChanges>,
    ) -> Result<Self, StoreError> {
        Ok(PostgresInner {
            pool: Rc::new(Pool::new(url)?),
            listener: Rc::new(Listener::new(Arc::clone(&hold_changes))),
            hold_changes,
            clock,
            schema: url.schema.clone(),
            at: migrate::SchemaTarget::new(url),
            maintained: maintenance::MaintenanceState::default(),
            place: url.to_string().into(),
            closing,
            upkeep_started: Cell::new(false),
            party: Cell::new(None),
            sighting: RefCell::default(),
            outdated_by: Cell::new(0),
            jobs: job::PostgresJobs::new(url),
        })
    }

    fn budget(&self, timeout_ms: u64, wait_ms: u64) -> StatementBudget {
        StatementBudget::new(CallBudget::new(&self.clock, &self.place, timeout_ms, wait_ms))
    }

    /// From the first call on, this handle takes its part in the maintenance.
    fn start_upkeep(self: &Rc<Self>) {
        if !self.upkeep_started.replace(true) {
            tokio::task::spawn_local(Rc::clone(self).keep_up());
            tokio::task::spawn_local(Rc::clone(self).keep_counting());
        }
    }

    fn unusable(&self, why: String) -> StoreError {
        StoreError::Unusable { store: self.place.to_string(), message: why }
    }

    /// A statement as it is written for the default schema, for the one that is meant.
    fn sql(&self, statement: &str) -> String {
        statement.replace("fencehold.", &format!("{}.", quoted(&self.schema)))
    }

    /// How long a statement may wait for locks: nearly all the time that its caller has, so that the error can name who holds
    /// them.
    fn lock_ms(budget: &StatementBudget) -> i64 {
        i64::try_from(budget.statement_limit().as_millis() * 9 / 10)
            .unwrap_or(i64::MAX)
            .min(LOCK_MS_MAX)
    }

    /// Hears of a topic from now on.
    fn listen(&self, topic: &str) -> TopicListener {
        self.listener.listen(&self.pool, &self.schema, topic)
    }

    /// Something is held through this handle: hears from now on of what others do to it, where a listener wants to know.
    fn hear_of_holds(&self) {
        if self.hold_changes.has_listeners() {
            self.listener.start(&self.pool, &self.schema);
        }
    }

    /// A connection of this lane; or, where none can be made, one that is there for calls.
    async fn lend(&self, lane: PoolLane) -> Result<PooledConnection, StatementError> {
        match self.pool.lend(lane).await {
            Err(_) if lane != PoolLane::Calls => self.pool.lend(PoolLane::Calls).await,
            lent => lent,
        }
    }

    /// Sends something on a connection of its own, once.
    async fn send<T>(
        &self,
        budget: &StatementBudget,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, StatementError> {
        let late = "it was not answered in time";
        let lending = tokio::time::timeout(budget.statement_limit(), self.lend(budget.lane)).await;
        let mut lent = lending.map_err(|_| StatementError::Unreached(late.to_owned()))??;
        match tokio::time::timeout(budget.statement_limit() + ANSWER_WITHIN, work(&mut lent)).await {
            Ok(Ok(answer)) => {
                lent.give_back();
                Ok(answer)
            }
            Ok(Err(error)) => {
                // An error of the server leaves the connection as it was; but not one in the middle of a transaction.
                let fault = StatementError::of(&error, &self.schema);
                if matches!(fault, StatementError::Locked(_)) {
                    lent.give_back();
                }
                Err(fault)
            }
            Err(_) => Err(StatementError::Unclear(late.to_owned())),
        }
    }

    /// Sends something until it is answered, or the timeout ends.
    async fn run<T>(
        &self,
        budget: &mut StatementBudget,
        repeat: ResendPolicy,
        work: impl AsyncFn(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        loop {
            match self.send(budget, &work).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => budget.retry_or_fail_as(repeat, fault).await?,
            }
        }
    }

    /// Whether this user may do more than look. Not known before the first connection, and then it has none to maintain anything with.
    fn works(&self) -> bool {
        self.pool.seen.get().is_none_or(|seen| seen.works)
    }

    /// Refuses to begin anything in a schema that a newer program has changed so that this one cannot use it: what is held is renewed and
    /// finished, as far as the calls for that are still there.
    fn begin_nothing_outdated(&self) -> Result<(), StoreError> {
        match self.pool.seen.get().map(|seen| seen.version) {
            Some(version) if version.is_too_new() => {
                let why = migrate::too_new(&self.schema, version.found);
                Err(self.unusable(why))
            }
            _ => Ok(()),
        }
    }

    async fn version(&self) -> Result<(migrate::SchemaStatus, bool), StatementError> {
        let (client, connection) = self.pool.connect().await?;
        let _driving = SeparateConnection(tokio::task::spawn_local(connection));
        migrate::find(&client, &self.at).await
    }

    async fn migrate(&self) -> Result<Vec<&'static str>, StatementError> {
        let (mut client, connection) = self.pool.connect().await?;
        let _driving = SeparateConnection(tokio::task::spawn_local(connection));
        migrate::migrate(&mut client, &self.at).await
    }
}

/// A connection outside the pool. It ends with this.
struct SeparateConnection(tokio::task::JoinHandle<Result<(), tokio_postgres::Error>>);

impl Drop for SeparateConnection {
    fn drop(&mut self) {
        self.0.abort();
    }
}
