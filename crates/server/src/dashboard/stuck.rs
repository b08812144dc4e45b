//! What is stuck, and why: the worst first, each with what happens next or what a person can do.
//!
//! It is said of what the overview has read anyhow, and `fencehold explain` says more of each.

use fencehold_contract::http::op;
use fencehold_contract::job::{JobFilter, JobView, ListJobsRequest, QueueMode, QueueView, RunnerView};
use fencehold_contract::problem::Problem;
use fencehold_contract::{HolderView, KeyContention, LeaseView};
use fencehold_core::job::JobState;
use maud::{Markup, html};

use super::page::PageRequest;
use super::{filter, layout, text};

/// How many are shown.
const SHOWN_MAX: usize = 5;
/// How many jobs that run are looked at.
const RUNNING_READ: usize = 200;

/// How bad it is: what ends by itself comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It ends by itself.
    Passing,
    /// It goes on for as long as someone else goes on.
    Waiting,
    /// It needs a person.
    NeedsPerson,
}

/// Something that does not go on.
struct Stuck {
    rank: Rank,
    /// Among its like: how many wait, or for how long.
    weight: u64,
    what: Markup,
    why: Markup,
    next: Markup,
}

/// The worst, as a table.
pub(super) async fn table(
    page: &PageRequest,
    contended: &[(KeyContention, LeaseView)],
    queues: &[QueueView],
) -> Result<Markup, Problem> {
    let mut found: Vec<Stuck> = contended.iter().filter_map(|(_, view)| lease(page, view)).collect();
    found.extend(queues.iter().filter_map(|view| queue(page, view)));
    if page.has_jobs() && page.may::<op::ListJobs>() {
        found.extend(jobs(page, queues).await?);
    }
    found.sort_by_key(|stuck| std::cmp::Reverse((stuck.rank, stuck.weight)));
    let more = found.len().saturating_sub(SHOWN_MAX);
    found.truncate(SHOWN_MAX);
    Ok(html! {
        section {
            h2 { "What is stuck, and why" }
            @if found.is_empty() {
                (layout::empty("Nothing that you may see is stuck: no caller waits in line, no queue is without workers, and no job needs a person.", None))
            } @else {
                div class="scroll" { table class="stacked" {
                    thead { tr { th { "what" } th { "why" } th { "next" } } }
                    tbody {
                        @for stuck in &found {
                            tr { td { (stuck.what) } td class="long" { (stuck.why) } td class="long" data-label="Next: " { (stuck.next) } }
                        }
                    }
                } }
                @if more > 0 { p class="muted small" { "and " (text::number(more as u64)) " more" } }
            }
        }
    })
}

/// Whether a holder that should renew every third of its ttl has missed two renewals.
fn is_silent(silent_ms: u64, ttl_ms: u64) -> bool {
    silent_ms > ttl_ms / 3 * 2
}

fn silence(holder: &HolderView) -> u64 {
    holder
        .renewed_ago_ms
        .unwrap_or(holder.ttl_ms.saturating_sub(holder.remaining_ms))
}

/// A key that callers stand in line for.
fn lease(page: &PageRequest, view: &LeaseView) -> Option<Stuck> {
    let holder = view.holder.as_ref().filter(|_| view.waiter_count > 0)?;
    let silent_ms = silence(holder);
    let is_silent = is_silent(silent_ms, holder.ttl_ms);
    let held = html! {
        (text::number(view.waiter_count)) " in line; " (filter::worker(page, holder.owner.as_str())) " holds it under token " (text::token(view.token))
    };
    let (rank, why, next) = if is_silent {
        let why = html! { (held) " and has been silent for " (text::duration(silent_ms)) " of its " (text::duration(holder.ttl_ms)) };
        let next = html! { "It expires in " span data-left-ms=(holder.remaining_ms) { (text::duration(holder.remaining_ms)) } "; then the first in line gets it" };
        (Rank::Passing, why, next)
    } else {
        let why = html! { (held) " for " (text::duration(holder.age_ms)) " and renews" };
        let next = html! { "The first in line gets it when it is released, or revoked" };
        (Rank::Waiting, why, next)
    };
    let what = html! { "lease " (filter::lease(page, view.key.as_str())) };
    Some(Stuck { rank, weight: view.waiter_count, what, why, next })
}

/// A queue whose jobs no worker asks for.
fn queue(page: &PageRequest, view: &QueueView) -> Option<Stuck> {
    let counts = &view.job_counts;
    if counts.queued == 0 {
        return None;
    }
    let name = view.name.as_str();
    let ready = html! { (text::number(counts.queued)) @if counts.queued == 1 { " job waits" } @else { " jobs wait" } };
    let (why, next) = if view.mode == QueueMode::Paused {
        (html! { "It is paused, and " (ready) }, html! { a href=(page.href("queues", &[])) { "Resume it" } })
    } else if counts.running == 0 && view.waiting_claim_count == 0 {
        let command = format!("fencehold work --queue {name} -- COMMAND");
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
        (
            html! { "No worker asks for its jobs, and " (ready) },
            html! { "Start a worker" @if is_plain { ": " code class="copy" { (command) } } },
        )
    } else {
        return None;
    };
    let what = html! { "queue " a class="name" href=(page.href("jobs", &[("queue", name), ("state", "queued")])) { (text::cell(name)) } };
    Some(Stuck { rank: Rank::NeedsPerson, weight: counts.queued, what, why, next })
}

/// Jobs that wait for a person, or whose workers do not answer.
async fn jobs(page: &PageRequest, queues: &[QueueView]) -> Result<Vec<Stuck>, Problem> {
    let count = |state| -> u64 { queues.iter().map(|queue| queue.job_counts.get(state)).sum() };
    let list = async |states: Vec<JobState>, limit| {
        let filter = JobFilter { states, ..JobFilter::default() };
        page.call::<op::ListJobs>(ListJobsRequest { filter, cursor: None, limit }).await
    };
    let mut found = Vec::new();
    if count(JobState::InDoubt) + count(JobState::Quarantined) > 0 {
        let states = vec![JobState::InDoubt, JobState::Quarantined];
        let listed = list(states, SHOWN_MAX).await?;
        found.extend(listed.jobs.iter().map(|job| needs_person(page, job)));
    }
    if count(JobState::Running) > 0 {
        let listed = list(vec![JobState::Running], RUNNING_READ).await?;
        found.extend(listed.jobs.iter().filter_map(|job| running(page, job, job.runner.as_ref()?)));
    }
    Ok(found)
}

fn subject(page: &PageRequest, job: &JobView) -> Markup {
    html! { "job " (filter::job(page, &job.id.to_string())) " " span class="muted" { (text::cell(job.kind.as_str())) } }
}

fn needs_person(page: &PageRequest, job: &JobView) -> Stuck {
    let (why, next) = if job.state == JobState::Quarantined {
        (
            html! { (job.crash_count) @if job.crash_count == 1 { " worker" } @else { " workers" } " crashed on it, so it is kept from others" },
            html! { "Find out why; then retry it" },
        )
    } else {
        (
            html! { "An effect of it was begun, and may or may not have happened" },
            html! { "Look, then " a href=(page.href("effects", &[])) { "say what happened" } },
        )
    };
    let weight = page.now_ms.saturating_sub(job.state_changed_at_ms);
    Stuck { rank: Rank::NeedsPerson, weight, what: subject(page, job), why, next }
}

fn running(page: &PageRequest, job: &JobView, runner: &RunnerView) -> Option<Stuck> {
    let silent_ms = runner.ttl_ms.saturating_sub(runner.remaining_ms);
    if !is_silent(silent_ms, runner.ttl_ms) {
        return None;
    }
    let why = html! {
        (filter::worker(page, runner.owner.as_str())) " works on it under token " (text::token(job.token)) " and has been silent for "
        (text::duration(silent_ms)) " of its " (text::duration(runner.ttl_ms))
    };
    let next = html! {
        "The claim ends in " span data-left-ms=(runner.remaining_ms) { (text::duration(runner.remaining_ms)) } "; then another worker gets it"
    };
    Some(Stuck { rank: Rank::Passing, weight: silent_ms, what: subject(page, job), why, next })
}
