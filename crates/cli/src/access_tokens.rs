//! Access tokens and the audit: those of an access file on this machine, or, where the store is a server, those of the server.

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::http::access::{
    AccessTokenView, AuditPage, AuditRequest, CreateAccessTokenRequest, RevokeAccessTokenRequest,
};
use fencehold_contract::http::{HttpOperation, NoQuery, op};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::Namespace;
use fencehold_server::access::{Bearer, NewToken, TokenDb, TokenDbError, TokenId};
use fencehold_server::audit::AuditFilter;
use fencehold_store_remote::RemoteStore;

use crate::failure::{ErrorKind, Failure};
use crate::server_files::unusable;

/// Where a command was given on this machine, for the audit.
const HERE: &str = "this machine";

/// Where tokens are kept.
pub(crate) enum TokenSource {
    File(Box<TokenDb>),
    Server(Box<TokenServer>),
}

/// A server that keeps tokens.
pub(crate) struct TokenServer {
    pub(crate) server: RemoteStore,
    pub(crate) call: CallContext,
    /// Its URL, for messages.
    pub(crate) name: String,
}

impl TokenServer {
    async fn ask<O: HttpOperation>(&self, request: O::Request) -> Result<O::Response, Failure> {
        let answer = self.server.ask_server::<O>(&self.call, request).await;
        answer.map_err(|error| Failure::of_store(error, &self.name))
    }
}

impl TokenSource {
    /// Creates a token.
    pub(crate) async fn create(
        &mut self,
        bearer: &Bearer,
        request: CreateAccessTokenRequest,
    ) -> Result<AccessTokenView, Failure> {
        match self {
            TokenSource::File(token_db) => {
                let now_wall_ms = SystemClock.now().wall_ms;
                let new = NewToken {
                    name: request.name,
                    namespace: request.namespace,
                    scopes: request.scopes.into_iter().collect(),
                    created_by: request.by.unwrap_or_default(),
                    expires_wall_ms: request.expires_in_ms.map(|ms| now_wall_ms.saturating_add(ms)),
                };
                token_db.create(bearer, &new, HERE, now_wall_ms).map_err(unusable)?;
                let made = token_db
                    .token(bearer.id)
                    .and_then(|made| made.map(Into::into).ok_or(TokenDbError::NoSuchToken(bearer.id)));
                made.map_err(unusable)
            }
            TokenSource::Server(server) => server.ask::<op::CreateAccessToken>(request).await,
        }
    }

    /// Every token, oldest first.
    pub(crate) async fn list(&self) -> Result<Vec<AccessTokenView>, Failure> {
        match self {
            TokenSource::File(token_db) => {
                let tokens = token_db.tokens().map_err(unusable)?;
                Ok(tokens.into_iter().map(Into::into).collect())
            }
            TokenSource::Server(server) => {
                Ok(server.ask::<op::ListAccessTokens>(NoQuery {}).await?.access_tokens)
            }
        }
    }

    /// Revokes a token. False: it was revoked before.
    pub(crate) async fn revoke(
        &mut self,
        id: TokenId,
        by: String,
        reason: Option<String>,
    ) -> Result<bool, Failure> {
        let missing = |what: String, place: String| {
            Failure::of_kind(ErrorKind::AccessTokenNotFound, what)
                .with_next(format!("`fencehold access-token ls --include-inactive` lists those of {place}."))
        };
        match self {
            TokenSource::File(token_db) => {
                let now_wall_ms = SystemClock.now().wall_ms;
                token_db
                    .revoke(id, &by, HERE, reason.as_deref(), now_wall_ms)
                    .map_err(|error| match error {
                        TokenDbError::NoSuchToken(_) => {
                            missing(error.to_string(), token_db.path().display().to_string())
                        }
                        error => unusable(error),
                    })
            }
            TokenSource::Server(source) => {
                let TokenServer { server, call, name } = &**source;
                let request =
                    RevokeAccessTokenRequest { access_token_id: id.to_string(), by: Some(by), reason };
                match server.ask_server::<op::RevokeAccessToken>(call, request).await {
                    Ok(answer) => Ok(answer.revoked),
                    Err(StoreError::Unusable { message: why, .. }) if why.contains("there is no token") => {
                        Err(missing(why, name.clone()))
                    }
                    Err(error) => Err(Failure::of_store(error, name)),
                }
            }
        }
    }

    /// Entries of the audit, oldest first.
    pub(crate) async fn audit(
        &self,
        cursor: Option<u64>,
        since_ms: Option<u64>,
        limit: u64,
        only: Option<Namespace>,
    ) -> Result<AuditPage, Failure> {
        match self {
            TokenSource::File(token_db) => {
                let now_wall_ms = SystemClock.now().wall_ms;
                let since_wall_ms = since_ms.map(|ms| now_wall_ms.saturating_sub(ms));
                let filter =
                    AuditFilter { after: cursor, since_wall_ms, namespace: only, limit: Some(limit) };
                token_db.audit(&filter).map_err(unusable)
            }
            TokenSource::Server(server) => {
                let request = AuditRequest { cursor, since_ms, only_namespace: only.is_some(), limit };
                server.ask::<op::ListAuditEntries>(request).await
            }
        }
    }
}
