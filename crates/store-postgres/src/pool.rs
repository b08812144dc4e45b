//! Connections: a few, lent to one request at a time.
//!
//! Renewals have connections of their own: whatever a process asks for besides, and however much of it, no renewal waits behind it.
//!
//! A connection goes back only when what was asked on it was answered. One whose request was given up is closed, so
//! that no call waits behind a statement that is not wanted any more.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::url::quoted;
use fencehold_contract::{PostgresTls, PostgresUrl, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::fault::StatementError;
use super::migrate::{self, SchemaTarget};
use super::password;
use super::statement::query_one;
use super::tls::{Encrypted, Tls};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How soon a machine that has vanished is noticed, together with the kernel's own tries.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// For renewals and signs of life. Two: one may wait for a lock.
const RENEWALS: usize = 2;
/// For renewals that one statement could not decide. They may wait for a fence.
const CHECKS: usize = 1;

/// What a connection is used for. Each use has its own connections, and waits for no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PoolLane {
    #[default]
    Calls,
    /// Renewals, and the signs of life of those in line.
    Renewals,
    /// Renewals that one statement could not decide.
    Checks,
}

/// The connections of one lane.
struct LaneConnections {
    idle: RefCell<Vec<Client>>,
    seats: Arc<Semaphore>,
}

impl LaneConnections {
    fn new(connections: usize) -> Self {
        LaneConnections { idle: RefCell::default(), seats: Arc::new(Semaphore::new(connections)) }
    }
}

/// How to connect, and the connections that are idle.
pub(super) struct Pool {
    config: Config,
    tls: Tls,
    pub(super) target: SchemaTarget,
    /// The schema as it was last seen; none: it was not used yet.
    pub(super) seen: Cell<Option<migrate::CheckedSchema>>,
    /// By lane.
    connections: [LaneConnections; 3],
}

impl Pool {
    pub(super) fn new(url: &PostgresUrl) -> Result<Self, StoreError> {
        let mut config = Config::new();
        config
            .dbname(&url.database)
            .application_name(url.application_name.as_deref().unwrap_or("fencehold"))
            .connect_timeout(url.connect_timeout.unwrap_or(CONNECT_WITHIN))
            .keepalives(url.keepalives)
            .keepalives_idle(url.keepalives_idle.unwrap_or(KEEPALIVE_IDLE))
            // After a failover the old primary may still answer: it would take nothing.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .ssl_mode(match url.tls {
                PostgresTls::Disable => SslMode::Disable,
                PostgresTls::Prefer => SslMode::Prefer,
                PostgresTls::Require | PostgresTls::VerifyFull => SslMode::Require,
            });
        if let Some(options) = &url.session_options {
            config.options(options);
        }
        let named = |variable: &str| std::env::var(variable).ok().filter(|name| !name.is_empty());
        let user = url.user.clone().or_else(|| named("PGUSER")).or_else(|| named("USER"));
        let user = user.unwrap_or_else(|| "postgres".to_owned());
        if let Some(password) = password::find(url, &user) {
            config.password(password);
        }
        config.user(user);
        for (host, port) in &url.hosts {
            config.host(host).port(*port);
        }
        Ok(Pool {
            config,
            tls: Tls::new(url)?,
            target: SchemaTarget::new(url),
            seen: Cell::new(None),
            connections: [url.connections, RENEWALS, CHECKS].map(LaneConnections::new),
        })
    }

    fn of(&self, lane: PoolLane) -> &LaneConnections {
        &self.connections[lane as usize]
    }

    /// A connection to a server that takes writes, with nothing looked at yet.
    pub(super) async fn connect(
        &self,
    ) -> Result<(Client, Connection<Socket, Encrypted<Socket>>), StatementError> {
        self.config
            .connect(self.tls.clone())
            .await
            .map_err(|error| StatementError::of_connecting(&error, &self.target.schema))
    }

    /// Lends a connection, made if none is idle. On a new one the schema is looked at, and made if it is not there.
    pub(super) async fn lend(self: &Rc<Self>, lane: PoolLane) -> Result<PooledConnection, StatementError> {
        let closed = |_| StatementError::Refused("this store was closed".to_owned());
        let seat = Arc::clone(&self.of(lane).seats).acquire_owned().await.map_err(closed)?;
        let idle = loop {
            match self.of(lane).idle.borrow_mut().pop() {
                Some(client) if client.is_closed() => {}
                other => break other,
            }
        };
        let client = match idle {
            Some(client) => client,
            // Boxed, for it is much larger than what else a call keeps.
            None => Box::pin(self.open()).await?,
        };
        Ok(PooledConnection { pool: Rc::clone(self), lane, client, _seat: seat })
    }

    /// A new connection, whose schema was looked at.
    async fn open(&self) -> Result<Client, StatementError> {
        let (mut client, connection) = self.connect().await?;
        tokio::task::spawn_local(async move {
            // A call on it learns of its end.
            let _ = connection.await;
        });
        let schema = &self.target.schema;
        let fault = |error| StatementError::of_connecting(&error, schema);
        let seen = migrate::ensure(&mut client, &self.target, self.seen.get().is_some()).await?;
        self.seen.set(Some(seen));
        read_committed(&client).await.map_err(fault)?;
        // Another server may have taken over since, and know less than the one before.
        let timeline = format!("SELECT {}.lease_timeline()", quoted(schema));
        client.query_typed(&timeline, &[]).await.map_err(fault)?;
        Ok(client)
    }
}

/// The calls lock and then look, and must see what the session that they waited for has done: they refuse to run under another isolation level.
/// Where that is the default, the session has one of its own. Set only there, for behind a pooler others may be given the session.
async fn read_committed(client: &Client) -> Result<(), tokio_postgres::Error> {
    let shows = "SELECT current_setting('default_transaction_isolation') = 'read committed'";
    let (usual,) = query_one(client, shows, &[]).await?;
    if usual {
        return Ok(());
    }
    let set = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED";
    client.batch_execute(set).await
}

/// A connection for one request.
pub(super) struct PooledConnection {
    pool: Rc<Pool>,
    lane: PoolLane,
    pub(super) client: Client,
    _seat: OwnedSemaphorePermit,
}

impl PooledConnection {
    /// What was asked on it was answered: others may use it.
    pub(super) fn give_back(self) {
        if !self.client.is_closed() {
            self.pool.of(self.lane).idle.borrow_mut().push(self.client);
        }
    }
}
