//! A fact about a lease, a job, a queue or a schedule in people's words.

#[cfg(feature = "server")]
use fencehold_contract::http::access::AuditEntry;
use fencehold_core::job::{AttemptOutcome, JobState};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{EventData, Owner, Reason, Task, Token};

use crate::duration::{show_exact_ms, show_ms};
use crate::show::{Colour, utc};

/// A fact in people's words.
pub(crate) struct Sentence {
    pub(crate) what: String,
    pub(crate) token: Option<u64>,
    pub(crate) detail: String,
    pub(crate) colour: Colour,
}

impl Sentence {
    pub(crate) fn of(fact: &EventData) -> Self {
        match fact {
            EventData::LeaseAcquired { token, owner, task, ttl_ms } => {
                let detail = format!("by {owner}{}, ttl {}", for_task(task.as_ref()), show_exact_ms(*ttl_ms));
                say("acquired", Some(*token), detail, Colour::Good)
            }
            EventData::LeaseEnded { token, owner, task, outcome: how, by, reason } => {
                let by = optional("ended by", by.as_ref().map(AsRef::as_ref));
                let why = optional("because", reason.as_ref().map(AsRef::as_ref));
                let detail = format!("held by {owner}{}{by}{why}", for_task(task.as_ref()));
                say(&how.to_string(), Some(*token), detail, how_colour(*how))
            }
            EventData::StaleWriteBlocked { token, current_token, action, outcome: how } => {
                let how = how.map(|how| format!(" (its lease was {how})")).unwrap_or_default();
                let late = action.name();
                let detail = format!("a late {late} was refused{how}; the current token is {current_token}");
                say("stale write blocked", Some(*token), detail, Colour::Warning)
            }
            EventData::YieldRequested { token, contender, task, priority, yield_in_ms } => {
                let (task, within) = (for_task(task.as_ref()), show_exact_ms(*yield_in_ms));
                let detail = format!("by {contender}{task}, priority {priority}, within {within}");
                say("asked to yield", Some(*token), detail, Colour::Warning)
            }
            EventData::YieldWithdrawn { token } => {
                say("may stay", Some(*token), "the contender gave up", Colour::Plain)
            }
            EventData::StoreRewound { token, current_token } => {
                let detail = format!("it only knows {current_token}; see `fencehold store advance --help`");
                say("STORE REWOUND", Some(*token), detail, Colour::Bad)
            }
            EventData::KeyCollected { token } => {
                let detail = "free for long; the next token is larger all the same";
                say("forgotten", Some(*token), detail, Colour::Faint)
            }
            EventData::RowUnreadable { message } => say("row unreadable", None, message, Colour::Bad),
            EventData::JobEnqueued { queue, kind, state } => {
                say("enqueued", None, format!("{kind} in queue {queue}, {state}"), Colour::Plain)
            }
            EventData::JobClaimed { token, owner, attempt } => {
                say("claimed", Some(*token), format!("by {owner}, attempt {attempt}"), Colour::Good)
            }
            EventData::JobAttemptEnded { token, owner, outcome: how, state, retry_in_ms } => {
                let again = retry_in_ms.map(|ms| format!(", tried again in {}", show_ms(ms)));
                let again = again.unwrap_or_default();
                let detail = format!("worked on by {owner}; the job is {state}{again}");
                say(&format!("attempt {how}"), Some(*token), detail, ended_colour(*how))
            }
            EventData::JobCancelRequested { token, by, reason } => {
                let by = by_whom(by, reason.as_ref());
                let detail = format!("{by}; its holder learns at its next renewal");
                say("cancel requested", Some(*token), detail, Colour::Warning)
            }
            EventData::JobCancelled { by, reason } => {
                say("cancelled", None, by_whom(by, reason.as_ref()), Colour::Warning)
            }
            EventData::JobEndedByForce { by, reason, state } => {
                say(&format!("{state} by force"), None, by_whom(by, Some(reason)), Colour::Warning)
            }
            EventData::JobRetried { by, state } => {
                say("starts over", None, format!("by {by}; it was {state}"), Colour::Plain)
            }
            EventData::JobDeleted { by, state, forced } => {
                let (forced, colour) =
                    if *forced { (", although it was running", Colour::Bad) } else { ("", Colour::Plain) };
                say("deleted", None, format!("by {by}; it was {state}{forced}"), colour)
            }
            EventData::EffectCompensationEnded { effect, compensated: true } => {
                say("effect compensated", None, effect, Colour::Plain)
            }
            EventData::EffectCompensationEnded { effect, compensated: false } => {
                let detail = format!("{effect}; see `fencehold effect ls`");
                say("compensation failed", None, detail, Colour::Bad)
            }
            EventData::QueueChanged { queue, mode, by } => {
                say(&format!("queue {mode}"), None, format!("{queue}, by {by}"), Colour::Plain)
            }
            EventData::ScheduleFired { schedule, due_at_ms: due_wall_ms } => {
                say("fired", None, format!("{schedule}, for {}", utc(*due_wall_ms)), Colour::Plain)
            }
            other => {
                let detail = serde_json::to_string(other).unwrap_or_default();
                say("something newer than this version", None, detail, Colour::Plain)
            }
        }
    }
}

#[cfg(feature = "server")]
impl Sentence {
    /// An act of force in people's words.
    pub(super) fn of_act(entry: &AuditEntry) -> Self {
        let why = optional("because", entry.reason.as_deref());
        let colour = if entry.outcome == "done" { Colour::Warning } else { Colour::Bad };
        Sentence::plain(
            &entry.action,
            &format!("by {} from {}: {}{why}", entry.actor, entry.address, entry.outcome),
            colour,
        )
    }

    pub(super) fn plain(what: &str, detail: &str, colour: Colour) -> Self {
        say(what, None, detail, colour)
    }
}

fn say(what: &str, token: Option<Token>, detail: impl Into<String>, colour: Colour) -> Sentence {
    Sentence { what: what.to_owned(), token: token.map(Token::get), detail: detail.into(), colour }
}

/// A name and a value, where there is one.
fn optional(name: &str, value: Option<&str>) -> String {
    value.map(|value| format!(", {name} {value}")).unwrap_or_default()
}

fn for_task(task: Option<&Task>) -> String {
    optional("task", task.map(AsRef::as_ref))
}

fn by_whom(by: &Owner, reason: Option<&Reason>) -> String {
    format!("by {by}{}", optional("because", reason.map(AsRef::as_ref)))
}

/// The colour of an ending: a rising share of expired is a crash report.
pub(crate) fn how_colour(how: LeaseOutcome) -> Colour {
    match how {
        LeaseOutcome::Released => Colour::Plain,
        LeaseOutcome::Expired | LeaseOutcome::Revoked | LeaseOutcome::Advanced => Colour::Bad,
        _ => Colour::Warning,
    }
}

/// The colour of an attempt's end: as its holder reported it, or not reported at all.
pub(crate) fn ended_colour(how: AttemptOutcome) -> Colour {
    match how {
        AttemptOutcome::Completed => Colour::Good,
        AttemptOutcome::Snoozed | AttemptOutcome::Released | AttemptOutcome::Yielded => Colour::Plain,
        AttemptOutcome::CompletedLate | AttemptOutcome::FailedLate | AttemptOutcome::Abandoned => {
            Colour::Warning
        }
        _ => Colour::Bad,
    }
}

/// The colour of a job's state: green moves, red waits for a person.
pub(crate) fn state_colour(state: JobState) -> Colour {
    match state {
        JobState::Running | JobState::Completed => Colour::Good,
        JobState::Queued => Colour::Plain,
        JobState::Scheduled | JobState::Cancelled => Colour::Faint,
        _ => Colour::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_attempt_says_who_what_and_what_next() {
        let told = Sentence::of(&EventData::JobAttemptEnded {
            token: Token::new(3),
            owner: Owner::new("host/1").unwrap(),
            outcome: AttemptOutcome::Crashed,
            state: JobState::Scheduled,
            retry_in_ms: Some(2_500),
        });
        assert_eq!((told.what.as_str(), told.token), ("attempt crashed", Some(3)));
        assert_eq!(told.detail, "worked on by host/1; the job is scheduled, tried again in 2.5s");
    }
}
