//! Leases and the store: what is more than one call of the contract.

use fencehold_contract::http::{
    GetLeaseRequest, NoQuery, RevokeLeaseBatchRequest, RevokeLeaseBatchResponse, RevokeLeaseRequest,
    ServerCapabilities,
};
use fencehold_contract::{
    LeaseStore as _, LeaseView, RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreError,
};
use fencehold_core::{Refusal, Token};

use super::dispatch::{HandlerResult, RequestContext};

pub(crate) async fn revoke(
    asked: RequestContext,
    request: RevokeLeaseRequest,
) -> HandlerResult<RevokedLease> {
    let RevokeLeaseRequest { key, only_token, by, reason } = request;
    let target = RevokeTarget::Key { key: key.clone(), only_token };
    let revoked = asked
        .store
        .revoke(&asked.call, RevokeLeasesRequest { target, by, reason })
        .await?;
    let none = || StoreError::refused(&key, Refusal::NotHeld).into();
    revoked.into_iter().next().ok_or_else(none)
}

pub(crate) async fn revoke_batch(
    asked: RequestContext,
    request: RevokeLeaseBatchRequest,
) -> HandlerResult<RevokeLeaseBatchResponse> {
    let RevokeLeaseBatchRequest { selector, by, reason } = request;
    let request = RevokeLeasesRequest { target: selector.into(), by, reason };
    let revoked = asked.store.revoke(&asked.call, request).await?;
    Ok(RevokeLeaseBatchResponse { results: revoked.into_iter().map(Ok).collect() })
}

pub(crate) async fn get(asked: RequestContext, request: GetLeaseRequest) -> HandlerResult<LeaseView> {
    let key = request.key;
    let view = asked.store.get(&asked.call, key.clone()).await?;
    // A key exists only while it is used: one that nothing is kept of is free.
    let (token, endings) = (Token::default(), Vec::new());
    Ok(view.unwrap_or(LeaseView { key, token, holder: None, waiter_count: 0, endings }))
}

pub(crate) async fn capabilities(asked: RequestContext, _: NoQuery) -> HandlerResult<ServerCapabilities> {
    let supported = asked.store.capabilities();
    Ok(ServerCapabilities { store: supported.store.to_owned(), supported })
}
