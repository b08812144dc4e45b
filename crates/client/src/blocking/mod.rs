//! The same verbs for code without an executor. Every call blocks its thread; renewal goes on beside it.
//!
//! Do not call these from within an async task: they would block its executor's thread.
//!
//! ```
//! use fencehold::blocking::Fencehold;
//!
//! # fn main() -> Result<(), fencehold::Error> {
//! let fh = Fencehold::connect("memory:")?;
//! let lease = fh.lease("reports/daily").task("run-42").acquire()?;
//! let report = lease.run(|lease| format!("written under token {}", lease.token()))?;
//! lease.release()?;
//! # assert!(report.ends_with('1'));
//! # Ok(())
//! # }
//! ```

mod job;
mod lease;
mod queue;

use std::sync::Arc;

pub use job::{Job, OnceEffect, RunningWorker, Worker};
pub use lease::{Election, FencedFile, Leader, Lease, LeaseBuilder, LeaseWatch, Observer};
pub use queue::{JobBuilder, JobHandle, JobQueue, Jobs, Operations};

use crate::connect::FenceholdBuilder;
use crate::error::Error;
use crate::store::{CallContext, LeaseStore};
use crate::ttl_advice::TtlAdvice;
use crate::wake::block_on;

/// Blocks until a future is done: for what has no blocking twin.
///
/// ```
/// use fencehold::blocking::{self, Fencehold};
///
/// # fn main() -> Result<(), fencehold::Error> {
/// let fh = Fencehold::connect("memory:")?;
/// let status = blocking::wait(fh.store().status(&fh.call()))?;
/// assert_eq!(status.held_count, 0);
/// # Ok(())
/// # }
/// ```
pub fn wait<F: Future>(future: F) -> F::Output {
    block_on(future)
}

/// A handle on a store of leases, for code without an executor. See [`crate::Fencehold`].
#[derive(Clone, Debug)]
pub struct Fencehold {
    inner: crate::Fencehold,
}

impl Fencehold {
    /// Connects to the store that a URL names. See [`crate::Fencehold::connect`].
    pub fn connect(url: &str) -> Result<Self, Error> {
        Fencehold::connect_with(crate::Fencehold::builder().url(url))
    }

    /// Connects with options.
    ///
    /// ```
    /// use fencehold::blocking::Fencehold;
    /// use fencehold::FenceholdBuilder;
    ///
    /// # fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect_with(FenceholdBuilder::default().url("memory:").owner("worker-7"))?;
    /// assert_eq!(fh.as_async().owner().as_str(), "worker-7");
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_with(options: FenceholdBuilder) -> Result<Self, Error> {
        block_on(options.connect()).map(Fencehold::from)
    }

    /// Asks for a lease on one key. See [`crate::Fencehold::lease`].
    pub fn lease(&self, key: impl AsRef<str>) -> LeaseBuilder {
        LeaseBuilder { inner: self.inner.lease(key) }
    }

    /// Asks for a lease on any one of these keys. See [`crate::Fencehold::lease_any_of`].
    pub fn lease_any_of<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = K>) -> LeaseBuilder {
        LeaseBuilder { inner: self.inner.lease_any_of(keys) }
    }

    /// An election: the holder of this key leads. See [`crate::Fencehold::election`].
    pub fn election(&self, key: impl AsRef<str>) -> Election {
        Election { inner: self.inner.election(key) }
    }

    /// A queue of jobs. See [`crate::Fencehold::queue`].
    pub fn queue(&self, name: impl AsRef<str>) -> JobQueue {
        JobQueue { inner: self.inner.queue(name) }
    }

    /// The jobs of all queues. See [`crate::Fencehold::jobs`].
    pub fn jobs(&self) -> Jobs {
        Jobs { inner: self.inner.jobs() }
    }

    /// Operations of request handlers. See [`crate::Fencehold::operations`].
    pub fn operations(&self) -> Operations {
        Operations { inner: self.inner.operations() }
    }

    /// A worker: takes jobs out of queues and has handlers run them. See [`crate::Fencehold::worker`].
    pub fn worker(&self) -> Worker {
        Worker { inner: self.inner.worker() }
    }

    getters! {
        /// What ttl would suit. See [`crate::Fencehold::ttl_advice`].
        ttl_advice(key_or_prefix: &str) -> Option<TtlAdvice>;
        /// The store. See [`crate::Fencehold::store`]; [`wait`] drives its futures.
        store() -> &Arc<dyn LeaseStore>;
        /// A call in this handle's namespace, with its timeout.
        call() -> CallContext;
    }

    /// Gives everything back and ends. See [`crate::Fencehold::close`].
    pub fn close(&self) {
        block_on(self.inner.close());
    }

    /// The same handle for async code.
    pub fn as_async(&self) -> &crate::Fencehold {
        &self.inner
    }
}

impl From<crate::Fencehold> for Fencehold {
    fn from(inner: crate::Fencehold) -> Self {
        Fencehold { inner }
    }
}
