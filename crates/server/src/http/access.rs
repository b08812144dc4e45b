//! Tokens of access, and the audit.

use fencehold_contract::http::NoQuery;
use fencehold_contract::http::access::{
    AccessTokenList, AccessTokenView, AuditPage, AuditRequest, CreateAccessTokenRequest,
    RevokeAccessTokenRequest, RevokedAccessToken,
};

use super::dispatch::{HandlerResult, RequestContext};

pub(super) async fn create(
    asked: RequestContext,
    request: CreateAccessTokenRequest,
) -> HandlerResult<AccessTokenView> {
    asked.store.create_token(&asked.call, request).await
}

pub(super) async fn list(asked: RequestContext, _: NoQuery) -> HandlerResult<AccessTokenList> {
    asked.store.tokens(&asked.call).await
}

pub(super) async fn revoke(
    asked: RequestContext,
    request: RevokeAccessTokenRequest,
) -> HandlerResult<RevokedAccessToken> {
    asked.store.revoke_token(&asked.call, request).await
}

pub(super) async fn audit(asked: RequestContext, request: AuditRequest) -> HandlerResult<AuditPage> {
    asked.store.audit(&asked.call, request).await
}
