//! Where a promise is put to the test: one fresh store, and power over its time. The conformance suite and the races are
//! both played out here.

mod caller;

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

pub use caller::TestCaller;
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

/// One row for each capability: its name, and what a store lacks that cannot show it.
macro_rules! test_capabilities {
    ($($(#[$doc:meta])* $name:ident: $lacking:literal;)*) => {
        /// Something that an arena can show beyond the contract itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum TestCapability {
            $($(#[$doc])* $name,)*
        }

        impl TestCapability {
            /// Everything that an arena can show.
            pub const ALL: [TestCapability; 12] = [$(TestCapability::$name),*];

            /// What a store lacks that cannot show this.
            pub fn lacking(self) -> &'static str {
                match self {
                    $(TestCapability::$name => $lacking,)*
                }
            }
        }
    };
}

test_capabilities! {
    /// [`TestStore::pass`] works: store time can be moved forward.
    MovesTime: "its time cannot be moved";
    /// Store time stands still unless it is moved, so that times can be compared exactly.
    StandsStill: "its time does not stand still";
    /// [`TestStore::shift_wall`] works.
    MovesWall: "its wall clock cannot be set";
    /// [`TestStore::restart`] works.
    Restarts: "it cannot be restarted";
    /// A long-free key's record is removed as store time passes.
    Collects: "it collects no keys";
    /// A caller that goes away is noticed at once, not only when its lease runs out.
    NoticesLeaving: "it does not notice that a caller has gone";
    /// Events can be read. Of the [`EVENTS_KEPT`](fencehold_core::limits::EVENTS_KEPT) that are kept each namespace has its share, and
    /// what is more than that is forgotten, at once or by the maintenance.
    TellsEvents: "it tells no events";
    /// `advance` works.
    Advances: "it cannot be advanced";
    /// [`TestStore::open_again`] works.
    Reopens: "the time for which an advance closes it cannot be moved";
    /// The store has a clock of its own: a lease runs out by it, watched or not, that is noted without anybody asking,
    /// and all handles agree on when something happened.
    OwnClock: "it has no clock of its own";
    /// A claim of jobs that has had them is recognised when it is sent once more after all of them have ended.
    RemembersClaims: "it does not remember claims whose jobs have all ended";
    /// A holder is notified at once when another handle acts on its hold.
    TellsHolders: "it does not tell holders of other handles";
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
    /// First, so that they are dropped first: a handle that outlives the directory, which `open` keeps, makes its files anew.
    handles: Mutex<Option<Handles>>,
    clock: ManualClock,
    open: Open,
    open_other: Option<Open>,
    restarts: bool,
}

/// The handle under test, and another client's.
type Handles = (Arc<dyn LeaseStore>, Arc<dyn LeaseStore>);

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
            let other = self.open_other.as_ref();
            let other = other.map(|open| open(clock()).expect("a second handle that opens"));
            (Arc::clone(&store), other.unwrap_or(store))
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
        self.handles().0
    }

    fn other(&self) -> Arc<dyn LeaseStore> {
        self.handles().1
    }

    fn test_capabilities(&self) -> Vec<TestCapability> {
        let shown = |capability: &TestCapability| self.restarts || *capability != TestCapability::Restarts;
        TestCapability::ALL.into_iter().filter(shown).collect()
    }

    fn pass(&self, ms: u64) {
        self.clock.advance_ms(ms);
    }

    fn shift_wall(&self, by_ms: i64) {
        self.clock.set_wall(self.clock.now().wall_ms.saturating_add_signed(by_ms));
    }

    fn restart(&self) {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((store, other)) = handles {
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

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Between two looks at a state that must come. Nothing is ordered by it: without a pause a test that looks takes a processor away
/// from what it waits for.
#[expect(clippy::disallowed_methods, reason = "it looks again whatever the time is")]
pub fn pause() {
    thread::sleep(Duration::from_millis(1));
}

/// Drives a future to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(fencehold_contract::outside_runtime(future));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

/// Drives a future of an arena's store to its end, the way that arena does it.
///
/// # Panics
///
/// When the arena does not drive it to its end.
pub fn drive<T: Send>(test_store: &(impl TestStore + ?Sized), future: impl Future<Output = T> + Send) -> T {
    let mut answer = None;
    test_store.drive(Box::pin(async { answer = Some(future.await) }));
    answer.expect("an arena drives to the end")
}
