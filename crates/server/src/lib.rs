//! Fencehold's server: a store of leases and jobs behind HTTP.
//!
//! Nouns: a [`Server`] is a store with a door; every request becomes an operation of `fencehold_contract::http`, asked by a
//! [`Caller`](access::Caller) in one namespace. Handlers parse nothing and decide nothing: they call the store and hand
//! back what it says.
//!
//! Deliberately absent: rules (the core's) and state of its own. A server can be killed at any moment; a caller that asks again,
//! here or at another server on the same store, gets the same answer.

#![allow(
    clippy::result_large_err,
    reason = "a problem is made once a request at most, and is its whole answer"
)]

pub mod access;
pub mod audit;
pub mod config;
mod dashboard;
pub mod event_log;
mod http;
pub mod limit;
mod listen;
mod observe;
mod shutdown;
pub mod systemd;
pub mod tls;
mod watch;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use fencehold_contract::clock::Clock;
use fencehold_contract::{LeaseStore, StoreError};
use fencehold_core::Namespace;

use crate::access::Access;
use crate::event_log::EventLogOptions;
use crate::limit::{Admission, ServerLimits};
use crate::observe::{Metrics, Tracer};
use crate::shutdown::Shutdown;
use crate::tls::Tls;
use crate::watch::{Feeds, HoldChangeFeeds};

pub use crate::listen::Listeners;
pub use crate::observe::Receiver;

/// Locks, also after a thread has panicked: what these locks guard is whole between two statements.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Random bits, for ids that no caller made.
#[expect(clippy::disallowed_methods, reason = "an id of a caller that made none itself is made here")]
pub(crate) fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bits = [0; N];
    let none = |error| StoreError::Unavailable { message: format!("no randomness can be had: {error}") };
    getrandom::fill(&mut bits).map_err(none)?;
    Ok(bits)
}

/// A store with a door.
#[derive(Clone)]
pub struct Server(Arc<ServerInner>);

pub(crate) struct ServerInner {
    pub(crate) store: Arc<dyn LeaseStore>,
    /// For the ids of jobs that come without one. What is kept is dated by the store.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) access: Access,
    pub(crate) shutdown: Shutdown,
    /// Namespaces that were asked for, for the metrics.
    pub(crate) seen: Mutex<BTreeSet<Namespace>>,
    pub(crate) gate: Admission,
    pub(crate) feeds: Feeds,
    pub(crate) hold_changes: HoldChangeFeeds,
    pub(crate) metrics: Metrics,
    pub(crate) tracer: Tracer,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) grace: Duration,
    pub(crate) batch_grace: Duration,
    pub(crate) hosts: Vec<String>,
    pub(crate) refusals: access::RefusalLog,
    pub(crate) readiness: http::Readiness,
    pub(crate) cancelled: observe::Cancelled,
    pub(crate) dashboard: dashboard::Dashboard,
}

/// What a server is like, beyond its store and who may use it.
#[derive(Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// How much of everything.
    pub limits: ServerLimits,
    /// Its certificate; `None`: nothing is encrypted.
    pub tls: Option<Arc<Tls>>,
    /// How long requests under way may take to end when it stops.
    pub grace: Duration,
    /// How much longer than the first response took those to the other operations of a batch may take, on top of as long again.
    pub batch_grace: Duration,
    /// Where spans go; `None`: none are made.
    pub traces: Option<Receiver>,
    /// Names under which a server that asks for no access token may be reached, besides addresses and `localhost`.
    pub allowed_hosts: Vec<String>,
    /// Where events are logged; `None`: nowhere. [`event_log::EventLog::open`] opens it.
    pub event_log: Option<EventLogOptions>,
    /// Whether it has a dashboard for browsers.
    pub dashboard: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            limits: ServerLimits::default(),
            tls: None,
            grace: Duration::from_secs(10),
            batch_grace: Duration::from_millis(50),
            traces: None,
            allowed_hosts: Vec::new(),
            event_log: None,
            dashboard: true,
        }
    }
}

impl Server {
    /// Puts a store behind a door. The store stays open when the server stops.
    pub fn new(store: Arc<dyn LeaseStore>, clock: Arc<dyn Clock>, access: Access) -> Self {
        Server::with_options(store, clock, access, ServerOptions::default())
    }

    /// Puts a store behind a door of this make. Must be called on a runtime if spans are to be sent.
    pub fn with_options(
        store: Arc<dyn LeaseStore>,
        clock: Arc<dyn Clock>,
        access: Access,
        options: ServerOptions,
    ) -> Self {
        Server(Arc::new(ServerInner {
            store,
            clock,
            access,
            shutdown: Shutdown::default(),
            seen: Mutex::default(),
            gate: Admission::new(options.limits),
            feeds: Feeds::default(),
            hold_changes: HoldChangeFeeds::default(),
            metrics: Metrics::default(),
            tracer: options.traces.map(Tracer::start).unwrap_or_default(),
            tls: options.tls,
            grace: options.grace,
            batch_grace: options.batch_grace,
            hosts: options.allowed_hosts,
            refusals: access::RefusalLog::default(),
            readiness: http::Readiness::default(),
            cancelled: observe::Cancelled::default(),
            dashboard: dashboard::Dashboard::new(options.dashboard),
        }))
    }

    /// All that the server answers, for programs with their own way of serving it.
    pub fn router(&self) -> Router {
        http::router(&self.0)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("store", &self.0.store).finish_non_exhaustive()
    }
}
