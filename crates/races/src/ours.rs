//! Fencehold's own side: every call is one message, because check and write are one step.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fencehold_contract::job::{ChangeJobsRequest, JobAction, JobFilter, JobSelector};
use fencehold_contract::{
    AcquireLeaseRequest, AdvancedStore, CallContext, HoldRef, LeaseStore, RevokeLeasesRequest, RevokeTarget,
    StoreError,
};
use fencehold_core::lease::LeaseRenewal;
use fencehold_core::limits::ADVANCE_BY;
use fencehold_core::{HoldId, Key, Namespace, Owner, Reason, Refusal, Token};
use fencehold_test_store::TestStore;

use crate::environment::RaceNames;
use crate::fenced_resource::FencedResource;
use crate::gate::MessageGate;
use crate::protocol::{HeldLease, LeaseCall, LeaseProtocol, LeaseReply, RaceCall, SeenLease};

/// What is on its way where the script has a sweep. No store can be asked to sweep, nor its sweep be held from outside: it
/// is a look at the key or the job. On `memory:` and `file:` a call that is answered has waited for the sweep of what is over;
/// elsewhere one may run at any time.
pub(crate) const LOOK: &str = "look at it";

/// How often a store that does not answer in time is asked to remove what a race has made.
const REMOVALS_MAX: usize = 5;

/// Actors that use a real store.
pub(crate) struct RealStore {
    pub(crate) test_store: Arc<dyn TestStore>,
    pub(crate) call: CallContext,
    pub(crate) gate: Arc<MessageGate>,
    pub(crate) resource: Arc<FencedResource>,
    pub(crate) names: RaceNames,
    /// The hold ids of the undo; a claim that is over may use one again.
    pub(crate) undo_holds: Vec<HoldId>,
    /// The hold ids under which keys were asked for: one of them may hold the key at the end.
    pub(crate) asked: Mutex<Vec<HoldId>>,
    /// Whether the store is in use.
    pub(crate) live: bool,
}

impl RealStore {
    /// `A` has one handle, everybody else the other, as two processes have.
    pub(crate) fn store(&self, who: &str) -> Arc<dyn LeaseStore> {
        if who == "A" { self.test_store.store() } else { self.test_store.other() }
    }

    /// Renews as a caller would who has the right hold id in the wrong namespace.
    pub(crate) async fn renew_in(&self, namespace: Namespace, who: &str, lease: &HeldLease) -> LeaseReply {
        let call = CallContext { namespace, ..self.call.clone() };
        let answer = self.store(who).renew(&call, vec![hold_ref(lease)]).await;
        answer.map_or_else(|error| self.failed(error), |renewed| first(renewed.results, renewed_as))
    }

    /// Lifts every token, as an operator does after a backup was put back.
    pub(crate) async fn advance(&self, who: &str) -> Result<AdvancedStore, StoreError> {
        let by = Owner::new(who)?;
        self.store(who).advance(&self.call, by, ADVANCE_BY).await
    }

    /// How many leases the store counts as held.
    pub(crate) async fn held(&self) -> Option<u64> {
        let status = self.test_store.other().status(&self.call).await;
        status.ok().map(|status| status.held_count)
    }

    /// What an error says. If the store does not accept what the race needs, the race cannot be arranged there; neither can it
    /// where a store that is in use lacks room, rights or a connection.
    pub(crate) fn explain(&self, error: &StoreError) -> String {
        let cannot = match error {
            StoreError::BadInput(_) | StoreError::Unsupported { .. } => true,
            StoreError::Refused { .. } | StoreError::QueueNotEmpty { .. } => false,
            _ => self.live,
        };
        if cannot {
            self.gate.trace.cannot_arrange(error);
        }
        error.to_string()
    }

    /// Removes what the race has made: the lease that is still held, the jobs, and their queues. What the store does not let
    /// it remove ends by itself.
    pub(crate) async fn remove_all(&self) {
        let store = self.test_store.store();
        for _ in 0..REMOVALS_MAX {
            let (released, found) = (self.release_held(&*store).await, self.delete_queues(&*store).await);
            // A job that was deleted may have left its effects to be undone.
            if released.is_ok() && found == Ok(0) {
                return;
            }
        }
    }

    async fn release_held(&self, store: &dyn LeaseStore) -> Result<(), StoreError> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for hold_id in asked.into_iter().rev() {
            let view = store.get(&self.call, self.names.key.clone()).await?;
            let Some(view) = view.filter(|view| view.holder.is_some()) else { return Ok(()) };
            let held = HoldRef { key: view.key, hold_id, token: view.token };
            store.release(&self.call, vec![held]).await?;
        }
        Ok(())
    }

    /// Deletes the queues of the race with their jobs, and gives how many there were.
    async fn delete_queues(&self, store: &dyn LeaseStore) -> Result<usize, StoreError> {
        let Some(jobs) = store.jobs() else { return Ok(0) };
        let (by, made) = (Owner::new("race")?, [&self.names.queue, &self.names.undo_queue]);
        let mut queues = jobs.list_queues(&self.call).await?.queues;
        queues.retain(|view| made.contains(&&view.name));
        for queue in queues.iter().map(|view| view.name.clone()) {
            let filter = JobFilter { queue: Some(queue.clone()), ..JobFilter::default() };
            let (selector, action) = (JobSelector::Filter { filter }, JobAction::Delete { force: true });
            let mut request = ChangeJobsRequest::new(selector, action, by.clone());
            loop {
                request.cursor = jobs.change_jobs(&self.call, request.clone()).await?.next_cursor;
                if request.cursor.is_none() {
                    break;
                }
            }
            jobs.delete_queue(&self.call, queue, by.clone()).await?;
        }
        Ok(queues.len())
    }

    async fn deliver(&self, who: &str, act: &LeaseCall) -> LeaseReply {
        let (store, call) = (self.store(who), &self.call);
        let told = match act {
            LeaseCall::Acquire(wish) => {
                let request = AcquireLeaseRequest {
                    wait_ms: wish.wait_ms,
                    hold_id_age_ms: wish.hold_age_ms,
                    ..AcquireLeaseRequest::new(wish.key.clone(), wish.hold, wish.owner.clone(), wish.ttl_ms)
                };
                self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(wish.hold);
                store.acquire(call, request).await.map(|acquired| {
                    LeaseReply::Granted(HeldLease {
                        key: acquired.key,
                        hold: wish.hold,
                        owner: wish.owner.clone(),
                        token: acquired.grant.token.get(),
                        remaining_ms: acquired.grant.remaining_ms,
                        resumed: acquired.grant.resumed,
                    })
                })
            }
            LeaseCall::Renew(lease) => {
                let renewed = store.renew(call, vec![hold_ref(lease)]).await;
                renewed.map(|renewed| first(renewed.results, renewed_as))
            }
            LeaseCall::Release(lease) => {
                let released = store.release(call, vec![hold_ref(lease)]).await;
                released.map(|answers| first(answers, |_| LeaseReply::Released))
            }
            LeaseCall::Revoke(key) => self.revoke(&*store, who, key).await,
            LeaseCall::Sweep(key) => store.get(call, key.clone()).await.map(|_| LeaseReply::Looked),
            LeaseCall::Complete(lease, result) => {
                let put = self.resource.put_fenced(lease.token, result);
                Ok(put.map_or_else(|current| LeaseReply::Stale { current }, |()| LeaseReply::Completed))
            }
        };
        told.unwrap_or_else(|error| self.failed(error))
    }

    async fn revoke(&self, store: &dyn LeaseStore, who: &str, key: &Key) -> Result<LeaseReply, StoreError> {
        let target = RevokeTarget::Key { key: key.clone(), only_token: None };
        let (by, reason) = (Owner::new(who)?, Reason::new("arranged by a race")?);
        let revoked = store.revoke(&self.call, RevokeLeasesRequest { target, by, reason }).await?;
        let consumed = revoked.first().map(|lease| lease.revoked.consumed_token.get());
        Ok(consumed.map_or_else(
            || LeaseReply::Other("nothing was revoked".to_owned()),
            |consumed| LeaseReply::Revoked { consumed },
        ))
    }

    fn failed(&self, error: StoreError) -> LeaseReply {
        match (self.explain(&error), error) {
            (_, StoreError::Refused { refusal, .. }) => refused(refusal),
            (_, StoreError::OutcomeUnknown { .. }) => LeaseReply::Unheard,
            (says, _) => LeaseReply::Other(says),
        }
    }
}

fn hold_ref(lease: &HeldLease) -> HoldRef {
    HoldRef { key: lease.key.clone(), hold_id: lease.hold, token: Token::new(lease.token) }
}

fn refused(refusal: Refusal) -> LeaseReply {
    match refusal {
        Refusal::Held { owner, .. } => LeaseReply::Held { owner: owner.to_string() },
        Refusal::Lost { outcome: how, current_token: current, .. } => {
            LeaseReply::Lost { how, current: current.get() }
        }
        Refusal::HoldIdUsed { outcome: how, .. } => LeaseReply::Ended { how },
        Refusal::StoreRewound { current_token: current, .. } => {
            LeaseReply::Rewound { current: current.get() }
        }
        other => LeaseReply::Other(other.to_string()),
    }
}

fn first<T>(answers: Vec<Result<T, Refusal>>, told: impl FnOnce(T) -> LeaseReply) -> LeaseReply {
    match answers.into_iter().next() {
        Some(Ok(answer)) => told(answer),
        Some(Err(refusal)) => refused(refusal),
        None => LeaseReply::Other("no answer for one hold".to_owned()),
    }
}

fn renewed_as(renewal: LeaseRenewal) -> LeaseReply {
    LeaseReply::Renewed { remaining_ms: renewal.remaining_ms }
}

#[async_trait]
impl LeaseProtocol for RealStore {
    async fn perform(&self, who: &str, act: &LeaseCall) -> LeaseReply {
        let shown = if matches!(act, LeaseCall::Sweep(_)) { LOOK } else { act.message() };
        let carried = self.gate.carry(who, act.message(), shown, || self.deliver(who, act));
        carried.await.unwrap_or(LeaseReply::Unheard)
    }

    async fn look(&self, key: &Key) -> SeenLease {
        let view = self.test_store.other().get(&self.call, key.clone()).await;
        let Ok(Some(view)) = view else { return SeenLease::default() };
        SeenLease {
            in_line: view.waiter_count,
            remaining_ms: view.holder.as_ref().map_or(0, |holder| holder.remaining_ms),
            holder: view.holder.map(|holder| holder.owner.to_string()),
        }
    }
}
