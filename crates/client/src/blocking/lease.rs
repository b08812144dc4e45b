//! Leases, elections and fenced files, blocking.

use std::path::Path;
use std::time::Duration;

use fencehold_contract::HoldRef;
use fencehold_core::{Key, Namespace, Owner, Task, Token};

use crate::election::LeaderView;
use crate::error::{Error, LostCause};
use crate::fence::file::{Appended, FencedFileOptions};
use crate::fence::{FenceError, KeyToken, Mark};
use crate::wake::block_on;
use crate::watch::{LeaseSnapshot, LeaseState, YieldRequest};

/// The terms on which a lease is requested. See [`crate::LeaseBuilder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is requested until `acquire` or `try_acquire` is called"]
pub struct LeaseBuilder {
    pub(super) inner: crate::LeaseBuilder,
}

impl LeaseBuilder {
    builder_steps! {
        /// What the lease serves.
        task(task: impl AsRef<str>);
        /// Who holds it. Default: the handle's owner.
        owner(owner: impl AsRef<str>);
        /// How long a grant or a renewal lasts. Default: 30 s.
        ttl(ttl: Duration);
        /// How long the lease may be held in all. Default: for ever.
        max_age(max_age: Duration);
        /// Its rank. Default: 0.
        priority(priority: i16);
        /// How long to stand in line. Default: for as long as it takes.
        wait(wait: Duration);
        /// Asks a holder of lower priority to yield within this time. See [`crate::LeaseBuilder::preempt_within`].
        preempt_within(within: Duration);
        /// The largest token that the caller has ever seen for the (first) key.
        seen_token(token: Token);
    }

    /// Takes the key if it is free now. See [`crate::LeaseBuilder::try_acquire`].
    pub fn try_acquire(self) -> Result<Lease, Error> {
        block_on(self.inner.try_acquire()).map(|inner| Lease { inner })
    }

    /// Takes the key, standing in line for it. See [`crate::LeaseBuilder::acquire`].
    pub fn acquire(self) -> Result<Lease, Error> {
        block_on(self.inner.acquire()).map(|inner| Lease { inner })
    }
}

/// A lease that is held, and renewed until it is released or dropped. See [`crate::Lease`].
#[derive(Debug)]
#[must_use = "a lease is given back as soon as its guard is dropped"]
pub struct Lease {
    pub(super) inner: crate::Lease,
}

impl Lease {
    getters! {
        /// Which key is held.
        key() -> &Key;
        /// The fencing token.
        token() -> Token;
        /// Who holds it.
        owner() -> &Owner;
        /// What it serves.
        task() -> Option<&Task>;
        /// What this holder shows at a fence. See [`crate::Lease::key_token`].
        key_token() -> KeyToken;
        /// Whether it can be relied on now. Work that goes on for long looks at this between its steps.
        state() -> LeaseState;
        /// When the lease ends at the latest unless it is renewed. See [`crate::Lease::deadline_ms`].
        deadline_ms() -> u64;
        /// When this guard takes the lease for lost unless it is renewed. See [`crate::Lease::lost_at_ms`].
        lost_at_ms() -> u64;
        /// How long it can still be relied on unless it is renewed. See [`crate::Lease::remaining`].
        remaining() -> Duration;
        /// The request of a contender that this holder yield, if there is one.
        yield_request() -> Option<YieldRequest>;
    }

    blocking_calls! {
        /// Blocks until a contender requests that this holder yield. `None`: the lease ended first.
        yield_requested() -> Option<YieldRequest>;
        /// Blocks until the lease is lost, and says why.
        lost() -> LostCause;
    }

    /// Follows the lease from another thread.
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch { inner: self.inner.watch() }
    }

    /// Does work under the lease. `Ok` means that the lease was still held when the work ended. Work on a thread cannot
    /// be stopped from outside: if it is long, let it look at [`state`](Lease::state).
    pub fn run<T>(&self, work: impl FnOnce(&Lease) -> T) -> Result<T, Error> {
        block_on(self.inner.run(async { work(self) }))
    }

    /// Gives the lease back. See [`crate::Lease::release`].
    pub fn release(self) -> Result<(), Error> {
        block_on(self.inner.release())
    }

    /// Ends the guard and leaves the lease to who has the hold. See [`crate::Lease::detach`].
    pub fn detach(self) -> Result<HoldRef, Error> {
        self.inner.detach()
    }

    /// The same guard for async code.
    pub fn into_async(self) -> crate::Lease {
        self.inner
    }
}

/// Follows one lease. See [`crate::LeaseWatch`].
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    pub(super) inner: crate::LeaseWatch,
}

impl LeaseWatch {
    /// How it stands now.
    pub fn snapshot(&self) -> LeaseSnapshot {
        self.inner.snapshot()
    }

    /// Blocks until there is something new. `None`: it is lost, and the last call said so. See [`crate::LeaseWatch::changed`].
    pub fn changed(&mut self) -> Option<LeaseSnapshot> {
        block_on(self.inner.changed())
    }

    /// Blocks until the lease is lost, and says why.
    pub fn lost(&self) -> LostCause {
        block_on(self.inner.lost())
    }
}

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
#[must_use = "no one stands until `campaign` is called"]
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

    /// Blocks until the leader changes: [`leader`](Observer::leader) says who it is then.
    pub fn changed(&mut self) -> Result<(), Error> {
        block_on(self.inner.changed())
    }
}

/// A file that lets no stale holder write. See [`crate::fence::FencedFile`].
///
/// ```
/// use fencehold::blocking::{FencedFile, Fencehold};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("report.txt");
/// let fh = Fencehold::connect("memory:")?;
/// let file = FencedFile::open(&path)?;
/// let lease = fh.lease("reports/daily").acquire()?;
/// file.raise(&lease)?;
/// file.replace(&lease, "the report\n")?;
/// lease.release()?;
/// # assert_eq!(std::fs::read_to_string(&path)?, "the report\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FencedFile {
    inner: crate::fence::FencedFile,
}

impl FencedFile {
    /// Opens the fence of a file. See [`crate::fence::FencedFile::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FenceError> {
        FencedFile::open_with(crate::fence::FencedFile::options(), path)
    }

    /// Opens with options.
    pub fn open_with(options: FencedFileOptions, path: impl AsRef<Path>) -> Result<Self, FenceError> {
        block_on(options.open(path)).map(FencedFile::from)
    }

    blocking_calls! {
        /// Raises the fence. See [`crate::fence::FencedFile::raise`].
        raise(pass: impl Into<KeyToken>) -> Result<(), FenceError>;
        /// Adds bytes to the end of the file, once. See [`crate::fence::FencedFile::append`].
        append(pass: impl Into<KeyToken>, idempotency_key: &str, bytes: impl Into<Vec<u8>>)
            -> Result<Appended, FenceError>;
        /// Puts another content in the place of the file. See [`crate::fence::FencedFile::replace`].
        replace(pass: impl Into<KeyToken>, content: impl Into<Vec<u8>>) -> Result<(), FenceError>;
        /// How high the fence stands for a key.
        mark(namespace: &Namespace, key: &Key) -> Result<Option<Mark>, FenceError>;
        /// Forgets a key. See [`crate::fence::FencedFile::forget`].
        forget(namespace: &Namespace, key: &Key) -> Result<(), FenceError>;
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.inner.path()
    }

    /// The same file for async code.
    pub fn as_async(&self) -> &crate::fence::FencedFile {
        &self.inner
    }
}

impl From<crate::fence::FencedFile> for FencedFile {
    fn from(inner: crate::fence::FencedFile) -> Self {
        FencedFile { inner }
    }
}
