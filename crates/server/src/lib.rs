//! Fencehold's server: a store of leases and jobs behind HTTP.
//!
//! Nouns: a [`Server`] is a store with a door; every request becomes an operation of `fencehold-api`, asked by a
//! [`Caller`](access::Caller) in one namespace. Handlers parse nothing and decide nothing: they call the store and hand
//! back what it says.
//!
//! Deliberately absent: rules (the core's) and state of its own. A server can be killed at any moment; whoever asks again,
//! here or at another server on the same store, gets the same answer.

#![allow(
    clippy::result_large_err,
    reason = "a problem is made once a request at most, and is its whole answer"
)]

pub mod access;
mod http;
mod listen;
mod stopping;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use fencehold_store::LeaseStore;
use fencehold_store::clock::Clock;

use crate::access::Access;
use crate::stopping::Stopping;

/// A store with a door.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn LeaseStore>,
    /// For the ids of jobs that come without one. What is kept is dated by the store.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) access: Access,
    pub(crate) stopping: Stopping,
}

impl Server {
    /// Puts a store behind a door. The store stays open when the server stops.
    pub fn new(store: Arc<dyn LeaseStore>, clock: Arc<dyn Clock>, access: Access) -> Self {
        Server(Arc::new(Inner { store, clock, access, stopping: Stopping::default() }))
    }

    /// All that the server answers, for whoever brings their own way of serving it.
    pub fn router(&self) -> Router {
        http::router(&self.0)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("store", &self.0.store).finish_non_exhaustive()
    }
}
