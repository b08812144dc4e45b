//! Connecting to a store, and the handle that everything else comes from.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::clock::{Clock, SystemClock};
use fencehold_contract::{CallContext, LeaseStore, StoreError, StoreUrl};
use fencehold_core::{BadInput, Key, Namespace, Owner};
use futures_channel::oneshot;

use crate::breaker::{CircuitBreakerPolicy, CircuitBreakerState, CircuitBreakerStats};
use crate::connection::{ConnectionInner, OpenedStore};
use crate::election::Election;
use crate::error::Error;
use crate::lease::LeaseBuilder;
use crate::random::jitter;
use crate::renewal::RenewalHandle;
use crate::retry::RetryBudget;
use crate::time::ms;
use crate::transaction::check_schema;
use crate::ttl_advice::TtlAdvice;

/// How long a call goes on trying a store that cannot be reached, by default.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Between two tries to open a store that cannot be reached.
const OPEN_AGAIN: Duration = Duration::from_millis(100);
/// How long one of the tries may take, so that a caller that has gone is noticed.
const OPEN_MS_MAX: u64 = 5_000;

/// A handle on a store of leases. Clones share it; leases keep it going until they are gone.
///
/// It works on every executor: it has one thread of its own, which renews leases and keeps time.
///
/// ```
/// use fencehold::Fencehold;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencehold::Error> {
/// let fh = Fencehold::connect("memory:").await?;
/// let lease = fh.lease("reports/daily").acquire().await?;
/// assert_eq!(lease.token().get(), 1);
/// lease.release().await?;
/// fh.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fencehold {
    pub(crate) handle: Arc<RenewalHandle>,
    owner: Owner,
}

impl Fencehold {
    /// Connects to the store that a URL names (`memory:`, `file:DIR`), with everything else as it is by default. Returns once the store
    /// has answered; a database without our schema has it then. A `file:` store must be there, unless the URL ends in `?create=true`:
    /// see [`FenceholdBuilder::create`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Fencehold::builder().url(url).connect().await
    }

    /// The same without asking the store anything: what is wrong with it shows in the first call.
    pub async fn connect_lazy(url: &str) -> Result<Self, Error> {
        Fencehold::builder().url(url).connect_lazy().await
    }

    /// Connects with options.
    pub fn builder() -> FenceholdBuilder {
        FenceholdBuilder::default()
    }

    /// Requests a lease on one key.
    pub fn lease(&self, key: impl AsRef<str>) -> LeaseBuilder {
        LeaseBuilder::new(self.clone(), Key::new(key.as_ref()).map(|key| vec![key]))
    }

    /// Requests a lease on any one of these keys, whichever is free first. N keys are a semaphore of N.
    ///
    /// ```
    /// use fencehold::{Error, Fencehold};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// let slots = ["gpu/0", "gpu/1"];
    /// let one = fh.lease_any_of(slots).acquire().await?;
    /// let two = fh.lease_any_of(slots).acquire().await?;
    /// assert_ne!(one.key(), two.key());
    /// assert!(matches!(fh.lease_any_of(slots).try_acquire().await, Err(Error::Held { .. })));
    /// # one.release().await?;
    /// # two.release().await
    /// # }
    /// ```
    pub fn lease_any_of<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = K>) -> LeaseBuilder {
        let keys = keys.into_iter().map(|key| Key::new(key.as_ref())).collect();
        LeaseBuilder::new(self.clone(), keys)
    }

    /// An election: the holder of this key leads.
    pub fn election(&self, key: impl AsRef<str>) -> Election {
        Election { inner: self.lease(key.as_ref()), key: Key::new(key.as_ref()) }
    }

    /// What ttl would suit the work that was done under this key, or under all keys that start with this text. `None`:
    /// no lease of them has been released yet. See [`TtlAdvice`] for what it means.
    ///
    /// ```
    /// use fencehold::Fencehold;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// assert!(fh.ttl_advice("reports/").is_none());
    /// fh.lease("reports/daily").acquire().await?.release().await?;
    /// let advice = fh.ttl_advice("reports/").expect("one piece of work");
    /// assert_eq!(advice.samples, 1);
    /// assert!(advice.suggested_ttl >= advice.p99_work + advice.p99_round_trip + advice.margin);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ttl_advice(&self, key_or_prefix: &str) -> Option<TtlAdvice> {
        self.connection().advisor.advise(key_or_prefix)
    }

    /// The store, for what this handle does not wrap: listing, revoking, events. Use it with [`call`](Self::call).
    ///
    /// ```
    /// use fencehold::store::{RevokeLeasesRequest, RevokeTarget};
    /// use fencehold::{Fencehold, Key, Owner, Reason};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// let lease = fh.lease("gpu/3").acquire().await?;
    /// let request = RevokeLeasesRequest {
    ///     target: RevokeTarget::Key { key: Key::new("gpu/3")?, only_token: None },
    ///     by: Owner::new("alice")?,
    ///     reason: Reason::new("the node is being drained")?,
    /// };
    /// let revoked = fh.store().revoke(&fh.call(), request).await?;
    /// assert_eq!(revoked[0].revoked.token, lease.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn store(&self) -> &Arc<dyn LeaseStore> {
        &self.connection().store
    }

    /// A call in this handle's namespace, with its timeout.
    pub fn call(&self) -> CallContext {
        self.connection().call(self.connection().timeout_ms)
    }

    /// The namespace that keys live in.
    pub fn namespace(&self) -> &Namespace {
        &self.connection().namespace
    }

    /// The owner of leases that name none.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The clock on which deadlines are given.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.connection().clock
    }

    /// The state of the circuit breaker: whether acquisitions are held back because the store keeps failing or is slow.
    pub fn circuit_breaker(&self) -> CircuitBreakerState {
        self.circuit_breaker_stats().state
    }

    /// The state of the circuit breaker, and what it has counted: calls that failed, were slow or were held back.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = fencehold::Fencehold::connect("memory:").await?;
    /// let stats = fh.circuit_breaker_stats();
    /// assert_eq!((stats.state.name(), stats.opened_count, stats.slow_count), ("closed", 0, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn circuit_breaker_stats(&self) -> CircuitBreakerStats {
        self.connection().breaker.stats(self.connection().now_ms())
    }

    /// Releases every lease of this handle and its clones, finishes what is under way in the background, and closes the
    /// store if this handle opened it. A caller that waits for a lease gets [`Error::Unavailable`].
    pub async fn close(&self) {
        self.connection().close().await;
    }

    pub(crate) fn connection(&self) -> &Arc<ConnectionInner> {
        &self.handle.connection
    }
}

impl fmt::Debug for Fencehold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fencehold")
            .field("store", &self.store().capabilities().store)
            .field("namespace", self.namespace())
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// How to connect.
///
/// ```
/// use std::time::Duration;
/// use fencehold::Fencehold;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencehold::Error> {
/// let fh = Fencehold::builder()
///     .url("memory:")
///     .namespace("team-a")
///     .owner("worker-7")
///     .timeout(Duration::from_secs(3))
///     .connect()
///     .await?;
/// assert_eq!(fh.owner().as_str(), "worker-7");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens until `connect` is awaited"]
pub struct FenceholdBuilder {
    url: Option<String>,
    store: Option<Arc<dyn LeaseStore>>,
    namespace: Option<String>,
    owner: Option<String>,
    clock: Option<Arc<dyn Clock>>,
    create: bool,
    timeout: Option<Duration>,
    circuit_breaker: CircuitBreakerPolicy,
    retry_budget: RetryBudget,
    postgres_schema: Option<String>,
}

impl FenceholdBuilder {
    /// The store, by its URL.
    pub fn url(self, url: impl Into<String>) -> Self {
        FenceholdBuilder { url: Some(url.into()), ..self }
    }

    /// Creates the store if there is none. Without this, or `?create=true` in the URL, a `file:` store must be there: a mistyped path
    /// is an error, and no second store in which every key is free. Other stores need no creating.
    ///
    /// ```
    /// use fencehold::{Error, Fencehold};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// let url = format!("file:{}", directory.path().join("leases").display());
    /// assert!(matches!(Fencehold::connect(&url).await, Err(Error::NoStore { .. })));
    /// Fencehold::builder().url(&url).create().connect().await?.close().await;
    /// Fencehold::connect(&url).await?.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(self) -> Self {
        FenceholdBuilder { create: true, ..self }
    }

    /// A store that is open already. It stays open when the handle is closed.
    pub fn store(self, store: Arc<dyn LeaseStore>) -> Self {
        FenceholdBuilder { store: Some(store), ..self }
    }

    /// The namespace that keys live in. Default: `default`.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        FenceholdBuilder { namespace: Some(namespace.into()), ..self }
    }

    /// The owner of leases that name none. Default: `host/pid/random`.
    pub fn owner(self, owner: impl Into<String>) -> Self {
        FenceholdBuilder { owner: Some(owner.into()), ..self }
    }

    /// Where time comes from. Default: the machine's boot-time clock. Tests pass a
    /// [`ManualClock`](crate::clock::ManualClock).
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        FenceholdBuilder { clock: Some(clock), ..self }
    }

    /// How long a call goes on trying a store that cannot be reached, beyond any time in line. Default: 10 s. Renewals
    /// have less, by their ttl.
    pub fn timeout(self, timeout: Duration) -> Self {
        FenceholdBuilder { timeout: Some(timeout), ..self }
    }

    /// When the circuit breaker holds acquisitions back because the store keeps failing or is slow.
    pub fn circuit_breaker(self, policy: CircuitBreakerPolicy) -> Self {
        FenceholdBuilder { circuit_breaker: policy, ..self }
    }

    /// How often, and at what pace, failed acquisitions are tried again.
    pub fn retry_budget(self, budget: RetryBudget) -> Self {
        FenceholdBuilder { retry_budget: budget, ..self }
    }

    /// The schema of the store, for the [transactions](crate::transaction) of the caller's own. Default: that of the store's URL. It has to
    /// be named where the handle reaches the store through a server.
    pub fn postgres_schema(self, schema: impl Into<String>) -> Self {
        FenceholdBuilder { postgres_schema: Some(schema.into()), ..self }
    }

    /// Opens the store, has it answer, and starts the handle's thread. A store that does not answer within the
    /// [`timeout`](Self::timeout) is an error.
    pub async fn connect(self) -> Result<Fencehold, Error> {
        let connected = self.connect_lazy().await?;
        if let Err(error) = connected.store().ping(&connected.call()).await {
            connected.close().await;
            return Err(error.into());
        }
        Ok(connected)
    }

    /// Opens the store and starts the handle's thread, without asking the store anything: what is wrong with it shows in the first call.
    pub async fn connect_lazy(self) -> Result<Fencehold, Error> {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock));
        let namespace = self.namespace.map_or(Ok(Namespace::default()), Namespace::new)?;
        let owner = self.owner.map_or_else(default_owner, Owner::new)?;
        let is_own = self.store.is_none();
        let postgres_schema = self.postgres_schema;
        postgres_schema.as_deref().map_or(Ok(()), check_schema)?;
        let timeout_ms = ms(self.timeout.unwrap_or(TIMEOUT_DEFAULT));
        let store = match (self.store, self.url) {
            (Some(store), None) => store,
            (None, Some(url)) => {
                let url: StoreUrl = url.parse()?;
                let url = if self.create { url.creating() } else { url };
                open(url, Arc::clone(&clock), timeout_ms).await?
            }
            (Some(_), Some(_)) => Err(BadInput::new("store", "is given twice, as a store and as a URL"))?,
            (None, None) => Err(BadInput::new("store", "is not given; it looks like file:DIR or memory:"))?,
        };
        let (breaker, retries) = (self.circuit_breaker, self.retry_budget);
        let store = OpenedStore { store, is_own, postgres_schema };
        let connection = ConnectionInner::new(store, clock, namespace, timeout_ms, breaker, retries);
        Ok(Fencehold { handle: RenewalHandle::start(connection).map_err(|error| no_thread(&error))?, owner })
    }
}

/// Opens a store on a thread of its own: it may wait for disks and locks, and the caller's executor must not. One that cannot
/// be reached is tried for as long as the caller's timeout.
#[expect(clippy::disallowed_methods, reason = "a server that is not there yet is there in real time")]
async fn open(url: StoreUrl, clock: Arc<dyn Clock>, timeout_ms: u64) -> Result<Arc<dyn LeaseStore>, Error> {
    let (sender, receiver) = oneshot::channel();
    let opening = move || {
        let give_up_ms = SystemClock.now().store_ms.saturating_add(timeout_ms);
        let opened = loop {
            let left_ms = give_up_ms.saturating_sub(SystemClock.now().store_ms);
            match fencehold_stores::open_within(&url, Arc::clone(&clock), left_ms.min(OPEN_MS_MAX)) {
                Err(StoreError::Unavailable { .. })
                    if SystemClock.now().store_ms < give_up_ms && !sender.is_canceled() =>
                {
                    std::thread::sleep(OPEN_AGAIN);
                }
                opened => break opened,
            }
        };
        // The caller may have gone: then the store is closed again at once.
        let _ = sender.send(opened);
    };
    let thread = std::thread::Builder::new().name("fencehold-open".to_owned()).spawn(opening);
    thread.map_err(|error| no_thread(&error))?;
    let broke_off = |_| Error::Unavailable { message: "opening the store broke off".to_owned() };
    Ok(receiver.await.map_err(broke_off)??)
}

pub(crate) fn no_thread(error: &std::io::Error) -> Error {
    Error::Unavailable { message: format!("no thread could be started: {error}") }
}

/// `host/pid/random`: the last part tells apart what a restarted container would call by the same name.
fn default_owner() -> Result<Owner, BadInput> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| !c.is_control()).take(60).collect();
    let host = if host.is_empty() { "localhost" } else { &host };
    let random = jitter() & 0xffff_ffff;
    Owner::new(format!("{host}/{}/{random:08x}", std::process::id()))
}
