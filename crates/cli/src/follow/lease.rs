//! A fact about a lease in people's words.

use fencehold_core::{BlockedAction, EventData};

use super::job;
use crate::duration::show_exact_ms;
use crate::show::Colour;

/// A fact in people's words.
pub(super) struct LeaseSentence {
    pub(super) what: String,
    pub(super) token: Option<u64>,
    pub(super) detail: String,
    pub(super) colour: Colour,
}

impl LeaseSentence {
    pub(super) fn of(fact: &EventData) -> Self {
        let task = |task: &Option<fencehold_core::Task>| optional("task", task.as_ref().map(AsRef::as_ref));
        match fact {
            EventData::LeaseAcquired { token, owner, task: for_task, ttl_ms } => LeaseSentence {
                what: "acquired".to_owned(),
                token: Some(token.get()),
                detail: format!("by {owner}{}, ttl {}", task(for_task), show_exact_ms(*ttl_ms)),
                colour: Colour::Good,
            },
            EventData::LeaseEnded { token, owner, task: for_task, outcome: how, by, reason } => {
                LeaseSentence {
                    what: how.to_string(),
                    token: Some(token.get()),
                    detail: format!(
                        "held by {owner}{}{}{}",
                        task(for_task),
                        optional("ended by", by.as_ref().map(AsRef::as_ref)),
                        optional("because", reason.as_ref().map(AsRef::as_ref)),
                    ),
                    colour: how_colour(*how),
                }
            }
            EventData::StaleWriteBlocked {
                token: stale_token,
                current_token,
                action: attempted,
                outcome: how,
            } => LeaseSentence {
                what: "stale write blocked".to_owned(),
                token: Some(stale_token.get()),
                detail: format!(
                    "a late {} was refused{}; the current token is {current_token}",
                    attempt(*attempted),
                    how.map(|how| format!(" (its lease was {how})")).unwrap_or_default(),
                ),
                colour: Colour::Warning,
            },
            EventData::YieldRequested { token, contender, task: for_task, priority, yield_in_ms } => {
                LeaseSentence {
                    what: "asked to yield".to_owned(),
                    token: Some(token.get()),
                    detail: format!(
                        "by {contender}{}, priority {priority}, within {}",
                        task(for_task),
                        show_exact_ms(*yield_in_ms)
                    ),
                    colour: Colour::Warning,
                }
            }
            EventData::YieldWithdrawn { token } => LeaseSentence {
                what: "may stay".to_owned(),
                token: Some(token.get()),
                detail: "the contender gave up".to_owned(),
                colour: Colour::Plain,
            },
            EventData::StoreRewound { token: shown_token, current_token } => LeaseSentence {
                what: "STORE REWOUND".to_owned(),
                token: Some(shown_token.get()),
                detail: format!("it only knows {current_token}; see `fencehold store advance --help`"),
                colour: Colour::Bad,
            },
            EventData::KeyCollected { token } => LeaseSentence {
                what: "forgotten".to_owned(),
                token: Some(token.get()),
                detail: "free for long; the next token is larger all the same".to_owned(),
                colour: Colour::Faint,
            },
            EventData::RowUnreadable { message: problem } => LeaseSentence {
                what: "row unreadable".to_owned(),
                token: None,
                detail: problem.clone(),
                colour: Colour::Bad,
            },
            other => job::told(other),
        }
    }
}

/// What a late holder tried.
fn attempt(attempted: BlockedAction) -> &'static str {
    match attempted {
        BlockedAction::Renew => "renewal",
        BlockedAction::Release | BlockedAction::ReleaseJob => "release",
        BlockedAction::Complete => "completion",
        BlockedAction::Fail => "report of a failure",
        BlockedAction::Snooze => "snooze",
        BlockedAction::Checkpoint => "checkpoint",
        BlockedAction::Progress => "note of progress",
        BlockedAction::BeginEffect => "intent",
        BlockedAction::RecordEffect => "record of an effect",
        _ => "write",
    }
}

/// A name and a value, where there is one.
pub(super) fn optional(name: &str, value: Option<&str>) -> String {
    value.map(|value| format!(", {name} {value}")).unwrap_or_default()
}

/// The colour of an ending: a rising share of expired is a crash report.
pub(crate) fn how_colour(how: fencehold_core::lease::LeaseOutcome) -> Colour {
    use fencehold_core::lease::LeaseOutcome;
    match how {
        LeaseOutcome::Released => Colour::Plain,
        LeaseOutcome::Expired | LeaseOutcome::Revoked | LeaseOutcome::Advanced => Colour::Bad,
        _ => Colour::Warning,
    }
}
