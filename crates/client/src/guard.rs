//! The guard of a lease.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fencehold_contract::{HoldRef, StoreError};
use fencehold_core::{Key, Owner, Task, Token};
use tracing::Instrument;

use crate::error::{Error, LostCause};
use crate::fence::KeyToken;
use crate::holding::Holding;
use crate::renewal::RenewalHandle;
use crate::time::{First, first};
use crate::wake::lock;
use crate::watch::{LeaseState, LeaseWatch, YieldRequest};

/// A lease that is held, and renewed until it is released or dropped.
///
/// Renewal runs on a thread of its own, so a blocked executor loses no lease. What can go wrong shows in three
/// steps: when a renewal fails the lease is [`AtRisk`](LeaseState::AtRisk), and begins no new work; when it recovers it
/// is [`Held`](LeaseState::Held) again; and when it does not, it is [`Lost`](LeaseState::Lost) at nine tenths of the way to its
/// deadline, before the store may give the key to anybody else. A store that says that the lease is over, because it
/// was revoked, is believed at once.
///
/// Whatever the lease protects should check its [`token`](Lease::token): a holder that is stopped for longer than its
/// lease lasts cannot know it until it wakes up.
///
/// ```
/// use std::time::Duration;
/// use fencehold::{Fencehold, LeaseState};
///
/// async fn build_report(token: fencehold::Token) -> String {
///     format!("written under token {token}")
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencehold::Error> {
/// let fh = Fencehold::connect("memory:").await?;
/// let lease = fh.lease("reports/daily").task("run-42").ttl(Duration::from_secs(30)).acquire().await?;
/// let report = lease.run(build_report(lease.token())).await?; // stops the future if the lease is lost
/// assert_eq!(lease.state(), LeaseState::Held);
/// lease.release().await?;
/// # assert!(report.ends_with('1'));
/// # Ok(())
/// # }
/// ```
///
/// A guard that is not kept gives its lease back at once, and the compiler warns of it:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # async fn example(fh: fencehold::Fencehold) -> Result<(), fencehold::Error> {
/// fh.lease("reports/daily").acquire().await?; // the lease is over before the next line
/// # Ok(())
/// # }
/// ```
///
/// Dropping the guard gives the lease back in the background; only [`release`](Lease::release) tells whether that
/// worked. A process that returns from `main` or calls `exit` right after the drop waits for that, for a second at most. A
/// guard that is alive when the process ends, or a process that is killed, leaves the lease to run out.
#[must_use = "a lease is given back as soon as its guard is dropped"]
pub struct Lease {
    pub(crate) hold: HoldRef,
    pub(crate) holding: Arc<Holding>,
    pub(crate) handle: Arc<RenewalHandle>,
    /// Nothing is left to give back.
    pub(crate) done: bool,
}

impl Lease {
    /// Which key is held; of several that were asked for, the one that was granted.
    pub fn key(&self) -> &Key {
        &self.hold.key
    }

    /// The fencing token: larger than every token that this key was ever held under before.
    pub fn token(&self) -> Token {
        self.holding.granted.token
    }

    /// Who holds it.
    pub fn owner(&self) -> &Owner {
        &self.holding.granted.owner
    }

    /// What it serves.
    pub fn task(&self) -> Option<&Task> {
        self.holding.granted.task.as_ref()
    }

    /// What this holder shows at a [fence](crate::fence): namespace, key, token and owner.
    pub fn key_token(&self) -> KeyToken {
        let namespace = self.handle.connection.namespace.clone();
        KeyToken::new(self.key().clone(), self.token())
            .in_namespace(namespace)
            .with_owner(self.owner().clone())
            .with_store(&self.handle)
    }

    /// Whether it can be relied on now. Judged by the clock at this moment.
    pub fn state(&self) -> LeaseState {
        self.holding.look().state
    }

    /// When the lease ends at the latest unless it is renewed, in milliseconds on the boot-time clock
    /// ([`Fencehold::clock`](crate::Fencehold::clock)). Every renewal moves it; [`watch`](Lease::watch) follows.
    pub fn deadline_ms(&self) -> u64 {
        self.holding.look().deadline_ms
    }

    /// When this guard takes the lease for lost unless it is renewed: nine tenths of the way to the deadline.
    pub fn lost_at_ms(&self) -> u64 {
        self.holding.look().lost_at_ms
    }

    /// How long it can still be relied on unless it is renewed: until [`lost_at_ms`](Lease::lost_at_ms). Zero: it is lost.
    pub fn remaining(&self) -> Duration {
        self.holding.remaining()
    }

    /// The request of a contender that this holder yield, if there is one. Learnt with each renewal; withdrawn when the
    /// contender leaves.
    pub fn yield_request(&self) -> Option<YieldRequest> {
        self.holding.look().yield_request
    }

    /// Waits until a contender requests that this holder yield. `None`: the lease ended first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fencehold::Fencehold;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// let low = fh.lease("gpu/3").ttl(Duration::from_millis(1_500)).acquire().await?;
    ///
    /// let urgent = fh.lease("gpu/3").owner("urgent").priority(5);
    /// let urgent = tokio::spawn(async move { urgent.preempt_within(Duration::from_secs(10)).acquire().await });
    ///
    /// let request = low.yield_requested().await.expect("still held");
    /// assert_eq!(request.contender.as_str(), "urgent");
    /// low.release().await?;
    /// let urgent = urgent.await.expect("the contender")?;
    /// # urgent.release().await
    /// # }
    /// ```
    pub fn yield_requested(&self) -> impl Future<Output = Option<YieldRequest>> + Send + use<> {
        let holding = Arc::clone(&self.holding);
        async move { holding.yield_requested().await }
    }

    /// Waits until the lease is lost, and says why. It does not keep the lease, and can be awaited many times, also
    /// beside the guard.
    ///
    /// If someone ended it, the store tells who and why in the same answer.
    pub fn lost(&self) -> impl Future<Output = LostCause> + Send + use<> {
        let holding = Arc::clone(&self.holding);
        async move { holding.lost().await }
    }

    /// Follows the lease from beside it: every new deadline, every change of state.
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch::new(self.hold.key.clone(), Arc::clone(&self.holding))
    }

    /// Runs a future under the lease. If the lease is lost, the future is dropped, at once, and the error says why.
    /// `Ok` means that the lease was still held when the work ended.
    ///
    /// A future that blocks its thread cannot be dropped while it does; for such work watch [`state`](Lease::state).
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        if let Some(output) = self.unless_lost(work).instrument(self.holding.span.clone()).await {
            return Ok(output);
        }
        Err(self.holding.error(self.holding.lost().await))
    }

    /// The work is dropped when this returns.
    async fn unless_lost<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let mut lost = pin!(self.holding.lost());
        std::future::poll_fn(move |context| {
            // Looked at before and after the work goes on: time may pass in it.
            self.holding.settle();
            if lost.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            let Poll::Ready(output) = work.as_mut().poll(context) else { return Poll::Pending };
            Poll::Ready((self.state() != LeaseState::Lost).then_some(output))
        })
        .await
    }

    /// Gives the lease back. An error tells that it did not last until now, or that the store could not be reached: then
    /// it is tried on in the background, and ends by itself at the latest.
    pub async fn release(mut self) -> Result<(), Error> {
        let span = tracing::info_span!("release", key = %self.key(), token = self.token().get(), owner = %self.owner());
        self.release_now().instrument(span).await
    }

    /// Ends the guard and leaves the lease: it is renewed no more, and is not released. It ends after its ttl, unless a
    /// process that has the hold renews or releases it. An error says that it was lost already.
    ///
    /// The hold id is a secret: with it, the lease can be ended.
    ///
    /// ```
    /// use fencehold::Fencehold;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// let hold = fh.lease("reports/daily").acquire().await?.detach()?;
    /// assert!(fh.lease("reports/daily").try_acquire().await.is_err(), "it is still held");
    /// let renewed = fh.store().renew(&fh.call(), vec![hold.clone()]).await?;
    /// assert_eq!(renewed.results[0].as_ref().map(|renewal| renewal.token), Ok(hold.token));
    /// fh.store().release(&fh.call(), vec![hold]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn detach(mut self) -> Result<HoldRef, Error> {
        let (connection, holding) = (&self.handle.connection, &self.holding);
        if let Some(why) = holding.look().lost {
            return Err(holding.error(why));
        }
        // Lost, or given back by a close, since it was looked at: then the drop of the guard does the rest.
        if !connection.ended(holding, LostCause::Released) {
            let why = holding.look().lost.unwrap_or(LostCause::Released);
            return Err(holding.error(why));
        }
        self.done = true;
        Ok(self.hold.clone())
    }

    /// Gives the lease back in the background. To all that share the guard it is lost at once.
    pub(crate) fn give_back(&self) {
        self.handle.connection.give_back(&self.holding);
    }

    async fn release_now(&mut self) -> Result<(), Error> {
        let connection = &self.handle.connection;
        let holding = &self.holding;
        // From here on no renewal is sent; one that is under way finds the lease released and changes nothing.
        lock(&connection.renewals).leave(holding.serial);
        // Released: a close of the handle gave it back, or a renewal that was under way learned before us that the release was
        // carried out.
        let ended = |why| if why == LostCause::Released { Ok(()) } else { Err(holding.error(why)) };
        if self.state() == LeaseState::Lost {
            // What may still be there is given back by the drop of the guard.
            return ended(holding.lost().await);
        }
        let give_up_ms = connection.now_ms().saturating_add(connection.timeout_ms);
        let mut failures = 0;
        loop {
            let hold = vec![self.hold.clone()];
            let error = match connection.send(0, |store, call| store.release(call, hold)).await {
                Ok(answers) => {
                    self.done = true;
                    if let Some(Err(refusal)) = answers.into_iter().next() {
                        connection.ended(holding, LostCause::from_refusal(&refusal));
                        return Err(holding.error(holding.lost().await));
                    }
                    lock(&connection.renewals).remove(holding.serial);
                    connection.finish(holding);
                    return Ok(());
                }
                Err(error) => error,
            };
            failures += 1;
            let pause_until_ms = connection.now_ms().saturating_add(connection.retries.backoff_ms(failures));
            let again = matches!(error, StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. });
            if !again || pause_until_ms >= give_up_ms || connection.is_closed() {
                return Err(error.into());
            }
            let pause = connection.timers.sleep_until(pause_until_ms);
            if let First::Left(why) = first(holding.lost(), pause).await {
                return ended(why);
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.done {
            self.give_back();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holding.fmt(f)
    }
}
