//! Tokens and the audit: those of an access file on this machine, or, where the store is a server, those of the server.

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::http::access::{
    AccessTokenView, AuditEntry, AuditRequest, CreateAccessTokenRequest, RevokeAccessTokenRequest,
};
use fencehold_contract::http::{Empty, Scope, op};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::Namespace;
use fencehold_server::access::{ApiToken, Bearer, Book, BookError, NewToken, Scopes, TokenId};
use fencehold_server::audit::{AuditFilter, AuditRow};
use fencehold_store_remote::RemoteStore;
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::whereabouts::unusable;

/// Where a command was given on this machine, for the audit.
const HERE: &str = "this machine";

/// Where tokens are kept.
pub(crate) enum Tokens {
    File(Box<Book>),
    Server { server: Box<RemoteStore>, call: CallContext, name: String },
}

/// A token that is to be made.
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) namespace: Option<Namespace>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) expires_in_ms: Option<u64>,
    pub(crate) by: String,
}

/// A token as people see it.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) namespace: Option<Namespace>,
    pub(crate) scopes: String,
    pub(crate) created_wall_ms: u64,
    pub(crate) created_by: String,
    pub(crate) expires_wall_ms: Option<u64>,
    pub(crate) last_used_wall_ms: Option<u64>,
    pub(crate) revoked_wall_ms: Option<u64>,
}

/// A line of the audit as people see it.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) seq: u64,
    pub(crate) at_wall_ms: u64,
    pub(crate) who: String,
    pub(crate) from: String,
    pub(crate) namespace: String,
    pub(crate) act: String,
    pub(crate) target: String,
    pub(crate) reason: Option<String>,
    pub(crate) outcome: String,
}

impl Tokens {
    /// Makes a token, and gives when it ends, in wall time.
    pub(crate) async fn create(&mut self, bearer: &Bearer, wanted: Wanted) -> Result<Option<u64>, Failure> {
        match self {
            Tokens::File(book) => {
                let now_wall_ms = SystemClock.now().wall_ms;
                let expires_wall_ms = wanted.expires_in_ms.map(|ms| now_wall_ms.saturating_add(ms));
                let new = NewToken {
                    name: wanted.name,
                    namespace: wanted.namespace,
                    scopes: wanted.scopes.into_iter().collect(),
                    created_by: wanted.by,
                    expires_wall_ms,
                };
                book.create(bearer, &new, HERE, now_wall_ms).map_err(|error| unusable(&error))?;
                Ok(expires_wall_ms)
            }
            Tokens::Server { server, call, name } => {
                let request = CreateAccessTokenRequest {
                    id: bearer.id.to_string(),
                    secret_sha256: bearer.hash().to_hex(),
                    name: wanted.name,
                    namespace: wanted.namespace,
                    scopes: wanted.scopes,
                    expires_in_ms: wanted.expires_in_ms,
                    by: Some(wanted.by),
                };
                let made = server.ask_server::<op::CreateAccessToken>(call, request).await;
                let made = made.map_err(|error| Failure::of_store(error, name))?;
                Ok(made.expires_at.map(|moment| moment.wall_ms))
            }
        }
    }

    /// Every token, oldest first.
    pub(crate) async fn list(&self) -> Result<Vec<Shown>, Failure> {
        match self {
            Tokens::File(book) => {
                let tokens = book.tokens().map_err(|error| unusable(&error))?;
                Ok(tokens.into_iter().map(Shown::from).collect())
            }
            Tokens::Server { server, call, name } => {
                let tokens = server.ask_server::<op::ListAccessTokens>(call, Empty {}).await;
                let tokens = tokens.map_err(|error| Failure::of_store(error, name))?;
                Ok(tokens.access_tokens.into_iter().map(Shown::from).collect())
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
            Failure::new(Exit::Failed, what)
                .with_next(format!("`fencehold token ls --all` lists those of {place}."))
        };
        match self {
            Tokens::File(book) => {
                let now_wall_ms = SystemClock.now().wall_ms;
                book.revoke(id, &by, HERE, reason.as_deref(), now_wall_ms)
                    .map_err(|error| match error {
                        BookError::NoSuchToken(_) => {
                            missing(error.to_string(), book.path().display().to_string())
                        }
                        error => unusable(&error),
                    })
            }
            Tokens::Server { server, call, name } => {
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

    /// Lines of the audit, oldest first.
    pub(crate) async fn audit(
        &self,
        after: Option<u64>,
        within_ms: Option<u64>,
        limit: u64,
        only: Option<Namespace>,
    ) -> Result<Vec<Line>, Failure> {
        match self {
            Tokens::File(book) => {
                let now_wall_ms = SystemClock.now().wall_ms;
                let since_wall_ms = within_ms.map(|ms| now_wall_ms.saturating_sub(ms));
                let filter = AuditFilter { after, since_wall_ms, namespace: only, limit: Some(limit) };
                let rows = book.audit(&filter).map_err(|error| unusable(&error))?;
                Ok(rows.into_iter().map(Line::from).collect())
            }
            Tokens::Server { server, call, name } => {
                let request = AuditRequest { after, within_ms, only_namespace: only.is_some(), limit };
                let page = server.ask_server::<op::ListAuditEntries>(call, request).await;
                let page = page.map_err(|error| Failure::of_store(error, name))?;
                Ok(page.entries.into_iter().map(Line::from).collect())
            }
        }
    }
}

impl From<ApiToken> for Shown {
    fn from(token: ApiToken) -> Self {
        Shown {
            id: token.id.to_string(),
            name: token.name,
            namespace: token.namespace,
            scopes: token.scopes.to_string(),
            created_wall_ms: token.created_wall_ms,
            created_by: token.created_by,
            expires_wall_ms: token.expires_wall_ms,
            last_used_wall_ms: token.last_used_wall_ms,
            revoked_wall_ms: token.revoked_wall_ms,
        }
    }
}

impl From<AccessTokenView> for Shown {
    fn from(token: AccessTokenView) -> Self {
        Shown {
            id: token.id,
            name: token.name,
            namespace: token.namespace,
            scopes: token.scopes.into_iter().collect::<Scopes>().to_string(),
            created_wall_ms: token.created_at.wall_ms,
            created_by: token.created_by,
            expires_wall_ms: token.expires_at.map(|moment| moment.wall_ms),
            last_used_wall_ms: token.last_used_at.map(|moment| moment.wall_ms),
            revoked_wall_ms: token.revoked_at.map(|moment| moment.wall_ms),
        }
    }
}

impl From<AuditRow> for Line {
    fn from(row: AuditRow) -> Self {
        Line {
            seq: row.seq,
            at_wall_ms: row.at_wall_ms,
            who: row.who,
            from: row.from,
            namespace: row.namespace,
            act: row.act,
            target: row.target,
            reason: row.reason,
            outcome: row.outcome,
        }
    }
}

impl From<AuditEntry> for Line {
    fn from(row: AuditEntry) -> Self {
        Line {
            seq: row.seq,
            at_wall_ms: row.at.wall_ms,
            who: row.actor,
            from: row.address,
            namespace: row.namespace,
            act: row.action,
            target: row.target,
            reason: row.reason,
            outcome: row.outcome,
        }
    }
}
