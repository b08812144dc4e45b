//! A fact about a job, a queue or a schedule in people's words.

use fencehold_core::job::{Ended, State};
use fencehold_core::{Fact, Owner, Reason, Token};

use super::told::{Told, optional};
use crate::duration::show_ms;
use crate::show::{Colour, utc};

pub(super) fn told(fact: &Fact) -> Told {
    match fact {
        Fact::JobEnqueued { queue, kind, state } => {
            say("enqueued", None, format!("{kind} in queue {queue}, {state}"), Colour::Plain)
        }
        Fact::JobClaimed { token, owner, attempt } => {
            say("claimed", Some(*token), format!("by {owner}, attempt {attempt}"), Colour::Good)
        }
        Fact::JobAttemptEnded { token, owner, how, state, again_in_ms } => {
            let again = again_in_ms
                .map(|ms| format!(", tried again in {}", show_ms(ms)))
                .unwrap_or_default();
            let detail = format!("worked on by {owner}; the job is {state}{again}");
            say(&format!("attempt {how}"), Some(*token), detail, ended_colour(*how))
        }
        Fact::JobCancelRequested { token, by, reason } => {
            let detail = format!("{}; its holder learns at its next renewal", by_whom(by, reason.as_ref()));
            say("cancel requested", Some(*token), detail, Colour::Warning)
        }
        Fact::JobCancelled { by, reason } => {
            say("cancelled", None, by_whom(by, reason.as_ref()), Colour::Warning)
        }
        Fact::JobRetried { by, state } => {
            say("starts over", None, format!("by {by}; it was {state}"), Colour::Plain)
        }
        Fact::JobDeleted { by, state, forced } => {
            let forced = if *forced { ", although somebody worked on it" } else { "" };
            let colour = if forced.is_empty() { Colour::Plain } else { Colour::Bad };
            say("deleted", None, format!("by {by}; it was {state}{forced}"), colour)
        }
        Fact::EffectUndone { effect, undone: true } => {
            say("effect undone", None, effect.clone(), Colour::Plain)
        }
        Fact::EffectUndone { effect, undone: false } => {
            let detail = format!("{effect}; see `fencehold reconcile`");
            say("effect could not be undone", None, detail, Colour::Bad)
        }
        Fact::QueueChanged { queue, mode, by } => {
            say(&format!("queue {mode}"), None, format!("{queue}, by {by}"), Colour::Plain)
        }
        Fact::ScheduleFired { schedule, due_wall_ms } => {
            say("fired", None, format!("{schedule}, for {}", utc(*due_wall_ms)), Colour::Plain)
        }
        other => {
            let detail = serde_json::to_string(other).unwrap_or_default();
            say("something newer than this version", None, detail, Colour::Plain)
        }
    }
}

fn say(what: &str, token: Option<Token>, detail: String, colour: Colour) -> Told {
    Told { what: what.to_owned(), token: token.map(Token::get), detail, colour }
}

fn by_whom(by: &Owner, reason: Option<&Reason>) -> String {
    format!("by {by}{}", optional("because", reason.map(AsRef::as_ref)))
}

/// The colour of an attempt's end: what its holder said, or what nobody said.
pub(crate) fn ended_colour(how: Ended) -> Colour {
    match how {
        Ended::Completed => Colour::Good,
        Ended::Snoozed | Ended::HandedBack | Ended::Yielded => Colour::Plain,
        Ended::CompletedLate | Ended::FailedLate | Ended::Abandoned => Colour::Warning,
        _ => Colour::Bad,
    }
}

/// The colour of a job's state: green moves, red waits for a person.
pub(crate) fn state_colour(state: State) -> Colour {
    match state {
        State::Running | State::Completed => Colour::Good,
        State::Queued => Colour::Plain,
        State::Scheduled | State::Cancelled => Colour::Faint,
        _ => Colour::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_attempt_says_who_what_and_what_next() {
        let told = told(&Fact::JobAttemptEnded {
            token: Token::new(3),
            owner: Owner::new("host/1").unwrap(),
            how: Ended::Crashed,
            state: State::Scheduled,
            again_in_ms: Some(2_500),
        });
        assert_eq!((told.what.as_str(), told.token), ("attempt crashed", Some(3)));
        assert_eq!(told.detail, "worked on by host/1; the job is scheduled, tried again in 2.5s");
    }
}
