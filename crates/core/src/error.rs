//! What can be wrong with a request, and why a right one may be refused.
//!
//! This is the inner level: rich, exact, made of data. The library folds it into few kinds that say what the
//! caller must do.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::key::{Owner, Reason, Task};
use crate::lease::LeaseOutcome;
use crate::token::Token;

/// A request that can never succeed as it stands: which field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{field} {message}")]
pub struct BadInput {
    /// The field at fault, in the words of the documentation.
    pub field: Cow<'static, str>,
    /// What is wrong with it, with the limit where there is one.
    pub message: String,
}

impl BadInput {
    /// Names a field and its problem.
    pub fn new(field: &'static str, message: impl Into<String>) -> Self {
        BadInput { field: Cow::Borrowed(field), message: message.into() }
    }
}

/// Why a well-formed command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// Another holder has the key.
    #[error("held by {owner} under token {token} for another {remaining_ms} ms")]
    Held {
        /// Who holds it.
        owner: Owner,
        /// What for.
        task: Option<Task>,
        /// How long the holder has left unless it renews.
        remaining_ms: u64,
        /// The holder's token.
        token: Token,
    },
    /// This hold id has had its lease, and that lease is over. It is never granted again.
    #[error("this hold has ended{}", ended_how(*.token, *.outcome))]
    HoldIdUsed {
        /// The token that it had; `None` where the record no longer remembers.
        token: Option<Token>,
        /// How it ended; `None` where the record no longer remembers.
        outcome: Option<LeaseOutcome>,
    },
    /// The hold that this command is about is over, or another caller's.
    #[error("the hold under token {token} is over{}; the key's current token is {current_token}", lost_how(*.outcome, .by.as_ref(), .reason.as_ref()))]
    Lost {
        /// The token that the command showed.
        token: Token,
        /// How that hold ended; `None` where the record no longer remembers, or never knew it.
        outcome: Option<LeaseOutcome>,
        /// Who ended it, or asked for it, if someone did and the record remembers.
        by: Option<Owner>,
        /// Why, if someone ended it and the record remembers.
        reason: Option<Reason>,
        /// The key's newest token.
        current_token: Token,
    },
    /// The key's current token came with a hold id that is not its holder's.
    #[error("the hold id is not the one that token {token} was granted to")]
    WrongHoldId {
        /// The token that the command showed.
        token: Token,
    },
    /// The key is not held, so there is nothing to end.
    #[error("the key is not held")]
    NotHeld,
    /// The lease is still live, so it cannot be expired.
    #[error("the lease is live for another {remaining_ms} ms")]
    NotExpired {
        /// How long it has left.
        remaining_ms: u64,
    },
    /// Only a contender of higher priority may ask a holder to yield.
    #[error("the holder has priority {priority}; a contender needs more")]
    PriorityTooLow {
        /// The holder's priority.
        priority: i16,
    },
    /// A request showed a token that this store has never given: the store was rewound.
    #[error("token {token} was shown, but this store has only given {current_token}: it was rewound")]
    StoreRewound {
        /// The token that was shown.
        token: Token,
        /// The largest that the store knows of for this key.
        current_token: Token,
    },
    /// The key's counter is at the cap: no token is left to give.
    #[error("the key's tokens are used up: nothing is granted for it any more")]
    TokensExhausted,
}

fn ended_how(token: Option<Token>, how: Option<LeaseOutcome>) -> String {
    match (token, how) {
        (Some(token), Some(how)) => format!(": token {token} was {how}"),
        _ => ", or may have: the key's history no longer reaches back that far".to_owned(),
    }
}

fn lost_how(how: Option<LeaseOutcome>, by: Option<&Owner>, reason: Option<&Reason>) -> String {
    how.map(|how| format!(": {}", how.told(by, reason))).unwrap_or_default()
}
