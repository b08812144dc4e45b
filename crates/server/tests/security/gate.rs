//! A store that one tenant's renewals, or acquisitions, go into only when they are let: so that a lane is full when a test
//! says so.

use std::sync::Arc;

use async_trait::async_trait;
use fencehold_contract::clock::ManualClock;
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, CallContext, Capabilities, EventPage, HoldRef,
    JobStore, LeasePage, LeaseStore, LeaseView, ListEventsRequest, ListLeasesRequest, ReleasedLease,
    RenewLeaseBatchResponse, RevokeLeasesRequest, RevokedLease, StoreError, StoreStatus,
};
use fencehold_core::{Key, Namespace, Owner, Refusal};
use fencehold_engine::MemoryStore;
use tokio::sync::Semaphore;

/// What has to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Renewals,
    Acquisitions,
}

/// The store, and how many of what the tenant asks may go in.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) store: MemoryStore,
    pub(crate) tenant: Namespace,
    pub(crate) held: Held,
    pub(crate) let_in: Semaphore,
}

impl Gated {
    pub(crate) fn new(clock: &ManualClock, tenant: &str, held: Held) -> Arc<Self> {
        let store = MemoryStore::open(Arc::new(clock.clone())).unwrap();
        let tenant = Namespace::new(tenant).unwrap();
        Arc::new(Gated { store, tenant, held, let_in: Semaphore::new(0) })
    }

    async fn pass(&self, call: &CallContext, what: Held) {
        if call.namespace == self.tenant && what == self.held {
            self.let_in.acquire().await.unwrap().forget();
        }
    }
}

#[async_trait]
impl LeaseStore for Gated {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn jobs(&self) -> Option<&dyn JobStore> {
        LeaseStore::jobs(&self.store)
    }

    async fn renew(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<RenewLeaseBatchResponse, StoreError> {
        self.pass(call, Held::Renewals).await;
        self.store.renew(call, holds).await
    }

    async fn acquire(
        &self,
        call: &CallContext,
        request: AcquireLeaseRequest,
    ) -> Result<AcquiredLease, StoreError> {
        self.pass(call, Held::Acquisitions).await;
        self.store.acquire(call, request).await
    }

    async fn release(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<Vec<Result<ReleasedLease, Refusal>>, StoreError> {
        self.store.release(call, holds).await
    }

    async fn revoke(
        &self,
        call: &CallContext,
        request: RevokeLeasesRequest,
    ) -> Result<Vec<RevokedLease>, StoreError> {
        self.store.revoke(call, request).await
    }

    async fn get(&self, call: &CallContext, key: Key) -> Result<Option<LeaseView>, StoreError> {
        self.store.get(call, key).await
    }

    async fn list(&self, call: &CallContext, request: ListLeasesRequest) -> Result<LeasePage, StoreError> {
        self.store.list(call, request).await
    }

    async fn list_events(
        &self,
        call: &CallContext,
        request: ListEventsRequest,
    ) -> Result<EventPage, StoreError> {
        self.store.list_events(call, request).await
    }

    async fn advance(
        &self,
        call: &CallContext,
        by: Owner,
        increment: u64,
    ) -> Result<AdvancedStore, StoreError> {
        self.store.advance(call, by, increment).await
    }

    async fn status(&self, call: &CallContext) -> Result<StoreStatus, StoreError> {
        self.store.status(call).await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}
