//! The calls of the contract, each carried to the thread behind the handle.

use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::operation::{StoreBackend, StoreRequest, StoreResponse, keeps_finished_elsewhere};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, Capabilities, RenewLeaseBatchResponse, StoreError,
};
use fencehold_core::Namespace;
use fencehold_core::limits::TTL_MS_MIN;
use fencehold_net::PendingCall;

use super::view::counter_of;
use super::{Call, PostgresInner, PostgresStore, STORE};

/// How long the end of a handle waits for the database to take what was gathered of contention.
const CLOSE_MS: u64 = 1_000;

#[async_trait]
impl StoreBackend for PostgresStore {
    async fn execute(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        match ask {
            StoreRequest::Acquire(request) => {
                self.acquire_lease(call, request).await.map(StoreResponse::Acquired)
            }
            StoreRequest::Job(ask) => self.route_job(call, ask).await.map(StoreResponse::Job),
            ask => {
                let answer = self.ask(call, async move |_, call| call.carry_out_lease(ask).await).await?;
                if let StoreResponse::Revoked { ended, .. } = &answer {
                    // Behind a pooler this handle may not hear its own notification.
                    self.hold_changes.tell(ended.iter().map(|lease| (&call.namespace, &lease.key)));
                }
                Ok(answer)
            }
        }
    }

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

    fn postgres_schema(&self) -> Option<&str> {
        Some(&self.url.schema)
    }

    async fn closed_for_ms(&self, call: &CallContext) -> Result<u64, StoreError> {
        self.ask(call, async |_, call| call.closed_for_ms().await).await
    }

    /// The database answers, and the schema is made where it is not there.
    async fn ping(&self, call: &CallContext) -> Result<(), StoreError> {
        self.ask(call, async |_, call| call.execute("SELECT 1", &[]).await).await
    }

    fn metrics(&self) -> Option<&StoreMetrics> {
        Some(&self.measures)
    }

    /// What happens is counted in the database, for all who use it.
    async fn refresh_metrics(&self, call: &CallContext) -> Result<(), StoreError> {
        let (counts, event_seq) = self.ask(call, async |_, call| call.event_counts().await).await?;
        self.measures.facts.take_over(event_seq, |facts| {
            for (kind, count) in counts {
                if let Some(counter) = counter_of(facts, &kind) {
                    counter.raise_to(count);
                }
            }
        });
        Ok(())
    }

    fn hold_changes(&self) -> Option<&Arc<HoldChanges>> {
        Some(&self.hold_changes)
    }

    async fn close(&self) {
        if !self.contention.is_empty() {
            // A process that asks once and ends, as scripts do, would otherwise leave nothing behind.
            let call = CallContext::new(Namespace::default()).with_timeout_ms(CLOSE_MS);
            let added = self.ask(&call, async |_, call| call.add_contention().await).await;
            if let Err(error) = added {
                tracing::debug!(%error, "what was gathered of contention is lost");
            }
        }
        self.actor.close().await;
    }
}

impl PostgresStore {
    async fn acquire_lease(
        &self,
        call: &CallContext,
        request: AcquireLeaseRequest,
    ) -> Result<AcquiredLease, StoreError> {
        let (hash, keys) = (request.hold_id.hash(), request.any_of.clone());
        let (about, undone) = (call.clone(), call.clone());
        let take = async move |core: &Rc<PostgresInner>, caller: &PendingCall| {
            core.start_upkeep();
            core.call(&about, about.timeout_ms, request.wait_ms)
                .acquire(&request, caller)
                .await
        };
        let undo = async move |core: &Rc<PostgresInner>, answer: Result<AcquiredLease, StoreError>| {
            // What was resumed is known to more than this request: its ttl ends it, if nothing holds it.
            let granted = match answer {
                Ok(acquired) if !acquired.grant.resumed => vec![acquired.key],
                Err(StoreError::OutcomeUnknown { .. }) => keys,
                _ => Vec::new(),
            };
            for key in granted {
                core.give_back(&undone, &key, hash).await;
            }
        };
        self.actor.call_or_undo(take, undo).await?
    }
}

impl Call<'_> {
    async fn carry_out_lease(&mut self, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        Ok(match ask {
            StoreRequest::Renew(holds) => {
                let results = self.renew(&holds).await?;
                StoreResponse::Renewed(RenewLeaseBatchResponse { results, waited_ms: 0 })
            }
            StoreRequest::Release(holds) => StoreResponse::Released(self.release(&holds).await?),
            StoreRequest::Revoke { request, .. } => {
                StoreResponse::Revoked { ended: self.revoke(&request).await?, next: None }
            }
            StoreRequest::Get(key) => StoreResponse::Lease(self.get(&key).await?),
            StoreRequest::List(request) => StoreResponse::Leases(self.list(&request).await?),
            StoreRequest::Events(request) => StoreResponse::Events(self.events(request).await?),
            StoreRequest::Advance { by, increment } => {
                StoreResponse::Advanced(self.advance(&by, increment).await?)
            }
            StoreRequest::Quota(request) => StoreResponse::Quota(self.limits(&request).await?),
            StoreRequest::Reopen { .. } => StoreResponse::Reopened(self.open_now().await?),
            StoreRequest::Status => StoreResponse::Status(self.status().await?),
            StoreRequest::ReportBlockedWrite(report) => {
                StoreResponse::BlockedWriteRecorded(self.record_blocked_write(&report).await?)
            }
            StoreRequest::Stats(request) => StoreResponse::Stats(self.stats(request).await?),
            StoreRequest::Contention(request) => StoreResponse::Contention(self.contention(&request).await?),
            StoreRequest::KeepFinished { .. } => return Err(keeps_finished_elsewhere()),
            StoreRequest::Acquire(_) | StoreRequest::Job(_) => {
                return Err(fencehold_contract::operation::unexpected_response());
            }
        })
    }
}
