//! Tokens of access, and the audit.

use fencehold_contract::http::NoQuery;
use fencehold_contract::http::access::{
    AccessTokenList, AccessTokenView, AuditPage, AuditRequest, CreateAccessTokenRequest,
    RevokeAccessTokenRequest, RevokedAccessToken,
};

use super::answer::{Answer, Asked};

pub(super) async fn create(asked: Asked, request: CreateAccessTokenRequest) -> Answer<AccessTokenView> {
    asked.store.create_token(&asked.call, request).await
}

pub(super) async fn list(asked: Asked, _: NoQuery) -> Answer<AccessTokenList> {
    asked.store.tokens(&asked.call).await
}

pub(super) async fn revoke(asked: Asked, request: RevokeAccessTokenRequest) -> Answer<RevokedAccessToken> {
    asked.store.revoke_token(&asked.call, request).await
}

pub(super) async fn audit(asked: Asked, request: AuditRequest) -> Answer<AuditPage> {
    asked.store.audit(&asked.call, request).await
}
