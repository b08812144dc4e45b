//! Elections, blocking.

use std::time::Duration;

use crate::blocking::Lease;
use crate::election::LeaderView;
use crate::error::Error;
use crate::wake::block_on;

/// An election. See [`crate::Election`].
///
/// ```
/// use fencehold::blocking::Fencehold;
///
/// # fn main() -> Result<(), fencehold::Error> {
/// let fh = Fencehold::connect("memory:")?;
/// let election = fh.election("leader/scheduler");
/// let leader = election.campaign()?;
/// assert_eq!(election.observe()?.leader().map(|leader| leader.token), Some(leader.lease().token()));
/// leader.resign()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    pub(super) inner: crate::Election,
}

impl Election {
    builder_steps! {
        /// Who stands. Default: the handle's owner.
        owner(owner: impl AsRef<str>);
        /// What observers see beside the leader's name.
        task(task: impl AsRef<str>);
        /// How long the others wait when a leader dies. Default: 30 s.
        ttl(ttl: Duration);
        /// How long to campaign. Default: until elected.
        wait(wait: Duration);
        /// Rank among candidates. Default: 0.
        priority(priority: i16);
    }

    /// Stands for election, and blocks until elected.
    pub fn campaign(&self) -> Result<Leader, Error> {
        let leader = block_on(self.inner.campaign())?;
        Ok(Leader { lease: Lease { inner: leader.into_lease() } })
    }

    /// Who leads now, and the means to wait for a change.
    pub fn observe(&self) -> Result<Observer, Error> {
        block_on(self.inner.observe()).map(|inner| Observer { inner })
    }
}

/// The elected. See [`crate::Leader`].
#[derive(Debug)]
#[must_use = "a leader resigns as soon as it is dropped"]
pub struct Leader {
    lease: Lease,
}

impl Leader {
    /// The lease that it leads by.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Steps down, so that the next in line can lead at once.
    pub fn resign(self) -> Result<(), Error> {
        self.lease.release()
    }
}

impl std::ops::Deref for Leader {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

/// Sees who leads. See [`crate::Observer`].
#[derive(Clone, Debug)]
pub struct Observer {
    inner: crate::Observer,
}

impl Observer {
    /// Who leads, as of the last look.
    pub fn leader(&self) -> Option<&LeaderView> {
        self.inner.leader()
    }

    /// Blocks until the leader changes, and says who it is.
    pub fn changed(&mut self) -> Result<Option<&LeaderView>, Error> {
        block_on(self.inner.changed())
    }
}
