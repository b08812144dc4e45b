//! `postgres://`: leases, jobs and fences in a database that people already run.
//!
//! The rules are functions in the database: an operation is one call and one round trip, and check and write are one
//! transaction. They answer as `fencehold-core` would, and are held against it by tests. What stands here is the way
//! there and back: connections (`pool`), the schema (`migrate`), waiting (`listen`), and what a lost answer means
//! (`fault`, `errand`).
//!
//! Deliberately absent: a coordinator of our own, and any clock but the database's.

mod acquire;
mod contract;
mod errand;
mod events;
mod fault;
mod fenced;
mod force;
mod hold;
mod job;
mod limits;
mod listen;
mod migrate;
mod password;
mod pool;
mod tls;
mod trust;
mod upkeep;
mod view;

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::url::quoted;
use fencehold_contract::{Call, PostgresUrl, StoreError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_postgres::Client;

use self::errand::Errand;
use self::fault::Fault;
use self::listen::{Ear, Listener};
use self::pool::{Lane, Lent, Pool};

const STORE: &str = "postgres:";
/// How long closing waits for those who are leaving their lines.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);
/// What an answer may take beyond its caller's patience, which the server keeps to while it waits for locks: one that is
/// nearly there says more than that none came.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// What `lock_timeout` takes.
const LOCK_MS_MAX: i64 = 2_147_483_647;

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    orders: mpsc::UnboundedSender<Order>,
    url: PostgresUrl,
    closing: watch::Sender<bool>,
    hold_changes: Arc<HoldChanges>,
    thread: Mutex<Option<JoinHandle<()>>>,
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
    /// A handle on the store that a URL names. The database is reached for when the first question comes.
    pub fn open(url: &PostgresUrl, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let unavailable = |error: std::io::Error| StoreError::Unavailable {
            why: format!("the thread of {url} could not be started: {error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(unavailable)?;
        let (orders, inbox) = mpsc::unbounded_channel();
        let (closing, told) = watch::channel(false);
        // Files are read and settings checked here, so that what is wrong is said at once.
        Pool::new(url)?;
        let place = url.clone();
        let hold_changes: Arc<HoldChanges> = Arc::default();
        let told_of = Arc::clone(&hold_changes);
        let thread = std::thread::Builder::new()
            .name("fencehold-postgres".to_owned())
            .spawn(move || {
                let Ok(core) = Core::new(&place, clock, told, told_of) else { return };
                tokio::task::LocalSet::new().block_on(&runtime, serve(Rc::new(core), inbox));
            })
            .map_err(unavailable)?;
        Ok(PostgresStore {
            orders,
            url: url.clone(),
            closing,
            hold_changes,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// How the schema stands, without changing it.
    pub async fn schema_version(&self, call: &Call) -> Result<SchemaVersion, StoreError> {
        self.ask(call, async |core, errand| {
            loop {
                match core.version().await {
                    Ok((version, _)) => {
                        let (found, usable) = (version.found, version.is_usable());
                        return Ok(SchemaVersion { found, known: migrate::newest(), usable });
                    }
                    Err(fault) => errand.bear(fault).await?,
                }
            }
        })
        .await
    }

    /// The migrations that the schema lacks, by name, and the statements that [`migrate`](Self::migrate) would carry out.
    pub async fn missing_migrations(&self, call: &Call) -> Result<(Vec<String>, String), StoreError> {
        self.ask(call, async |core, errand| {
            loop {
                match core.version().await {
                    Ok((version, there)) => {
                        let names = migrate::missing(version.found).map(|(_, name, _)| (*name).to_owned());
                        return Ok((names.collect(), migrate::script(&core.schema, version.found, there)));
                    }
                    Err(fault) => errand.bear(fault).await?,
                }
            }
        })
        .await
    }

    /// Proves that the database answers, and makes the schema where it is not there.
    pub(crate) async fn answer(&self, call: &Call) -> Result<(), StoreError> {
        self.ask(call, async |core, errand| {
            core.run(errand, Repeat::Safe, async |client| client.query_typed("SELECT 1", &[]).await.map(drop))
                .await
        })
        .await
    }

    /// Brings the schema up to date, and gives its roles their rights. Gives the names of the migrations that were carried out.
    pub async fn migrate(&self, call: &Call) -> Result<Vec<String>, StoreError> {
        self.ask(call, async |core, errand| {
            loop {
                match core.migrate().await {
                    Ok(done) => return Ok(done.into_iter().map(str::to_owned).collect()),
                    Err(fault) => errand.bear(fault).await?,
                }
            }
        })
        .await
    }

    /// Has the thread do something that is answered by one value.
    async fn ask<T: Send + 'static>(
        &self,
        call: &Call,
        work: impl AsyncFnOnce(&Rc<Core>, &mut Errand) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, told) = oneshot::channel();
        let patience_ms = call.patience_ms;
        // A closed handle drops the question, and with it the reply.
        let _ = self.orders.send(Box::new(move |core| {
            Box::pin(async move {
                let mut errand = Errand::new(&core.clock, &core.place, patience_ms, 0);
                let _ = reply.send(work(&core, &mut errand).await);
            })
        }));
        told.await.unwrap_or_else(|_| Err(closed()))
    }

    fn stop(&self) {
        self.closing.send_replace(true);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Something for the thread behind a handle to do.
type Order = Box<dyn FnOnce(Rc<Core>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

fn closed() -> StoreError {
    StoreError::Unavailable { why: "this store was closed".to_owned() }
}

/// Whether a statement may be sent again although it may have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// It names what it means by hold id and token, or only reads.
    Safe,
    /// It could strike somebody who came since.
    Never,
}

/// What the thread behind a handle works with.
struct Core {
    pool: Rc<Pool>,
    listener: Rc<Listener>,
    hold_changes: Arc<HoldChanges>,
    clock: Arc<dyn Clock>,
    schema: String,
    at: migrate::Place,
    /// What of the maintenance fails through this handle, and how often it did; none: it is not known yet.
    maintained: upkeep::Maintained,
    /// The URL, without its password.
    place: String,
    closing: watch::Receiver<bool>,
    /// Under which number those who wait through this handle are known to be alive.
    party: Cell<Option<i64>>,
    sighting: RefCell<Option<upkeep::Sighting>>,
    /// The version of a schema that is newer than this program, once that was said; 0: none is.
    outdated_by: Cell<i32>,
    jobs: job::Jobs,
}

impl Core {
    fn new(
        url: &PostgresUrl,
        clock: Arc<dyn Clock>,
        closing: watch::Receiver<bool>,
        hold_changes: Arc<HoldChanges>,
    ) -> Result<Self, StoreError> {
        Ok(Core {
            pool: Rc::new(Pool::new(url)?),
            listener: Rc::new(Listener::new(Arc::clone(&hold_changes))),
            hold_changes,
            clock,
            schema: url.schema.clone(),
            at: migrate::Place::new(url),
            maintained: upkeep::Maintained::default(),
            place: url.to_string(),
            closing,
            party: Cell::new(None),
            sighting: RefCell::default(),
            outdated_by: Cell::new(0),
            jobs: job::Jobs::new(url),
        })
    }

    /// A statement as it is written for the default schema, for the one that is meant.
    fn sql(&self, statement: &str) -> String {
        statement.replace("fencehold.", &format!("{}.", quoted(&self.schema)))
    }

    /// How long a statement may wait for locks: nearly all the time that its caller has, so that it can be told by whom
    /// they are held.
    fn lock_ms(errand: &Errand) -> i64 {
        i64::try_from(errand.left().as_millis() * 9 / 10)
            .unwrap_or(i64::MAX)
            .min(LOCK_MS_MAX)
    }

    /// Hears of a topic from now on.
    fn listen(&self, topic: &str) -> Ear {
        self.listener.listen(&self.pool, &self.schema, topic)
    }

    /// Something is held through this handle: hears from now on of what others do to it, where a listener wants to know.
    fn hear_of_holds(&self) {
        if self.hold_changes.has_listeners() {
            self.listener.start(&self.pool, &self.schema);
        }
    }

    /// A connection of this lane; or, where none can be made, one that is there for calls.
    async fn lend(&self, lane: Lane) -> Result<Lent, Fault> {
        match self.pool.lend(lane).await {
            Err(_) if lane != Lane::Calls => self.pool.lend(Lane::Calls).await,
            lent => lent,
        }
    }

    /// Sends something on a connection of its own, once.
    async fn send<T>(
        &self,
        errand: &Errand,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Fault> {
        let late = "it was not answered in time";
        let lending = tokio::time::timeout(errand.left(), self.lend(errand.lane)).await;
        let mut lent = lending.map_err(|_| Fault::Unreached(late.to_owned()))??;
        match tokio::time::timeout(errand.left() + ANSWER_WITHIN, work(&mut lent)).await {
            Ok(Ok(answer)) => {
                lent.give_back();
                Ok(answer)
            }
            Ok(Err(error)) => {
                // An error of the server leaves the connection as it was; but not one in the middle of a transaction.
                let fault = Fault::of(&error, &self.schema);
                if matches!(fault, Fault::Locked(_)) {
                    lent.give_back();
                }
                Err(fault)
            }
            Err(_) => Err(Fault::Unclear(late.to_owned())),
        }
    }

    /// Sends something until it is answered, or patience ends.
    async fn run<T>(
        &self,
        errand: &mut Errand,
        repeat: Repeat,
        work: impl AsyncFn(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        loop {
            match self.send(errand, &work).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => errand.bear_with(repeat, fault).await?,
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
                Err(StoreError::Unusable { place: self.place.clone(), why })
            }
            _ => Ok(()),
        }
    }

    async fn version(&self) -> Result<(migrate::Version, bool), Fault> {
        let (client, connection) = self.pool.connect().await?;
        let _driving = Driving(tokio::task::spawn_local(connection));
        migrate::find(&client, &self.at).await
    }

    async fn migrate(&self) -> Result<Vec<&'static str>, Fault> {
        let (mut client, connection) = self.pool.connect().await?;
        let _driving = Driving(tokio::task::spawn_local(connection));
        migrate::migrate(&mut client, &self.at).await
    }
}

/// A connection outside the pool. It ends with this.
struct Driving(tokio::task::JoinHandle<Result<(), tokio_postgres::Error>>);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Carries out orders, each in a task of its own, until the handle is closed.
async fn serve(core: Rc<Core>, mut inbox: mpsc::UnboundedReceiver<Order>) {
    let (under_way, mut all_done) = mpsc::channel::<()>(1);
    let mut closing = core.closing.clone();
    let mut upkeep = None;
    loop {
        let order = tokio::select! {
            order = inbox.recv() => order,
            _ = closing.wait_for(|closing| *closing) => None,
        };
        let Some(order) = order else { break };
        upkeep.get_or_insert_with(|| {
            let both =
                futures_util::future::join(Rc::clone(&core).keep_up(), Rc::clone(&core).keep_counting());
            tokio::task::spawn_local(both)
        });
        let (core, under_way) = (Rc::clone(&core), under_way.clone());
        tokio::task::spawn_local(async move {
            order(core).await;
            drop(under_way);
        });
    }
    drop((inbox, under_way));
    let _ = tokio::time::timeout(CLOSE_WITHIN, all_done.recv()).await;
    if let Some(upkeep) = upkeep {
        upkeep.abort();
    }
}
