//! Who asks: known by a token, or anybody on this machine.

use std::fmt;
use std::net::IpAddr;

use fencehold_contract::http::Scope;
use fencehold_core::Namespace;

use super::scope::Scopes;
use super::secret::TokenId;

/// The caller, its address, its namespace and its rights.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Caller {
    /// Who.
    pub who: CallerIdentity,
    /// From where.
    pub from: Option<IpAddr>,
    /// The world that they may act in; `None`: any.
    pub world: Option<Namespace>,
    /// What they may do there.
    pub scopes: Scopes,
}

/// By what a caller is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallerIdentity {
    /// The server is open, and asked for no token.
    Anyone,
    /// By this token.
    Token {
        /// Its public name.
        id: TokenId,
        /// What people call it.
        name: String,
    },
}

impl Caller {
    /// A caller of an open server: everything is allowed.
    pub fn anyone(from: Option<IpAddr>) -> Self {
        Caller { who: CallerIdentity::Anyone, from, world: None, scopes: Scopes::all() }
    }

    /// Whether they may act in this world.
    pub fn is_at_home_in(&self, namespace: &Namespace) -> bool {
        self.world.as_ref().is_none_or(|world| world == namespace)
    }

    /// Whether they may do what concerns every world at once.
    pub fn is_operator(&self) -> bool {
        self.world.is_none() && self.scopes.allow(Scope::Admin)
    }

    /// Whether they may read the page of metrics: it names queues of every world.
    pub fn reads_metrics(&self) -> bool {
        self.world.is_none() && self.scopes.allow(Scope::MetricsRead)
    }

    /// Whether they may see what jobs are about. Who enqueues, works on or administers jobs may.
    pub fn sees_payloads(&self) -> bool {
        let allowing = [Scope::JobPayload, Scope::JobEnqueue, Scope::JobWork, Scope::JobAdmin];
        allowing.into_iter().any(|scope| self.scopes.allow(scope))
    }

    /// From where, for the audit.
    pub fn origin(&self) -> String {
        self.from.map_or_else(|| "unknown".to_owned(), |from| from.to_string())
    }
}

impl fmt::Display for CallerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallerIdentity::Anyone => f.write_str("anyone (open server)"),
            CallerIdentity::Token { id, name } => write!(f, "token {id} ({name})"),
        }
    }
}
