//! A fact about a job, a queue or a schedule in people's words.

use fencehold_core::job::{AttemptOutcome, JobState};
use fencehold_core::{EventData, Owner, Reason, Token};

use super::lease::{LeaseSentence, optional};
use crate::duration::show_ms;
use crate::show::{Colour, utc};

pub(super) fn told(fact: &EventData) -> LeaseSentence {
    match fact {
        EventData::JobEnqueued { queue, kind, state } => {
            say("enqueued", None, format!("{kind} in queue {queue}, {state}"), Colour::Plain)
        }
        EventData::JobClaimed { token, owner, attempt } => {
            say("claimed", Some(*token), format!("by {owner}, attempt {attempt}"), Colour::Good)
        }
        EventData::JobAttemptEnded { token, owner, outcome: how, state, retry_in_ms: again_in_ms } => {
            let again = again_in_ms
                .map(|ms| format!(", tried again in {}", show_ms(ms)))
                .unwrap_or_default();
            let detail = format!("worked on by {owner}; the job is {state}{again}");
            say(&format!("attempt {how}"), Some(*token), detail, ended_colour(*how))
        }
        EventData::JobCancelRequested { token, by, reason } => {
            let detail = format!("{}; its holder learns at its next renewal", by_whom(by, reason.as_ref()));
            say("cancel requested", Some(*token), detail, Colour::Warning)
        }
        EventData::JobCancelled { by, reason } => {
            say("cancelled", None, by_whom(by, reason.as_ref()), Colour::Warning)
        }
        EventData::JobRetried { by, state } => {
            say("starts over", None, format!("by {by}; it was {state}"), Colour::Plain)
        }
        EventData::JobDeleted { by, state, forced } => {
            let forced = if *forced { ", although it was running" } else { "" };
            let colour = if forced.is_empty() { Colour::Plain } else { Colour::Bad };
            say("deleted", None, format!("by {by}; it was {state}{forced}"), colour)
        }
        EventData::EffectCompensationEnded { effect, compensated: true } => {
            say("effect compensated", None, effect.clone(), Colour::Plain)
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

fn say(what: &str, token: Option<Token>, detail: String, colour: Colour) -> LeaseSentence {
    LeaseSentence { what: what.to_owned(), token: token.map(Token::get), detail, colour }
}

fn by_whom(by: &Owner, reason: Option<&Reason>) -> String {
    format!("by {by}{}", optional("because", reason.map(AsRef::as_ref)))
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
        let told = told(&EventData::JobAttemptEnded {
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
