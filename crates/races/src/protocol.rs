//! What actors can do, and what is answered. Ours and its naive twin both speak it, so that one script runs either.

use std::sync::Arc;

use async_trait::async_trait;
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{HoldId, Key, Owner};

use crate::job::JobProtocol;
use crate::trace::Trace;

/// Whose algorithm actors use.
#[derive(Clone)]
pub(crate) struct Protocols {
    pub(crate) leases: Arc<dyn LeaseProtocol>,
    pub(crate) jobs: Arc<dyn JobProtocol>,
}

/// One call of one actor, as data.
pub(crate) trait RaceCall: Send + Sync + 'static {
    /// What is answered.
    type Reply: Send + 'static;

    /// The name of the call, and of its message that changes something.
    fn message(&self) -> &'static str;

    fn perform(&self, protocols: &Protocols, who: &str) -> impl Future<Output = Self::Reply> + Send;

    /// Writes down what was answered to an actor. `key` is the one that the race is about.
    fn record(&self, trace: &Trace, key: &Key, who: &str, told: &Self::Reply);
}

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
    pub(crate) fn is_granted(&self) -> bool {
        matches!(self, LeaseReply::Granted(_))
    }

    pub(crate) fn is_renewed(&self) -> bool {
        matches!(self, LeaseReply::Renewed { .. })
    }

    pub(crate) fn is_released(&self) -> bool {
        matches!(self, LeaseReply::Released)
    }

    pub(crate) fn is_completed(&self) -> bool {
        matches!(self, LeaseReply::Completed)
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self, LeaseReply::Held { .. })
    }

    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, LeaseReply::Stale { .. })
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, LeaseReply::Lost { .. })
    }

    pub(crate) fn is_lost_as(&self, as_how: LeaseOutcome) -> bool {
        matches!(self, LeaseReply::Lost { how, .. } if *how == Some(as_how))
    }
}

/// The key as anybody can see it.
#[derive(Default)]
pub(crate) struct SeenLease {
    pub(crate) holder: Option<String>,
    /// How long the lease lasts unless it is renewed.
    pub(crate) remaining_ms: u64,
    /// How many stand in line.
    pub(crate) in_line: u64,
}

/// What can be done to keys. Every call is one or more messages through the gate; the one that changes something is named
/// like the call.
#[async_trait]
pub(crate) trait LeaseProtocol: Send + Sync {
    async fn perform(&self, who: &str, act: &LeaseCall) -> LeaseReply;
    async fn look(&self, key: &Key) -> SeenLease;
}

/// A call about a key.
#[derive(Clone, Debug)]
pub(crate) enum LeaseCall {
    Acquire(AcquireTerms),
    Renew(HeldLease),
    Release(HeldLease),
    Revoke(Key),
    /// Ends what is over; looks at the key where the store does that by itself.
    Sweep(Key),
    /// Completes what the lease protects.
    Complete(HeldLease, &'static str),
}

impl LeaseCall {
    /// What it is about.
    pub(crate) fn key(&self) -> &Key {
        match self {
            LeaseCall::Acquire(wish) => &wish.key,
            LeaseCall::Renew(lease) | LeaseCall::Release(lease) | LeaseCall::Complete(lease, _) => &lease.key,
            LeaseCall::Revoke(key) | LeaseCall::Sweep(key) => key,
        }
    }

    /// The lease that the caller says it has.
    pub(crate) fn lease(&self) -> Option<&HeldLease> {
        match self {
            LeaseCall::Renew(lease) | LeaseCall::Release(lease) | LeaseCall::Complete(lease, _) => {
                Some(lease)
            }
            LeaseCall::Acquire(_) | LeaseCall::Revoke(_) | LeaseCall::Sweep(_) => None,
        }
    }
}

impl RaceCall for LeaseCall {
    type Reply = LeaseReply;

    fn message(&self) -> &'static str {
        match self {
            LeaseCall::Acquire(_) => "acquire",
            LeaseCall::Renew(_) => "renew",
            LeaseCall::Release(_) => "release",
            LeaseCall::Revoke(_) => "revoke",
            LeaseCall::Sweep(_) => "sweep",
            LeaseCall::Complete(..) => "complete",
        }
    }

    async fn perform(&self, protocols: &Protocols, who: &str) -> LeaseReply {
        protocols.leases.perform(who, self).await
    }

    fn record(&self, trace: &Trace, _: &Key, who: &str, told: &LeaseReply) {
        crate::record::record(trace, who, self, told);
    }
}
