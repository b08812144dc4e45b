//! Asking for a lease.

use std::fmt;
use std::time::Duration;

use fencehold_core::{BadInput, Key, Owner, Task, Token};
use tracing::Instrument;

use crate::acquisition::{AcquisitionTerms, WaitMode, acquire};
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
    fencehold: Fencehold,
    keys: Result<Vec<Key>, BadInput>,
    owner: Result<Owner, BadInput>,
    task: Result<Option<Task>, BadInput>,
    ttl: Duration,
    max_age: Option<Duration>,
    priority: i16,
    wait: Option<Duration>,
    preempt_within: Option<Duration>,
    seen_token: Option<Token>,
}

impl LeaseBuilder {
    pub(crate) fn new(fencehold: Fencehold, keys: Result<Vec<Key>, BadInput>) -> Self {
        LeaseBuilder {
            owner: Ok(fencehold.owner().clone()),
            fencehold,
            keys,
            task: Ok(None),
            ttl: TTL_DEFAULT,
            max_age: None,
            priority: 0,
            wait: None,
            preempt_within: None,
            seen_token: None,
        }
    }

    /// What the lease serves (`run-42`). Contenders and operators see it.
    pub fn task(mut self, task: impl AsRef<str>) -> Self {
        self.task = Task::new(task.as_ref()).map(Some);
        self
    }

    /// Who holds it. Default: the handle's owner.
    pub fn owner(mut self, owner: impl AsRef<str>) -> Self {
        self.owner = Owner::new(owner.as_ref());
        self
    }

    /// How long a grant or a renewal lasts. Default: 30 s. It is how long others wait when this holder dies, and how
    /// long this holder can be without the store.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long the lease may be held in all, however often it is renewed. Default: for ever.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = Some(max_age);
        self
    }

    /// Its rank: higher stands further ahead in line, and may [preempt](LeaseBuilder::preempt_within) lower. Default: 0.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// How long `acquire` stands in line. Default: for as long as it takes. A grant that arrives later than this is
    /// released.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// While `acquire` stands in line, asks a holder of lower priority to yield within this time. Default: waits for it to
    /// release. Such a holder learns of it with its next renewal and is not renewed beyond; its lease ends at the latest
    /// when the time to yield is up, or when the time that it was already promised is, whichever is later.
    ///
    /// A store that cannot preempt refuses the acquisition: [`Error::Unsupported`].
    pub fn preempt_within(mut self, within: Duration) -> Self {
        self.preempt_within = Some(within);
        self
    }

    /// The largest token that the caller has ever seen for the (first) key. A store that has only given smaller ones
    /// was rewound, and says so instead of granting.
    pub fn seen_token(mut self, token: Token) -> Self {
        self.seen_token = Some(token);
        self
    }

    /// Takes the key if it is free now, and no other caller stands in line for it. Does not wait, and preempts no holder.
    pub async fn try_acquire(mut self) -> Result<Lease, Error> {
        self.preempt_within = None;
        self.finish(WaitMode::None).await
    }

    /// Takes the key, standing in line for it. A caller that stops waiting, by dropping this future, leaves the line.
    ///
    /// There is no limit to the wait unless [`wait`](LeaseBuilder::wait) sets one. A store that cannot be reached is
    /// tried again, up to that limit, or without one until the handle's
    /// [`timeout`](crate::FenceholdBuilder::timeout) is over.
    pub async fn acquire(self) -> Result<Lease, Error> {
        let can = self.fencehold.store().capabilities();
        if self.preempt_within.is_some() && !can.supports_preemption {
            return Err(Error::Unsupported {
                store: can.store.to_owned(),
                message: "preempt holders".to_owned(),
            });
        }
        let line = WaitMode::Stand { limit_ms: self.wait.map(ms) };
        self.finish(line).await
    }

    pub(crate) fn fencehold(&self) -> &Fencehold {
        &self.fencehold
    }

    async fn finish(self, line: WaitMode) -> Result<Lease, Error> {
        let handle = self.fencehold.handle();
        let ttl_ms_min = self.fencehold.store().capabilities().min_ttl_ms;
        let terms = self.terms(ttl_ms_min)?;
        let (key, token) = (AnyOf(&terms.keys), tracing::field::Empty);
        let span = tracing::info_span!("acquire", %key, owner = %terms.owner, token);
        let (hold, granted) = acquire(&handle.connection, &terms, line).instrument(span.clone()).await?;
        span.record("token", granted.token.get());
        drop(span);
        let holding = handle.connection.take_in(granted)?;
        Ok(Lease::new(hold, holding, handle))
    }

    fn terms(self, ttl_ms_min: u64) -> Result<AcquisitionTerms, BadInput> {
        let (ttl_ms, max_age_ms) = (ms(self.ttl), self.max_age.map(ms));
        fencehold_core::ttl::check(ttl_ms, ttl_ms_min)?;
        max_age_ms.map_or(Ok(()), fencehold_core::ttl::check_max_age)?;
        Ok(AcquisitionTerms {
            keys: self.keys?,
            owner: self.owner?,
            task: self.task?,
            ttl_ms,
            max_age_ms,
            priority: self.priority,
            seen_token: self.seen_token,
            preempt_within_ms: self.preempt_within.map(ms),
        })
    }
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
