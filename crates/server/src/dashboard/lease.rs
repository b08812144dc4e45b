//! One lease: who held it, when, under which token, and how each hold ended, as a picture and as a table of the same.
//!
//! Nouns: a *hold* is put together from the events of its token, and from the endings that the store remembers of the key where its
//! events are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencehold_contract::http::{GetLeaseRequest, NoQuery, RevokeLeaseRequest, op};
use fencehold_contract::problem::Problem;
use fencehold_contract::{HolderView, KeyContention, LeaseView, ListContentionRequest};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{Event, EventData, Key, Token};
use maud::{Markup, html};

use super::history;
use super::leases::time_left;
use super::page::{Page, PageRequest, PageResponse};
use super::timeline::{self, Bar, Lane, Mark};
use super::{filter, layout, text};
use crate::http::lease;

/// How many holds are shown: the last ones.
const HOLDS_MAX: usize = 30;
/// How many lanes the picture has.
const LANES_MAX: usize = 10;
/// How far back events are read, in events of the whole store: first a little, and if that has few holds, further.
const EVENTS_BACK: [u64; 2] = [2_048, 16_384];

/// A hold of the key.
#[derive(Debug, Default)]
struct Hold {
    owner: Option<String>,
    task: Option<String>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    outcome: Option<LeaseOutcome>,
    by: Option<String>,
    reason: Option<String>,
}

/// Something else that happened to the key.
struct Incident {
    at_ms: u64,
    /// On whose lane.
    owner: Option<String>,
    class: &'static str,
    says: String,
}

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let key: Key = page.fields.need("key")?;
    let request = GetLeaseRequest { key: key.clone() };
    let view = lease::get(page.context::<op::GetLease>()?, request).await?;
    let request = ListContentionRequest { key: Some(key.clone()), prefix: None };
    let contention = page.call::<op::ListContention>(request).await?.keys.into_iter().next();
    let events = events_of(&page, &key).await?;
    let holds = holds(&view, &events);
    let incidents = incidents(&events, &holds, contention.as_ref());
    let main = html! {
        h1 { span class="muted" { "Lease " } (text::text(key.as_str())) }
        (notices(&page))
        (standing(&page, &view, contention.as_ref()))
        @if let Some(holder) = &view.holder { (revoke_form(&page, &view, holder)) }
        h2 { "Who held it" }
        @if holds.is_empty() {
            (layout::empty("It was never held, or that is forgotten. To hold it while a command runs:", Some("fencehold run --key KEY -- COMMAND")))
        } @else {
            (timeline::picture("Who held the key when, and how each hold ended; the table below says the same", &lanes(&holds, &incidents), page.now_ms))
            (table(&page, &holds, &incidents))
        }
    };
    let title = format!("Lease {key}");
    Ok(Page { title, section: "Leases", live_prefix: Some(key.to_string()), main }.into())
}

fn notices(page: &PageRequest) -> Markup {
    html! {
        @if page.fields.get("done") == Some("revoked") {
            div class="notice good" role="status" { "The hold was ended by force. Its token is refused by every fence that has seen a larger one." }
        }
    }
}

/// How the key stands now.
fn standing(page: &PageRequest, view: &LeaseView, contention: Option<&KeyContention>) -> Markup {
    html! {
        dl class="facts" {
            @match &view.holder {
                Some(holder) => {
                    div { dt { "held by" } dd { (filter::worker(page, holder.owner.as_str())) } }
                    div { dt { "token" } dd { (text::token(view.token)) } }
                    @if let Some(task) = &holder.task { div { dt { "task" } dd { (text::text(task.as_str())) } } }
                    div { dt { "time left" } dd { (time_left(holder.remaining_ms, holder.ttl_ms)) " of " (text::duration(holder.ttl_ms)) } }
                    div { dt { "acquired" } dd { (text::moment(page.now_ms, holder.acquired_at_ms)) } }
                    @if let Some(ago_ms) = holder.renewed_ago_ms { div { dt { "renewed" } dd { (text::duration(ago_ms)) " ago" } } }
                    @if let Some(max_age_ms) = holder.max_age_ms { div { dt { "max age" } dd { (text::duration(max_age_ms)) } } }
                    @if holder.priority != 0 { div { dt { "priority" } dd { (holder.priority) } } }
                    @if let Some(asked) = &holder.yield_request {
                        div { dt { "asked to yield" } dd { "by " (text::text(asked.contender.as_str())) " within " (text::duration(asked.yield_in_ms)) } }
                    }
                },
                None => {
                    div { dt { "held by" } dd { span class="muted" { "no owner: it is free" } } }
                    div { dt { "last token" } dd { (text::token(view.token)) } }
                },
            }
            div { dt { "in line" } dd { (text::number(view.waiter_count)) } }
            @if let Some(contended) = contention {
                div {
                    dt { "refused in the last hour" }
                    dd {
                        (text::number(contended.refused_count))
                        @if let Some(refused) = &contended.last_refused {
                            span class="muted" { ", last " (text::cell(refused.owner.as_str())) " " (text::moment(page.now_ms, refused.refused_at_ms)) }
                        }
                    }
                }
            }
        }
    }
}

fn revoke_form(page: &PageRequest, view: &LeaseView, holder: &HolderView) -> Markup {
    html! {
        @if page.may::<op::RevokeLease>() {
            details class="act" id="revoke" {
                summary { "Revoke…" }
                form action=(page.href("revoke-lease", &[])) method="post" class="stack" {
                    p {
                        "Ends the hold of " (text::text(holder.owner.as_str())) " under token " (text::token(view.token))
                        " at once. The holder learns it when it renews next, and may act until then: only a fence keeps it out."
                    }
                    (page.form_token())
                    input type="hidden" name="key" value=(view.key);
                    input type="hidden" name="token" value=(view.token);
                    (page.by_field())
                    label { "Reason" input name="reason" required maxlength="200" placeholder="why, for the holder and for the audit"; }
                    label class="check" { input type="checkbox" name="confirm" value="yes" required; "End this hold by force" }
                    button class="danger" { "Revoke token " (view.token) }
                }
            }
        }
    }
}

/// Ends the hold that the page showed, and no later one.
pub(super) async fn revoke(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    page.confirmed()?;
    let key: Key = page.fields.need("key")?;
    let token: u64 = page.fields.need("token")?;
    let request = RevokeLeaseRequest {
        key: key.clone(),
        only_token: Some(Token::new(token)),
        by: page.by()?,
        reason: page.fields.need("reason")?,
    };
    lease::revoke(page.context::<op::RevokeLease>()?, request).await?;
    Ok(PageResponse::Goto(page.href("lease", &[("key", key.as_str()), ("done", "revoked")])))
}

/// The events of a key that are kept, oldest first.
async fn events_of(page: &PageRequest, key: &Key) -> Result<Vec<Event>, Problem> {
    let newest = page.call::<op::GetStoreStatus>(NoQuery {}).await?.newest_event_seq;
    let mut found = Vec::new();
    for back in EVENTS_BACK {
        found = history::events_since(page, Some(key.as_str()), newest.saturating_sub(back)).await?;
        found.retain(|event| event.key == *key);
        let began = found
            .iter()
            .filter(|event| matches!(event.data, EventData::LeaseAcquired { .. }));
        if began.count() > HOLDS_MAX || newest <= back {
            break;
        }
    }
    Ok(found)
}

/// The holds by their tokens.
fn holds(view: &LeaseView, events: &[Event]) -> BTreeMap<Token, Hold> {
    let mut holds: BTreeMap<Token, Hold> = BTreeMap::new();
    let text = |text: &dyn ToString| Some(text.to_string());
    for ending in &view.endings {
        let hold = holds.entry(ending.token).or_default();
        hold.owner = text(&ending.owner);
        hold.task = ending.task.as_ref().and_then(|task| text(task));
        hold.to_ms = Some(ending.ended_at_ms);
        hold.outcome = Some(ending.outcome);
        hold.by = ending.by.as_ref().and_then(|by| text(by));
        hold.reason = ending.reason.as_ref().and_then(|reason| text(reason));
    }
    for event in events {
        match &event.data {
            EventData::LeaseAcquired { token, owner, task, .. } => {
                let hold = holds.entry(*token).or_default();
                hold.owner = text(owner);
                hold.task = task.as_ref().and_then(|task| text(task));
                hold.from_ms = Some(event.at_ms);
            }
            EventData::LeaseEnded { token, owner, outcome, by, reason, .. } => {
                let hold = holds.entry(*token).or_default();
                hold.owner = text(owner);
                hold.to_ms = Some(event.at_ms);
                hold.outcome = Some(*outcome);
                hold.by = by.as_ref().and_then(|by| text(by));
                hold.reason = reason.as_ref().and_then(|reason| text(reason));
            }
            _ => {}
        }
    }
    if let Some(holder) = &view.holder {
        let hold = holds.entry(view.token).or_default();
        hold.owner = text(&holder.owner);
        hold.task = holder.task.as_ref().and_then(|task| text(task));
        hold.from_ms = Some(holder.acquired_at_ms);
    }
    while holds.len() > HOLDS_MAX {
        holds.pop_first();
    }
    holds
}

fn incidents(
    events: &[Event],
    holds: &BTreeMap<Token, Hold>,
    contention: Option<&KeyContention>,
) -> Vec<Incident> {
    let owner_of = |token: &Token| holds.get(token).and_then(|hold| hold.owner.clone());
    let since_ms = holds.values().find_map(|hold| hold.from_ms.or(hold.to_ms)).unwrap_or_default();
    let refused = contention
        .and_then(|contended| contended.last_refused.as_ref())
        .map(|refused| Incident {
            at_ms: refused.refused_at_ms,
            owner: Some(refused.owner.to_string()),
            class: "refused",
            says: format!("acquisition by {} refused: another owner held the key", refused.owner),
        });
    let mut found: Vec<Incident> = events
        .iter()
        .filter(|event| event.at_ms >= since_ms)
        .filter_map(|event| {
            let (owner, class, says) = match &event.data {
                EventData::StaleWriteBlocked { token, .. } => {
                    (owner_of(token), "stale", event.data.stale_write_refused().unwrap_or_default())
                }
                EventData::YieldRequested { token, contender, yield_in_ms, .. } => {
                    let within = text::duration(*yield_in_ms);
                    let says = format!("{contender} asked the holder of token {token} to yield within {within}");
                    (owner_of(token), "yield", says)
                }
                EventData::StoreRewound { token, current_token } => {
                    let says = format!("token {token} was shown, and the store knows of none above {current_token}: it was rewound");
                    (None, "stale", says)
                }
                _ => return None,
            };
            Some(Incident { at_ms: event.at_ms, owner, class, says })
        })
        .chain(refused)
        .collect();
    found.sort_by_key(|incident| incident.at_ms);
    found
}

/// A lane for each owner, in the order in which they first held the key; the last lane is of all others.
fn lanes(holds: &BTreeMap<Token, Hold>, incidents: &[Incident]) -> Vec<Lane> {
    const OTHERS: &str = "others";
    let mut names: Vec<&str> = Vec::new();
    let of_holds = holds.values().rev().map(|hold| hold.owner.as_deref());
    for name in of_holds.chain(incidents.iter().map(|incident| incident.owner.as_deref())) {
        let name = name.unwrap_or(OTHERS);
        if names.len() < LANES_MAX && !names.contains(&name) {
            names.push(name);
        }
    }
    let mut lanes: Vec<Lane> = names
        .iter()
        .rev()
        .map(|name| Lane { name: (*name).to_owned(), bars: Vec::new(), marks: Vec::new() })
        .collect();
    let place = |lanes: &mut Vec<Lane>, owner: Option<&str>| {
        let owner = owner.unwrap_or(OTHERS);
        if let Some(at) = lanes.iter().position(|lane| lane.name == owner) {
            return at;
        }
        lanes.iter().position(|lane| lane.name == OTHERS).unwrap_or_else(|| {
            lanes.push(Lane { name: OTHERS.to_owned(), bars: Vec::new(), marks: Vec::new() });
            lanes.len() - 1
        })
    };
    for (token, hold) in holds {
        let at = place(&mut lanes, hold.owner.as_deref());
        let class = hold.outcome.map_or("running", text::lease_outcome_class);
        let how = hold
            .outcome
            .map_or_else(|| "held now".to_owned(), |outcome| outcome.to_string());
        let owner = hold.owner.as_deref().unwrap_or("unknown");
        let label = format!("#{token}");
        let title = format!("token {token}, {owner}: {how}");
        lanes[at]
            .bars
            .push(Bar { from_ms: hold.from_ms, to_ms: hold.to_ms, class, label, title });
    }
    for incident in incidents {
        let at = place(&mut lanes, incident.owner.as_deref());
        let (at_ms, class, title) = (incident.at_ms, incident.class, incident.says.clone());
        lanes[at].marks.push(Mark { at_ms, class, title });
    }
    lanes
}

/// A row of the table: a hold, or something else that happened.
enum Row<'a> {
    Hold(Token, &'a Hold),
    Incident(&'a Incident),
}

fn table(page: &PageRequest, holds: &BTreeMap<Token, Hold>, incidents: &[Incident]) -> Markup {
    let begun = |hold: &Hold| hold.from_ms.or(hold.to_ms).unwrap_or_default();
    let of_holds = holds.iter().map(|(token, hold)| (begun(hold), Row::Hold(*token, hold)));
    let of_incidents = incidents.iter().map(|incident| (incident.at_ms, Row::Incident(incident)));
    let mut rows: Vec<(u64, Row<'_>)> = of_holds.chain(of_incidents).collect();
    rows.sort_by_key(|(at_ms, _)| std::cmp::Reverse(*at_ms));
    html! {
        div class="scroll" { table class="list" {
            thead { tr { th class="number" { "token" } th { "owner" } th { "task" } th { "acquired" } th { "ended" } th class="number" { "held for" } th { "how" } } }
            tbody {
                @for (_, row) in &rows {
                    @match row {
                        Row::Hold(token, hold) => tr {
                            td class="number" { (text::token(*token)) }
                            td { @if let Some(owner) = &hold.owner { (filter::worker(page, owner)) } }
                            td { @if let Some(task) = &hold.task { (text::cell(task)) } }
                            td { @if let Some(at_ms) = hold.from_ms { (text::moment(page.now_ms, at_ms)) } @else { span class="muted" { "not kept" } } }
                            td { @if let Some(at_ms) = hold.to_ms { (text::moment(page.now_ms, at_ms)) } }
                            td class="number" {
                                @if let Some(from_ms) = hold.from_ms { (text::duration(hold.to_ms.unwrap_or(page.now_ms).saturating_sub(from_ms))) }
                            }
                            td {
                                @match hold.outcome {
                                    Some(outcome) => (text::badge(text::lease_outcome_class(outcome), outcome)),
                                    None => (text::badge("running", "held")),
                                }
                                @if let Some(by) = &hold.by { " by " (text::cell(by)) }
                                @if let Some(reason) = &hold.reason { ": " (text::cell(reason)) }
                            }
                        },
                        Row::Incident(incident) => tr class="incident" {
                            td {}
                            td { @if let Some(owner) = &incident.owner { (text::cell(owner)) } }
                            td {}
                            td { (text::moment(page.now_ms, incident.at_ms)) }
                            td colspan="3" { (text::badge(incident.class, incident.class)) " " (text::text(&incident.says)) }
                        },
                    }
                }
            }
        } }
        p class="muted small" { "The last " (HOLDS_MAX) " holds, as far as the store keeps their events; renewals leave no trace." }
    }
}
