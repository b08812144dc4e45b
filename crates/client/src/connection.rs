//! What everything that came from one `connect` shares: the store, the clock, the breaker, the budget, what was seen,
//! and the thread that renews.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fencehold_contract::clock::Clock;
use fencehold_contract::job::AttemptRef;
use fencehold_contract::operation::jobs_of;
use fencehold_contract::{CallContext, HoldChange, HoldRef, JobStore, LeaseStore, StoreError, Subscription};
use fencehold_core::{Key, Namespace};

use crate::breaker::{Breaker, CircuitBreakerPolicy};
use crate::error::{Error, LostCause};
use crate::holding::{HoldGrant, HoldTarget, Holding};
use crate::random::jitter;
use crate::renewal::{Background, RenewalQueue, give_back, hand_back};
use crate::report::ReportQueue;
use crate::retry::{Retries, RetryBudget};
use crate::time::{First, Timers, first};
use crate::ttl_advice::Advisor;
use crate::wake::{WakeFlag, WatchValue, lock};

/// How long past a call's own timeout its answer is still waited for.
const GRACE_MS: u64 = 1_000;

/// A call of the contract under way.
pub(crate) type StoreCall<'c, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'c>>;

pub(crate) struct ConnectionInner {
    pub(crate) store: Arc<dyn LeaseStore>,
    /// Whether closing the handle closes the store: only if the handle opened it.
    owns_store: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) namespace: Namespace,
    /// The schema of the store in the database of the callers' transactions, where it was named.
    pub(crate) postgres_schema: Option<String>,
    pub(crate) timeout_ms: u64,
    pub(crate) breaker: Breaker,
    pub(crate) retries: Retries,
    pub(crate) advisor: Advisor,
    pub(crate) wake: Arc<WakeFlag>,
    pub(crate) timers: Timers,
    pub(crate) renewals: Mutex<RenewalQueue>,
    /// Holds on which another caller acted, as the store says: they are renewed at once, to learn what happened.
    pub(crate) changed: Arc<Mutex<ChangedHolds>>,
    _subscription: Option<Subscription>,
    pub(crate) background: Background,
    pub(crate) reports: Mutex<ReportQueue>,
    closed: WatchValue<bool>,
    /// No caller is left.
    pub(crate) left: AtomicBool,
    serials: AtomicU64,
}

/// A store, as it was opened.
pub(crate) struct OpenedStore {
    pub(crate) store: Arc<dyn LeaseStore>,
    /// Whether the handle opened it.
    pub(crate) is_own: bool,
    /// The schema that was named.
    pub(crate) postgres_schema: Option<String>,
}

/// Holds to be renewed at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedHolds {
    pub(crate) keys: BTreeSet<Key>,
    /// Every one: the store may have missed a change.
    pub(crate) all: bool,
}

impl ConnectionInner {
    pub(crate) fn new(
        OpenedStore { store, is_own, postgres_schema }: OpenedStore,
        clock: Arc<dyn Clock>,
        namespace: Namespace,
        timeout_ms: u64,
        breaker: CircuitBreakerPolicy,
        retries: RetryBudget,
    ) -> Arc<Self> {
        let wake = Arc::new(WakeFlag::default());
        let nudged = Arc::downgrade(&wake);
        clock.on_move(Box::new(move || {
            if let Some(wake) = nudged.upgrade() {
                wake.ring();
            }
        }));
        let changed = Arc::new(Mutex::new(ChangedHolds::default()));
        let subscription = store.on_hold_change({
            // Not the hub: its last handle must not be dropped on a thread of the store's.
            let (changed, wake, ours) = (Arc::clone(&changed), Arc::clone(&wake), namespace.clone());
            Arc::new(move |change| {
                match change {
                    HoldChange::Of(namespace, _) if *namespace != ours => return,
                    HoldChange::Of(_, key) => drop(lock(&changed).keys.insert(key.clone())),
                    HoldChange::Missed => lock(&changed).all = true,
                }
                wake.ring();
            })
        });
        Arc::new(ConnectionInner {
            changed,
            _subscription: subscription,
            breaker: Breaker::new(breaker, timeout_ms, jitter),
            retries: Retries::new(retries, clock.now().store_ms),
            advisor: Advisor::new(store.capabilities().min_ttl_ms),
            timers: Timers::new(Arc::clone(&clock), Arc::clone(&wake)),
            renewals: Mutex::default(),
            background: Background::default(),
            reports: Mutex::default(),
            closed: WatchValue::new(false),
            left: AtomicBool::new(false),
            serials: AtomicU64::new(1),
            store,
            owns_store: is_own,
            clock,
            namespace,
            postgres_schema,
            timeout_ms,
            wake,
        })
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    pub(crate) fn call(&self, timeout_ms: u64) -> CallContext {
        CallContext::new(self.namespace.clone()).with_timeout_ms(timeout_ms)
    }

    /// The store's jobs, if it has any.
    pub(crate) fn jobs(&self) -> Result<&dyn JobStore, StoreError> {
        jobs_of(&*self.store)
    }

    /// Sends one call, and waits for its answer: for this handle's timeout, and as long as it may stand in line.
    pub(crate) async fn send<T>(
        &self,
        wait_ms: u64,
        send: impl for<'c> FnOnce(&'c dyn LeaseStore, &'c CallContext) -> StoreCall<'c, T>,
    ) -> Result<T, StoreError> {
        let call = self.call(self.timeout_ms);
        self.answer(wait_ms, self.timeout_ms, send(&*self.store, &call)).await
    }

    /// The same for a call about jobs.
    pub(crate) async fn send_job<T>(
        &self,
        wait_ms: u64,
        send: impl for<'c> FnOnce(&'c dyn JobStore, &'c CallContext) -> StoreCall<'c, T>,
    ) -> Result<T, StoreError> {
        let (jobs, call) = (self.jobs()?, self.call(self.timeout_ms));
        self.answer(wait_ms, self.timeout_ms, send(jobs, &call)).await
    }

    /// Waits for a store's answer, but not for ever: a store that keeps silent past the timeout, and past what the call may
    /// stand in line, has lost the answer.
    pub(crate) async fn answer<T>(
        &self,
        wait_ms: u64,
        timeout_ms: u64,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit_ms = wait_ms.saturating_add(timeout_ms).saturating_add(GRACE_MS);
        self.answer_within(limit_ms, wait_ms > 0, call).await
    }

    /// The same, by this limit. How long a call took that `waits` in line says nothing about the store.
    pub(crate) async fn answer_within<T>(
        &self,
        limit_ms: u64,
        waits: bool,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let sent_ms = self.now_ms();
        let give_up_ms = sent_ms.saturating_add(limit_ms);
        let answer = match first(call, self.timers.sleep_until(give_up_ms)).await {
            First::Left(answer) => answer,
            First::Right(()) => {
                Err(StoreError::OutcomeUnknown { message: format!("no answer came within {limit_ms} ms") })
            }
        };
        let now_ms = self.now_ms();
        if let Err(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }) = &answer {
            self.breaker.failed(sent_ms, now_ms);
        } else {
            self.breaker.answered(sent_ms, now_ms, waits);
            self.retries.succeeded();
        }
        answer
    }

    /// Begins to watch over a lease that was just granted.
    pub(crate) fn take_in(self: &Arc<Self>, granted: HoldGrant) -> Result<Arc<Holding>, Error> {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let holding = Arc::new(Holding::new(serial, granted, Arc::clone(&self.clock)));
        let mut renewals = lock(&self.renewals);
        // Looked at with the book in hand: `close` empties it after it has said so.
        if self.is_closed() {
            drop(renewals);
            self.give_back(&holding);
            return Err(closed());
        }
        renewals.add(Arc::clone(&holding), jitter());
        let next_ms = renewals.next_ms();
        drop(renewals);
        self.timers.heed(next_ms.unwrap_or(0));
        Ok(holding)
    }

    /// Ends a lease from the holder's side, and has it given back in the background: at once if the store can be
    /// reached, and otherwise it ends by itself.
    pub(crate) fn give_back(self: &Arc<Self>, holding: &Arc<Holding>) {
        lock(&self.renewals).remove(holding.serial);
        if self.finish(holding) {
            let until_ms = holding.look().deadline_ms;
            let HoldGrant { held, hold: hold_id, token, .. } = &holding.granted;
            let (hold_id, token, connection) = (*hold_id, *token, Arc::clone(self));
            match held.clone() {
                HoldTarget::Key(key) => {
                    self.spawn(give_back(connection, HoldRef { key, hold_id, token }, until_ms));
                }
                HoldTarget::Job(job_id) => {
                    self.spawn(hand_back(connection, AttemptRef { job_id, hold_id, token }, until_ms));
                }
            }
        }
    }

    /// A lease is over, and renewed no more. False: it was lost before.
    pub(crate) fn ended(&self, holding: &Holding, why: LostCause) -> bool {
        lock(&self.renewals).remove(holding.serial);
        holding.lose(why)
    }

    /// Notes that the holder has done with a lease. True: the store may still keep it for the holder.
    pub(crate) fn finish(&self, holding: &Holding) -> bool {
        if holding.lose(LostCause::Released) {
            if let Some(key) = holding.key() {
                self.advisor.saw_work(key, holding.granted.ttl_ms, holding.age_ms());
            }
            return true;
        }
        match holding.look().lost {
            // Lost by the holder's own reckoning, which is ahead of the store's.
            Some(LostCause::NotRenewed { .. }) => true,
            Some(LostCause::Ended { current_token, .. }) => current_token.is_none(),
            _ => false,
        }
    }

    /// Has something done by the handle's own thread.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.background.add(Arc::clone(self), task);
        self.wake.ring();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.read(|closed, _| *closed)
    }

    /// Sees work through, unless the handle is closed first.
    pub(crate) async fn unless_closed<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match first(self.closed.when(|is, _| is.then(closed)), work).await {
            First::Left(closed) => Err(closed),
            First::Right(outcome) => outcome,
        }
    }

    /// Gives back whatever is held, sees background tasks through as far as the timeout allows, and ends.
    pub(crate) async fn close(self: &Arc<Self>) {
        if self.closed.update(|closed| (!*closed).then(|| *closed = true)).is_none() {
            return;
        }
        let holdings = lock(&self.renewals).take_all();
        for holding in &holdings {
            self.give_back(holding);
        }
        let give_up_ms = self.now_ms().saturating_add(self.timeout_ms);
        first(self.background.all_done(), self.timers.sleep_until(give_up_ms)).await;
        if self.owns_store {
            self.store.close().await;
        }
    }
}

/// What a closed handle answers.
pub(crate) fn closed() -> Error {
    Error::Closed
}
