//! `postgres://`: leases, jobs and fences in a database that people already run.
//!
//! The rules are functions in the database: an operation is one call and one round trip, and check and write are one
//! transaction. They answer as `fencehold-core` would, and are held against it by tests. What stands here is the way
//! there and back: connections (`pool`), the schema (`migrate`), waiting (`listen`), and what a lost answer means
//! (`fault`, `statement`).
//!
//! Deliberately absent: a coordinator of our own, and any clock but the database's.

mod acquire;
mod contention;
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
mod statement;
mod tls;
mod trust;
mod value;
mod view;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use fencehold_contract::clock::Clock;
use fencehold_contract::contention::HandleContention;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::url::quoted;
use fencehold_contract::{CallContext, PostgresUrl, StoreError};
use fencehold_core::Namespace;
use fencehold_net::{Actor, CallBudget, Closing, ResendPolicy};
use tokio_postgres::Client;

use self::fault::StatementError;
use self::listen::{Listener, TopicListener};
use self::migrate::SchemaTarget;
use self::pool::{Pool, PoolLane, PooledConnection};
use self::statement::Call;

const STORE: &str = "postgres:";

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    actor: Actor<Rc<PostgresInner>>,
    url: PostgresUrl,
    hold_changes: Arc<HoldChanges>,
    /// As the database counted when it was last asked.
    measures: StoreMetrics,
    contention: Arc<HandleContention>,
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
        let contention = Arc::new(HandleContention::new(Arc::clone(&clock)));
        let gathered = Arc::clone(&contention);
        let actor = Actor::start("fencehold-postgres", move |closing| {
            PostgresInner::new(&place, clock, closing, changes, gathered).map(Rc::new)
        })?;
        let measures = StoreMetrics::counts_only();
        Ok(PostgresStore { actor, url: url.clone(), hold_changes, measures, contention })
    }

    /// How the schema stands, without changing it.
    pub async fn schema_version(&self, call: &CallContext) -> Result<SchemaVersion, StoreError> {
        self.about_schema(call, async |client, target| {
            let (version, _) = migrate::find(client, target).await?;
            let (found, usable) = (version.found, version.is_usable());
            Ok(SchemaVersion { found, known: migrate::newest(), usable })
        })
        .await
    }

    /// The database's own clock, which decides when a lease expires: milliseconds since 1970.
    pub async fn clock_ms(&self, call: &CallContext) -> Result<u64, StoreError> {
        self.about_schema(call, async |client, target| {
            let sql = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
            let read = client.query_typed(sql, &[]).await;
            let rows = read.map_err(|error| StatementError::of(&error, &target.schema))?;
            Ok(rows.first().map_or(0, |row| value::from_sql(row.get(0))))
        })
        .await
    }

    /// The migrations that the schema lacks, by name, and the statements that [`migrate`](Self::migrate) would carry out.
    pub async fn missing_migrations(&self, call: &CallContext) -> Result<(Vec<String>, String), StoreError> {
        self.about_schema(call, async |client, target| {
            let (version, there) = migrate::find(client, target).await?;
            let changes = migrate::missing(&target.schema, version.found)?;
            let script = migrate::script(&target.schema, version.found, &changes, there);
            Ok((changes.iter().map(|change| change.name.to_owned()).collect(), script))
        })
        .await
    }

    /// Brings the schema up to date, and gives its roles their rights. Gives the names of the migrations that were carried out.
    pub async fn migrate(&self, call: &CallContext) -> Result<Vec<String>, StoreError> {
        self.about_schema(call, async |client, target| {
            let done = migrate::migrate(client, target).await?;
            Ok(done.into_iter().map(str::to_owned).collect())
        })
        .await
    }

    /// Tries something with the schema until it is done, or the timeout ends: on a connection outside the pool.
    async fn about_schema<T: Send + 'static>(
        &self,
        call: &CallContext,
        work: impl AsyncFn(&mut Client, &SchemaTarget) -> Result<T, StatementError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(call, async move |core, call| {
            loop {
                let worked = async {
                    let (mut client, connection) = core.pool.connect().await?;
                    let _driving = SeparateConnection(tokio::task::spawn_local(connection));
                    work(&mut client, &core.pool.target).await
                };
                match worked.await {
                    Ok(done) => return Ok(done),
                    Err(fault) => call.budget.retry_or_fail(fault).await?,
                }
            }
        })
        .await
    }

    /// Carries out a call on the thread of this handle.
    async fn ask<T: Send + 'static>(
        &self,
        call: &CallContext,
        work: impl AsyncFnOnce(&Rc<PostgresInner>, &mut Call<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let about = call.clone();
        let work = async move |core: &Rc<PostgresInner>| {
            core.start_upkeep();
            work(core, &mut core.call(&about, about.timeout_ms, 0)).await
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
    /// What of the maintenance fails through this handle, and how often it did; none: it is not known yet.
    maintained: maintenance::MaintenanceState,
    /// The URL, without its password.
    place: Arc<str>,
    /// For what the handle does without being asked.
    own: CallContext,
    closing: Closing,
    upkeep_started: Cell<bool>,
    upkeep: maintenance::UpkeepState,
    /// Under which number those who wait through this handle are known to be alive.
    party: Cell<Option<i64>>,
    sighting: Cell<Option<maintenance::ClockReading>>,
    /// The version of a schema that is newer than this program, once that was said; 0: none is.
    outdated_by: Cell<i32>,
    jobs: job::PostgresJobs,
    /// What this handle's callers contended for, since it was last added to the database's.
    contention: Arc<HandleContention>,
    /// Locked while that is added.
    adding_contention: tokio::sync::Mutex<()>,
}

impl PostgresInner {
    fn new(
        url: &PostgresUrl,
        clock: Arc<dyn Clock>,
        closing: Closing,
        hold_changes: Arc<HoldChanges>,
        contention: Arc<HandleContention>,
    ) -> Result<Self, StoreError> {
        Ok(PostgresInner {
            pool: Rc::new(Pool::new(url)?),
            listener: Rc::new(Listener::new(Arc::clone(&hold_changes))),
            hold_changes,
            clock,
            maintained: maintenance::MaintenanceState::default(),
            place: url.to_string().into(),
            own: CallContext::new(Namespace::default()),
            closing,
            upkeep_started: Cell::new(false),
            upkeep: maintenance::UpkeepState::default(),
            party: Cell::new(None),
            sighting: Cell::default(),
            outdated_by: Cell::new(0),
            jobs: job::PostgresJobs::new(url),
            contention,
            adding_contention: tokio::sync::Mutex::default(),
        })
    }

    /// Begins a call, which may take so long, on top of waiting in line.
    fn call<'a>(&'a self, about: &'a CallContext, timeout_ms: u64, wait_ms: u64) -> Call<'a> {
        let budget = CallBudget::new(&self.clock, &self.place, timeout_ms, wait_ms);
        Call { core: self, about, budget, lane: PoolLane::default() }
    }

    /// Begins a call of what the handle does without being asked.
    fn own_call(&self, timeout_ms: u64) -> Call<'_> {
        self.call(&self.own, timeout_ms, 0)
    }

    /// From the first call on, this handle takes its part in the maintenance.
    fn start_upkeep(self: &Rc<Self>) {
        if !self.upkeep_started.replace(true) {
            tokio::task::spawn_local(Rc::clone(self).keep_up());
            tokio::task::spawn_local(Rc::clone(self).sweep_leases());
            tokio::task::spawn_local(Rc::clone(self).keep_counting());
            tokio::task::spawn_local(Rc::clone(self).keep_adding_contention());
        }
    }

    fn unusable(&self, why: String) -> StoreError {
        StoreError::Unusable { store: self.place.to_string(), message: why }
    }

    fn schema(&self) -> &str {
        &self.pool.target.schema
    }

    /// A statement as it is written for the default schema, for the one that is meant.
    fn sql(&self, statement: &str) -> String {
        statement.replace("fencehold.", &format!("{}.", quoted(self.schema())))
    }

    /// Hears of a topic from now on.
    fn listen(&self, topic: &str) -> TopicListener {
        self.listener.listen(&self.pool, topic)
    }

    /// Something is held through this handle: hears from now on of what others do to it, where a listener wants to know.
    fn hear_of_holds(&self) {
        if self.hold_changes.has_listeners() {
            self.listener.start(&self.pool);
        }
    }

    /// A connection of this lane; or, where none can be made, one that is there for calls.
    async fn lend(&self, lane: PoolLane) -> Result<PooledConnection, StatementError> {
        match self.pool.lend(lane).await {
            Err(_) if lane != PoolLane::Calls => self.pool.lend(PoolLane::Calls).await,
            lent => lent,
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
                Err(self.unusable(migrate::too_new(self.schema(), version.found)))
            }
            _ => Ok(()),
        }
    }
}

/// A connection outside the pool. It ends with this.
struct SeparateConnection(tokio::task::JoinHandle<Result<(), tokio_postgres::Error>>);

impl Drop for SeparateConnection {
    fn drop(&mut self) {
        self.0.abort();
    }
}
