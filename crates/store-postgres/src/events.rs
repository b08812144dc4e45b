//! What happened, in order, without leaving out what was committed late.
//!
//! Events are numbered when they are written, and seen when their transaction commits: a number that is missing may still
//! come, or its transaction was rolled back. A page ends before such a number. If it is missing for long, it is passed over; an event that
//! comes after that gets another number (`schema/events.sql`).

use std::time::Duration;

use fencehold_contract::stored::{AttemptedV1, FactV1};
use fencehold_contract::{BlockedWrite, EventPage, ListEventsRequest, RecordedBlockedWrite, StoreError};
use fencehold_core::limits::WAIT_MS_MAX;
use fencehold_core::{BadInput, Event, EventData, Key, Namespace, Task};
use fencehold_net::sleep;
use serde::Deserialize;

use super::statement::{Call, Parameter};
use super::value::{from_sql, limit_to_sql, to_sql};

/// How often one who watches looks for news.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a number that is missing is looked for before it is passed over: usually the next commit brings it.
const LOOKS_MAX: u32 = 40;
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// How often one who does not wait looks for what was there when it began.
const ALL_LOOKS_MAX: u32 = 100;

/// One look.
struct EventRead {
    page: EventPage,
    /// The newest event there is, and up to where events can be read.
    newest: i64,
    told: i64,
    at_ms: i64,
}

/// Decides which numbers are passed over: those below an event that could be seen so many looks ago, while nothing moved since.
#[derive(Debug, Default)]
struct GapTracker {
    told: i64,
    newest: i64,
    looks: u32,
}

impl GapTracker {
    /// Up to where to pass in the next look; 0: nowhere.
    fn pass_to(&mut self, told: i64, newest: i64) -> i64 {
        if self.looks == 0 || self.told != told {
            *self = GapTracker { told, newest, looks: 0 };
        }
        self.looks += 1;
        if self.looks <= LOOKS_MAX {
            return 0;
        }
        self.looks = 0;
        self.newest
    }
}

/// An event as it is kept. One of a kind that a newer program has is still an event.
#[derive(Deserialize)]
struct StoredEvent {
    seq: u64,
    at_wall_ms: u64,
    namespace: Namespace,
    key: Key,
    fact: serde_json::Value,
}

impl From<StoredEvent> for Event {
    fn from(stored: StoredEvent) -> Self {
        let StoredEvent { seq, at_wall_ms, namespace, key, fact } = stored;
        let data = serde_json::from_value::<FactV1>(fact).map_or_else(
            |error| EventData::RowUnreadable {
                message: format!("an event that this version does not know: {error}"),
            },
            EventData::from,
        );
        Event::new(seq, at_wall_ms, namespace, key, data)
    }
}

impl Call<'_> {
    pub(super) async fn events(&mut self, mut request: ListEventsRequest) -> Result<EventPage, StoreError> {
        let listener = (request.wait_ms > 0).then(|| self.listen("events"));
        let mut until_ms = None;
        let (mut wanted, mut looks, mut pass_to) = (None, 0, 0);
        let mut timeout = GapTracker::default();
        loop {
            let look = self.look_at_events(&request, pass_to).await?;
            // What is committed while this goes on is for the next page.
            let complete = look.told >= *wanted.get_or_insert(look.newest);
            if look.page.events.len() == request.limit || complete && !look.page.events.is_empty() {
                return Ok(look.page);
            }
            pass_to = timeout.pass_to(look.told, look.newest);
            if !complete && looks < ALL_LOOKS_MAX {
                looks += 1;
                sleep(LOOK_AGAIN_AFTER).await;
                continue;
            }
            let until_ms =
                *until_ms.get_or_insert(look.at_ms.saturating_add(to_sql(request.wait_ms.min(WAIT_MS_MAX))));
            if !look.page.events.is_empty() || look.at_ms >= until_ms {
                return Ok(look.page);
            }
            request.cursor = Some(look.page.next_cursor);
            (wanted, looks) = (None, 0);
            if let Some(listener) = &listener {
                tokio::select! {
                    () = listener.heard() => {}
                    () = sleep(LOOK_EVERY) => {}
                    () = self.closing.wait() => return Err(super::closed()),
                }
            }
        }
    }

    /// Records a stale write that was refused in a transaction that was not this store's.
    pub(super) async fn record_blocked_write(
        &mut self,
        report: &BlockedWrite,
    ) -> Result<RecordedBlockedWrite, StoreError> {
        let action = serde_json::to_value(AttemptedV1::from(report.action)).unwrap_or_default();
        let asked: [&dyn Parameter; 4] = [
            &self.namespace(),
            &report.key.as_str(),
            &to_sql(report.token.get()),
            &action.as_str().unwrap_or("write"),
        ];
        let recorded = self.value("SELECT fencehold.write_refused($1, $2, $3, $4)", &asked).await?;
        Ok(RecordedBlockedWrite { recorded })
    }

    async fn look_at_events(
        &mut self,
        request: &ListEventsRequest,
        pass_to: i64,
    ) -> Result<EventRead, StoreError> {
        let sql = "SELECT events::text, next, oldest, newest, told, at_ms FROM fencehold.events_page($1, $2, $3, $4, $5, $6)";
        let asked: [&dyn Parameter; 6] = [
            &self.namespace(),
            &request.cursor.map(to_sql),
            &request.prefix.as_deref(),
            &limit_to_sql(request.limit),
            &pass_to,
            &request.task_prefix.as_ref().map(Task::as_str),
        ];
        let (events, next, oldest, newest, told, at_ms): (String, i64, i64, i64, i64, i64) =
            self.row(sql, &asked).await?;
        if let Some(after) = request.cursor {
            let (oldest, newest) = (from_sql(oldest), from_sql(newest));
            if after.saturating_add(1) < oldest {
                return Err(StoreError::CursorTooOld { cursor: after, oldest_cursor: oldest });
            }
            if after > newest {
                let problem = format!("{after} is ahead of this store, whose last event is {newest}");
                return Err(BadInput::new("cursor", problem).into());
            }
        }
        let events = self.read::<Vec<StoredEvent>>(&events)?.into_iter().map(Event::from).collect();
        let page = EventPage { events, next_cursor: from_sql(next) };
        Ok(EventRead { page, newest, told, at_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_newer_program_is_shown_as_one_and_hides_no_other() {
        let row = |fact: &str| {
            format!(r#"{{"seq":7,"at_wall_ms":5,"namespace":"default","key":"job/1","fact":{fact}}}"#)
        };
        let rows = format!(
            "[{},{}]",
            row(r#"{"moon_rose":{"by":"ada"}}"#),
            row(r#"{"job_retried":{"by":"ada","state":"failed"}}"#)
        );
        let events: Vec<StoredEvent> = serde_json::from_str(&rows).unwrap();
        let [newer, known] = <[StoredEvent; 2]>::try_from(events).ok().unwrap().map(Event::from);
        assert!(
            matches!(&newer.data, EventData::RowUnreadable { message } if message.contains("moon_rose")),
            "{newer:?}"
        );
        assert!(matches!(known.data, EventData::JobRetried { .. }), "{known:?}");
    }

    #[test]
    fn only_what_was_missing_for_long_is_passed_over() {
        let mut timeout = GapTracker::default();
        let mut looks =
            |told, newest| (0..LOOKS_MAX).map(|nth| timeout.pass_to(told, newest + i64::from(nth))).max();
        assert_eq!(looks(5, 7), Some(0));
        assert_eq!(looks(6, 8), Some(0), "it moved");
        assert_eq!(looks(6, 50), Some(8), "what came since is waited for");
    }
}
