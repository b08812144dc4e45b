//! The contract of leases, call by call: what is asked is checked here, and carried to the thread behind the handle.

use std::rc::Rc;

use async_trait::async_trait;
use fencehold_contract::job::JobStore;
use fencehold_contract::operation::{check_acquire, check_batch, check_limit, check_prefix};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, CallContext, Capabilities, EventPage, HoldListener,
    HoldRef, LeasePage, LeaseStore, LeaseView, ListEventsRequest, ListLeasesRequest, QuotaRequest, QuotaView,
    ReleasedLease, RenewLeaseBatchResponse, RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreError,
    StoreStatus, Subscription,
};
use fencehold_core::limits::TTL_MS_MIN;
use fencehold_core::{BadInput, Key, Owner, Refusal};
use fencehold_net::Caller;

use super::{Core, PostgresStore, STORE};

#[async_trait]
impl LeaseStore for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: STORE,
            supports_fair_waiting: true,
            supports_waiting: true,
            supports_preemption: true,
            supports_jobs: true,
            durable: true,
            min_ttl_ms: TTL_MS_MIN,
        }
    }

    fn jobs(&self) -> Option<&dyn JobStore> {
        Some(self)
    }

    async fn acquire(
        &self,
        call: &CallContext,
        request: AcquireLeaseRequest,
    ) -> Result<AcquiredLease, StoreError> {
        check_acquire(&request)?;
        let (hash, patience_ms) = (request.hold_id.hash(), call.timeout_ms);
        let (namespace, granted_in) = (call.namespace.clone(), call.namespace.clone());
        let keys = request.any_of.clone();
        let take = async move |core: &Rc<Core>, caller: &Caller| {
            core.start_upkeep();
            core.acquire(&namespace, patience_ms, &request, caller).await
        };
        let undo = async move |core: &Rc<Core>, answer: Result<AcquiredLease, StoreError>| {
            // What was resumed is known to more than this request: its ttl ends it, if nothing holds it.
            let granted = match answer {
                Ok(acquired) if !acquired.grant.resumed => vec![acquired.key],
                Err(StoreError::OutcomeUnknown { .. }) => keys,
                _ => Vec::new(),
            };
            for key in granted {
                core.give_back(&granted_in, &key, hash).await;
            }
        };
        self.actor.call_or_undo(take, undo).await?
    }

    async fn renew(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<RenewLeaseBatchResponse, StoreError> {
        check_batch("renewals", &holds)?;
        let space = call.namespace.clone();
        let answers = self
            .ask(call, async move |core, budget| core.renew(budget, &space, &holds).await)
            .await?;
        Ok(RenewLeaseBatchResponse { results: answers, waited_ms: 0 })
    }

    async fn release(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<Vec<Result<ReleasedLease, Refusal>>, StoreError> {
        check_batch("releases", &holds)?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.release(budget, &space, &holds).await)
            .await
    }

    async fn revoke(
        &self,
        call: &CallContext,
        request: RevokeLeasesRequest,
    ) -> Result<Vec<RevokedLease>, StoreError> {
        if let RevokeTarget::Prefix(prefix) = &request.target {
            check_prefix(Some(prefix))?;
        }
        let space = call.namespace.clone();
        let ended = self
            .ask(call, async move |core, budget| core.revoke(budget, &space, &request).await)
            .await?;
        // Behind a pooler this handle may not hear its own notification.
        self.hold_changes.tell(ended.iter().map(|lease| (&call.namespace, &lease.key)));
        Ok(ended)
    }

    async fn get(&self, call: &CallContext, key: Key) -> Result<Option<LeaseView>, StoreError> {
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.get(budget, &space, &key).await)
            .await
    }

    async fn list(&self, call: &CallContext, request: ListLeasesRequest) -> Result<LeasePage, StoreError> {
        check_limit(request.limit)?;
        check_prefix(request.prefix.as_ref())?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.list(budget, &space, &request).await)
            .await
    }

    async fn list_events(
        &self,
        call: &CallContext,
        request: ListEventsRequest,
    ) -> Result<EventPage, StoreError> {
        check_limit(request.limit)?;
        check_prefix(request.prefix.as_ref())?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.events(budget, &space, request).await)
            .await
    }

    async fn advance(&self, call: &CallContext, by: Owner, lift: u64) -> Result<AdvancedStore, StoreError> {
        if lift == 0 {
            return Err(BadInput::new("increment", "must be more than 0").into());
        }
        self.ask(call, async move |core, budget| core.advance(budget, &by, lift).await)
            .await
    }

    async fn reopen(&self, call: &CallContext, _: Owner) -> Result<(), StoreError> {
        self.ask(call, async move |core, budget| core.open_now(budget).await).await
    }

    async fn quota(&self, call: &CallContext, request: QuotaRequest) -> Result<QuotaView, StoreError> {
        request.quota.map_or(Ok(()), |set| set.check())?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.limits(budget, &space, &request).await)
            .await
    }

    async fn status(&self, call: &CallContext) -> Result<StoreStatus, StoreError> {
        let namespace = call.namespace.clone();
        self.ask(call, async move |core, budget| core.status(budget, &namespace).await)
            .await
    }

    async fn closed_for_ms(&self, call: &CallContext) -> Result<u64, StoreError> {
        let namespace = call.namespace.clone();
        self.ask(call, async move |core, budget| core.closed_for_ms(budget, &namespace).await)
            .await
    }

    async fn ping(&self, call: &CallContext) -> Result<(), StoreError> {
        self.answer(call).await
    }

    fn on_hold_change(&self, listener: HoldListener) -> Option<Subscription> {
        Some(self.hold_changes.subscribe(listener))
    }

    async fn close(&self) {
        self.actor.close().await;
    }
}
