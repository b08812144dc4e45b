//! The contract of leases, call by call: what is asked is checked here, and carried to the thread behind the handle.

use async_trait::async_trait;
use fencehold_core::{Key, Owner, Refusal, Token};

use super::{PostgresStore, STORE};
use crate::capability::Capabilities;
use crate::engine::TTL_MS_MIN;
use crate::error::StoreError;
use crate::lease::{
    AcquireRequest, Acquired, Advanced, Call, EventPage, EventsRequest, HoldRef, LeasePage, LeaseStore,
    LeaseView, ListRequest, Renewed, RevokeRequest, RevokedLease, StoreStatus,
};

fn not_yet<T>() -> Result<T, StoreError> {
    Err(StoreError::Unsupported { store: STORE.to_owned(), what: "hold leases in this version".to_owned() })
}

#[async_trait]
impl LeaseStore for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: STORE,
            fair: true,
            waits: true,
            preempts: true,
            jobs: false,
            durable: true,
            ttl_ms_min: TTL_MS_MIN,
        }
    }

    async fn acquire(&self, _: &Call, _: AcquireRequest) -> Result<Acquired, StoreError> {
        not_yet()
    }

    async fn renew(&self, _: &Call, _: Vec<HoldRef>) -> Result<Renewed, StoreError> {
        not_yet()
    }

    async fn release(&self, _: &Call, _: Vec<HoldRef>) -> Result<Vec<Result<Token, Refusal>>, StoreError> {
        not_yet()
    }

    async fn revoke(&self, _: &Call, _: RevokeRequest) -> Result<Vec<RevokedLease>, StoreError> {
        not_yet()
    }

    async fn get(&self, _: &Call, _: Key) -> Result<Option<LeaseView>, StoreError> {
        not_yet()
    }

    async fn list(&self, _: &Call, _: ListRequest) -> Result<LeasePage, StoreError> {
        not_yet()
    }

    async fn events(&self, _: &Call, _: EventsRequest) -> Result<EventPage, StoreError> {
        not_yet()
    }

    async fn advance(&self, _: &Call, _: Owner, _: u64) -> Result<Advanced, StoreError> {
        not_yet()
    }

    async fn status(&self, _: &Call) -> Result<StoreStatus, StoreError> {
        not_yet()
    }

    async fn close(&self) {
        self.stop();
    }
}
