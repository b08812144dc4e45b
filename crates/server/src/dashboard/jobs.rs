//! The list of jobs.

use std::sync::Arc;

use fencehold_contract::http::op;
use fencehold_contract::job::{JobFilter, JobView, ListJobsRequest};
use fencehold_contract::problem::Problem;
use fencehold_core::BadInput;
use fencehold_core::job::JobState;
use maud::{Markup, html};

use super::page::{Fields, Page, PageRequest, PageResponse, ROWS_MAX};
use super::queues::word;
use super::{filter, layout, matching, text};

/// What the fields of the filter ask for.
pub(super) fn filter_of(fields: &Fields) -> Result<JobFilter, Problem> {
    let mut states = Vec::new();
    for named in fields.all("state") {
        let state = JobState::ALL.into_iter().find(|state| word(*state) == named);
        states.push(state.ok_or_else(|| BadInput::new("state", "is not a state of a job"))?);
    }
    let mut labels = Vec::new();
    for label in fields.all("label") {
        let pair = label
            .split_once('=')
            .ok_or_else(|| BadInput::new("label", "must be NAME=VALUE"))?;
        labels.push((pair.0.into(), pair.1.into()));
    }
    Ok(JobFilter {
        queue: fields.read("queue")?,
        kind: fields.read("kind")?,
        states,
        labels,
        owner: fields.read("owner")?,
        payload_contains: fields.get("payload").map(str::to_owned),
    })
}

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let fields = &page.fields;
    let filter = filter_of(fields)?;
    let states = filter.states.clone();
    let is_filtered = filter != JobFilter::default();
    let request = ListJobsRequest { filter, cursor: fields.read("cursor")?, limit: ROWS_MAX };
    let listed = page.call::<op::ListJobs>(request).await?;
    let main = html! {
        h1 { "Jobs" }
        (filter::form(&page, "jobs", &fields_of(&page, &states)))
        @if listed.jobs.is_empty() && listed.next_cursor.is_none() {
            @if is_filtered { (layout::empty("No job matches.", None)) }
            @else { (layout::empty("There are no jobs.", Some("fencehold job enqueue --queue emails --kind welcome --payload '{\"to\":\"ada@example.org\"}'"))) }
        } @else {
            (table(&page, &listed.jobs))
            div class="below" { (filter::pages(&page, "jobs", listed.next_cursor, listed.jobs.is_empty())) (matching::jobs_link(&page)) }
        }
    };
    let live_prefix = Some("job/".to_owned());
    Ok(Page { title: "Jobs".to_owned(), section: "Jobs", live_prefix, main }.into())
}

fn fields_of(page: &PageRequest, states: &[JobState]) -> Markup {
    html! {
        (filter::field(page, "queue", "Queue", ""))
        (filter::field(page, "kind", "Kind", ""))
        (filter::field(page, "owner", "Owner", ""))
        (filter::field(page, "label", "Label", "customer=7"))
        @if page.caller.sees_payloads() { (filter::field(page, "payload", "Text in the payload", "")) }
        fieldset class="states" {
            legend { "State" }
            @for state in JobState::ALL {
                label class="check" {
                    input type="checkbox" name="state" value=(word(state)) checked[states.contains(&state)];
                    (text::state(state))
                }
            }
        }
    }
}

fn table(page: &PageRequest, jobs: &[JobView]) -> Markup {
    html! {
        div class="scroll" { table class="list" {
            thead { tr {
                th { "job" } th { "kind" } th { "queue" } th { "state" } th { "worked on by" } th class="number" { "attempts" }
                th class="number" { "failures" } th class="number" { "crashes" } th { "enqueued" } th { "changed" }
            } }
            tbody {
                @for job in jobs {
                    tr {
                        td { (filter::job(page, &job.id.to_string())) }
                        td { (text::cell(job.kind.as_str())) }
                        td { (text::cell(job.queue.as_str())) }
                        td {
                            (text::state(job.state))
                            @if let Some(due_ms) = job.due_in_ms { " " span class="muted" { "in " (text::duration(due_ms)) } }
                        }
                        td { @if let Some(runner) = &job.runner { (filter::worker(page, runner.owner.as_str())) } }
                        td class="number" { (job.attempt_count) }
                        td class="number" { (job.failure_count) "/" (job.options.max_failures) }
                        td class="number" { (job.crash_count) "/" (job.options.max_crashes) }
                        td { (text::moment(page.now_ms, job.enqueued_at_ms)) }
                        td { (text::moment(page.now_ms, job.state_changed_at_ms)) }
                    }
                }
            }
        } }
    }
}
