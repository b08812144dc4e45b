//! Workers: the owners that hold leases, work on jobs, or were lost lately. And one of them: what it holds, what it held, what it lost.
//!
//! A worker is nothing that a store keeps: it is a name on holds, attempts and events. So this is put together from those.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencehold_contract::http::{NoQuery, op};
use fencehold_contract::job::{JobFilter, JobPage, JobView, ListJobsRequest};
use fencehold_contract::problem::Problem;
use fencehold_contract::{LeasePage, LeaseView, ListLeasesRequest};
use fencehold_core::job::JobState;
use fencehold_core::{Event, EventData, Owner, Token};
use futures_util::future::try_join;
use maud::{Markup, html};

use super::history;
use super::leases::time_left;
use super::page::{Page, PageRequest, PageResponse, ROWS_MAX};
use super::timeline::{self, Bar, Lane};
use super::{filter, layout, text};

/// How far back, in events, workers are looked for.
const EVENTS_BACK: u64 = 4_096;
/// How many leases, and how many jobs that run, are read.
const HELD_READ: usize = 500;
const INCIDENTS_MAX: usize = 20;
const LANES_MAX: usize = 10;

/// What is known of a worker.
#[derive(Debug, Default)]
struct Worker {
    lease_count: u64,
    job_count: u64,
    /// Of all that it holds, what is closest to its end: time left, and ttl.
    least_left: Option<(u64, u64)>,
    /// How long ago it renewed, or was granted, anything.
    renewed_ago_ms: Option<u64>,
    crash_count: u64,
    crashed_at_ms: Option<u64>,
    /// The last event with its name.
    seen_at_ms: Option<u64>,
}

impl Worker {
    fn holds(&mut self, remaining_ms: u64, ttl_ms: u64, renewed_ago_ms: Option<u64>) {
        // A renewal gives the whole ttl again.
        let ago_ms = renewed_ago_ms.unwrap_or(ttl_ms.saturating_sub(remaining_ms));
        self.renewed_ago_ms = Some(self.renewed_ago_ms.map_or(ago_ms, |known| known.min(ago_ms)));
        if self.least_left.is_none_or(|(left, _)| remaining_ms < left) {
            self.least_left = Some((remaining_ms, ttl_ms));
        }
    }
}

/// What workers hold at the moment, as far as the caller may see it.
struct Held {
    leases: Vec<LeaseView>,
    jobs: Vec<JobView>,
    /// Whether there is more than was read.
    has_more: bool,
}

impl Held {
    async fn read(page: &PageRequest, owner: Option<&Owner>) -> Result<Held, Problem> {
        let (leases, jobs) = try_join(leases(page, owner), running(page, owner)).await?;
        let has_more = leases.next_cursor.is_some() || jobs.next_cursor.is_some();
        Ok(Held { leases: leases.leases, jobs: jobs.jobs, has_more })
    }
}

async fn leases(page: &PageRequest, owner: Option<&Owner>) -> Result<LeasePage, Problem> {
    if !page.may::<op::ListLeases>() {
        return Ok(LeasePage { leases: Vec::new(), next_cursor: None });
    }
    let owner = owner.cloned();
    let request = ListLeasesRequest { owner, limit: HELD_READ, ..ListLeasesRequest::default() };
    page.call::<op::ListLeases>(request).await
}

async fn running(page: &PageRequest, owner: Option<&Owner>) -> Result<JobPage, Problem> {
    if !page.has_jobs() || !page.may::<op::ListJobs>() {
        return Ok(JobPage { jobs: Vec::new(), next_cursor: None });
    }
    let owner = owner.cloned();
    let filter = JobFilter { states: vec![JobState::Running], owner, ..JobFilter::default() };
    page.call::<op::ListJobs>(ListJobsRequest { filter, cursor: None, limit: HELD_READ })
        .await
}

async fn recent_events(page: &PageRequest) -> Result<Vec<Event>, Problem> {
    if !page.may::<op::ListEvents>() {
        return Ok(Vec::new());
    }
    let newest = page.call::<op::GetStoreStatus>(NoQuery {}).await?.newest_event_seq;
    history::events_since(page, None, newest.saturating_sub(EVENTS_BACK)).await
}

/// Who an event says did something by itself.
fn actor(data: &EventData) -> Option<&Owner> {
    match data {
        EventData::LeaseAcquired { owner, .. }
        | EventData::LeaseEnded { owner, .. }
        | EventData::JobClaimed { owner, .. }
        | EventData::JobAttemptEnded { owner, .. } => Some(owner),
        _ => None,
    }
}

/// Every worker by its name.
fn gather(held: &Held, events: &[Event]) -> BTreeMap<Owner, Worker> {
    let mut workers: BTreeMap<Owner, Worker> = BTreeMap::new();
    for holder in held.leases.iter().filter_map(|view| view.holder.as_ref()) {
        let worker = workers.entry(holder.owner.clone()).or_default();
        worker.lease_count += 1;
        worker.holds(holder.remaining_ms, holder.ttl_ms, holder.renewed_ago_ms);
    }
    for runner in held.jobs.iter().filter_map(|job| job.runner.as_ref()) {
        let worker = workers.entry(runner.owner.clone()).or_default();
        worker.job_count += 1;
        worker.holds(runner.remaining_ms, runner.ttl_ms, None);
    }
    for event in events {
        let Some(owner) = actor(&event.data) else { continue };
        let worker = workers.entry(owner.clone()).or_default();
        worker.seen_at_ms = Some(event.at_ms);
        if history::crash(&event.data).is_some() {
            worker.crash_count += 1;
            worker.crashed_at_ms = Some(event.at_ms);
        }
    }
    workers
}

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let (held, events) = try_join(Held::read(&page, None), recent_events(&page)).await?;
    let contains = page.fields.get("owner").unwrap_or_default();
    let mut workers: Vec<(Owner, Worker)> = gather(&held, &events)
        .into_iter()
        .filter(|(owner, _)| owner.as_str().contains(contains))
        .collect();
    // Who was lost last is what is looked for; then who holds most.
    workers.sort_by_key(|(_, worker)| {
        std::cmp::Reverse((worker.crashed_at_ms, worker.lease_count + worker.job_count, worker.seen_at_ms))
    });
    let more = workers.len().saturating_sub(ROWS_MAX);
    workers.truncate(ROWS_MAX);
    let main = html! {
        h1 { "Workers" }
        (filter::form(&page, "workers", &filter::field(&page, "owner", "Name contains", "worker-7")))
        @if workers.is_empty() {
            @if contains.is_empty() {
                (layout::empty("No owner holds a lease or works on a job, and none did lately. A worker for a queue:", Some("fencehold work --queue emails -- ./send-email")))
            } @else { (layout::empty("No owner has this in its name.", None)) }
        } @else {
            (table(&page, &workers))
            p class="muted small" {
                "Owners that hold something, or did within the last " (text::number(EVENTS_BACK)) " events; those that were lost last come first."
                @if more > 0 { " " (text::number(more as u64)) " more are not shown." }
                @if held.has_more { " Of leases and of jobs, the first " (text::number(HELD_READ as u64)) " are counted." }
            }
        }
    };
    let live_prefix = Some(String::new());
    Ok(Page { title: "Workers".to_owned(), section: "Workers", live_prefix, main }.into())
}

fn table(page: &PageRequest, workers: &[(Owner, Worker)]) -> Markup {
    let count =
        |count: u64| html! { @if count > 0 { (text::number(count)) } @else { span class="muted" { "0" } } };
    html! {
        div class="scroll" { table class="list" {
            thead { tr {
                th { "worker" } th class="number" { "leases" } th class="number" { "jobs" } th { "renewed" }
                th class="number" { "least time left" } th class="number" { "lost" } th { "last lost" } th { "last grant or ending" }
            } }
            tbody {
                @for (owner, worker) in workers {
                    tr {
                        td { (filter::worker(page, owner.as_str())) }
                        td class="number" { (count(worker.lease_count)) }
                        td class="number" { (count(worker.job_count)) }
                        td { @if let Some(ago_ms) = worker.renewed_ago_ms { (text::moment(page.now_ms, page.now_ms.saturating_sub(ago_ms))) } @else { span class="muted" { "—" } } }
                        td class="number" { @if let Some((left_ms, ttl_ms)) = worker.least_left { (time_left(left_ms, ttl_ms)) } }
                        td class={ "number" @if worker.crash_count > 0 { " expired" } } { (count(worker.crash_count)) }
                        td { @if let Some(at_ms) = worker.crashed_at_ms { (text::moment(page.now_ms, at_ms)) } }
                        td { @if let Some(at_ms) = worker.seen_at_ms { (text::moment(page.now_ms, at_ms)) } }
                    }
                }
            }
        } }
    }
}

/// One worker.
pub(super) async fn one(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let owner: Owner = page.fields.need("owner")?;
    let (held, events) = try_join(Held::read(&page, Some(&owner)), recent_events(&page)).await?;
    let worker = gather(&held, &events).remove(&owner).unwrap_or_default();
    let name = owner.as_str();
    let main = html! {
        h1 { span class="muted" { "Worker " } (text::text(name)) }
        dl class="facts" {
            div { dt { "holds" } dd { (text::number(worker.lease_count)) @if worker.lease_count == 1 { " lease" } @else { " leases" } } }
            div { dt { "works on" } dd { (text::number(worker.job_count)) @if worker.job_count == 1 { " job" } @else { " jobs" } } }
            div { dt { "renewed" } dd {
                @if let Some(ago_ms) = worker.renewed_ago_ms { (text::moment(page.now_ms, page.now_ms.saturating_sub(ago_ms))) }
                @else { span class="muted" { "holds nothing" } }
            } }
            div { dt { "lost lately" } dd {
                (text::number(worker.crash_count))
                @if let Some(at_ms) = worker.crashed_at_ms { span class="muted" { ", last " (text::moment(page.now_ms, at_ms)) } }
            } }
        }
        @if worker.lease_count > 0 && page.may::<op::RevokeLeaseBatch>() {
            p { a class="button" href=(page.href("matching-leases", &[("owner", name)])) { "Revoke all its leases…" } }
        }
        h2 { "What it lost, and who took over" }
        @match history::incidents(&page, &events, Some(&owner), INCIDENTS_MAX) {
            Some(table) => (table),
            None => (layout::empty("All that it held lately ended well.", None)),
        }
        h2 { "What it holds" }
        @if held.leases.is_empty() && held.jobs.is_empty() {
            (layout::empty("It holds no lease and works on no job.", None))
        } @else { (holdings(&page, &held)) }
        h2 { "What it held lately" }
        @let lanes = lanes(&owner, &events);
        @if lanes.is_empty() {
            (layout::empty("Nothing that the store keeps events of.", None))
        } @else {
            (timeline::picture("What the worker held when, and how each hold ended; the pages of the keys say the same", &lanes, page.now_ms))
        }
    };
    let title = format!("Worker {name}");
    Ok(Page { title, section: "Workers", live_prefix: Some(String::new()), main }.into())
}

fn holdings(page: &PageRequest, held: &Held) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr { th { "what" } th { "for" } th class="number" { "token" } th class="number" { "time left" } th class="number" { "held for" } } }
            tbody {
                @for (view, holder) in held.leases.iter().filter_map(|view| Some((view, view.holder.as_ref()?))).take(ROWS_MAX) {
                    tr {
                        td { (filter::lease(page, view.key.as_str())) }
                        td { @if let Some(task) = &holder.task { (text::cell(task.as_str())) } }
                        td class="number" { (text::token(view.token)) }
                        td class="number" { (time_left(holder.remaining_ms, holder.ttl_ms)) }
                        td class="number" { (text::duration(holder.age_ms)) }
                    }
                }
                @for (job, runner) in held.jobs.iter().filter_map(|job| Some((job, job.runner.as_ref()?))).take(ROWS_MAX) {
                    tr {
                        td { "job " (filter::job(page, &job.id.to_string())) }
                        td { (text::cell(job.kind.as_str())) span class="muted" { " in " (text::cell(job.queue.as_str())) } }
                        td class="number" { (text::token(job.token)) }
                        td class="number" { (time_left(runner.remaining_ms, runner.ttl_ms)) }
                        td class="number" { (text::duration(runner.age_ms)) }
                    }
                }
            }
        } }
        @if held.leases.len() > ROWS_MAX || held.jobs.len() > ROWS_MAX {
            p class="muted small" { "The first " (ROWS_MAX) " of each." }
        }
    }
}

/// A lane for each key that the worker held, the last ones.
fn lanes(owner: &Owner, events: &[Event]) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = Vec::new();
    // The newest first, so that the oldest are left out.
    let mut ended: BTreeMap<(&str, Token), (u64, &'static str, String)> = BTreeMap::new();
    for event in events.iter().rev().filter(|event| actor(&event.data) == Some(owner)) {
        let key = event.key.as_str();
        let (token, begins) = match &event.data {
            EventData::LeaseEnded { token, outcome, .. } => {
                ended.insert(
                    (key, *token),
                    (event.at_ms, text::lease_outcome_class(*outcome), outcome.to_string()),
                );
                continue;
            }
            EventData::JobAttemptEnded { token, outcome, .. } => {
                ended.insert(
                    (key, *token),
                    (event.at_ms, text::attempt_outcome_class(*outcome), outcome.to_string()),
                );
                continue;
            }
            EventData::LeaseAcquired { token, .. } | EventData::JobClaimed { token, .. } => {
                (*token, event.at_ms)
            }
            _ => continue,
        };
        let at = lanes.iter().position(|lane| lane.name == key);
        let at = match at {
            Some(at) => at,
            None if lanes.len() < LANES_MAX => {
                lanes.push(Lane { name: key.to_owned(), bars: Vec::new(), marks: Vec::new() });
                lanes.len() - 1
            }
            None => continue,
        };
        let (to_ms, class, how) = match ended.remove(&(key, token)) {
            Some((to_ms, class, how)) => (Some(to_ms), class, how),
            None => (None, "running", "held now".to_owned()),
        };
        let (label, title) = (format!("#{token}"), format!("token {token}, {key}: {how}"));
        lanes[at].bars.push(Bar { from_ms: Some(begins), to_ms, class, label, title });
    }
    lanes
}
