//! What happened lately: the events that the store keeps, and among them what did not end well.
//!
//! Nouns: an *incident* is a hold or an attempt that did not end well, or a stale write that was refused.

use std::collections::BTreeMap;

use fencehold_contract::ListEventsRequest;
use fencehold_contract::http::op;
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_core::job::AttemptOutcome;
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{Event, EventData, Key, Owner, Reason, Token};
use maud::{Markup, html};

use super::page::PageRequest;
use super::{filter, text};

/// The events after a cursor of the keys that begin with a text, oldest first, as far as they are kept.
pub(super) async fn events_since(
    page: &PageRequest,
    prefix: Option<&str>,
    since: u64,
) -> Result<Vec<Event>, Problem> {
    let mut found = Vec::new();
    let mut cursor = Some(since);
    loop {
        let request = ListEventsRequest {
            cursor,
            prefix: prefix.map(str::to_owned),
            limit: PAGE_MAX,
            ..ListEventsRequest::default()
        };
        let listed = match page.call::<op::ListEvents>(request).await {
            // Then from the oldest that is kept.
            Err(problem) if problem.kind == ErrorKind::CursorTooOld && cursor.is_some() => {
                cursor = None;
                continue;
            }
            listed => listed?,
        };
        let is_last = listed.events.len() < PAGE_MAX;
        cursor = Some(listed.next_cursor);
        found.extend(listed.events);
        if is_last {
            return Ok(found);
        }
    }
}

/// Who acquired or claimed what under which token, as far as the events say.
struct Holders<'e>(BTreeMap<(&'e Key, Token), &'e Owner>);

impl<'e> Holders<'e> {
    fn of(events: &'e [Event]) -> Self {
        let acquired = events.iter().filter_map(|event| {
            let (token, owner) = acquisition(&event.data)?;
            Some(((&event.key, token), owner))
        });
        Holders(acquired.collect())
    }

    fn owner(&self, key: &Key, token: Token) -> Option<&'e Owner> {
        self.0.get(&(key, token)).copied()
    }
}

fn acquisition(data: &EventData) -> Option<(Token, &Owner)> {
    match data {
        EventData::LeaseAcquired { token, owner, .. } | EventData::JobClaimed { token, owner, .. } => {
            Some((*token, owner))
        }
        _ => None,
    }
}

/// What is said of a hold or an attempt that did not end well.
struct Incident<'a> {
    token: Token,
    /// Who had it, where that is known.
    owner: Option<&'a Owner>,
    class: &'static str,
    outcome: String,
    by: Option<&'a Owner>,
    reason: Option<&'a Reason>,
    /// The newest token, where a stale write showed an older one.
    current: Option<Token>,
}

/// `None`: it ended well, or did not end. A failure that was reported is no incident: it is tried again, or among those that need a person.
fn incident<'e>(event: &'e Event, holders: &Holders<'e>) -> Option<Incident<'e>> {
    match &event.data {
        EventData::LeaseEnded { token, owner, outcome, by, reason, .. }
            if !matches!(outcome, LeaseOutcome::Released | LeaseOutcome::Yielded) =>
        {
            Some(Incident {
                token: *token,
                owner: Some(owner),
                class: text::lease_outcome_class(*outcome),
                outcome: outcome.to_string(),
                by: by.as_ref(),
                reason: reason.as_ref(),
                current: None,
            })
        }
        EventData::JobAttemptEnded { token, owner, outcome, .. }
            if matches!(outcome, AttemptOutcome::Crashed | AttemptOutcome::TimedOut) =>
        {
            Some(Incident {
                token: *token,
                owner: Some(owner),
                class: text::attempt_outcome_class(*outcome),
                outcome: outcome.to_string(),
                by: None,
                reason: None,
                current: None,
            })
        }
        data if data.is_renewal_after_release() => None,
        EventData::StaleWriteBlocked { token, current_token, .. } => Some(Incident {
            token: *token,
            owner: holders.owner(&event.key, *token),
            class: "stale",
            outcome: "stale write refused".to_owned(),
            by: None,
            reason: None,
            current: Some(*current_token),
        }),
        _ => None,
    }
}

/// Whether an event says that a worker was lost: its hold expired, or its attempt crashed.
pub(super) fn crash(data: &EventData) -> Option<&Owner> {
    match data {
        EventData::LeaseEnded { owner, outcome: LeaseOutcome::Expired, .. }
        | EventData::JobAttemptEnded { owner, outcome: AttemptOutcome::Crashed, .. } => Some(owner),
        _ => None,
    }
}

/// The last incidents, of one owner or of all, and who took over. `None`: there were none.
pub(super) fn incidents(
    page: &PageRequest,
    events: &[Event],
    only: Option<&Owner>,
    at_most: usize,
) -> Option<Markup> {
    let holders = Holders::of(events);
    let rows: Vec<(usize, Incident<'_>)> = events
        .iter()
        .enumerate()
        .rev()
        .filter_map(|(nth, event)| Some((nth, incident(event, &holders)?)))
        .filter(|(_, incident)| only.is_none() || incident.owner == only)
        .take(at_most)
        .collect();
    (!rows.is_empty()).then(|| {
        html! {
            div class="scroll" { table class="stacked" {
                thead { tr {
                    th { "when" } @if only.is_none() { th { "worker" } } th { "what" } th class="number" { "token" } th { "what happened" }
                    th { "who took over" } th class="number" { "token" }
                } }
                tbody {
                    @for (nth, incident) in &rows {
                        @let event = &events[*nth];
                        tr {
                            td { (text::moment(page.now_ms, event.at_ms)) }
                            @if only.is_none() {
                                td { @if let Some(owner) = incident.owner { (filter::worker(page, owner.as_str())) } @else { span class="muted" { "not said" } } }
                            }
                            td { (filter::subject(page, event.key.as_str())) }
                            td class="number" { (text::token(incident.token)) }
                            td class="long" {
                                (text::badge(incident.class, &incident.outcome))
                                @if let Some(by) = incident.by { " by " (text::cell(by.as_str())) }
                                @if let Some(reason) = incident.reason { ": " (text::cell(reason.as_str())) }
                                @if let Some(current) = incident.current { " " span class="muted" { "token " (current) " is the newest" } }
                            }
                            @match successor(&events[*nth..], incident, &holders) {
                                Some((token, owner)) => {
                                    td data-label="taken over by " { @if let Some(owner) = owner { (filter::worker(page, owner.as_str())) } @else { span class="muted" { "not kept" } } }
                                    td class="number" { (text::token(token)) }
                                },
                                None => { td class="muted" { "no one since" } td {} },
                            }
                        }
                    }
                }
            } }
        }
    })
}

/// Who had the same key next, under which token. `since`: the events from that of the incident on.
fn successor<'e>(
    since: &'e [Event],
    incident: &Incident<'_>,
    holders: &Holders<'e>,
) -> Option<(Token, Option<&'e Owner>)> {
    let (event, later) = since.split_first()?;
    // A stale write comes after the one who took over.
    if let Some(current) = incident.current.filter(|current| *current > incident.token) {
        return Some((current, holders.owner(&event.key, current)));
    }
    let mut of_key = later.iter().filter(|later| later.key == event.key);
    of_key
        .find_map(|later| acquisition(&later.data))
        .map(|(token, owner)| (token, Some(owner)))
}
