//! The audit: what was done by force, and what was denied.

use std::sync::Arc;

use fencehold_contract::http::access::{AuditEntry, AuditRequest};
use fencehold_contract::http::op;
use fencehold_contract::problem::Problem;
use fencehold_core::BadInput;
use fencehold_core::duration::parse_ms;
use maud::{Markup, html};

use super::page::{Page, PageRequest, PageResponse, ROWS_MAX};
use super::{filter, layout, text};

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let since = page.fields.get("since").unwrap_or("7d");
    let since_ms = parse_ms(since).map_err(|problem| BadInput::new("since", problem))?;
    let request = AuditRequest {
        cursor: None,
        since_ms: Some(since_ms),
        only_namespace: page.fields.has("namespace"),
        limit: ROWS_MAX as u64,
    };
    let context = page.context::<op::ListAuditEntries>()?;
    let mut entries = context.store.audit(&context.call, request).await?.entries;
    entries.reverse();
    let main = html! {
        h1 { "Audit" }
        (filter::form(&page, "audit", &filter::field(&page, "since", "In the last", "7d")))
        @if entries.is_empty() {
            (layout::empty("Nothing was done by force, and nothing was denied, in this time.", None))
        } @else {
            (table(&page, &entries))
            p class="muted small" { "The latest " (ROWS_MAX) " entries of this time. For more: " code class="copy" { "fencehold audit ls --since " (text::plain(since)) } }
        }
    };
    Ok(Page { title: "Audit".to_owned(), section: "Audit", live_prefix: None, main }.into())
}

fn outcome_class(outcome: &str) -> &'static str {
    match outcome {
        "done" => "released",
        "partial" | "pending" => "expired",
        "failed" | "denied" => "revoked",
        _ => "quiet",
    }
}

fn table(page: &PageRequest, entries: &[AuditEntry]) -> Markup {
    html! {
        div class="scroll" { table class="list stacked" {
            thead { tr { th { "when" } th { "who" } th { "from" } th { "namespace" } th { "operation" } th { "to what" } th { "why" } th { "outcome" } } }
            tbody {
                @for entry in entries {
                    tr {
                        td { (text::moment(page.now_ms, entry.at.wall_ms)) }
                        td { (text::cell(&entry.actor)) }
                        td class="mono" data-label="from " { (text::cell(&entry.address)) }
                        td data-label="in " { (text::cell(&entry.namespace)) }
                        td class="mono" { (text::cell(&entry.action)) }
                        td class="long" { (text::cell(&entry.target)) }
                        td class="long" { @if let Some(reason) = &entry.reason { (text::cell(reason)) } }
                        td { (text::badge(outcome_class(&entry.outcome), &entry.outcome)) }
                    }
                }
            }
        } }
    }
}
