//! Electing a leader: the holder of the key leads.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencehold_contract::{HolderView, LeaseView, ListEventsRequest, StoreError};
use fencehold_core::{BadInput, Key, Owner, Task, Token};

use crate::connect::Fencehold;
use crate::error::Error;
use crate::guard::Lease;
use crate::lease::LeaseBuilder;
use crate::time::{First, first};

/// How long one question for events stays at the store.
const LISTEN_MS: u64 = 60_000;
/// How often to look at the key of a store that has no events.
const LOOK_EVERY_MS: u64 = 1_000;
/// How many events to take at a time. One that concerns the key is enough to look at it again.
const EVENTS: usize = 100;

/// An election. Candidates [`campaign`](Election::campaign) for a key and lead while they hold it; anybody can
/// [`observe`](Election::observe).
///
/// A leader may be stopped without knowing it: whatever it does should carry its [`token`](Lease::token), which is
/// larger for every later leader.
///
/// ```
/// use fencehold::Fencehold;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencehold::Error> {
/// let fh = Fencehold::connect("memory:").await?;
/// let election = fh.election("leader/scheduler").task("term-1");
///
/// let leader = election.campaign().await?;
/// let mut observer = election.observe().await?;
/// assert_eq!(observer.leader().map(|leader| leader.token), Some(leader.token()));
///
/// leader.resign().await?;
/// observer.changed().await?;
/// assert_eq!(observer.leader(), None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "no one stands until `campaign` or `lead` is awaited"]
pub struct Election {
    /// The candidacy.
    pub(crate) inner: LeaseBuilder,
    pub(crate) key: Result<Key, BadInput>,
}

impl Election {
    builder_steps! {
        /// Who stands. Default: the handle's owner.
        owner(owner: impl AsRef<str>);
        /// What observers see beside the leader's name: an address, a term.
        task(task: impl AsRef<str>);
        /// How long the others wait when a leader dies. Default: 30 s.
        ttl(ttl: Duration);
        /// How long to campaign. Default: until elected.
        wait(wait: Duration);
        /// Rank among candidates: a higher one is elected before a lower one, no matter who came first. Default: 0.
        priority(priority: i16);
    }

    /// Stands for election, and waits to be elected. Dropping the future withdraws.
    pub async fn campaign(&self) -> Result<Leader, Error> {
        self.inner.clone().acquire().await.map(|lease| Leader { lease })
    }

    /// Campaigns, and runs `work` while it leads. If it loses the leadership, the work is dropped at its next await, and it campaigns
    /// again. When `stop` is done, it drops the work and resigns: [`LeadershipEnd::Stopped`]. Work that ends by itself ends the leadership
    /// too: [`LeadershipEnd::Done`], with its output.
    ///
    /// A store that cannot be reached is no reason to give up: it campaigns until `stop` is done. `Err`: it can never lead, because of
    /// bad input, a missing right, a store that cannot be used, or a handle that was closed.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime, UNIX_EPOCH};
    /// use fencehold::{Fencehold, LeadershipEnd};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// let stop = tokio::time::sleep(Duration::from_millis(50)); // a signal, or the `cancelled()` of a `CancellationToken`
    /// let election = fh.election("leader/scheduler");
    /// let led = election.lead(stop, async |leader| {
    ///     println!("leading under token {}", leader.token());
    ///     std::future::pending::<()>().await // every write of the scheduler carries that token
    /// });
    /// assert_eq!(led.await?, LeadershipEnd::Stopped);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lead<T, F, Fut>(&self, stop: impl Future, mut work: F) -> Result<LeadershipEnd<T>, Error>
    where
        F: FnMut(Arc<Leader>) -> Fut,
        Fut: Future<Output = T>,
    {
        let mut stop = pin!(stop);
        let mut failures = 0;
        loop {
            let leader = match first(stop.as_mut(), self.campaign_after(failures)).await {
                First::Left(_) => return Ok(LeadershipEnd::Stopped),
                First::Right(Ok(leader)) => Arc::new(leader),
                First::Right(Err(error)) if error.is_retryable() => {
                    tracing::warn!(%error, "not elected; campaigning again");
                    failures = failures.saturating_add(1);
                    continue;
                }
                First::Right(Err(error)) => return Err(error),
            };
            failures = 0;
            let ended = match first(stop.as_mut(), leader.run(work(Arc::clone(&leader)))).await {
                First::Left(_) => LeadershipEnd::Stopped,
                First::Right(Ok(output)) => LeadershipEnd::Done(output),
                First::Right(Err(superseded)) => {
                    tracing::warn!(error = %superseded, "no longer the leader; campaigning again");
                    continue;
                }
            };
            let resigned = match Arc::try_unwrap(leader) {
                Ok(leader) => leader.resign().await,
                // Something that the work has started still has it: to that, the leadership is lost.
                Err(shared) => {
                    shared.lease.give_back();
                    Ok(())
                }
            };
            if let Err(error) = resigned {
                tracing::warn!(%error, "the leader could not resign: its lease expires");
            }
            return Ok(ended);
        }
    }

    /// Campaigns, after a pause if it failed before.
    async fn campaign_after(&self, failures: u32) -> Result<Leader, Error> {
        if failures > 0 {
            let connection = self.inner.fencehold.connection();
            let pause_ms = connection.retries.backoff_ms(failures);
            connection
                .timers
                .sleep_until(connection.now_ms().saturating_add(pause_ms))
                .await;
        }
        self.campaign().await
    }

    /// Who leads now, and the means to wait for a change.
    pub async fn observe(&self) -> Result<Observer, Error> {
        let fencehold = self.inner.fencehold.clone();
        let mut observer = Observer { fencehold, key: self.key.clone()?, leader: None, cursor: None };
        observer.look_afresh().await?;
        Ok(observer)
    }
}

/// The elected: a [`Lease`] on the election's key. Dropping it resigns in the background.
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

    /// The lease alone.
    pub fn into_lease(self) -> Lease {
        self.lease
    }

    /// Steps down, so that the next in line can lead at once.
    pub async fn resign(self) -> Result<(), Error> {
        self.lease.release().await
    }
}

impl Deref for Leader {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

/// How [`Election::lead`] came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it has the output of the work"]
pub enum LeadershipEnd<T> {
    /// `stop` was done, and it has resigned. Work that was under way was dropped.
    Stopped,
    /// The work has ended, with this output.
    Done(T),
}

impl<T> LeadershipEnd<T> {
    /// The output of the work, if that has ended.
    pub fn done(self) -> Option<T> {
        match self {
            LeadershipEnd::Stopped => None,
            LeadershipEnd::Done(output) => Some(output),
        }
    }
}

/// Who leads, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderView {
    /// Who.
    pub owner: Owner,
    /// What it says about itself.
    pub task: Option<Task>,
    /// The token that it leads under.
    pub token: Token,
    /// Since when.
    pub acquired_at: SystemTime,
}

/// Sees who leads, and waits for a change.
#[derive(Clone, Debug)]
pub struct Observer {
    fencehold: Fencehold,
    key: Key,
    leader: Option<LeaderView>,
    /// Where to read events from; `None`: this store has none.
    cursor: Option<u64>,
}

impl Observer {
    /// Who leads, as of the last look.
    pub fn leader(&self) -> Option<&LeaderView> {
        self.leader.as_ref()
    }

    /// Waits until the leader changes: [`leader`](Observer::leader) says who it is then. Changes that come faster than they
    /// are asked for are folded into one. After an error it can be called again.
    pub async fn changed(&mut self) -> Result<(), Error> {
        let before = self.leader.clone();
        while self.leader == before {
            self.wait_for_news().await?;
        }
        Ok(())
    }

    /// Waits until something happened to the key, and looks at it.
    async fn wait_for_news(&mut self) -> Result<(), Error> {
        let connection = self.fencehold.connection();
        let Some(after) = self.cursor else {
            let at_ms = connection.now_ms().saturating_add(LOOK_EVERY_MS);
            connection.timers.sleep_until(at_ms).await;
            return self.look().await;
        };
        let request = ListEventsRequest {
            cursor: Some(after),
            prefix: Some(self.key.as_str().to_owned()),
            task_prefix: None,
            limit: EVENTS,
            wait_ms: LISTEN_MS,
        };
        match connection.send(LISTEN_MS, |store, call| store.list_events(call, request)).await {
            Ok(page) => {
                if page.events.iter().any(|event| event.key == self.key) {
                    self.look().await?;
                }
                // Only now: after an error in the look the same events are read again.
                self.cursor = Some(page.next_cursor);
                Ok(())
            }
            // Events were missed, or are numbered anew: the key itself tells all that matters.
            Err(StoreError::CursorTooOld { .. } | StoreError::BadInput(_)) => self.look_afresh().await,
            Err(StoreError::Unsupported { .. }) => {
                self.cursor = None;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes where the story stands, and looks. In this order: what happens between the two is seen twice, not missed.
    async fn look_afresh(&mut self) -> Result<(), Error> {
        self.cursor = match self.fencehold.connection().send(0, |store, call| store.status(call)).await {
            Ok(status) => Some(status.newest_event_seq),
            Err(StoreError::Unsupported { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        self.look().await
    }

    async fn look(&mut self) -> Result<(), Error> {
        let key = self.key.clone();
        let view = self.fencehold.connection().send(0, |store, call| store.get(call, key)).await?;
        self.leader = view.and_then(|LeaseView { token, holder, .. }| {
            let HolderView { owner, task, acquired_at_ms, .. } = holder?;
            let acquired_at = UNIX_EPOCH + Duration::from_millis(acquired_at_ms);
            Some(LeaderView { owner, task, token, acquired_at })
        });
        Ok(())
    }
}
