//! The list of leases.

use std::sync::Arc;

use fencehold_contract::http::op;
use fencehold_contract::problem::Problem;
use fencehold_contract::{LeaseView, ListLeasesRequest};
use maud::{Markup, html};

use super::page::{Page, PageRequest, PageResponse, ROWS_MAX};
use super::{filter, layout, matching, text};

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let fields = &page.fields;
    let request = ListLeasesRequest {
        prefix: fields.get("prefix").map(str::to_owned),
        owner: fields.read("owner")?,
        task: None,
        task_prefix: fields.read("task")?,
        include_free: fields.has("free"),
        cursor: fields.read("cursor")?,
        limit: ROWS_MAX,
    };
    let live_prefix = Some(request.prefix.clone().unwrap_or_default());
    let listed = page.call::<op::ListLeases>(request).await?;
    let is_filtered = ["prefix", "owner", "task"].iter().any(|name| fields.has(name));
    let main = html! {
        h1 { "Leases" }
        (filter::form(&page, "leases", &html! {
            (filter::field(&page, "prefix", "Key begins with", "reports/"))
            (filter::field(&page, "owner", "Owner", ""))
            (filter::field(&page, "task", "Task, and those below it", "run-42"))
            label class="check" { input type="checkbox" name="free" value="yes" checked[fields.has("free")]; "Free keys too" }
        }))
        @if listed.leases.is_empty() && listed.next_cursor.is_none() {
            @if is_filtered { (layout::empty("No key that is held matches.", None)) }
            @else { (layout::empty("Nothing is held. A command that holds a lease while it runs:", Some("fencehold run --key demo -- sleep 60"))) }
        } @else {
            (table(&page, &listed.leases))
            div class="below" { (filter::pages(&page, "leases", listed.next_cursor, listed.leases.is_empty())) (matching::leases_link(&page)) }
        }
    };
    Ok(Page { title: "Leases".to_owned(), section: "Leases", live_prefix, main }.into())
}

fn table(page: &PageRequest, leases: &[LeaseView]) -> Markup {
    html! {
        div class="scroll" { table class="list" {
            thead { tr {
                th { "key" } th { "held by" } th { "task" } th class="number" { "token" } th class="number" { "time left" }
                th class="number" { "held for" } th class="number" { "in line" } th { "last ended" }
            } }
            tbody {
                @for view in leases {
                    tr {
                        td { (filter::lease(page, view.key.as_str())) }
                        @match &view.holder {
                            Some(holder) => {
                                td { (filter::worker(page, holder.owner.as_str())) @if holder.yield_request.is_some() { " " (text::badge("waiting", "asked to yield")) } }
                                td { @if let Some(task) = &holder.task { (text::cell(task.as_str())) } }
                                td class="number" { (text::token(view.token)) }
                                td class="number" { (time_left(holder.remaining_ms, holder.ttl_ms)) }
                                td class="number" { (text::duration(holder.age_ms)) }
                            },
                            None => {
                                td class="muted" { "free" } td {} td class="number muted" { (view.token) } td {} td {}
                            },
                        }
                        td class="number" { @if view.waiter_count > 0 { (text::badge("waiting", text::number(view.waiter_count))) } }
                        td {
                            @if let Some(ending) = view.endings.last() {
                                (text::badge(text::lease_outcome_class(ending.outcome), ending.outcome)) " "
                                span class="muted" { (text::moment(page.now_ms, ending.ended_at_ms)) }
                            }
                        }
                    }
                }
            }
        } }
    }
}

/// How long a hold has left, as a number and as its share of the ttl.
pub(super) fn time_left(remaining_ms: u64, ttl_ms: u64) -> Markup {
    let share = remaining_ms.min(ttl_ms).saturating_mul(40) / ttl_ms.max(1);
    html! {
        svg class="left" viewBox="0 0 40 6" aria-hidden="true" {
            rect class="rest" x="0" y="0" width="40" height="6" rx="2" {}
            rect class="running" x="0" y="0" width=(share) height="6" rx="2" {}
        }
        " " span data-left-ms=(remaining_ms) { (text::duration(remaining_ms)) }
    }
}
