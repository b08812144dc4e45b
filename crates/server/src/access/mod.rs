//! Who may do what: tokens, what they allow, and the book in which they stand.
//!
//! Nouns: a *token* (of access, not of fencing) is 256 random bits that a caller shows; the [`TokenDb`] keeps their hashes and
//! the audit; the [`AccessCache`] is the server's side of the book; a [`Caller`] is a client that was let in; a *desk* is
//! the store as one caller may use it, and the only way to the store that a handler has.
//!
//! Deliberately absent: users and passwords (a token is made for a program), and rights on single keys (that is what
//! namespaces are for).

mod access_cache;
mod authorized_store;
mod caller;
mod host_header;
mod refusal_log;
mod scope;
mod secret;
mod served_marker;
mod token_db;

use std::net::IpAddr;
use std::sync::Arc;

use fencehold_contract::http::{HttpOperation as _, NAMESPACE_HEADER, OperationSpec, op};
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_core::{BadInput, Namespace};
use http::header::AUTHORIZATION;
use http::request::Parts;

use crate::listen::Connection;
use crate::{ServerInner, locked};

pub use access_cache::{AccessCache, AccessDenied};
pub(crate) use authorized_store::{AuthorizedStore, CallerHoldChanges};
pub use caller::{Caller, CallerIdentity};
pub use fencehold_contract::http::Scope;
pub(crate) use refusal_log::RefusalLog;
pub use scope::Scopes;
pub use secret::{Bearer, SecretHash, TokenId};
pub(crate) use secret::{hex, unhex};
pub use served_marker::has_had_tokens;
pub use token_db::{ApiToken, NewToken, TokenDb, TokenDbError};

/// How many namespaces are remembered for having been asked for.
const SEEN_MAX: usize = 256;
/// Where holds are renewed: at a pace of their own.
const RENEWALS: [&str; 4] = [
    op::RenewLease::SPEC.path,
    op::RenewLeaseBatch::SPEC.path,
    op::RenewAttempt::SPEC.path,
    op::RenewAttemptBatch::SPEC.path,
];

/// How callers are distinguished.
#[derive(Clone, Debug, Default)]
pub struct Access {
    access_cache: Option<Arc<AccessCache>>,
    mode: AccessMode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AccessMode {
    /// No caller needs a token.
    #[default]
    Open,
    /// No caller does, until the first token is made.
    UntilTokens,
    /// Every caller does.
    ByToken,
}

impl Access {
    /// Everybody who can reach the server may do everything, in whatever namespace they name. With a keeper, what they do
    /// with force is still written down.
    pub fn open(access_cache: Option<Arc<AccessCache>>) -> Self {
        Access { access_cache, mode: AccessMode::Open }
    }

    /// As with [`Access::open`] until there is a token; from then on as with [`Access::by_token`], also for those who
    /// were let in before, and also if all tokens are gone again.
    pub fn until_tokens(access_cache: Arc<AccessCache>) -> Self {
        Access { access_cache: Some(access_cache), mode: AccessMode::UntilTokens }
    }

    /// The caller must show a token that this keeper knows.
    pub fn by_token(access_cache: Arc<AccessCache>) -> Self {
        Access { access_cache: Some(access_cache), mode: AccessMode::ByToken }
    }

    /// Whether no token is needed.
    pub(crate) fn is_open(&self) -> bool {
        match (self.mode, &self.access_cache) {
            (AccessMode::Open, _) | (_, None) => true,
            (AccessMode::UntilTokens, Some(access_cache)) => !access_cache.has_tokens(),
            (AccessMode::ByToken, Some(_)) => false,
        }
    }

    /// Waits until a caller that was let in would not be let in again.
    pub(crate) async fn until_refused(&self, who: &CallerIdentity) -> AccessDenied {
        match (who, &self.access_cache) {
            (CallerIdentity::Token { id, .. }, Some(access_cache)) => access_cache.until_refused(*id).await,
            (CallerIdentity::Anyone, Some(access_cache)) if self.mode == AccessMode::UntilTokens => {
                access_cache.until_tokens().await;
                AccessDenied::NoToken
            }
            _ => std::future::pending().await,
        }
    }

    pub(crate) fn access_cache(&self) -> Option<&AccessCache> {
        self.access_cache.as_deref()
    }

    fn caller(&self, parts: &Parts, from: Option<IpAddr>) -> Result<Caller, AccessDenied> {
        let Some(access_cache) = self.access_cache.as_ref().filter(|_| self.mode != AccessMode::Open) else {
            return Ok(Caller::anyone(from));
        };
        if self.is_open() {
            // Where the file cannot be read, a token may stand in it.
            access_cache.can_check()?;
            return Ok(Caller::anyone(from));
        }
        let shown = parts.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
        let bearer = shown.map(|text| match text.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token,
            _ => "",
        });
        access_cache.admit(bearer, from)
    }
}

impl ServerInner {
    /// Who asks, and in which namespace; before anything else of a request is looked at. What they may do there is
    /// decided at the desk, where it is done.
    pub(crate) fn admit(&self, parts: &Parts, spec: &OperationSpec) -> Result<(Caller, Namespace), Problem> {
        let caller = self.identify(parts)?;
        self.pace(&caller.who, RENEWALS.contains(&spec.path))?;
        let namespace = match namespace_of(parts)? {
            Some(namespace) => namespace,
            // A token for one namespace need not say which.
            None => caller.world.clone().unwrap_or_default(),
        };
        if caller.is_at_home_in(&namespace) {
            self.see(&namespace);
        }
        Ok((caller, namespace))
    }

    /// Whether a caller keeps to its pace with one more request.
    fn pace(&self, who: &CallerIdentity, is_renewal: bool) -> Result<(), Problem> {
        let paced = self.gate.pace(who, is_renewal, self.clock.now().store_ms);
        paced.map_err(|retry_after_ms| {
            let metrics = &self.metrics;
            let over = if is_renewal { &metrics.renewals_over_pace } else { &metrics.over_pace };
            over.add_one();
            let detail =
                "this token sends more requests a second than the server takes from one; nothing was done";
            let problem = Problem::new(ErrorKind::RateLimited, detail);
            problem.with(|problem| problem.retry_after_ms = Some(retry_after_ms))
        })
    }

    /// The namespaces that this server knows of: those that tokens are for, and those that were asked for.
    pub(crate) fn namespaces(&self) -> Vec<Namespace> {
        let mut known = locked(&self.seen).clone();
        known.insert(Namespace::default());
        known.extend(self.access.access_cache().into_iter().flat_map(AccessCache::namespaces));
        known.into_iter().collect()
    }

    fn see(&self, namespace: &Namespace) {
        let mut seen = locked(&self.seen);
        if seen.len() < SEEN_MAX && !seen.contains(namespace) {
            seen.insert(namespace.clone());
        }
    }

    /// Whether a caller that was let in would be let in again.
    pub(crate) fn still_admits(&self, who: &CallerIdentity) -> Result<(), Problem> {
        let admitted = match (who, self.access.access_cache()) {
            (CallerIdentity::Token { id, .. }, Some(access_cache)) => access_cache.still_admits(*id),
            (CallerIdentity::Anyone, _) if !self.access.is_open() => Err(AccessDenied::NoToken),
            _ => Ok(()),
        };
        admitted.map_err(|stranger| self.turn_away(&stranger))
    }

    fn turn_away(&self, stranger: &AccessDenied) -> Problem {
        self.metrics.strangers.add_one();
        let kind = if matches!(stranger, AccessDenied::Closed) {
            ErrorKind::Unavailable
        } else {
            ErrorKind::Unauthorized
        };
        Problem::new(kind, stranger.to_string())
    }

    /// Who asks, whatever they ask for.
    pub(crate) fn identify(&self, parts: &Parts) -> Result<Caller, Problem> {
        let from = parts.extensions.get::<Connection>().map(|connection| connection.peer.ip());
        if self.access.is_open() {
            host_header::check(parts, &self.hosts).map_err(|foreign| {
                tracing::debug!(from = ?from, "not let in: {foreign}");
                self.metrics.strangers.add_one();
                let detail = format!(
                    "this server asks for no access token, so it answers to programs of this machine only, and {foreign}; \
                     name more hosts with the setting `allowed_hosts`, or make an access token"
                );
                Problem::new(ErrorKind::HostNotAllowed, detail)
            })?;
        }
        self.access.caller(parts, from).map_err(|stranger| {
            if let Some(left_out) = self.refusals.count(self.clock.now().store_ms) {
                tracing::warn!(from = ?from, left_out, "not let in: {stranger}");
            }
            self.turn_away(&stranger)
        })
    }
}

/// The namespace that a request names.
fn namespace_of(parts: &Parts) -> Result<Option<Namespace>, Problem> {
    let Some(value) = parts.headers.get(NAMESPACE_HEADER) else { return Ok(None) };
    let text = value.to_str().map_err(|_| BadInput::new("namespace", "is not plain text"))?;
    Ok(Some(Namespace::new(text)?))
}
