//! A store for the tests of whole applications: in memory, with a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::clock::{Clock, ManualClock};
use fencehold_engine::MemoryStore;

use crate::connect::{Fencehold, FenceholdBuilder};
use crate::error::Error;
use crate::time::ms;

/// A store in memory whose time stands still until the test moves it. Hand [`connect`](ManualClockStore::connect) to the application in place of
/// [`Fencehold::connect`]: nothing else of it changes.
///
/// ```
/// use std::time::Duration;
/// use fencehold::testing;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencehold::Error> {
/// let store = testing::store()?;
/// let (ours, theirs) = (store.connect().await?, store.connect().await?);
///
/// let lease = ours.lease("reports/daily").ttl(Duration::from_secs(30)).acquire().await?;
/// assert!(theirs.lease("reports/daily").try_acquire().await.is_err());
///
/// store.advance(Duration::from_secs(31)); // as if the holder had stalled for so long
/// lease.lost().await;
/// let next = theirs.lease("reports/daily").try_acquire().await?;
/// assert!(next.token() > lease.token());
/// # Ok(())
/// # }
/// ```
pub fn store() -> Result<ManualClockStore, Error> {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::open(Arc::new(clock.clone()))?);
    Ok(ManualClockStore { store, clock })
}

/// See [`store`].
#[derive(Clone, Debug)]
pub struct ManualClockStore {
    store: Arc<MemoryStore>,
    clock: ManualClock,
}

impl ManualClockStore {
    /// A handle on the store, as another process would have it.
    pub async fn connect(&self) -> Result<Fencehold, Error> {
        self.builder().connect().await
    }

    /// Likewise, to set the namespace, the owner or a policy first.
    pub fn builder(&self) -> FenceholdBuilder {
        let (store, clock) = (Arc::clone(&self.store), Arc::new(self.clock.clone()));
        Fencehold::builder().store(store).clock(clock as Arc<dyn Clock>)
    }

    /// Moves time on, for the store and for every handle at once.
    ///
    /// Nothing runs in the moved time, so this is also what a stall of the whole machine looks like: a lease or a claim whose ttl is shorter
    /// is lost. To have them renewed, move on by less than a third of the ttl at a time.
    pub fn advance(&self, by: Duration) {
        self.clock.advance_ms(ms(by));
    }

    /// The clock, for whatever else of the application takes one.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }
}
