//! What a store implements: one function that carries every call to where it is decided. The traits that callers use follow from it.

use std::sync::Arc;

use fencehold_core::ttl;

use super::{Answer, Ask};
use crate::hold_changes::HoldChanges;
use crate::measure::Measures;
use crate::{
    CallContext, Capabilities, JobStore, LeaseStore, RevokeLeasesRequest, RevokedLease, StoreError,
    StoreStatus,
};

/// A store, as it is implemented. Whatever implements this is a [`LeaseStore`], and a [`JobStore`] if it says that it has jobs.
pub trait Route: Send + Sync {
    /// Carries out a call. Its input was checked.
    fn route(&self, call: &CallContext, ask: Ask) -> impl Future<Output = Result<Answer, StoreError>> + Send;
    /// What the store can do.
    fn can(&self) -> Capabilities;
    /// What the engine has measured, where it runs in this process.
    fn measured(&self) -> Option<&Measures> {
        None
    }
    /// Proves that the store answers, and that it can be used. One that is proven by opening it has nothing more to say.
    fn proven(&self, _call: &CallContext) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }
    /// For how long nothing is granted after an advance. A store that can tell without counting anything does so.
    fn closed_for_ms(&self, call: &CallContext) -> impl Future<Output = Result<u64, StoreError>> + Send {
        async {
            match self.route(call, Ask::Status).await? {
                Answer::Status(StoreStatus { closed_for_ms, .. }) => Ok(closed_for_ms),
                _ => Err(misfit()),
            }
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
    fn shut(&self) -> impl Future<Output = ()> + Send;
}

/// Carries out a call whose input is right. It is checked here, for every store alike.
pub(crate) async fn checked<R: Route + ?Sized>(
    route: &R,
    call: &CallContext,
    ask: Ask,
) -> Result<Answer, StoreError> {
    if let Ask::Acquire(request) = &ask {
        ttl::check(request.ttl_ms, route.can().min_ttl_ms)?;
    }
    ask.check()?;
    let answer = route.route(call, ask).await?;
    Ok(match answer {
        Answer::Status(status) => {
            Answer::Status(StoreStatus { store: route.can().store.to_owned(), ..status })
        }
        answer => answer,
    })
}

/// An answer that does not fit its question: only a peer of another make could send it.
pub fn misfit() -> StoreError {
    StoreError::OutcomeUnknown { message: "the answer does not fit the question".to_owned() }
}

/// Ends holds page by page, so that no page holds up another caller, and every answer fits into one frame.
pub(crate) async fn revoke_all(
    route: &impl Route,
    call: &CallContext,
    request: RevokeLeasesRequest,
) -> Result<Vec<RevokedLease>, StoreError> {
    let mut all = Vec::new();
    let mut from = 0;
    loop {
        match checked(route, call, Ask::Revoke { request: request.clone(), from }).await {
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

/// Has a store carry out a call: the other way round.
pub async fn perform(store: &dyn LeaseStore, call: &CallContext, ask: Ask) -> Result<Answer, StoreError> {
    match ask.perform(store, call).await? {
        Ok(answer) => Ok(answer),
        Err(Ask::Revoke { request, .. }) => {
            Ok(Answer::Revoked { ended: store.revoke(call, request).await?, next: None })
        }
        Err(Ask::Job(ask)) => match ask.perform(jobs_of(store)?, call).await? {
            Ok(answer) => Ok(Answer::Job(answer)),
            Err(_) => Err(misfit()),
        },
        Err(_) => Err(keeps_finished_elsewhere()),
    }
}

/// A call that a store does not carry out.
pub fn unsupported(store: &str, ask: &Ask) -> StoreError {
    let message = match ask {
        Ask::Job(_) => "keep jobs",
        Ask::Events(_) => "list events",
        Ask::Quota(_) => "limit what a namespace has",
        Ask::Reopen { .. } => "be opened before its time: each client counts that by itself",
        Ask::KeepFinished { .. } => "keep finished jobs",
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
