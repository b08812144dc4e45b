//! Fencehold's own side: every call is one message, because check and write are one step.

use std::future::ready;
use std::sync::Arc;

use async_trait::async_trait;
use fencehold_contract::{
    AcquireLeaseRequest, AdvancedStore, CallContext, HoldRef, LeaseStore, RevokeLeasesRequest, RevokeTarget,
    StoreError,
};
use fencehold_core::limits::ADVANCE_BY;
use fencehold_core::{Key, Namespace, Owner, Reason, Refusal, Token};
use fencehold_test_store::TestStore;

use crate::fenced_resource::{FencedResource, WriteResult};
use crate::gate::MessageGate;
use crate::protocol::{AcquireTerms, HeldLease, LeaseReply, Protocol};
use crate::trace::Trace;

/// What is on its way where the script has a sweep: see [`RealLock::sweep`].
pub(crate) const LOOK: &str = "look at it";

/// Actors that use a real store.
pub(crate) struct RealLock {
    pub(crate) test_store: Arc<dyn TestStore>,
    pub(crate) call: CallContext,
    pub(crate) gate: Arc<MessageGate>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) resource: Arc<FencedResource>,
}

impl RealLock {
    /// `A` has one handle, everybody else the other, as two processes have.
    fn store(&self, who: &str) -> Arc<dyn LeaseStore> {
        if who == "A" { self.test_store.store() } else { self.test_store.other() }
    }

    /// The same actors in another namespace.
    pub(crate) fn call_in(&self, namespace: Namespace) -> CallContext {
        CallContext { namespace, ..self.call.clone() }
    }

    /// Renews as a caller would who has the right hold id in the wrong namespace.
    pub(crate) async fn renew_in(&self, namespace: Namespace, who: &str, lease: &HeldLease) -> LeaseReply {
        let call = self.call_in(namespace);
        let answer = self.store(who).renew(&call, vec![hold_ref(lease)]).await;
        answer.map_or_else(failed, |renewed| first(renewed.results, renewed_as))
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
}

fn hold_ref(lease: &HeldLease) -> HoldRef {
    HoldRef { key: lease.key.clone(), hold_id: lease.hold, token: Token::new(lease.token) }
}

fn failed(error: StoreError) -> LeaseReply {
    match error {
        StoreError::Refused { refusal, .. } => refused(refusal),
        StoreError::OutcomeUnknown { .. } => LeaseReply::Unheard,
        other => LeaseReply::Other(other.to_string()),
    }
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

fn renewed_as(renewal: fencehold_core::lease::LeaseRenewal) -> LeaseReply {
    LeaseReply::Renewed { remaining_ms: renewal.remaining_ms }
}

#[async_trait]
impl Protocol for RealLock {
    async fn acquire(&self, who: &str, wish: &AcquireTerms) -> LeaseReply {
        let request = AcquireLeaseRequest {
            wait_ms: wish.wait_ms,
            hold_id_age_ms: wish.hold_age_ms,
            ..AcquireLeaseRequest::new(wish.key.clone(), wish.hold, wish.owner.clone(), wish.ttl_ms)
        };
        let store = self.store(who);
        let carried = self
            .gate
            .carry(&self.trace, who, "acquire", async || store.acquire(&self.call, request.clone()).await);
        match carried.await {
            None => LeaseReply::Unheard,
            Some(Err(error)) => failed(error),
            Some(Ok(acquired)) => LeaseReply::Granted(HeldLease {
                key: acquired.key,
                hold: wish.hold,
                owner: wish.owner.clone(),
                token: acquired.grant.token.get(),
                remaining_ms: acquired.grant.remaining_ms,
                resumed: acquired.grant.resumed,
            }),
        }
    }

    async fn renew(&self, who: &str, lease: &HeldLease) -> LeaseReply {
        let store = self.store(who);
        let carried = self
            .gate
            .carry(&self.trace, who, "renew", async || store.renew(&self.call, vec![hold_ref(lease)]).await);
        match carried.await {
            None => LeaseReply::Unheard,
            Some(answer) => answer.map_or_else(failed, |renewed| first(renewed.results, renewed_as)),
        }
    }

    async fn release(&self, who: &str, lease: &HeldLease) -> LeaseReply {
        let store = self.store(who);
        let carried = self
            .gate
            .carry(&self.trace, who, "release", || store.release(&self.call, vec![hold_ref(lease)]));
        match carried.await {
            None => LeaseReply::Unheard,
            Some(answer) => answer.map_or_else(failed, |answers| first(answers, |_| LeaseReply::Released)),
        }
    }

    async fn revoke(&self, who: &str, key: &Key) -> LeaseReply {
        let (Ok(by), Ok(reason)) = (Owner::new(who), Reason::new("arranged by a race")) else {
            return LeaseReply::Other("an actor without a name".to_owned());
        };
        let which = RevokeTarget::Key { key: key.clone(), only_token: None };
        let request = RevokeLeasesRequest { target: which, by, reason };
        let store = self.store(who);
        let carried = self
            .gate
            .carry(&self.trace, who, "revoke", async || store.revoke(&self.call, request.clone()).await);
        match carried.await {
            None => LeaseReply::Unheard,
            Some(Err(error)) => failed(error),
            Some(Ok(revoked)) => match revoked.first() {
                Some(lease) => LeaseReply::Revoked { consumed: lease.revoked.consumed_token.get() },
                None => LeaseReply::Other("nothing was revoked".to_owned()),
            },
        }
    }

    /// No store can be asked to sweep, nor its sweep be held from outside: what is on its way is a look at the key. On
    /// `memory:` and `file:` a call that is answered has waited for the sweep of what is over; elsewhere one may run at any time.
    async fn sweep(&self, who: &str, key: &Key) -> LeaseReply {
        let store = self.store(who);
        let look = || store.get(&self.call, key.clone());
        match self.gate.carry_as(&self.trace, who, "sweep", LOOK, look).await {
            None => LeaseReply::Unheard,
            Some(answer) => answer.map_or_else(failed, |_| LeaseReply::Looked),
        }
    }

    async fn complete(&self, who: &str, lease: &HeldLease, result: &str) -> LeaseReply {
        let carried = self
            .gate
            .carry(&self.trace, who, "complete", || ready(self.resource.put_fenced(lease.token, result)));
        match carried.await {
            None => LeaseReply::Unheard,
            Some(WriteResult::Done) => LeaseReply::Completed,
            Some(WriteResult::Stale { newest }) => LeaseReply::Stale { current: newest },
        }
    }

    async fn holder(&self, key: &Key) -> Option<String> {
        let view = self.test_store.other().get(&self.call, key.clone()).await.ok()??;
        Some(view.holder?.owner.to_string())
    }

    async fn in_line(&self, key: &Key) -> u64 {
        let view = self.test_store.other().get(&self.call, key.clone()).await;
        view.ok().flatten().map_or(0, |view| view.waiter_count)
    }
}
