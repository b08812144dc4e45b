//! What happened, in order, without leaving out what was committed late.
//!
//! Events are numbered when they are written, and seen when their transaction commits: a number that is missing may still
//! come, or its transaction was rolled back. A page ends before such a *gap*, until every transaction that could fill it has
//! ended: then it is *settled*.

use std::time::Duration;

use fencehold_core::limits::WAIT_MS_MAX;
use fencehold_core::{BadInput, Event, Namespace};
use tokio_postgres::types::Type;

use super::acquire::number;
use super::errand::{Errand, pause};
use super::{Core, Repeat};
use crate::error::StoreError;
use crate::lease::{EventPage, EventsRequest};

/// How often one who watches looks for news.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long one who does not wait bears with a gap, and how often it looks: usually it is filled by the next commit.
const GAP_LOOKS_MAX: usize = 100;
const GAP_LOOK_EVERY: Duration = Duration::from_millis(5);

/// Up to where no event can come any more.
#[derive(Debug, Default)]
pub(super) struct Settled {
    to: i64,
    /// What will be settled once no transaction below this number runs any more.
    next: Option<(i64, i64)>,
}

impl Settled {
    /// Learns from one look. One that found a gap knows that whoever may still fill it, or another one up to `newest`, has a number
    /// below `assigned_to`.
    fn saw(&mut self, newest: i64, assigned_to: Option<i64>, running_from: i64) {
        if let Some((to, below)) = self.next
            && running_from >= below
        {
            self.to = self.to.max(to);
            self.next = None;
        }
        if let (None, Some(assigned_to)) = (self.next, assigned_to) {
            self.next = Some((newest, assigned_to));
        }
    }
}

/// One look.
struct Look {
    page: EventPage,
    /// Whether the page goes up to the newest event.
    complete: bool,
    at_ms: i64,
}

impl Core {
    pub(super) async fn events(
        &self,
        errand: &mut Errand,
        namespace: &Namespace,
        mut request: EventsRequest,
    ) -> Result<EventPage, StoreError> {
        let ear = (request.wait_ms > 0).then(|| self.listen("events"));
        let mut until_ms = None;
        let mut gap_looks = 0;
        loop {
            let look = self.look_at_events(errand, namespace, &request).await?;
            if !look.page.events.is_empty() && (look.complete || look.page.events.len() == request.limit) {
                return Ok(look.page);
            }
            if !look.complete && gap_looks < GAP_LOOKS_MAX {
                gap_looks += 1;
                pause(GAP_LOOK_EVERY).await;
                continue;
            }
            let until_ms =
                *until_ms.get_or_insert(look.at_ms.saturating_add(number(request.wait_ms.min(WAIT_MS_MAX))));
            if !look.page.events.is_empty() || look.at_ms >= until_ms {
                return Ok(look.page);
            }
            request.after = Some(look.page.next);
            if let Some(ear) = &ear {
                tokio::select! {
                    () = ear.heard() => {}
                    () = pause(LOOK_EVERY) => {}
                    () = self.is_closing() => return Err(super::closed()),
                }
            }
        }
    }

    async fn look_at_events(
        &self,
        errand: &mut Errand,
        namespace: &Namespace,
        request: &EventsRequest,
    ) -> Result<Look, StoreError> {
        let sql = self.sql(
            "SELECT events::text, next, oldest, newest, assigned_to, running_from, complete, at_ms \
             FROM fencehold.events_read($1, $2, $3, $4, $5)",
        );
        let most = i32::try_from(request.limit).unwrap_or(i32::MAX);
        let settled_to = self.settled.borrow().to;
        let after = request.after.map(number);
        let row = self
            .run(errand, Repeat::Safe, async |client| {
                let mut rows = client
                    .query_typed(
                        &sql,
                        &[
                            (&namespace.as_str(), Type::TEXT),
                            (&after, Type::INT8),
                            (&request.prefix.as_deref(), Type::TEXT),
                            (&most, Type::INT4),
                            (&settled_to, Type::INT8),
                        ],
                    )
                    .await?;
                Ok(rows.remove(0))
            })
            .await?;
        let number_of = |name: &str| row.get::<_, i64>(name);
        let (oldest, newest) = (number_of("oldest"), number_of("newest"));
        self.settled
            .borrow_mut()
            .saw(newest, row.get("assigned_to"), number_of("running_from"));
        if let Some(after) = request.after {
            let (oldest, newest) = (oldest.unsigned_abs(), newest.unsigned_abs());
            if after.saturating_add(1) < oldest {
                return Err(StoreError::CursorTooOld { cursor: after, oldest });
            }
            if after > newest {
                let problem = format!("{after} is ahead of this store, whose last event is {newest}");
                return Err(BadInput::new("cursor", problem).into());
            }
        }
        let events: Vec<Event> = self.read(&row.get::<_, String>("events"))?;
        let page = EventPage { events, next: number_of("next").unsigned_abs() };
        Ok(Look { page, complete: row.get("complete"), at_ms: number_of("at_ms") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_settled_when_all_that_ran_when_it_was_seen_have_ended() {
        let mut settled = Settled::default();
        settled.saw(5, None, 95);
        settled.saw(7, Some(100), 90);
        assert_eq!(
            settled.to, 0,
            "one from before runs still; and where there is no gap, there is nothing to settle"
        );
        settled.saw(9, Some(120), 99);
        assert_eq!(settled.to, 0);
        settled.saw(12, Some(130), 100);
        assert_eq!(settled.to, 7, "what came later is not settled with it");
        settled.saw(13, Some(140), 130);
        assert_eq!(settled.to, 12);
    }
}
