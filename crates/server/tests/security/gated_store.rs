//! A store that one tenant's renewals, or acquisitions, go into only when they are let: so that a lane is full when a test
//! says so.

use std::sync::Arc;

use async_trait::async_trait;
use fencehold_contract::clock::ManualClock;
use fencehold_contract::operation::{StoreBackend, StoreRequest, StoreResponse};
use fencehold_contract::{CallContext, Capabilities, StoreError};
use fencehold_core::Namespace;
use fencehold_engine::MemoryStore;
use tokio::sync::Semaphore;

/// What has to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldCall {
    Renewals,
    Acquisitions,
}

/// The store, and how many of what the tenant asks may go in.
#[derive(Debug)]
pub(crate) struct GatedStore {
    pub(crate) store: MemoryStore,
    pub(crate) tenant: Namespace,
    pub(crate) held: HeldCall,
    pub(crate) let_in: Semaphore,
}

impl GatedStore {
    pub(crate) fn new(clock: &ManualClock, tenant: &str, held: HeldCall) -> Arc<Self> {
        let store = MemoryStore::open(Arc::new(clock.clone())).unwrap();
        let tenant = Namespace::new(tenant).unwrap();
        Arc::new(GatedStore { store, tenant, held, let_in: Semaphore::new(0) })
    }
}

#[async_trait]
impl StoreBackend for GatedStore {
    async fn execute(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        let held = match &ask {
            StoreRequest::Renew(_) => self.held == HeldCall::Renewals,
            StoreRequest::Acquire(_) => self.held == HeldCall::Acquisitions,
            _ => false,
        };
        if held && call.namespace == self.tenant {
            self.let_in.acquire().await.unwrap().forget();
        }
        self.store.execute(call, ask).await
    }

    fn capabilities(&self) -> Capabilities {
        StoreBackend::capabilities(&self.store)
    }

    async fn close(&self) {
        StoreBackend::close(&self.store).await;
    }
}
