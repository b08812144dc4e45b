//! What a store implements: one function that carries every call to where it is decided. The traits that callers use follow from it.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use fencehold_core::ttl;

use super::{StoreRequest, StoreResponse};
use crate::hold_changes::HoldChanges;
use crate::metrics::StoreMetrics;
use crate::{
    CallContext, Capabilities, JobStore, LeaseStore, RevokeLeasesRequest, RevokedLease, StoreError,
    StoreStatus,
};

/// What a call of the contract will be answered with.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store, as it is implemented. Whatever implements this is a [`LeaseStore`], and a [`JobStore`] if it says that it has jobs.
///
/// Its futures are boxed, so that the methods of those traits are compiled once and not once for each store.
#[async_trait]
pub trait StoreBackend: Send + Sync {
    /// Carries out a call. Its input was checked.
    async fn execute(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError>;
    /// What the store can do.
    fn capabilities(&self) -> Capabilities;
    /// The schema of the PostgreSQL database that has the store, where this process reaches it directly.
    fn postgres_schema(&self) -> Option<&str> {
        None
    }
    /// What was counted and measured, where anything is known in this process.
    fn metrics(&self) -> Option<&StoreMetrics> {
        None
    }
    /// Brings those counts up to date. The default does nothing, for stores whose own code counts as things happen.
    async fn refresh_metrics(&self, _call: &CallContext) -> Result<(), StoreError> {
        Ok(())
    }
    /// Checks that the store is reachable and can be used. The default succeeds at once, for stores where opening proves that.
    async fn ping(&self, _call: &CallContext) -> Result<(), StoreError> {
        Ok(())
    }
    /// For how long nothing is granted after an advance. A store that can tell without counting anything does so.
    async fn closed_for_ms(&self, call: &CallContext) -> Result<u64, StoreError> {
        match self.execute(call, StoreRequest::Status).await? {
            StoreResponse::Status(StoreStatus { closed_for_ms, .. }) => Ok(closed_for_ms),
            _ => Err(unexpected_response()),
        }
    }
    /// How many requests this handle has sent over a network so far, where the store can tell.
    fn requests_sent(&self) -> Option<u64> {
        None
    }
    /// Those who listen for what others do to their holds, where they can be notified.
    fn hold_changes(&self) -> Option<&Arc<HoldChanges>> {
        None
    }
    /// Ends this side's part.
    async fn close(&self);
}

/// Carries out a call, and takes out of the answer what the caller's method returns.
pub(crate) fn ask<'a, T: 'a>(
    backend: &'a dyn StoreBackend,
    call: &'a CallContext,
    ask: StoreRequest,
    unpack: fn(StoreResponse) -> Option<T>,
) -> StoreFuture<'a, T> {
    Box::pin(async move {
        let answer = checked(backend, call, ask).await?;
        unpack(answer).ok_or_else(unexpected_response)
    })
}

/// Carries out a call whose input is right. It is checked here, for every store alike.
async fn checked(
    backend: &dyn StoreBackend,
    call: &CallContext,
    ask: StoreRequest,
) -> Result<StoreResponse, StoreError> {
    if let StoreRequest::Acquire(request) = &ask {
        ttl::check(request.ttl_ms, backend.capabilities().min_ttl_ms)?;
    }
    ask.check()?;
    let answer = backend.execute(call, ask).await?;
    Ok(match answer {
        StoreResponse::Status(status) => {
            StoreResponse::Status(StoreStatus { store: backend.capabilities().store.to_owned(), ..status })
        }
        answer => answer,
    })
}

/// An answer that does not fit its question: only a peer of another make could send it.
pub fn unexpected_response() -> StoreError {
    StoreError::OutcomeUnknown { message: "the answer does not fit the question".to_owned() }
}

/// Ends holds page by page, so that no page holds up another caller, and every answer fits into one frame.
pub(crate) async fn revoke_all(
    backend: &dyn StoreBackend,
    call: &CallContext,
    request: RevokeLeasesRequest,
) -> Result<Vec<RevokedLease>, StoreError> {
    let mut all = Vec::new();
    let mut from = 0;
    loop {
        match checked(backend, call, StoreRequest::Revoke { request: request.clone(), from }).await {
            Ok(StoreResponse::Revoked { ended, next }) => {
                all.extend(ended);
                match next {
                    Some(next) => from = next,
                    None => return Ok(all),
                }
            }
            Ok(_) => return Err(unexpected_response()),
            // 'Nothing was done' is true of this page alone.
            Err(error) if !all.is_empty() => {
                let why = format!("{} leases were ended, then: {error}", all.len());
                return Err(StoreError::OutcomeUnknown { message: why });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Has a store carry out a call: the other way round.
pub async fn perform(
    store: &dyn LeaseStore,
    call: &CallContext,
    ask: StoreRequest,
) -> Result<StoreResponse, StoreError> {
    match ask.perform(store, call).await? {
        Ok(answer) => Ok(answer),
        Err(StoreRequest::Revoke { request, .. }) => {
            Ok(StoreResponse::Revoked { ended: store.revoke(call, request).await?, next: None })
        }
        Err(StoreRequest::Job(ask)) => match ask.perform(jobs_of(store)?, call).await? {
            Ok(answer) => Ok(StoreResponse::Job(answer)),
            Err(_) => Err(unexpected_response()),
        },
        Err(_) => Err(keeps_finished_elsewhere()),
    }
}

/// A call that a store does not carry out.
pub fn unsupported(store: &str, ask: &StoreRequest) -> StoreError {
    let message = match ask {
        StoreRequest::Job(_) => "keep jobs",
        StoreRequest::Events(_) => "list events",
        StoreRequest::Quota(_) => "limit what a namespace has",
        StoreRequest::Reopen { .. } => "be opened before its time: each client counts that by itself",
        StoreRequest::KeepFinished { .. } => "keep finished jobs",
        StoreRequest::ReportBlockedWrite(_) => "record what was refused: it keeps no events",
        _ => "do this",
    };
    StoreError::Unsupported { store: store.to_owned(), message: message.to_owned() }
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
