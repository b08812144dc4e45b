//! The calls of the contract, each carried to the thread behind the handle.

use std::rc::Rc;
use std::sync::Arc;

use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::operation::{Route, StoreRequest, StoreResponse, keeps_finished_elsewhere};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, Capabilities, RenewLeaseBatchResponse, StoreError,
};
use fencehold_core::limits::TTL_MS_MIN;
use fencehold_net::PendingCall;

use super::{PostgresInner, PostgresStore, STORE, StatementBudget};

impl Route for PostgresStore {
    async fn route(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        match ask {
            StoreRequest::Acquire(request) => {
                self.acquire_lease(call, request).await.map(StoreResponse::Acquired)
            }
            StoreRequest::Job(ask) => self.route_job(call, ask).await.map(StoreResponse::Job),
            ask => {
                let about = call.clone();
                let answer = self
                    .ask(call, async move |core, budget| core.carry_out_lease(budget, &about, ask).await)
                    .await?;
                if let StoreResponse::Revoked { ended, .. } = &answer {
                    // Behind a pooler this handle may not hear its own notification.
                    self.hold_changes.tell(ended.iter().map(|lease| (&call.namespace, &lease.key)));
                }
                Ok(answer)
            }
        }
    }

    fn can(&self) -> Capabilities {
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

    async fn closed_for_ms(&self, call: &CallContext) -> Result<u64, StoreError> {
        let namespace = call.namespace.clone();
        self.ask(call, async move |core, budget| core.closed_for_ms(budget, &namespace).await)
            .await
    }

    /// The database answers, and the schema is made where it is not there.
    async fn proven(&self, call: &CallContext) -> Result<(), StoreError> {
        self.ask(call, async |core, budget| core.execute(budget, "SELECT 1", &[]).await)
            .await
    }

    fn hold_changes(&self) -> Option<&Arc<HoldChanges>> {
        Some(&self.hold_changes)
    }

    async fn shut(&self) {
        self.actor.close().await;
    }
}

impl PostgresStore {
    async fn acquire_lease(
        &self,
        call: &CallContext,
        request: AcquireLeaseRequest,
    ) -> Result<AcquiredLease, StoreError> {
        let (hash, timeout_ms) = (request.hold_id.hash(), call.timeout_ms);
        let (namespace, granted_in) = (call.namespace.clone(), call.namespace.clone());
        let keys = request.any_of.clone();
        let take = async move |core: &Rc<PostgresInner>, caller: &PendingCall| {
            core.start_upkeep();
            core.acquire(&namespace, timeout_ms, &request, caller).await
        };
        let undo = async move |core: &Rc<PostgresInner>, answer: Result<AcquiredLease, StoreError>| {
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
}

impl PostgresInner {
    async fn carry_out_lease(
        self: &Rc<Self>,
        budget: &mut StatementBudget,
        call: &CallContext,
        ask: StoreRequest,
    ) -> Result<StoreResponse, StoreError> {
        let namespace = &call.namespace;
        Ok(match ask {
            StoreRequest::Renew(holds) => {
                let results = self.renew(budget, namespace, &holds).await?;
                StoreResponse::Renewed(RenewLeaseBatchResponse { results, waited_ms: 0 })
            }
            StoreRequest::Release(holds) => {
                StoreResponse::Released(self.release(budget, namespace, &holds).await?)
            }
            StoreRequest::Revoke { request, .. } => {
                StoreResponse::Revoked { ended: self.revoke(budget, namespace, &request).await?, next: None }
            }
            StoreRequest::Get(key) => StoreResponse::Lease(self.get(budget, namespace, &key).await?),
            StoreRequest::List(request) => {
                StoreResponse::Leases(self.list(budget, namespace, &request).await?)
            }
            StoreRequest::Events(request) => {
                StoreResponse::Events(self.events(budget, namespace, request).await?)
            }
            StoreRequest::Advance { by, increment } => {
                StoreResponse::Advanced(self.advance(budget, &by, increment).await?)
            }
            StoreRequest::Quota(request) => {
                StoreResponse::Quota(self.limits(budget, namespace, &request).await?)
            }
            StoreRequest::Reopen { .. } => StoreResponse::Reopened(self.open_now(budget).await?),
            StoreRequest::Status => StoreResponse::Status(self.status(budget, namespace).await?),
            StoreRequest::KeepFinished { .. } => return Err(keeps_finished_elsewhere()),
            StoreRequest::Acquire(_) | StoreRequest::Job(_) => {
                return Err(fencehold_contract::operation::unexpected_response());
            }
        })
    }
}
