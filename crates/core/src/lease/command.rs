//! What can be asked of a key, and what a granted request gets.

use std::num::NonZeroU64;

use crate::hold::HoldHash;
use crate::key::{Owner, Reason, Task};
use crate::lease::record::LeaseOutcome;
use crate::token::Token;

/// One thing that is asked of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseCommand {
    /// Take the key, or learn again of the lease that this hold id already got.
    Acquire(Acquire),
    /// Keep it for another ttl.
    Renew {
        /// Recognises the holder.
        hash: HoldHash,
        /// The token that it was granted.
        token: Token,
    },
    /// Give it back.
    Release {
        /// Recognises the holder.
        hash: HoldHash,
        /// The token that it was granted.
        token: Token,
    },
    /// Free a key that was granted to a waiter who had already gone.
    Abandon {
        /// Recognises the hold.
        hash: HoldHash,
    },
    /// End the hold by force, and consume a token so that fences refuse the old holder from now on.
    Revoke {
        /// Who uses force.
        by: Owner,
        /// Why.
        reason: Reason,
        /// Only if the key's current token is this one.
        only_token: Option<Token>,
    },
    /// Note that the lease has run out. Does nothing to one that is live: a sweep trusts no snapshot.
    Expire,
    /// Ask the holder to yield.
    Preempt(PreemptRequest),
    /// Take back the request to yield.
    Withdraw,
    /// End the hold and lift the counter, after the store was rewound.
    Advance {
        /// By how much the counter rises.
        lift: u64,
        /// Who does it.
        by: Owner,
    },
}

/// The terms on which a key is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// Recognises the hold id of this acquisition.
    pub hash: HoldHash,
    /// How long ago that hold id was made. 0: just now, and it was never sent before; a repeat carries at least 1.
    pub hold_age_ms: u64,
    /// Who asks.
    pub owner: Owner,
    /// What for.
    pub task: Option<Task>,
    /// How long a grant or a renewal lasts.
    pub ttl_ms: u64,
    /// How long it may be held in all.
    pub max_age_ms: Option<NonZeroU64>,
    /// Its rank against contenders that preempt.
    pub priority: i16,
    /// The largest token that the asker has ever seen for this key.
    pub seen_token: Option<Token>,
}

/// A contender that asks the holder to yield, as the holder sees it. Its priority must be above the holder's.
pub type PreemptRequest = YieldRequest;

/// What a command that was carried out gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseCommandResult {
    /// The key is the asker's.
    Granted(Grant),
    /// The lease goes on.
    Renewed(LeaseRenewal),
    /// The key was given back, now or by an earlier sending of the same request.
    Released {
        /// The token that it had.
        token: Token,
    },
    /// The hold was ended by force.
    Revoked(Revoked),
    /// The lease had run out, and that is now on record.
    Expired {
        /// The token that it had.
        token: Token,
        /// In which of the three ways.
        how: LeaseOutcome,
    },
    /// The holder has been asked to yield.
    Asked {
        /// In how many milliseconds the key is free at the latest, if the holder stays to the end.
        free_in_ms: u64,
    },
    /// There was nothing to do.
    Nothing,
}

wire! {
    /// A granted lease.
    #[derive(Copy)]
    pub struct Grant {
        /// The fencing token.
        pub token: Token,
        /// How long it lasts from the deciding moment.
        pub remaining_ms: u64,
        /// Whether this hold id had the lease already, from an earlier sending of the same request.
        pub resumed: bool,
    }

    /// A contender of higher priority asks the holder to yield.
    pub struct YieldRequest {
        /// Who asks.
        pub contender: Owner,
        /// What for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task: Option<Task>,
        /// The contender's priority.
        pub priority: i16,
        /// In how many milliseconds the holder should be gone.
        pub yield_in_ms: u64,
    }

    /// A renewed lease.
    pub struct LeaseRenewal {
        /// The same token as before.
        pub token: Token,
        /// How long it lasts from the deciding moment.
        pub remaining_ms: u64,
        /// Someone asks the holder to yield.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub yield_request: Option<YieldRequest>,
    }

    /// A lease that was ended by force.
    pub struct Revoked {
        /// The token that it had.
        pub token: Token,
        /// The token that was consumed: nobody gets it, and fences that know it refuse the old holder.
        pub consumed_token: Token,
        /// Who had it.
        pub owner: Owner,
        /// What for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task: Option<Task>,
    }
}
