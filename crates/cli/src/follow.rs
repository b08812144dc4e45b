//! What happened, and what happens next: events as they are read, one after the other.

use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{Event, Fact};
use fencehold_store::{EventsRequest, StoreError};
use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::Value;

use crate::context::Store;
use crate::duration::show_exact_ms;
use crate::failure::Failure;
use crate::output::{Format, Output, note};
use crate::show::{Cell, Colour, Palette, Table, utc_ms};

/// How long one request waits for the next event. Nothing depends on it.
const WAIT_MS: u64 = 30_000;

/// Reads all that has happened since a cursor; gives the events and the cursor to go on from.
pub(crate) async fn past(
    store: &Store,
    after: Option<u64>,
    prefix: Option<&str>,
) -> Result<(Vec<Event>, u64), Failure> {
    let mut events = Vec::new();
    let mut request = request(after, prefix, 0);
    loop {
        let page = store
            .leases
            .events(&store.call, request.clone())
            .await
            .map_err(|error| store.explain(error))?;
        let full = page.events.len() >= request.limit;
        events.extend(page.events);
        if !full {
            return Ok((events, page.next));
        }
        request.after = Some(page.next);
    }
}

/// Prints what happens from a cursor on, for ever.
pub(crate) async fn follow(
    store: &Store,
    output: Output,
    after: u64,
    prefix: Option<&str>,
) -> Result<(), Failure> {
    let mut request = request(Some(after), prefix, WAIT_MS);
    loop {
        match store.leases.events(&store.call, request.clone()).await {
            Ok(page) => {
                for event in &page.events {
                    print(output, event)?;
                }
                request.after = Some(page.next);
            }
            Err(StoreError::CursorTooOld { cursor, oldest }) => {
                note(&format!("events {} to {} are gone: too many happened at once", cursor + 1, oldest - 1));
                request.after = Some(oldest - 1);
            }
            Err(error) => return Err(store.explain(error)),
        }
    }
}

fn request(after: Option<u64>, prefix: Option<&str>, wait_ms: u64) -> EventsRequest {
    EventsRequest { after, prefix: prefix.map(ToOwned::to_owned), limit: PAGE_MAX, wait_ms }
}

/// One event as programs read it: flat, one line, its kind under `event`.
#[derive(Debug)]
pub(crate) struct Line<'a>(&'a Event);

impl<'a> From<&'a Event> for Line<'a> {
    fn from(event: &'a Event) -> Self {
        Line(event)
    }
}

impl Serialize for Line<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.0;
        // A fact is written as its kind with its fields in it, which suits the stores' own records.
        let fact = serde_json::to_value(&event.fact).map_err(serde::ser::Error::custom)?;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("seq", &event.seq)?;
        line.serialize_entry("at_wall_ms", &event.at_wall_ms)?;
        line.serialize_entry("at", &utc_ms(event.at_wall_ms))?;
        line.serialize_entry("namespace", &event.namespace)?;
        line.serialize_entry("key", &event.key)?;
        match &fact {
            Value::Object(kinds) => {
                for (kind, fields) in kinds {
                    line.serialize_entry("event", kind)?;
                    for (name, value) in fields.as_object().into_iter().flatten() {
                        line.serialize_entry(name, value)?;
                    }
                }
            }
            kind => line.serialize_entry("event", kind)?,
        }
        line.end()
    }
}

/// Prints one event, for people or for programs.
pub(crate) fn print(output: Output, event: &Event) -> Result<(), Failure> {
    match output.format {
        Format::Table | Format::Env => output.text(&sentence(event, output.palette)),
        // A stream has no end, so it cannot be one document.
        Format::Json | Format::Jsonl => output.line(&Line::from(event)),
    }
}

/// Events for people, side by side.
pub(crate) fn table(events: &[Event]) -> Table {
    let mut table = Table::new(["SEQ", "WHEN", "KEY", "EVENT", "TOKEN", "DETAIL"]);
    for event in events {
        let told = Told::of(&event.fact);
        table.row([
            event.seq.into(),
            utc_ms(event.at_wall_ms).into(),
            event.key.as_str().into(),
            Cell::from(told.what).in_colour(told.colour),
            told.token.map_or_else(|| "-".into(), Cell::from),
            told.detail.into(),
        ]);
    }
    table
}

fn sentence(event: &Event, palette: Palette) -> String {
    let told = Told::of(&event.fact);
    let token = told.token.map(|token| format!(" token {token}")).unwrap_or_default();
    let detail = if told.detail.is_empty() { String::new() } else { format!(": {}", told.detail) };
    let what = palette.paint(&told.what, told.colour);
    format!("{} {} {what}{token}{detail}", utc_ms(event.at_wall_ms), event.key)
}

/// A fact in people's words.
struct Told {
    what: String,
    token: Option<u64>,
    detail: String,
    colour: Colour,
}

impl Told {
    fn of(fact: &Fact) -> Self {
        let optional = |name: &str, value: Option<&str>| {
            value.map(|value| format!(", {name} {value}")).unwrap_or_default()
        };
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
                    format!("{attempted:?}").to_lowercase(),
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
            other => Told {
                what: "something newer than this version".to_owned(),
                token: None,
                detail: serde_json::to_string(other).unwrap_or_default(),
                colour: Colour::Plain,
            },
        }
    }
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

#[cfg(test)]
mod tests {
    use fencehold_core::lease::How;
    use fencehold_core::{Key, Namespace, Owner, Reason, Token};

    use super::*;

    fn event(fact: Fact) -> Event {
        Event::new(7, 1_000, Namespace::default(), Key::new("k").unwrap(), fact)
    }

    #[test]
    fn a_line_for_programs_is_flat() {
        let event = event(Fact::KeyCollected { token: Token::new(3) });
        let json = serde_json::to_value(Line::from(&event)).unwrap();
        assert_eq!(json["event"], "key_collected");
        assert_eq!((&json["key"], &json["token"], &json["seq"]), (&"k".into(), &3.into(), &7.into()));
        assert_eq!(json["at"], "1970-01-01T00:00:01.000Z");
    }

    #[test]
    fn a_sentence_names_who_ended_a_lease_and_why() {
        let ended = event(Fact::LeaseEnded {
            token: Token::new(3),
            owner: Owner::new("a").unwrap(),
            task: None,
            how: How::Revoked,
            by: Some(Owner::new("root@h").unwrap()),
            reason: Some(Reason::new("stuck").unwrap()),
        });
        assert_eq!(
            sentence(&ended, Palette::plain()),
            "1970-01-01T00:00:01.000Z k revoked token 3: held by a, ended by root@h, because stuck"
        );
    }
}
