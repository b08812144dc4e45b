//! Asking for a lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::AcquireLeaseRequest;
use fencehold_core::{BadInput, HoldId, Key, Owner, Task, Token, ttl};
use tracing::Instrument;

use crate::acquisition::acquire;
use crate::connect::Fencehold;
use crate::error::Error;
use crate::guard::Lease;
use crate::time::ms;

/// The ttl of a lease that names none.
pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// The terms on which a lease is requested. Nothing happens until [`acquire`](LeaseBuilder::acquire) or
/// [`try_acquire`](LeaseBuilder::try_acquire) is awaited; that is also where a name or a time that is out of bounds is
/// refused.
///
/// ```
/// use std::time::Duration;
/// use fencehold::{Error, Fencehold};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let fh = Fencehold::connect("memory:").await?;
/// let lease = fh
///     .lease("reports/daily")
///     .task("run-42")
///     .ttl(Duration::from_secs(10))
///     .max_age(Duration::from_secs(3_600))
///     .wait(Duration::from_secs(5))
///     .acquire()
///     .await?;
/// assert_eq!(lease.key().as_str(), "reports/daily");
///
/// let bad = fh.lease("").try_acquire().await.unwrap_err();
/// assert_eq!(bad.to_string(), "key must not be empty");
/// # lease.release().await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is requested until `acquire` or `try_acquire` is awaited"]
pub struct LeaseBuilder {
    pub(crate) fencehold: Fencehold,
    /// What each sending is made from: it has its own hold id and time in line.
    terms: Result<AcquireLeaseRequest, BadInput>,
    wait: Option<Duration>,
}

impl LeaseBuilder {
    pub(crate) fn new(fencehold: Fencehold, keys: Result<Vec<Key>, BadInput>) -> Self {
        let terms = keys.map(|any_of| AcquireLeaseRequest {
            any_of,
            hold_id: HoldId::from_random([0; 16]),
            hold_id_age_ms: 0,
            owner: fencehold.owner().clone(),
            task: None,
            ttl_ms: ms(TTL_DEFAULT),
            max_age_ms: None,
            wait_ms: 0,
            waited_before_ms: 0,
            priority: 0,
            preempt_within_ms: None,
            seen_token: None,
        });
        LeaseBuilder { fencehold, terms, wait: None }
    }

    /// What the lease serves (`run-42`). Contenders and operators see it.
    pub fn task(self, task: impl AsRef<str>) -> Self {
        self.try_set(|terms| Task::new(task.as_ref()).map(|task| terms.task = Some(task)))
    }

    /// Who holds it. Default: the handle's owner.
    pub fn owner(self, owner: impl AsRef<str>) -> Self {
        self.try_set(|terms| Owner::new(owner.as_ref()).map(|owner| terms.owner = owner))
    }

    /// How long a grant or a renewal lasts. Default: 30 s. It is how long others wait when this holder dies, and how
    /// long this holder can be without the store.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.set(|terms| terms.ttl_ms = ms(ttl))
    }

    /// How long the lease may be held in all, however often it is renewed. Default: for ever.
    pub fn max_age(self, max_age: Duration) -> Self {
        self.set(|terms| terms.max_age_ms = Some(ms(max_age)))
    }

    /// Its rank: higher stands further ahead in line, and may [preempt](LeaseBuilder::preempt_within) lower. Default: 0.
    pub fn priority(self, priority: i16) -> Self {
        self.set(|terms| terms.priority = priority)
    }

    /// How long `acquire` stands in line. Default: for as long as it takes. A grant that arrives later than this is
    /// released.
    pub fn wait(self, wait: Duration) -> Self {
        LeaseBuilder { wait: Some(wait), ..self }
    }

    /// While `acquire` stands in line, asks a holder of lower priority to yield within this time. Default: waits for it to
    /// release. Such a holder learns of it with its next renewal and is not renewed beyond; its lease ends at the latest
    /// when the time to yield is up, or when the time that it was already promised is, whichever is later.
    ///
    /// A store that cannot preempt refuses the acquisition: [`Error::Unsupported`].
    pub fn preempt_within(self, within: Duration) -> Self {
        self.set(|terms| terms.preempt_within_ms = Some(ms(within)))
    }

    /// The largest token that the caller has ever seen for the (first) key. A store that has only given smaller ones
    /// was rewound, and says so instead of granting.
    pub fn seen_token(self, token: Token) -> Self {
        self.set(|terms| terms.seen_token = Some(token))
    }

    /// Takes the key if it is free now, and no other caller stands in line for it. Does not wait, and preempts no holder.
    pub async fn try_acquire(self) -> Result<Lease, Error> {
        self.set(|terms| terms.preempt_within_ms = None).finish(Some(0)).await
    }

    /// Takes the key, standing in line for it. A caller that stops waiting, by dropping this future, leaves the line.
    ///
    /// There is no limit to the wait unless [`wait`](LeaseBuilder::wait) sets one. A store that cannot be reached is
    /// tried again, up to that limit, or without one until the handle's
    /// [`timeout`](crate::FenceholdBuilder::timeout) is over.
    pub async fn acquire(self) -> Result<Lease, Error> {
        let limit_ms = self.wait.map(ms);
        self.finish(limit_ms).await
    }

    /// [Acquires](LeaseBuilder::acquire) the lease, runs `work` under it, and releases it. If the lease is lost, the work is dropped at its
    /// next await, and the error says why. `Ok` means that the lease was still held when the work ended.
    ///
    /// ```
    /// use fencehold::Fencehold;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// let report = fh.lease("reports/daily").run(async |lease| format!("under token {}", lease.token())).await?;
    /// assert_eq!(report, "under token 1");
    /// fh.lease("reports/daily").try_acquire().await?.release().await // it is free again
    /// # }
    /// ```
    ///
    /// It is released when this returns, also where the work has kept a clone of the guard: that one is lost then.
    pub async fn run<T, F, Fut>(self, work: F) -> Result<T, Error>
    where
        F: FnOnce(Arc<Lease>) -> Fut,
        Fut: Future<Output = T>,
    {
        let lease = Arc::new(self.acquire().await?);
        let output = lease.run(work(Arc::clone(&lease))).await?;
        // The work counts all the same: it was done while the lease was held, which then ends by itself.
        match Arc::try_unwrap(lease).map(Lease::release) {
            Ok(released) => {
                if let Err(error) = released.await {
                    tracing::warn!(%error, "the lease could not be released after its work");
                }
            }
            Err(shared) => shared.give_back(),
        }
        Ok(output)
    }

    async fn finish(self, limit_ms: Option<u64>) -> Result<Lease, Error> {
        let (handle, can, terms) =
            (Arc::clone(&self.fencehold.handle), self.fencehold.store().capabilities(), self.terms?);
        if terms.preempt_within_ms.is_some() && !can.supports_preemption {
            let (store, message) = (can.store.to_owned(), "preempt holders".to_owned());
            return Err(Error::Unsupported { store, message });
        }
        ttl::check(terms.ttl_ms, can.min_ttl_ms)?;
        terms.max_age_ms.map_or(Ok(()), ttl::check_max_age)?;
        let (key, token) = (AnyOf(&terms.any_of), tracing::field::Empty);
        let span = tracing::info_span!("acquire", %key, owner = %terms.owner, token);
        let acquiring = acquire(&handle.connection, &terms, limit_ms);
        let (hold, granted) = acquiring.instrument(span.clone()).await?;
        span.record("token", granted.token.get());
        drop(span);
        let holding = handle.connection.take_in(granted)?;
        Ok(Lease { hold, holding, handle, done: false })
    }

    gathered!(terms: AcquireLeaseRequest);
}

/// Keys as a span shows them: the first, and how many more.
struct AnyOf<'a>(&'a [Key]);

impl fmt::Display for AnyOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            [key] => key.fmt(f),
            [key, more @ ..] => write!(f, "{key} or {} more", more.len()),
        }
    }
}
