//! Stores that carry every call elsewhere, as one question: to an engine, or to a server.

use std::sync::Arc;

use async_trait::async_trait;
use fencehold_core::{Key, Owner, Refusal};

use super::route_job::perform_job;
use super::{Answer, Ask};
use crate::hold_changes::{HoldChanges, HoldListener, Subscription};
use crate::measure::Measures;
use crate::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, CallContext, Capabilities, EventPage, HoldRef,
    JobStore, LeasePage, LeaseStore, LeaseView, ListEventsRequest, ListLeasesRequest, QuotaRequest,
    QuotaView, ReleasedLease, RenewLeaseBatchResponse, RevokeLeasesRequest, RevokedLease, StoreError,
    StoreStatus,
};

/// A way to an engine.
pub trait Route: Send + Sync {
    /// Takes a question there and the answer back.
    fn route(&self, call: &CallContext, ask: Ask) -> impl Future<Output = Result<Answer, StoreError>> + Send;
    /// What the store at the other end can do.
    fn can(&self) -> Capabilities;
    /// What the engine has measured, where it runs in this process.
    fn measured(&self) -> Option<&Measures> {
        None
    }
    /// Proves that the engine answers.
    fn proven(&self, _call: &CallContext) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }
    /// Those who listen for what others do to their holds, where they can be notified.
    fn hold_changes(&self) -> Option<&Arc<HoldChanges>> {
        None
    }
    /// Ends this side's part.
    fn shut(&self) -> impl Future<Output = ()> + Send;
}

/// An answer that does not fit its question: only a peer of another make could send it.
pub fn misfit() -> StoreError {
    StoreError::OutcomeUnknown { message: "the answer does not fit the question".to_owned() }
}

/// Ends holds page by page, so that no page holds up another caller, and every answer fits into one frame.
async fn revoke_all(
    route: &impl Route,
    call: &CallContext,
    request: RevokeLeasesRequest,
) -> Result<Vec<RevokedLease>, StoreError> {
    let mut all = Vec::new();
    let mut from = 0;
    loop {
        match route.route(call, Ask::Revoke { request: request.clone(), from }).await {
            Ok(Answer::Revoked { ended, next }) => {
                all.extend(ended);
                match next {
                    Some(next) => from = next,
                    None => return Ok(all),
                }
            }
            Ok(_) => return Err(misfit()),
            // 'Nothing was done' is true of this page alone.
            Err(error) if !all.is_empty() => {
                let why = format!("{} leases were ended, then: {error}", all.len());
                return Err(StoreError::OutcomeUnknown { message: why });
            }
            Err(error) => return Err(error),
        }
    }
}

macro_rules! answer {
    ($route:expr, $call:expr, $ask:expr, $answer:ident) => {
        match $route.route($call, $ask).await? {
            Answer::$answer(answer) => Ok(answer),
            _ => Err(misfit()),
        }
    };
}

#[async_trait]
impl<R: Route + std::fmt::Debug> LeaseStore for R {
    fn capabilities(&self) -> Capabilities {
        self.can()
    }

    fn jobs(&self) -> Option<&dyn JobStore> {
        let jobs: &dyn JobStore = self;
        self.can().supports_jobs.then_some(jobs)
    }

    async fn acquire(
        &self,
        call: &CallContext,
        request: AcquireLeaseRequest,
    ) -> Result<AcquiredLease, StoreError> {
        answer!(self, call, Ask::Acquire(request), Acquired)
    }

    async fn renew(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<RenewLeaseBatchResponse, StoreError> {
        answer!(self, call, Ask::Renew(holds), Renewed)
    }

    async fn release(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<Vec<Result<ReleasedLease, Refusal>>, StoreError> {
        answer!(self, call, Ask::Release(holds), Released)
    }

    async fn revoke(
        &self,
        call: &CallContext,
        request: RevokeLeasesRequest,
    ) -> Result<Vec<RevokedLease>, StoreError> {
        revoke_all(self, call, request).await
    }

    async fn get(&self, call: &CallContext, key: Key) -> Result<Option<LeaseView>, StoreError> {
        answer!(self, call, Ask::Get(key), Lease)
    }

    async fn list(&self, call: &CallContext, request: ListLeasesRequest) -> Result<LeasePage, StoreError> {
        answer!(self, call, Ask::List(request), Leases)
    }

    async fn list_events(
        &self,
        call: &CallContext,
        request: ListEventsRequest,
    ) -> Result<EventPage, StoreError> {
        answer!(self, call, Ask::Events(request), Events)
    }

    async fn advance(
        &self,
        call: &CallContext,
        by: Owner,
        increment: u64,
    ) -> Result<AdvancedStore, StoreError> {
        answer!(self, call, Ask::Advance { by, increment }, Advanced)
    }

    async fn quota(&self, call: &CallContext, request: QuotaRequest) -> Result<QuotaView, StoreError> {
        answer!(self, call, Ask::Quota(request), Quota)
    }

    async fn reopen(&self, call: &CallContext, by: Owner) -> Result<(), StoreError> {
        match Route::route(self, call, Ask::Reopen { by }).await? {
            Answer::Reopened => Ok(()),
            _ => Err(misfit()),
        }
    }

    async fn status(&self, call: &CallContext) -> Result<StoreStatus, StoreError> {
        let status: Result<StoreStatus, StoreError> = answer!(self, call, Ask::Status, Status);
        status.map(|status| StoreStatus { store: self.can().store.to_owned(), ..status })
    }

    async fn ping(&self, call: &CallContext) -> Result<(), StoreError> {
        self.proven(call).await
    }

    fn on_hold_change(&self, listener: HoldListener) -> Option<Subscription> {
        self.hold_changes().map(|changes| changes.subscribe(listener))
    }

    async fn close(&self) {
        self.shut().await;
    }

    fn metrics(&self) -> Option<&Measures> {
        self.measured()
    }
}

/// Has a store carry out a call: the other way round.
pub async fn perform(store: &dyn LeaseStore, call: &CallContext, ask: Ask) -> Result<Answer, StoreError> {
    Ok(match ask {
        Ask::Acquire(request) => Answer::Acquired(store.acquire(call, request).await?),
        Ask::Renew(holds) => Answer::Renewed(store.renew(call, holds).await?),
        Ask::Release(holds) => Answer::Released(store.release(call, holds).await?),
        Ask::Revoke { request, .. } => {
            Answer::Revoked { ended: store.revoke(call, request).await?, next: None }
        }
        Ask::Get(key) => Answer::Lease(store.get(call, key).await?),
        Ask::List(request) => Answer::Leases(store.list(call, request).await?),
        Ask::Events(request) => Answer::Events(store.list_events(call, request).await?),
        Ask::Advance { by, increment } => Answer::Advanced(store.advance(call, by, increment).await?),
        Ask::Quota(request) => Answer::Quota(store.quota(call, request).await?),
        Ask::Reopen { by } => {
            store.reopen(call, by).await?;
            Answer::Reopened
        }
        Ask::Status => Answer::Status(store.status(call).await?),
        Ask::Job(ask) => Answer::Job(perform_job(jobs_of(store)?, call, ask).await?),
        Ask::KeepFinished { .. } => return Err(keeps_finished_elsewhere()),
    })
}

/// The jobs of a store, where it has any.
pub fn jobs_of(store: &dyn LeaseStore) -> Result<&dyn JobStore, StoreError> {
    store.jobs().ok_or_else(|| StoreError::Unsupported {
        store: store.capabilities().store.to_owned(),
        message: "keep jobs".to_owned(),
    })
}

/// How long finished jobs are kept is no call of the contract.
pub fn keeps_finished_elsewhere() -> StoreError {
    let what = "say here how long finished jobs are kept: the URL of the server's own store does".to_owned();
    StoreError::Unsupported { store: "a server".to_owned(), message: what }
}
