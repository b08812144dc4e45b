//! Following a lease from beside it: its state, every new deadline, and requests to yield.

use std::sync::Arc;

use fencehold_core::{Key, Owner, Task, Token};

use crate::error::LostCause;
use crate::holding::Holding;

/// Whether a lease can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseState {
    /// It is held, and renewals come through.
    Held,
    /// It is held, but the last renewal failed: begin no new work. It may still recover.
    AtRisk,
    /// It is over: stop. It stays so.
    Lost,
}

/// How a lease stands at one moment. Times are in milliseconds on the boot-time clock
/// ([`Fencehold::clock`](crate::Fencehold::clock)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseSnapshot {
    /// Whether it can be relied on.
    pub state: LeaseState,
    /// When it ends at the latest unless it is renewed. The store keeps it for the holder at least until then, unless
    /// someone revokes it.
    pub deadline_ms: u64,
    /// When its holder takes it for lost unless it is renewed: at nine tenths of the term.
    pub lost_at_ms: u64,
    /// The request of a contender that the holder yield.
    pub yield_request: Option<YieldRequest>,
    /// Why it is lost, if it is.
    pub lost: Option<LostCause>,
}

/// A contender of higher priority requests that the holder yield. Finish what can be finished by then, save what must be
/// saved, and release. The lease is not renewed beyond the deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct YieldRequest {
    /// Who asks.
    pub contender: Owner,
    /// What for.
    pub task: Option<Task>,
    /// The contender's priority.
    pub priority: i16,
    /// By when, in milliseconds on the boot-time clock.
    pub deadline_ms: u64,
}

/// Follows one lease. It keeps nothing alive: a lease whose guard is gone is lost to its watchers too.
///
/// ```
/// use fencehold::{Fencehold, LeaseState};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencehold::Error> {
/// let fh = Fencehold::connect("memory:").await?;
/// let lease = fh.lease("reports/daily").acquire().await?;
///
/// let mut watch = lease.watch();
/// let follower = tokio::spawn(async move {
///     let mut last = None;
///     while let Some(now) = watch.changed().await {
///         last = Some(now.state); // and notify what must be gone in time: the deadline is `now.deadline_ms`
///     }
///     last
/// });
/// lease.release().await?;
/// assert_eq!(follower.await.expect("the follower"), Some(LeaseState::Lost));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    key: Key,
    holding: Arc<Holding>,
    seen: u64,
    /// That it is lost was seen.
    ended: bool,
}

impl LeaseWatch {
    pub(crate) fn new(key: Key, holding: Arc<Holding>) -> Self {
        LeaseWatch { key, holding, seen: 0, ended: false }
    }

    /// Which key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Its fencing token.
    pub fn token(&self) -> Token {
        self.holding.granted.token
    }

    /// How it stands now.
    pub fn snapshot(&self) -> LeaseSnapshot {
        self.holding.look()
    }

    /// Whether it can be relied on now.
    pub fn state(&self) -> LeaseState {
        self.snapshot().state
    }

    /// Waits for something new: a renewal's new deadline, another state, a request to yield. The first call answers at once,
    /// with how it stands; changes that come faster than they are asked for are folded into one. The last says that the
    /// lease is lost; after it there is nothing new, which is `None`.
    pub async fn changed(&mut self) -> Option<LeaseSnapshot> {
        if self.ended {
            return None;
        }
        let (version, snapshot) = self.holding.changed(self.seen).await;
        self.seen = version;
        self.ended = snapshot.state == LeaseState::Lost;
        Some(snapshot)
    }

    /// Waits until the lease is lost, and says why. Can be awaited many times.
    pub fn lost(&self) -> impl Future<Output = LostCause> + Send + use<> {
        let holding = Arc::clone(&self.holding);
        async move { holding.lost().await }
    }
}
