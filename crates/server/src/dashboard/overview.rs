//! The overview: what is held, how leases end, what waits, what is stuck and why, and whether the store is well.
//!
//! Each part is an operation of its own, and is left out where the caller has no scope for it.

use std::sync::Arc;

use fencehold_contract::http::{GetLeaseRequest, NoQuery, op};
use fencehold_contract::job::{
    EffectPage, FindingKind, JobFilter, JobView, ListEffectsRequest, ListJobsRequest, QueueView,
};
use fencehold_contract::problem::Problem;
use fencehold_contract::{
    KeyContention, LeaseStats, LeaseStatsRequest, LeaseView, ListContentionRequest, StoreStatus,
};
use fencehold_core::job::JobState;
use maud::{Markup, html};

use super::chart::{self, CLASSES};
use super::page::{Page, PageRequest, PageResponse};
use super::queues::word;
use super::{filter, history, layout, stuck, text};
use crate::http::lease;

/// How many contended keys, queues and jobs are shown.
const SHOWN_MAX: usize = 5;
/// How far back, in events, the last hold that did not end well is looked for.
const EVENTS_BACK: u64 = 1_000;
const INCIDENTS_MAX: usize = 8;
/// The chart: so many steps of so long.
const CHART_STEPS: usize = 12;
const CHART_STEP_MS: u64 = 1_800_000;
/// How exactly times are counted.
const MINUTE_MS: u64 = 60_000;
/// How many jobs with effects of note are read.
const EFFECTS_READ: usize = 100;
/// The times for which endings are counted.
const WINDOWS: [(&str, u64); 3] = [("hour", 3_600_000), ("6 hours", 21_600_000), ("24 hours", 86_400_000)];

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let status = page.call::<op::GetStoreStatus>(NoQuery {}).await?;
    let queues = if page.has_jobs() && page.may::<op::ListQueues>() {
        page.call::<op::ListQueues>(NoQuery {}).await?.queues
    } else {
        Vec::new()
    };
    let (contended, more_contended) =
        if page.may::<op::ListContention>() { contended_keys(&page).await? } else { (Vec::new(), 0) };
    let main = html! {
        h1 { "Overview" }
        (health(&status))
        (counts(&page, &status))
        @if page.may::<op::ListContention>() || (page.has_jobs() && page.may::<op::ListQueues>()) {
            (stuck::table(&page, &contended, &queues).await?)
        }
        @if page.may::<op::ListEvents>() { (incidents(&page, status.newest_event_seq).await?) }
        div class="columns" {
            div {
                @if page.may::<op::GetLeaseStats>() { (endings(&page, status.newest_event_seq > 0).await?) }
                @if page.has_jobs() && page.may::<op::ListJobs>() { (attention(&page, &queues).await?) }
            }
            div {
                @if page.may::<op::ListContention>() { (contention(&page, &contended, more_contended)) }
                @if page.has_jobs() && page.may::<op::ListQueues>() { (queues_of(&page, queues.clone()).await?) }
            }
        }
    };
    let live_prefix = Some(String::new());
    Ok(Page { title: "Overview".to_owned(), section: "Overview", live_prefix, main }.into())
}

/// What is wrong with the store; nothing, if nothing is.
fn health(status: &StoreStatus) -> Markup {
    html! {
        @if status.closed_for_ms > 0 {
            div class="notice bad" role="alert" {
                strong { "The store grants nothing" }
                p { "It was advanced, and opens in " (text::duration(status.closed_for_ms)) ", when no holder from before can still believe in its lease." }
            }
        }
        @for error in &status.maintenance_errors {
            div class="notice bad" role="alert" { strong { "Maintenance fails" } p { (text::text(error)) } }
        }
        @if status.unreadable_row_count > 0 {
            div class="notice bad" role="alert" {
                strong { "Rows that cannot be read: " (text::number(status.unreadable_row_count)) }
                p { "They are set aside, and the rest is served. The events say which keys they belong to." }
            }
        }
    }
}

fn counts(page: &PageRequest, status: &StoreStatus) -> Markup {
    let is_well =
        status.maintenance_errors.is_empty() && status.closed_for_ms == 0 && status.unreadable_row_count == 0;
    let figure = |name: &str, value: u64, path: Option<&str>| {
        html! {
            div class="figure" {
                dt { (name) }
                dd {
                    @match path {
                        Some(path) => a href=(page.href(path, &[])) { (text::number(value)) },
                        None => (text::number(value)),
                    }
                }
            }
        }
    };
    html! {
        dl class="figures" {
            @if !status.counts_hidden {
                (figure("held", status.held_count, Some("leases")))
                (figure("waiting in line", status.waiter_count, None))
                (figure("keys kept", status.key_count, None))
                @if page.has_jobs() { (figure("jobs not finished", status.job_count, Some("jobs"))) }
            }
            (figure("newest event", status.newest_event_seq, None))
            div class="figure wide" {
                dt { "store" }
                dd {
                    @if is_well { (text::badge("released", "well")) } @else { (text::badge("revoked", "needs attention")) }
                    " " span class="muted small" {
                        (text::cell(&status.store))
                        @if let Some(epoch) = status.epoch { ", epoch " (epoch) }
                        @if let Some(pid) = status.owner_pid { ", process " (pid) }
                    }
                }
            }
        }
        @if !status.counts_hidden { p class="muted small" { "Counts are of all namespaces together." } }
    }
}

/// How leases ended, as a chart over the last hours and as a table of totals.
async fn endings(page: &PageRequest, has_events: bool) -> Result<Markup, Problem> {
    let since_ms = WINDOWS.iter().map(|(_, since_ms)| *since_ms).max().unwrap_or(MINUTE_MS);
    let request = LeaseStatsRequest { since_ms, step_ms: Some(MINUTE_MS) };
    let stats = page.call::<op::GetLeaseStats>(request).await?;
    let totals =
        WINDOWS.map(|(name, since_ms)| Window::of(&stats, name, page.now_ms.saturating_sub(since_ms)));
    let steps = chart::columns(&stats.steps, CHART_STEP_MS, CHART_STEPS, page.now_ms);
    Ok(html! {
        section {
            h2 { "How leases ended" }
            @if stats.total() == 0 {
                (layout::empty("No lease has ended in the last 24 hours.", Some("fencehold run --key demo -- echo done")))
            } @else {
                div class="scroll" {
                    @if has_events { (chart::draw(&steps, CHART_STEP_MS)) }
                    table {
                        thead { tr {
                            th { "in the last" } th { span class="visually-hidden" { "picture" } }
                            @for class in CLASSES {
                                th class="number" { span class={ "key " (class) } {} (chart::name_of(class)) }
                            }
                        } }
                        tbody {
                            @for window in &totals {
                                tr {
                                    th scope="row" { (window.name) @if !window.complete { span class="muted" title="There were at least as many: older events are gone." { " ≥" } } }
                                    td class="share" { (share(&window.counts)) }
                                    @for (class, count) in CLASSES.iter().zip(window.counts) {
                                        td class={ "number " @if count > 0 { (class) } @else { "muted" } } { (text::number(count)) }
                                    }
                                }
                            }
                        }
                    }
                    @if let Some(seq) = stats.event_seq { p class="muted small note" { "Counted by the minute, up to event " (seq) "." } }
                }
            }
        }
    })
}

/// How the leases of a time ended.
struct Window {
    name: &'static str,
    /// Whether all of the time is counted.
    complete: bool,
    counts: chart::Counts,
}

impl Window {
    /// From the minute of a moment on.
    fn of(stats: &LeaseStats, name: &'static str, from_ms: u64) -> Self {
        let mut counts = chart::Counts::default();
        let from_ms = from_ms / MINUTE_MS * MINUTE_MS;
        for step in stats.steps.iter().filter(|step| step.begins_at_ms >= from_ms) {
            chart::add(&mut counts, step);
        }
        Window { name, complete: stats.complete || stats.begins_at_ms <= from_ms, counts }
    }
}

fn share(counts: &chart::Counts) -> Markup {
    const WIDTH: u64 = 120;
    let total = counts.iter().sum::<u64>().max(1);
    let mut x = 0;
    let parts = CLASSES.iter().zip(counts).map(|(class, count)| {
        let exact = u128::from(*count) * u128::from(WIDTH) / u128::from(total);
        let width = u64::try_from(exact).unwrap_or(WIDTH).max(u64::from(*count > 0) * 2);
        let begins = x;
        x += width;
        (class, begins, width)
    });
    let parts: Vec<_> = parts.collect();
    html! {
        svg class="shares" viewBox={ "0 0 " (x.max(WIDTH)) " 8" } preserveAspectRatio="none" aria-hidden="true" {
            @for (class, x, width) in parts {
                @if width > 0 { rect class=(class) x=(x) y="0" width=(width) height="8" {} }
            }
        }
    }
}

/// The keys that callers contend for, with who holds each of them; and how many more there are.
async fn contended_keys(page: &PageRequest) -> Result<(Vec<(KeyContention, LeaseView)>, usize), Problem> {
    let list = page.call::<op::ListContention>(ListContentionRequest::default()).await?;
    let more = list.keys.len().saturating_sub(SHOWN_MAX);
    let mut rows = Vec::new();
    for contended in list.keys.into_iter().take(SHOWN_MAX) {
        let request = GetLeaseRequest { key: contended.key.clone() };
        rows.push((contended, lease::get(page.context::<op::GetLease>()?, request).await?));
    }
    Ok((rows, more))
}

fn contention(page: &PageRequest, rows: &[(KeyContention, LeaseView)], more: usize) -> Markup {
    html! {
        section {
            h2 { "Contention " span class="muted" { "in the last hour" } }
            @if rows.is_empty() {
                (layout::empty("No caller had to wait for a key, or was refused one.", None))
            } @else {
                div class="scroll" { table {
                    thead { tr { th { "key" } th { "held by" } th class="number" { "held for" } th class="number" { "in line" } th class="number" { "refused" } } }
                    tbody {
                        @for (contended, view) in rows {
                            tr {
                                td { (filter::lease(page, contended.key.as_str())) }
                                @match &view.holder {
                                    Some(holder) => {
                                        td { (filter::worker(page, holder.owner.as_str())) }
                                        td class="number" { (text::duration(holder.age_ms)) }
                                    },
                                    None => { td class="muted" { "free" } td {} },
                                }
                                td class="number" { (view.waiter_count) }
                                td class="number" title=[last_refused(contended)] { (text::number(contended.refused_count)) }
                            }
                        }
                    }
                } }
                @if more > 0 { p class="muted small" { "and " (more) " more keys" } }
            }
        }
    }
}

fn last_refused(contended: &KeyContention) -> Option<String> {
    let refused = contended.last_refused.as_ref()?;
    Some(format!("last: {}", text::plain(refused.owner.as_str())))
}

async fn queues_of(page: &PageRequest, mut queues: Vec<QueueView>) -> Result<Markup, Problem> {
    queues.sort_by_key(|queue| std::cmp::Reverse((queue.job_counts.queued, queue.job_counts.running)));
    let more = queues.len().saturating_sub(SHOWN_MAX);
    let mut rows: Vec<(QueueView, Option<u64>)> = Vec::new();
    for queue in queues.into_iter().take(SHOWN_MAX) {
        let oldest = if queue.job_counts.queued > 0 && page.may::<op::ListJobs>() {
            oldest_ready(page, &queue).await?
        } else {
            None
        };
        rows.push((queue, oldest));
    }
    Ok(html! {
        section {
            h2 { a href=(page.href("queues", &[])) { "Queues" } }
            @if rows.is_empty() {
                (layout::empty("There are no jobs.", Some("fencehold job enqueue --queue emails --kind welcome --payload '{\"to\":\"ada@example.org\"}'")))
            } @else {
                div class="scroll" { table {
                    thead { tr { th { "queue" } th class="number" { "ready" } th class="number" { "oldest" } th class="number" { "running" } th class="number" { "scheduled" } th class="number" { "failed" } } }
                    tbody {
                        @for (queue, oldest) in &rows {
                            @let name = queue.name.as_str();
                            @let counts = &queue.job_counts;
                            tr {
                                td { a class="name" href=(page.href("jobs", &[("queue", name)])) { (text::cell(name)) }
                                    @if queue.mode != fencehold_contract::job::QueueMode::Open { " " (text::badge("expired", queue.mode.name())) } }
                                td class="number" { (text::number(counts.queued)) }
                                td class="number" { @if let Some(at_ms) = oldest { (text::moment(page.now_ms, *at_ms)) } }
                                td class="number" { (text::number(counts.running)) }
                                td class="number" { (text::number(counts.scheduled)) }
                                td class="number" { (text::number(counts.failed + counts.quarantined)) }
                            }
                        }
                    }
                } }
                @if more > 0 { p class="small" { a href=(page.href("queues", &[])) { (more) " more queues" } } }
            }
        }
    })
}

/// When the oldest job that is ready was enqueued; `None`: it is not on the first page of the list.
async fn oldest_ready(page: &PageRequest, queue: &QueueView) -> Result<Option<u64>, Problem> {
    let filter =
        JobFilter { queue: Some(queue.name.clone()), states: vec![JobState::Queued], ..JobFilter::default() };
    let listed = page
        .call::<op::ListJobs>(ListJobsRequest { filter, cursor: None, limit: 1 })
        .await?;
    Ok(listed.jobs.first().map(|job| job.enqueued_at_ms))
}

/// Jobs and effects that a person should look at. How many jobs there are is in the counts of their queues: a page of the list may be empty
/// and still not be the last.
async fn attention(page: &PageRequest, queues: &[QueueView]) -> Result<Markup, Problem> {
    let states = [JobState::Failed, JobState::Quarantined, JobState::InDoubt];
    let count = |state| -> u64 { queues.iter().map(|queue| queue.job_counts.get(state)).sum() };
    let counts = states.map(|state| (state, count(state)));
    let job_count: u64 = counts.iter().map(|(_, count)| count).sum();
    let mut jobs: Vec<JobView> = Vec::new();
    if job_count > 0 {
        let filter = JobFilter { states: states.to_vec(), ..JobFilter::default() };
        let request = ListJobsRequest { filter, cursor: None, limit: SHOWN_MAX };
        jobs = page.call::<op::ListJobs>(request).await?.jobs;
    }
    let request = ListEffectsRequest { cursor: None, limit: EFFECTS_READ };
    let effects: EffectPage = page.call::<op::ListEffects>(request).await?;
    let is_open = |finding| matches!(finding, FindingKind::InDoubt | FindingKind::CompensationFailed);
    let in_doubt = effects.effects.iter().filter(|effect| is_open(effect.finding)).count();
    let has_more = effects.next_cursor.is_some();
    Ok(html! {
        section {
            h2 { "Needs a person" }
            @if job_count == 0 && in_doubt == 0 && !has_more {
                (layout::empty("No job has failed for good, and no effect is in doubt.", None))
            }
            @if in_doubt > 0 || has_more {
                p { a href=(page.href("effects", &[])) { "Effects in doubt or not undone: " (in_doubt) @if has_more { " or more" } } }
            }
            @if job_count > 0 {
                p {
                    @for (state, count) in counts.iter().filter(|(_, count)| *count > 0) {
                        a href=(page.href("jobs", &[("state", word(*state))])) { (text::number(*count)) " " (text::state(*state)) } " "
                    }
                }
            }
            @if !jobs.is_empty() {
                div class="scroll" { table {
                    thead { tr { th { "job" } th { "kind" } th { "queue" } th { "state" } th { "since" } } }
                    tbody {
                        @for job in &jobs {
                            tr {
                                td { (filter::job(page, &job.id.to_string())) }
                                td { (text::cell(job.kind.as_str())) }
                                td { (text::cell(job.queue.as_str())) }
                                td { (text::state(job.state)) }
                                td { (text::moment(page.now_ms, job.state_changed_at_ms)) }
                            }
                        }
                    }
                } }
            }
        }
    })
}

/// The last holds and attempts that did not end well, and who took over.
async fn incidents(page: &PageRequest, newest: u64) -> Result<Markup, Problem> {
    let events = history::events_since(page, None, newest.saturating_sub(EVENTS_BACK)).await?;
    Ok(html! {
        section class="lost" {
            h2 { "What did not end well " span class="muted" { "the last of it" } }
            @match history::incidents(page, &events, None, INCIDENTS_MAX) {
                Some(table) => (table),
                None => (layout::empty("No holder or worker was lost lately, and no stale write was refused.", None)),
            }
        }
    })
}
