//! Schedules: what is enqueued when.

use std::sync::Arc;

use fencehold_contract::http::{NoQuery, op};
use fencehold_contract::problem::Problem;
use maud::html;

use super::page::{Page, PageRequest, PageResponse};
use super::{layout, text};

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let schedules = page.call::<op::ListSchedules>(NoQuery {}).await?.schedules;
    let main = html! {
        h1 { "Schedules" }
        @if schedules.is_empty() {
            (layout::empty("There are no schedules. One that enqueues a job every morning at six:", Some("fencehold schedule set nightly --cron '0 6 * * *' --queue reports --kind daily")))
        } @else {
            div class="scroll" { table class="list stacked" {
                thead { tr { th { "schedule" } th { "cron" } th { "time zone" } th { "queue" } th { "kind" } th { "next" } th { "last" } th { "set by" } } }
                tbody {
                    @for view in &schedules {
                        @let spec = &view.spec;
                        tr {
                            td { span class="name" { (text::cell(spec.name.as_str())) } }
                            td class="mono" { (text::cell(&spec.cron)) }
                            td { (text::cell(&spec.time_zone)) }
                            td data-label="queue " { a href=(page.href("jobs", &[("queue", spec.queue.as_str())])) { (text::cell(spec.queue.as_str())) } }
                            td data-label="kind " { (text::cell(spec.kind.as_str())) }
                            td data-label="next " { @if let Some(at_ms) = view.next_run_at_ms { (text::moment(page.now_ms, at_ms)) } @else { span class="muted" { "never again" } } }
                            td data-label="last " { @if let Some(at_ms) = view.last_run_at_ms { (text::moment(page.now_ms, at_ms)) } @else { span class="muted" { "not yet" } } }
                            td data-label="set by " { (text::cell(spec.by.as_str())) }
                        }
                    }
                }
            } }
        }
    };
    let live_prefix = None;
    Ok(Page { title: "Schedules".to_owned(), section: "Schedules", live_prefix, main }.into())
}
