//! What happened, and what happens next: events as they are read, one after the other.

mod polled;
mod sentence;

use fencehold_contract::{FlatEvent, ListEventsRequest, StoreError};
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{Event, Task};
#[cfg(feature = "server")]
use fencehold_server::event_log::{LogLine, LogRecord};

use crate::context::OpenStore;
use crate::failure::Failure;
use crate::output::{Format, Output, note};
#[cfg(feature = "server")]
use crate::show::Colour;
use crate::show::{Cell, Style, Table, utc_ms};

pub(crate) use sentence::{Sentence, ended_colour, how_colour, state_colour};

/// How long one request waits for the next event. Nothing depends on it.
const WAIT_MS: u64 = 30_000;

/// Which events are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventFilter<'a> {
    /// What their keys start with.
    pub(crate) prefix: Option<&'a str>,
    /// The task that they name, or that is above it.
    pub(crate) task_prefix: Option<&'a Task>,
}

impl<'a> EventFilter<'a> {
    /// Those of keys that start with a text.
    pub(crate) fn of_keys(prefix: &'a str) -> Self {
        EventFilter { prefix: Some(prefix), task_prefix: None }
    }

    /// Whether this one is among them.
    pub(crate) fn includes(self, event: &Event) -> bool {
        self.prefix.is_none_or(|prefix| event.key.as_str().starts_with(prefix))
            && self.task_prefix.is_none_or(|above| event.data.is_covered_by(above))
    }
}

/// Reads all that has happened since a cursor; gives the events and the cursor to go on from.
pub(crate) async fn past(
    store: &OpenStore,
    after: Option<u64>,
    filter: EventFilter<'_>,
) -> Result<(Vec<Event>, u64), Failure> {
    read(store, after, filter).await.map_err(|error| store.explain(error))
}

/// The same, or nothing where the store tells no events.
pub(crate) async fn past_if_told(store: &OpenStore, filter: EventFilter<'_>) -> Result<Vec<Event>, Failure> {
    match read(store, None, filter).await {
        Ok((events, _)) => Ok(events),
        Err(StoreError::Unsupported { .. }) => Ok(Vec::new()),
        Err(error) => Err(store.explain(error)),
    }
}

async fn read(
    store: &OpenStore,
    after: Option<u64>,
    filter: EventFilter<'_>,
) -> Result<(Vec<Event>, u64), StoreError> {
    let mut events = Vec::new();
    let mut request = request(after, filter, 0);
    loop {
        let page = store.leases.list_events(&store.call, request.clone()).await?;
        let full = page.events.len() >= request.limit;
        events.extend(page.events);
        if !full {
            return Ok((events, page.next_cursor));
        }
        request.cursor = Some(page.next_cursor);
    }
}

/// Prints what happens from a cursor on, for ever.
pub(crate) async fn follow(
    store: &OpenStore,
    output: Output,
    after: u64,
    filter: EventFilter<'_>,
) -> Result<(), Failure> {
    let mut request = request(Some(after), filter, WAIT_MS);
    loop {
        match store.leases.list_events(&store.call, request.clone()).await {
            Ok(page) => {
                for event in &page.events {
                    print(output, event)?;
                }
                request.cursor = Some(page.next_cursor);
            }
            Err(StoreError::CursorTooOld { cursor, oldest_cursor: oldest }) => {
                note(&format!("events {} to {} are gone: too many happened at once", cursor + 1, oldest - 1));
                request.cursor = Some(oldest - 1);
            }
            Err(StoreError::Unsupported { .. }) => return polled::follow(store, output, filter).await,
            Err(error) => return Err(store.explain(error)),
        }
    }
}

fn request(after: Option<u64>, filter: EventFilter<'_>, wait_ms: u64) -> ListEventsRequest {
    let (prefix, task_prefix) = (filter.prefix.map(ToOwned::to_owned), filter.task_prefix.cloned());
    ListEventsRequest { cursor: after, prefix, task_prefix, limit: PAGE_MAX, wait_ms }
}

/// Prints one event, for people or for programs.
pub(crate) fn print(output: Output, event: &Event) -> Result<(), Failure> {
    match output.format {
        Format::Table | Format::Env => {
            output.text(&output.style.wrap(&crate::show::safe(&sentence(event, output.style)), 2))
        }
        // A stream has no end, so it cannot be one document.
        Format::Json | Format::Jsonl => output.line(&FlatEvent(event)),
    }
}

/// Events for people, side by side.
pub(crate) fn table(events: &[Event]) -> Table {
    Table::of(["SEQ", "WHEN", "KEY", "EVENT", "TOKEN", "DETAIL"], events, |event| {
        let told = Sentence::of(&event.data);
        [
            event.seq.into(),
            utc_ms(event.at_ms).into(),
            event.key.as_str().into(),
            Cell::from(told.what).in_colour(told.colour),
            told.token.map_or_else(|| "-".into(), Cell::from),
            told.detail.into(),
        ]
    })
}

/// Lines of an event log for people, side by side.
#[cfg(feature = "server")]
pub(crate) fn log_table(lines: &[LogLine]) -> Table {
    Table::of(["SEQ", "WHEN", "NAMESPACE", "KEY", "EVENT", "TOKEN", "DETAIL"], lines, |line| {
        let dash = || "-".to_owned();
        let (key, told) = match &line.record {
            LogRecord::Event(event) => (event.key.to_string(), Sentence::of(&event.data)),
            LogRecord::Audit(entry) => (entry.target.clone(), Sentence::of_act(entry)),
            LogRecord::Gap(message) => (dash(), Sentence::plain("GAP", message, Colour::Bad)),
            LogRecord::Start => {
                (dash(), Sentence::plain("start", "the log begins after this", Colour::Faint))
            }
            _ => (dash(), Sentence::plain("something newer than this version", "", Colour::Plain)),
        };
        [
            line.seq.map_or_else(|| "-".into(), Cell::from),
            utc_ms(line.at_ms).into(),
            line.namespace.as_deref().unwrap_or("-").into(),
            key.as_str().into(),
            Cell::from(told.what).in_colour(told.colour),
            told.token.map_or_else(|| "-".into(), Cell::from),
            told.detail.into(),
        ]
    })
}

fn sentence(event: &Event, style: Style) -> String {
    let told = Sentence::of(&event.data);
    let token = told.token.map(|token| format!(" token {token}")).unwrap_or_default();
    let detail = if told.detail.is_empty() { String::new() } else { format!(": {}", told.detail) };
    let what = style.paint(&told.what, told.colour);
    format!("{} {} {what}{token}{detail}", utc_ms(event.at_ms), event.key)
}

#[cfg(test)]
mod tests {
    use fencehold_core::lease::LeaseOutcome;
    use fencehold_core::{EventData, Key, Namespace, Owner, Reason, Token};

    use super::*;

    fn event(fact: EventData) -> Event {
        Event::new(7, 1_000, Namespace::default(), Key::new("k").unwrap(), fact)
    }

    #[test]
    fn a_sentence_names_who_ended_a_lease_and_why() {
        let ended = event(EventData::LeaseEnded {
            token: Token::new(3),
            owner: Owner::new("a").unwrap(),
            task: None,
            outcome: LeaseOutcome::Revoked,
            by: Some(Owner::new("root@h").unwrap()),
            reason: Some(Reason::new("stuck").unwrap()),
        });
        assert_eq!(
            sentence(&ended, Style::default()),
            "1970-01-01T00:00:01.000Z k revoked token 3: held by a, ended by root@h, because stuck"
        );
    }
}
