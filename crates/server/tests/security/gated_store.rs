//! A store that one tenant's renewals, or acquisitions, go into only when they are let: so that a lane is full when a test
//! says so.

use std::sync::Arc;

use fencehold_contract::clock::ManualClock;
use fencehold_contract::operation::{Route, StoreRequest, StoreResponse};
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

impl Route for GatedStore {
    async fn route(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        let held = match &ask {
            StoreRequest::Renew(_) => self.held == HeldCall::Renewals,
            StoreRequest::Acquire(_) => self.held == HeldCall::Acquisitions,
            _ => false,
        };
        if held && call.namespace == self.tenant {
            self.let_in.acquire().await.unwrap().forget();
        }
        self.store.route(call, ask).await
    }

    fn can(&self) -> Capabilities {
        self.store.can()
    }

    async fn shut(&self) {
        self.store.shut().await;
    }
}
