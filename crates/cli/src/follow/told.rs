//! A fact about a lease in people's words.

use fencehold_core::{Attempted, Fact};

use super::job;
use crate::duration::show_exact_ms;
use crate::show::Colour;

/// A fact in people's words.
pub(super) struct Told {
    pub(super) what: String,
    pub(super) token: Option<u64>,
    pub(super) detail: String,
    pub(super) colour: Colour,
}

impl Told {
    pub(super) fn of(fact: &Fact) -> Self {
        let task = |task: &Option<fencehold_core::Task>| optional("task", task.as_ref().map(AsRef::as_ref));
        match fact {
            Fact::LeaseAcquired { token, owner, task: for_task, ttl_ms } => Told {
                what: "acquired".to_owned(),
                token: Some(token.get()),
                detail: format!("by {owner}{}, ttl {}", task(for_task), show_exact_ms(*ttl_ms)),
                colour: Colour::Good,
            },
            Fact::LeaseEnded { token, owner, task: for_task, how, by, reason } => Told {
                what: how.to_string(),
                token: Some(token.get()),
                detail: format!(
                    "held by {owner}{}{}{}",
                    task(for_task),
                    optional("ended by", by.as_ref().map(AsRef::as_ref)),
                    optional("because", reason.as_ref().map(AsRef::as_ref)),
                ),
                colour: how_colour(*how),
            },
            Fact::StaleWriteBlocked { stale_token, current_token, attempted, how } => Told {
                what: "stale write blocked".to_owned(),
                token: Some(stale_token.get()),
                detail: format!(
                    "a late {} was refused{}; the current token is {current_token}",
                    attempt(*attempted),
                    how.map(|how| format!(" (its lease was {how})")).unwrap_or_default(),
                ),
                colour: Colour::Warning,
            },
            Fact::YieldAsked { token, contender, task: for_task, priority, yield_in_ms } => Told {
                what: "asked to yield".to_owned(),
                token: Some(token.get()),
                detail: format!(
                    "by {contender}{}, priority {priority}, within {}",
                    task(for_task),
                    show_exact_ms(*yield_in_ms)
                ),
                colour: Colour::Warning,
            },
            Fact::YieldWithdrawn { token } => Told {
                what: "may stay".to_owned(),
                token: Some(token.get()),
                detail: "the contender gave up".to_owned(),
                colour: Colour::Plain,
            },
            Fact::StoreRewound { shown_token, current_token } => Told {
                what: "STORE REWOUND".to_owned(),
                token: Some(shown_token.get()),
                detail: format!("it only knows {current_token}; see `fencehold store advance --help`"),
                colour: Colour::Bad,
            },
            Fact::KeyCollected { token } => Told {
                what: "forgotten".to_owned(),
                token: Some(token.get()),
                detail: "free for long; the next token is larger all the same".to_owned(),
                colour: Colour::Faint,
            },
            Fact::RowSetAside { problem } => Told {
                what: "row set aside".to_owned(),
                token: None,
                detail: problem.clone(),
                colour: Colour::Bad,
            },
            other => job::told(other),
        }
    }
}

/// What a late holder tried.
fn attempt(attempted: Attempted) -> &'static str {
    match attempted {
        Attempted::Renew => "renewal",
        Attempted::Release => "release",
        Attempted::Complete => "completion",
        Attempted::Fail => "report of a failure",
        Attempted::Snooze => "snooze",
        Attempted::HandBack => "hand-back",
        Attempted::Checkpoint => "checkpoint",
        Attempted::Progress => "note of progress",
        Attempted::Intent => "intent",
        Attempted::Outcome => "record of an effect",
        _ => "write",
    }
}

/// A name and a value, where there is one.
pub(super) fn optional(name: &str, value: Option<&str>) -> String {
    value.map(|value| format!(", {name} {value}")).unwrap_or_default()
}

/// The colour of an ending: a rising share of expired is a crash report.
pub(crate) fn how_colour(how: fencehold_core::lease::How) -> Colour {
    use fencehold_core::lease::How;
    match how {
        How::Released => Colour::Plain,
        How::Expired | How::Revoked | How::Advanced => Colour::Bad,
        _ => Colour::Warning,
    }
}
