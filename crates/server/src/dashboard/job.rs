//! One job: its attempts on an axis of time, its effects, and what it is about.

use std::sync::Arc;

use fencehold_contract::http::{CancelJobRequest, DeleteJobRequest, GetJobRequest, RetryJobRequest, op};
use fencehold_contract::job::JobDetail;
use fencehold_contract::problem::Problem;
use fencehold_core::job::{CompensationState, JobId, JobState};
use fencehold_core::{Reason, Token};
use maud::{Markup, html};

use super::page::{Page, PageRequest, PageResponse};
use super::timeline::{self, Bar, Lane, Mark};
use super::{filter, layout, text};
use crate::http::job;

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let job_id: JobId = page.fields.need("id")?;
    let request = GetJobRequest { job_id, wait_ms: None };
    let detail = job::get(page.context::<op::GetJob>()?, request).await?;
    let main = html! {
        h1 { span class="muted" { "Job " } span class="mono" { (job_id) } }
        (notices(&page))
        (standing(&page, &detail))
        (actions(&page, &detail))
        h2 { "Attempts" }
        @if detail.attempts.is_empty() && detail.job.runner.is_none() {
            (layout::empty("No worker has claimed it yet. A worker for its queue:", Some("fencehold work --queue QUEUE -- COMMAND")))
        } @else {
            (timeline::picture("The attempts at the job; the table below says the same", &lanes(&page, &detail), page.now_ms))
            (attempts(&page, &detail))
        }
        @if !detail.effects.is_empty() { (effects(&page, &detail)) }
        (contents(&page, &detail))
    };
    let title = format!("Job {job_id}");
    Ok(Page { title, section: "Jobs", live_prefix: Some(format!("job/{job_id}")), main }.into())
}

fn notices(page: &PageRequest) -> Markup {
    let says = match page.fields.get("done") {
        Some("cancelled") => Some("The job was cancelled, or its holder was asked to stop."),
        Some("retried") => Some("The job starts over."),
        _ => None,
    };
    html! { @if let Some(says) = says { div class="notice good" role="status" { (says) } } }
}

fn standing(page: &PageRequest, detail: &JobDetail) -> Markup {
    let job = &detail.job;
    html! {
        dl class="facts" {
            div { dt { "state" } dd { (text::state(job.state)) " " span class="muted" { (text::moment(page.now_ms, job.state_changed_at_ms)) } } }
            div { dt { "kind" } dd { (text::text(job.kind.as_str())) } }
            div { dt { "queue" } dd { a href=(page.href("jobs", &[("queue", job.queue.as_str())])) { (text::text(job.queue.as_str())) } } }
            div { dt { "token" } dd { (text::token(job.token)) } }
            div { dt { "enqueued" } dd { (text::moment(page.now_ms, job.enqueued_at_ms)) } }
            @if let Some(due_ms) = job.due_in_ms { div { dt { "ready" } dd { "in " (text::duration(due_ms)) } } }
            div { dt { "attempts" } dd { (job.attempt_count) } }
            div { dt { "failures" } dd { (job.failure_count) " of " (job.options.max_failures) } }
            div { dt { "crashes" } dd { (job.crash_count) " of " (job.options.max_crashes) } }
            @if job.options.priority != 0 { div { dt { "priority" } dd { (job.options.priority) } } }
            @if let Some(runner) = &job.runner {
                div { dt { "worked on by" } dd { (filter::worker(page, runner.owner.as_str())) } }
                div { dt { "time left" } dd { span data-left-ms=(runner.remaining_ms) { (text::duration(runner.remaining_ms)) } " of " (text::duration(runner.ttl_ms)) } }
                @if let Some(by) = &runner.cancel_requested_by { div { dt { "cancel requested" } dd { "by " (text::text(by.as_str())) } } }
            }
            @if let Some(key) = &job.unique_key { div { dt { "unique key" } dd { (text::text(key.as_str())) } } }
            @if let Some(undone) = &job.compensates {
                div { dt { "undoes" } dd { "effect " (text::text(undone.effect.as_str())) " of job " (filter::job(page, &undone.job_id.to_string())) } }
            }
            @if job.compensation_state != CompensationState::None {
                div { dt { "compensation" } dd { (text::badge("waiting", format!("{:?}", job.compensation_state).to_lowercase())) } }
            }
            @for (name, value) in &job.labels { div { dt { "label " (text::cell(name)) } dd { (text::text(value)) } } }
            @if let Some(trace) = detail.traceparent.as_deref() {
                div { dt { "trace" } dd { code class="copy" { (text::plain(trace.split('-').nth(1).unwrap_or(trace))) } } }
            }
        }
    }
}

/// Whether a job has not come to its end.
const fn is_open(state: JobState) -> bool {
    matches!(state, JobState::Queued | JobState::Scheduled | JobState::Running)
}

fn actions(page: &PageRequest, detail: &JobDetail) -> Markup {
    let job = &detail.job;
    html! {
        div class="acts" {
            @if page.may::<op::CancelJob>() && (is_open(job.state) || job.state == JobState::InDoubt) {
                details class="act" id="cancel" {
                    summary { "Cancel…" }
                    form action=(page.href("cancel-job", &[])) method="post" class="stack" {
                        @if job.state == JobState::Running {
                            p { "Asks the worker to stop; it learns it when it renews next. By force, the attempt ends at once, and the worker may still act until it learns it." }
                        } @else { p { "The job is not tried again." } }
                        (page.form_token())
                        input type="hidden" name="id" value=(job.id);
                        (page.by_field())
                        label { "Reason" input name="reason" required maxlength="200"; }
                        @if job.state == JobState::Running {
                            label class="check" { input type="checkbox" name="force" value="yes"; "By force: do not wait for the worker" }
                        }
                        label class="check" { input type="checkbox" name="confirm" value="yes" required; "Cancel this job" }
                        button class="danger" { "Cancel" }
                    }
                }
            }
            @if page.may::<op::RetryJob>() && !matches!(job.state, JobState::Running | JobState::Queued) {
                details class="act" id="retry" {
                    summary { "Retry…" }
                    form action=(page.href("retry-job", &[])) method="post" class="stack" {
                        p { "The job starts over, with its failures and crashes counted from zero. Effects that it has recorded are not repeated." }
                        (page.form_token())
                        input type="hidden" name="id" value=(job.id);
                        (page.by_field())
                        button class="primary" { "Retry" }
                    }
                }
            }
            @if page.may::<op::DeleteJob>() && job.state != JobState::Running {
                details class="act" id="delete" {
                    summary { "Delete…" }
                    form action=(page.href("delete-job", &[])) method="post" class="stack" {
                        p { "The job is forgotten, with its attempts, its effects and its result. This cannot be taken back." }
                        (page.form_token())
                        input type="hidden" name="id" value=(job.id);
                        (page.by_field())
                        label class="check" { input type="checkbox" name="confirm" value="yes" required; "Delete this job" }
                        button class="danger" { "Delete" }
                    }
                }
            }
        }
    }
}

/// Forgets the job. One that runs is not forgotten.
pub(super) async fn delete(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    page.confirmed()?;
    let job_id: JobId = page.fields.need("id")?;
    let request = DeleteJobRequest { job_id, by: page.by()?, force: false };
    page.call_single::<op::DeleteJob>(request).await?;
    Ok(PageResponse::Goto(page.href("jobs", &[])))
}

pub(super) async fn cancel(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    page.confirmed()?;
    let job_id: JobId = page.fields.need("id")?;
    let reason: Reason = page.fields.need("reason")?;
    let force = page.fields.has("force");
    let request = CancelJobRequest { job_id, by: page.by()?, reason: Some(reason), force };
    page.call_single::<op::CancelJob>(request).await?;
    Ok(PageResponse::Goto(page.href("job", &[("id", &job_id.to_string()), ("done", "cancelled")])))
}

pub(super) async fn retry(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let job_id: JobId = page.fields.need("id")?;
    page.call_single::<op::RetryJob>(RetryJobRequest { job_id, by: page.by()? })
        .await?;
    Ok(PageResponse::Goto(page.href("job", &[("id", &job_id.to_string()), ("done", "retried")])))
}

/// A lane for each owner, the first who tried above.
fn lanes(page: &PageRequest, detail: &JobDetail) -> Vec<Lane> {
    const LANES_MAX: usize = 10;
    let mut lanes: Vec<Lane> = Vec::new();
    let mut add = |owner: &str, bar: Bar| {
        let at = lanes.iter().position(|lane| lane.name == owner).unwrap_or_else(|| {
            let name = if lanes.len() < LANES_MAX - 1 { owner } else { "others" };
            lanes.iter().position(|lane| lane.name == name).unwrap_or_else(|| {
                lanes.push(Lane { name: name.to_owned(), bars: Vec::new(), marks: Vec::new() });
                lanes.len() - 1
            })
        });
        lanes[at].bars.push(bar);
    };
    let label = |token: Token| format!("#{token}");
    for attempt in &detail.attempts {
        let bar = Bar {
            from_ms: Some(attempt.started_at_ms),
            to_ms: Some(attempt.ended_at_ms),
            class: text::attempt_outcome_class(attempt.outcome),
            label: label(attempt.token),
            title: format!("token {}, {}: {}", attempt.token, attempt.owner, attempt.outcome),
        };
        add(attempt.owner.as_str(), bar);
    }
    if let Some(runner) = &detail.job.runner {
        let bar = Bar {
            from_ms: Some(runner.claimed_at_ms),
            to_ms: None,
            class: "running",
            label: label(detail.job.token),
            title: format!("token {}, {}: running", detail.job.token, runner.owner),
        };
        add(runner.owner.as_str(), bar);
    }
    let marks = detail.effects.iter().map(|effect| Mark {
        at_ms: effect.written_at_ms.min(page.now_ms),
        class: "effect",
        title: format!("effect {} {} under token {}", effect.name, effect.state, effect.token),
    });
    let marks: Vec<Mark> = marks.collect();
    if !marks.is_empty() {
        lanes.push(Lane { name: "effects".to_owned(), bars: Vec::new(), marks });
    }
    lanes
}

fn attempts(page: &PageRequest, detail: &JobDetail) -> Markup {
    let forgotten = u64::from(detail.job.attempt_count)
        .saturating_sub(detail.attempts.len() as u64 + u64::from(detail.job.runner.is_some()));
    html! {
        div class="scroll" { table class="list" {
            thead { tr { th class="number" { "token" } th { "owner" } th { "started" } th class="number" { "took" } th { "how it ended" } th { "error" } } }
            tbody {
                @if let Some(runner) = &detail.job.runner {
                    tr {
                        td class="number" { (text::token(detail.job.token)) }
                        td { (filter::worker(page, runner.owner.as_str())) }
                        td { (text::moment(page.now_ms, runner.claimed_at_ms)) }
                        td class="number" { (text::duration(runner.age_ms)) }
                        td { (text::badge("running", "running")) }
                        td {}
                    }
                }
                @for attempt in detail.attempts.iter().rev() {
                    tr {
                        td class="number" { (text::token(attempt.token)) }
                        td { (filter::worker(page, attempt.owner.as_str())) }
                        td { (text::moment(page.now_ms, attempt.started_at_ms)) }
                        td class="number" { (text::duration(attempt.ended_at_ms.saturating_sub(attempt.started_at_ms))) }
                        td { (text::badge(text::attempt_outcome_class(attempt.outcome), attempt.outcome)) }
                        td class="long" { @if let Some(error) = &attempt.error { (text::text(error)) } }
                    }
                }
            }
        } }
        @if forgotten > 0 { p class="muted small" { (text::number(forgotten)) " earlier attempts are forgotten." } }
    }
}

fn effects(page: &PageRequest, detail: &JobDetail) -> Markup {
    html! {
        h2 { "Effects" }
        div class="scroll" { table class="list" {
            thead { tr { th { "effect" } th { "state" } th class="number" { "token" } th { "written" } th { "value" } th { "undone by" } } }
            tbody {
                @for effect in &detail.effects {
                    tr {
                        td { (text::cell(effect.name.as_str())) }
                        td { (text::badge(effect_class(&effect.state.to_string()), effect.state)) }
                        td class="number" { (text::token(effect.token)) }
                        td { (text::moment(page.now_ms, effect.written_at_ms)) }
                        td class="long mono" { @if let Some(value) = &effect.value { (text::cell(value)) } }
                        td {
                            @if let Some(id) = &effect.compensation_job_id { (filter::job(page, &id.to_string())) }
                            @else if let Some(undo) = &effect.compensation { span class="muted" { "a job of kind " (text::cell(undo.kind.as_str())) } }
                        }
                    }
                }
            }
        } }
    }
}

/// The colour of how an effect stands.
pub(super) fn effect_class(state: &str) -> &'static str {
    match state {
        "done" => "released",
        "intended" | "in doubt" => "expired",
        "compensation failed" => "revoked",
        _ => "waiting",
    }
}

/// What the job is about and what it gave. The API hides it from those who may only look.
fn contents(page: &PageRequest, detail: &JobDetail) -> Markup {
    html! {
        h2 { "Contents" }
        @if !page.caller.sees_payloads() {
            (layout::empty("Payload, result, progress and checkpoint need an access token with the scope job:payload.", None))
        } @else {
            div class="columns" {
                section { h3 { "Payload" } (text::json(&detail.payload)) }
                @if let Some(progress) = &detail.progress { section { h3 { "Progress" } (text::json(progress)) } }
                @if let Some(result) = &detail.result { section { h3 { "Result" } (text::json(result)) } }
                @if let Some(checkpoint) = &detail.checkpoint {
                    section { h3 { "Checkpoint" } p class="muted" { (text::number(checkpoint.len() as u64)) " bytes" } (text::block(&String::from_utf8_lossy(checkpoint))) }
                }
            }
        }
    }
}
