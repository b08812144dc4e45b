//! Where a promise is put to the test: one fresh store, and power over its time. The conformance suite and the races are
//! both played out here.

mod caller;
mod executor;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

pub use caller::TestCaller;
pub use executor::{block_on, drive};
use fencehold_contract::clock::{Clock, ManualClock};
use fencehold_contract::{CallContext, LeaseStore, StoreError};
use fencehold_core::Key;

/// One fresh store and power over its time.
pub trait TestStore: Send + Sync {
    /// The handle under test. After [`TestStore::restart`]: a new one.
    fn store(&self) -> Arc<dyn LeaseStore>;

    /// Another handle onto the same store, as another client has. May be the same.
    fn other(&self) -> Arc<dyn LeaseStore> {
        self.store()
    }

    /// What this arena can show. Cases that need more are reported as not applicable.
    fn test_capabilities(&self) -> Vec<TestCapability>;

    /// The ttl that the cases use: long enough that nothing runs out by itself while a case runs.
    fn ttl_ms(&self) -> u64 {
        30_000
    }

    /// How often a race is run. Less where every step is a request to a server.
    fn rounds(&self) -> usize {
        20
    }

    /// Lets store time pass. Only with [`TestCapability::MovesTime`].
    fn pass(&self, ms: u64);

    /// Makes the live lease on a key run out, however that store does it, and returns when the store's own rules take
    /// it for over. Other leases may run out with it.
    ///
    /// Where time can be moved, it moves to the lease's deadline.
    fn run_out(&self, call: &CallContext, key: &Key) {
        let store = self.store();
        let view = drive(self, store.get(call, key.clone())).expect("a store that can be read");
        if let Some(holder) = view.and_then(|view| view.holder) {
            self.pass(holder.remaining_ms);
        }
    }

    /// How long after its last grant or renewal a lease of this ttl is over for one who has watched it since.
    fn over_after_ms(&self, ttl_ms: u64) -> u64 {
        ttl_ms
    }

    /// How long after limits were set every handle goes by them.
    fn limits_count_after_ms(&self) -> u64 {
        0
    }

    /// Lets so much of the time pass for which `advance` has closed the store, however that store counts it. Only with
    /// [`TestCapability::Reopens`].
    fn open_again(&self, closed_for_ms: u64) {
        self.pass(closed_for_ms);
    }

    /// Sets the wall clock forward or back and leaves store time alone. Only with [`TestCapability::MovesWall`].
    fn shift_wall(&self, by_ms: i64) {
        panic!("this arena cannot set its wall clock by {by_ms} ms");
    }

    /// Closes every handle and opens the same data anew. Only with [`TestCapability::Restarts`].
    fn restart(&self) {
        panic!("this arena cannot restart its store");
    }

    /// Drives a future of this store to its end, on the calling thread. A store that needs a runtime does it there.
    fn drive(&self, future: Pin<Box<dyn Future<Output = ()> + Send + '_>>) {
        block_on(future);
    }
}

/// Something that an arena can show beyond the contract itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TestCapability {
    /// [`TestStore::pass`] works: store time can be moved forward.
    MovesTime,
    /// Store time stands still unless it is moved, so that times can be compared exactly.
    StandsStill,
    /// [`TestStore::shift_wall`] works.
    MovesWall,
    /// [`TestStore::restart`] works.
    Restarts,
    /// A long-free key's record is removed as store time passes.
    Collects,
    /// A caller that goes away is noticed at once, not only when its lease runs out.
    NoticesLeaving,
    /// Events can be read. Of the [`EVENTS_KEPT`](fencehold_core::limits::EVENTS_KEPT) that are kept each namespace has its share, and
    /// what is more than that is forgotten, at once or by the maintenance.
    TellsEvents,
    /// `advance` works.
    Advances,
    /// [`TestStore::open_again`] works.
    Reopens,
    /// The store has a clock of its own: a lease runs out by it, watched or not, that is noted without anybody asking,
    /// and all handles agree on when something happened.
    OwnClock,
    /// A claim of jobs that has had them is recognised when it is sent once more after all of them have ended.
    RemembersClaims,
    /// A holder is notified at once when another handle acts on its hold.
    TellsHolders,
}

impl TestCapability {
    /// Everything that an arena can show.
    pub const ALL: [TestCapability; 12] = [
        TestCapability::MovesTime,
        TestCapability::StandsStill,
        TestCapability::MovesWall,
        TestCapability::Restarts,
        TestCapability::Collects,
        TestCapability::NoticesLeaving,
        TestCapability::TellsEvents,
        TestCapability::Advances,
        TestCapability::Reopens,
        TestCapability::OwnClock,
        TestCapability::RemembersClaims,
        TestCapability::TellsHolders,
    ];

    /// What a store lacks that cannot show this.
    pub fn lacking(self) -> &'static str {
        match self {
            TestCapability::MovesTime => "its time cannot be moved",
            TestCapability::StandsStill => "its time does not stand still",
            TestCapability::MovesWall => "its wall clock cannot be set",
            TestCapability::Restarts => "it cannot be restarted",
            TestCapability::Collects => "it collects no keys",
            TestCapability::NoticesLeaving => "it does not notice that a caller has gone",
            TestCapability::TellsEvents => "it tells no events",
            TestCapability::Advances => "it cannot be advanced",
            TestCapability::Reopens => "the time for which an advance closes it cannot be moved",
            TestCapability::OwnClock => "it has no clock of its own",
            TestCapability::RemembersClaims => "it does not remember claims whose jobs have all ended",
            TestCapability::TellsHolders => "it does not tell holders of other handles",
        }
    }
}

/// Makes a fresh arena for every case.
pub trait TestStoreFactory: Sync {
    /// A fresh arena: an empty store that shares nothing with any other.
    fn test_store(&self) -> Arc<dyn TestStore>;
}

impl<F, A> TestStoreFactory for F
where
    F: Fn() -> A + Sync,
    A: TestStore + 'static,
{
    fn test_store(&self) -> Arc<dyn TestStore> {
        Arc::new(self())
    }
}

type Open = Box<dyn Fn(Arc<dyn Clock>) -> Result<Arc<dyn LeaseStore>, StoreError> + Send + Sync>;

/// The arena of stores that take a [`Clock`]: time is moved by hand.
pub struct ClockedTestStore {
    clock: ManualClock,
    open: Open,
    open_other: Option<Open>,
    handles: Mutex<Option<Handles>>,
    restarts: bool,
}

#[derive(Clone)]
struct Handles {
    store: Arc<dyn LeaseStore>,
    other: Arc<dyn LeaseStore>,
}

impl ClockedTestStore {
    /// An arena whose store is opened by this. What the store lies in (a directory) can live in the closure.
    pub fn new<S: LeaseStore + 'static>(
        open: impl Fn(Arc<dyn Clock>) -> Result<S, StoreError> + Send + Sync + 'static,
    ) -> Self {
        ClockedTestStore {
            clock: ManualClock::new(),
            open: boxed(open),
            open_other: None,
            handles: Mutex::new(None),
            restarts: false,
        }
    }

    /// The same with another way in for other clients, opened after the first.
    pub fn and_other<S: LeaseStore + 'static>(
        mut self,
        open: impl Fn(Arc<dyn Clock>) -> Result<S, StoreError> + Send + Sync + 'static,
    ) -> Self {
        self.open_other = Some(boxed(open));
        self
    }

    /// The same for a store whose data outlives its handles: opening again goes on from there.
    pub fn that_restarts(mut self) -> Self {
        self.restarts = true;
        self
    }

    fn handles(&self) -> Handles {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = handles.get_or_insert_with(|| {
            let clock = || Arc::new(self.clock.clone());
            let store = (self.open)(clock()).expect("a store that opens");
            let other = self
                .open_other
                .as_ref()
                .map(|open| open(clock()).expect("a second handle that opens"));
            Handles { other: other.unwrap_or_else(|| store.clone()), store }
        });
        handles.clone()
    }
}

fn boxed<S: LeaseStore + 'static>(
    open: impl Fn(Arc<dyn Clock>) -> Result<S, StoreError> + Send + Sync + 'static,
) -> Open {
    Box::new(move |clock| Ok(Arc::new(open(clock)?)))
}

impl TestStore for ClockedTestStore {
    fn store(&self) -> Arc<dyn LeaseStore> {
        self.handles().store
    }

    fn other(&self) -> Arc<dyn LeaseStore> {
        self.handles().other
    }

    fn test_capabilities(&self) -> Vec<TestCapability> {
        TestCapability::ALL
            .into_iter()
            .filter(|capability| *capability != TestCapability::Restarts || self.restarts)
            .collect()
    }

    fn pass(&self, ms: u64) {
        self.clock.advance(ms);
    }

    fn shift_wall(&self, by_ms: i64) {
        self.clock.set_wall(self.clock.now().wall_ms.saturating_add_signed(by_ms));
    }

    fn restart(&self) {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Handles { store, other }) = handles {
            block_on(async {
                other.close().await;
                store.close().await;
            });
        }
    }
}

impl fmt::Debug for ClockedTestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClockedTestStore")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
