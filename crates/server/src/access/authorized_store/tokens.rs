//! Tokens and the audit at the desk. They are the access file's, and not the store's.

use std::sync::Arc;

use fencehold_contract::http::access::{
    AUDIT_LINES_MAX, AccessTokenList, AccessTokenView, AuditPage, AuditRequest, CreateAccessTokenRequest,
    RevokeAccessTokenRequest, RevokedAccessToken, TOKEN_NAME_BYTES_MAX,
};
use fencehold_contract::http::{HttpOperation as _, op};
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::BadInput;

use super::{AuthorizedStore, RequestedAct};
use crate::access::{NewToken, SecretHash, TokenDb, TokenDbError, TokenId};
use crate::audit::AuditFilter;
use crate::observe::OperationKind;

const CREATE: RequestedAct = RequestedAct::new(OperationKind::Force, op::CreateAccessToken::SPEC.scopes);
const LIST: RequestedAct = RequestedAct::new(OperationKind::Look, op::ListAccessTokens::SPEC.scopes);
const REVOKE: RequestedAct = RequestedAct::new(OperationKind::Force, op::RevokeAccessToken::SPEC.scopes);
const AUDIT: RequestedAct = RequestedAct::new(OperationKind::Look, op::ListAuditEntries::SPEC.scopes);
/// Longest texts that go into the audit.
const TEXT_BYTES_MAX: usize = 1_024;

impl AuthorizedStore {
    /// Enters a token. What was done stands in the audit in the same step.
    pub(crate) async fn create_token(
        &self,
        call: &CallContext,
        request: CreateAccessTokenRequest,
    ) -> Result<AccessTokenView, Problem> {
        let (id, hash) = (TokenId::parse(&request.id)?, SecretHash::parse(&request.secret_sha256)?);
        check_text("name", &request.name, TOKEN_NAME_BYTES_MAX)?;
        if request.name.is_empty() || request.scopes.is_empty() {
            return Err(BadInput::new("token", "needs a name and at least one scope").into());
        }
        let by = self.by(request.by.as_deref())?;
        let act = if request.namespace.is_none() { CREATE.everywhere() } else { CREATE };
        let call = match &request.namespace {
            Some(namespace) => CallContext::new(namespace.clone()),
            None => call.clone(),
        };
        let from = self.caller.origin();
        self.with_token_db(act, &call, move |token_db, now_wall_ms| {
            let new = NewToken {
                name: request.name,
                namespace: request.namespace,
                scopes: request.scopes.into_iter().collect(),
                created_by: by,
                expires_wall_ms: request.expires_in_ms.map(|ms| now_wall_ms.saturating_add(ms)),
            };
            token_db.create_hashed(id, &hash, &new, &from, now_wall_ms)?;
            token_db.token(id)?.map(Into::into).ok_or(TokenDbError::NoSuchToken(id))
        })
        .await
    }

    /// Tokens: of every namespace for an operator, else of the one that was asked about.
    pub(crate) async fn tokens(&self, call: &CallContext) -> Result<AccessTokenList, Problem> {
        let only = (!self.caller.is_operator()).then(|| call.namespace.clone());
        self.with_token_db(LIST, call, move |token_db, _| {
            let mut tokens = token_db.tokens()?;
            tokens.retain(|token| only.is_none() || token.namespace == only);
            Ok(AccessTokenList { access_tokens: tokens.into_iter().map(Into::into).collect() })
        })
        .await
    }

    /// Ends a token.
    pub(crate) async fn revoke_token(
        &self,
        call: &CallContext,
        request: RevokeAccessTokenRequest,
    ) -> Result<RevokedAccessToken, Problem> {
        let id = TokenId::parse(&request.access_token_id)?;
        let by = self.by(request.by.as_deref())?;
        check_text("reason", request.reason.as_deref().unwrap_or_default(), TEXT_BYTES_MAX)?;
        let only = (!self.caller.is_operator()).then(|| call.namespace.clone());
        let from = self.caller.origin();
        self.with_token_db(REVOKE, call, move |token_db, now_wall_ms| {
            let there = token_db.token(id)?.ok_or(TokenDbError::NoSuchToken(id))?;
            if only.is_some() && there.namespace != only {
                // Whether another namespace has it is not this caller's business.
                return Err(TokenDbError::NoSuchToken(id));
            }
            let revoked = token_db.revoke(id, &by, &from, request.reason.as_deref(), now_wall_ms)?;
            Ok(RevokedAccessToken { revoked })
        })
        .await
    }

    /// Lines of the audit: of every namespace for an operator, else of the one that was asked about.
    pub(crate) async fn audit(
        &self,
        call: &CallContext,
        request: AuditRequest,
    ) -> Result<AuditPage, Problem> {
        let everywhere = self.caller.is_operator() && !request.only_namespace;
        let namespace = (!everywhere).then(|| call.namespace.clone());
        self.with_token_db(AUDIT, call, move |token_db, now_wall_ms| {
            let filter = AuditFilter {
                after: request.cursor,
                since_wall_ms: request.since_ms.map(|ms| now_wall_ms.saturating_sub(ms)),
                namespace,
                limit: Some(request.limit.min(AUDIT_LINES_MAX)),
            };
            token_db.audit(&filter)
        })
        .await
    }

    /// Who did it: what they call themselves, and by what the server knows them.
    fn by(&self, named: Option<&str>) -> Result<String, BadInput> {
        let named = named.unwrap_or_default();
        check_text("by", named, TEXT_BYTES_MAX)?;
        let who = &self.caller.who;
        Ok(if named.is_empty() { who.to_string() } else { format!("{named}, {who}") })
    }

    async fn with_token_db<T: Send + 'static>(
        &self,
        act: RequestedAct,
        call: &CallContext,
        work: impl FnOnce(&mut TokenDb, u64) -> Result<T, TokenDbError> + Send + 'static,
    ) -> Result<T, Problem> {
        let server = Arc::clone(&self.server);
        let asked = async move {
            let missing = || StoreError::Unsupported {
                store: "behind this server".to_owned(),
                message: "keep tokens: the server has no access file".to_owned(),
            };
            let access_cache = server.access.access_cache().ok_or_else(missing)?;
            match access_cache.with_token_db(work).await {
                Err(TokenDbError::Unusable { path, why }) => {
                    tracing::error!(path, why, "the access file cannot be used");
                    let why = "the access file cannot be used; the server's log says why".to_owned();
                    Err(StoreError::Unavailable { message: why })
                }
                done => Ok(done),
            }
        };
        let done = self.pass(act, call, asked).await.map_err(Problem::from)?;
        done.map_err(|error| match error {
            TokenDbError::NoSuchToken(_) => Problem::new(ErrorKind::AccessTokenNotFound, error.to_string()),
            error => BadInput::new("id", error.to_string()).into(),
        })
    }
}

fn check_text(what: &'static str, text: &str, bytes_max: usize) -> Result<(), BadInput> {
    if text.len() > bytes_max || text.chars().any(char::is_control) {
        let problem = format!("must have at most {bytes_max} bytes, and no control characters");
        return Err(BadInput::new(what, problem));
    }
    Ok(())
}
