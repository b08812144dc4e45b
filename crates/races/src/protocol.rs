//! What actors can do, and what is answered. Ours and its naive twin both speak it, so that one script runs either.

use async_trait::async_trait;
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{HoldId, Key, Owner};

/// A lease as its holder knows it.
#[derive(Clone, Debug)]
pub(crate) struct HeldLease {
    pub(crate) key: Key,
    pub(crate) hold: HoldId,
    pub(crate) owner: Owner,
    pub(crate) token: u64,
    pub(crate) remaining_ms: u64,
    pub(crate) resumed: bool,
}

/// The terms of an acquisition.
#[derive(Clone, Debug)]
pub(crate) struct AcquireTerms {
    pub(crate) key: Key,
    pub(crate) hold: HoldId,
    /// As which owner; usually the actor itself.
    pub(crate) owner: Owner,
    /// How long ago the hold id was made; 0 for one that was never sent before.
    pub(crate) hold_age_ms: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) wait_ms: u64,
}

/// What is answered to an actor.
#[derive(Clone, Debug)]
pub(crate) enum LeaseReply {
    Granted(HeldLease),
    Renewed {
        remaining_ms: u64,
    },
    Released,
    Revoked {
        consumed: u64,
    },
    Completed,
    /// It is held.
    Held {
        owner: String,
    },
    /// The hold is over.
    Lost {
        how: Option<LeaseOutcome>,
        current: u64,
    },
    /// This hold id has had its lease.
    Ended {
        how: Option<LeaseOutcome>,
    },
    /// The fence knows a larger token.
    Stale {
        current: u64,
    },
    /// No answer came.
    Unheard,
    /// The store has given a smaller token at most: it was put back to what it was before.
    Rewound {
        current: u64,
    },
    /// A sweep has done what it does.
    Swept,
    /// The key was looked at, where the store sweeps by itself.
    Looked,
    /// Something else; a script that meets it has gone wrong.
    Other(String),
}

impl LeaseReply {
    pub(crate) fn is_lost(&self, as_how: LeaseOutcome) -> bool {
        matches!(self, LeaseReply::Lost { how, .. } if *how == Some(as_how))
    }
}

/// What actors can do. Every call is one or more messages through the gate; the one that changes something is named like
/// the call.
#[async_trait]
pub(crate) trait Protocol: Send + Sync {
    async fn acquire(&self, who: &str, wish: &AcquireTerms) -> LeaseReply;
    async fn renew(&self, who: &str, lease: &HeldLease) -> LeaseReply;
    async fn release(&self, who: &str, lease: &HeldLease) -> LeaseReply;
    async fn revoke(&self, who: &str, key: &Key) -> LeaseReply;
    /// Ends what is over; looks at the key where the store does that by itself.
    async fn sweep(&self, who: &str, key: &Key) -> LeaseReply;
    /// Completes what the lease protects.
    async fn complete(&self, who: &str, lease: &HeldLease, result: &str) -> LeaseReply;
    /// Who holds the key.
    async fn holder(&self, key: &Key) -> Option<String>;
    /// How many stand in line for the key.
    async fn in_line(&self, key: &Key) -> u64;
}

/// One call of one actor, as data.
#[derive(Clone, Debug)]
pub(crate) enum LeaseCall {
    Acquire(AcquireTerms),
    Renew(HeldLease),
    Release(HeldLease),
    Revoke(Key),
    Sweep(Key),
    Complete(HeldLease, String),
}

impl LeaseCall {
    /// The name of the call, and of its message that changes something.
    pub(crate) fn message(&self) -> &'static str {
        match self {
            LeaseCall::Acquire(_) => "acquire",
            LeaseCall::Renew(_) => "renew",
            LeaseCall::Release(_) => "release",
            LeaseCall::Revoke(_) => "revoke",
            LeaseCall::Sweep(_) => "sweep",
            LeaseCall::Complete(..) => "complete",
        }
    }

    pub(crate) async fn perform(&self, protocol: &dyn Protocol, who: &str) -> LeaseReply {
        match self {
            LeaseCall::Acquire(wish) => protocol.acquire(who, wish).await,
            LeaseCall::Renew(lease) => protocol.renew(who, lease).await,
            LeaseCall::Release(lease) => protocol.release(who, lease).await,
            LeaseCall::Revoke(key) => protocol.revoke(who, key).await,
            LeaseCall::Sweep(key) => protocol.sweep(who, key).await,
            LeaseCall::Complete(lease, result) => protocol.complete(who, lease, result).await,
        }
    }

    /// What it is about.
    pub(crate) fn key(&self) -> &Key {
        match self {
            LeaseCall::Acquire(wish) => &wish.key,
            LeaseCall::Renew(lease) | LeaseCall::Release(lease) | LeaseCall::Complete(lease, _) => &lease.key,
            LeaseCall::Revoke(key) | LeaseCall::Sweep(key) => key,
        }
    }

    /// The token that the call shows.
    pub(crate) fn token(&self) -> Option<u64> {
        match self {
            LeaseCall::Renew(lease) | LeaseCall::Release(lease) | LeaseCall::Complete(lease, _) => {
                Some(lease.token)
            }
            LeaseCall::Acquire(_) | LeaseCall::Revoke(_) | LeaseCall::Sweep(_) => None,
        }
    }
}
