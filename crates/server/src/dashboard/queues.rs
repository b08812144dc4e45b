//! Queues: how many jobs of each stand how, and what each queue does.

use std::sync::Arc;

use fencehold_contract::http::{NoQuery, QueueRequest, op};
use fencehold_contract::job::{QueueMode, QueueView};
use fencehold_contract::problem::Problem;
use fencehold_core::BadInput;
use fencehold_core::job::{JobState, QueueName};
use maud::{Markup, html};

use super::page::{Page, PageRequest, PageResponse};
use super::{layout, text};

const MODES: [(QueueMode, &str, &str); 3] = [
    (QueueMode::Open, "Resume", "takes jobs and hands them out"),
    (QueueMode::Paused, "Pause", "takes jobs and hands none out"),
    (QueueMode::Draining, "Drain", "hands jobs out and takes no new ones"),
];

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let mut queues = page.call::<op::ListQueues>(NoQuery {}).await?.queues;
    queues.sort_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
    let main = html! {
        h1 { "Queues" }
        @if queues.is_empty() {
            (layout::empty("There are no queues: a queue exists once it has a job.", Some("fencehold job enqueue --queue emails --kind welcome --payload '{\"to\":\"ada@example.org\"}'")))
        } @else {
            div class="scroll" { table class="list" {
                thead { tr {
                    th { "queue" } th { "mode" }
                    @for state in JobState::ALL { th class="number" { (state.to_string().replace('_', " ")) } }
                    th class="number" { "claims in line" }
                    @if page.may::<op::PauseQueue>() { th { "change" } }
                } }
                tbody { @for queue in &queues { (row(&page, queue)) } }
            } }
        }
    };
    let live_prefix = Some("job/".to_owned());
    Ok(Page { title: "Queues".to_owned(), section: "Queues", live_prefix, main }.into())
}

fn row(page: &PageRequest, queue: &QueueView) -> Markup {
    let name = queue.name.as_str();
    let counts = queue.job_counts;
    let class = if queue.mode == QueueMode::Open { "quiet" } else { "expired" };
    html! {
        tr {
            td { a class="name" href=(page.href("jobs", &[("queue", name)])) { (text::cell(name)) } }
            td { (text::badge(class, queue.mode.name())) }
            @for state in JobState::ALL {
                @let count = counts.get(state);
                td class="number" {
                    @if count > 0 {
                        a href=(page.href("jobs", &[("queue", name), ("state", word(state))])) { (text::number(count)) }
                    } @else { span class="muted" { "0" } }
                }
            }
            td class="number" { (text::number(queue.waiting_claim_count)) }
            @if page.may::<op::PauseQueue>() { td { (mode_form(page, queue)) } }
        }
    }
}

/// A state as a query has it.
pub(super) const fn word(state: JobState) -> &'static str {
    match state {
        JobState::Queued => "queued",
        JobState::Scheduled => "scheduled",
        JobState::Running => "running",
        JobState::Completed => "completed",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
        JobState::Quarantined => "quarantined",
        _ => "in_doubt",
    }
}

fn mode_form(page: &PageRequest, queue: &QueueView) -> Markup {
    html! {
        details class="act small" id={ "queue-" (queue.name) } {
            summary { "Change…" }
            form action=(page.href("set-queue-mode", &[])) method="post" class="stack" {
                (page.form_token())
                input type="hidden" name="queue" value=(queue.name);
                (page.by_field())
                @for (mode, verb, does) in MODES.iter().filter(|(mode, ..)| *mode != queue.mode) {
                    button name="mode" value=(mode.name()) title=(does) { (verb) }
                }
            }
        }
    }
}

pub(super) async fn set_mode(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let queue: QueueName = page.fields.need("queue")?;
    let request = QueueRequest { queue, by: page.by()? };
    match page.fields.get("mode") {
        Some("open") => page.call::<op::ResumeQueue>(request).await?,
        Some("paused") => page.call::<op::PauseQueue>(request).await?,
        Some("draining") => page.call::<op::DrainQueue>(request).await?,
        _ => return Err(BadInput::new("mode", "must be open, paused or draining").into()),
    };
    Ok(PageResponse::Goto(page.href("queues", &[])))
}
