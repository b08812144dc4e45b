//! What lists share: the form of their filters, and the way to the next page.

use maud::{Markup, html};

use super::page::PageRequest;
use super::text;

/// A form whose fields are the query of a page, so every choice has a URL of its own.
pub(super) fn form(page: &PageRequest, path: &str, fields: &Markup) -> Markup {
    html! {
        form class="filter" action=(path) method="get" role="search" {
            @if page.fields.has("namespace") {
                input type="hidden" name="namespace" value=(page.namespace);
            }
            (fields)
            button class="primary" { "Filter" }
            @if page.fields.without("namespace").next().is_some() {
                a href=(page.href(path, &[])) { "Clear" }
            }
        }
    }
}

/// A field of such a form, with what was asked for.
pub(super) fn field(page: &PageRequest, name: &str, label: &str, hint: &str) -> Markup {
    html! {
        label {
            (label)
            input name=(name) value=[page.fields.get(name)] placeholder=(hint) autocapitalize="none" spellcheck="false" dir="auto";
        }
    }
}

/// The way to the next page and back to the first. A page may be short, or even empty, and still not be the last.
pub(super) fn pages(page: &PageRequest, path: &str, next: Option<u64>, is_empty: bool) -> Markup {
    let is_first = !page.fields.has("cursor");
    html! {
        @if next.is_some() || !is_first {
            nav class="pages" aria-label="Pages of the list" {
                @if !is_first { a href=(page.href_of(path, page.fields.without("cursor"))) { "First page" } }
                @if let Some(cursor) = next {
                    a href=(page.next_page(path, cursor)) rel="next" {
                        @if is_empty { "Nothing up to here; search on" } @else { "Next page" }
                    }
                }
            }
        }
    }
}

/// A link to a lease.
pub(super) fn lease(page: &PageRequest, key: &str) -> Markup {
    html! { a class="name" href=(page.href("lease", &[("key", key)])) { (text::cell(key)) } }
}

/// A link to a job: the end of its id, which distinguishes it from those of the same moment.
pub(super) fn job(page: &PageRequest, id: &str) -> Markup {
    let start = id.len().saturating_sub(12);
    let short = id.get(start..).unwrap_or(id);
    html! { a class="name mono" href=(page.href("job", &[("id", id)])) title=(id) { "…" (short) } }
}

/// A link to a worker.
pub(super) fn worker(page: &PageRequest, owner: &str) -> Markup {
    html! { a class="owner" href=(page.href("worker", &[("owner", owner)])) { (text::cell(owner)) } }
}

/// A link to what an event is about: a lease, or the job of a key `job/ID`.
pub(super) fn subject(page: &PageRequest, key: &str) -> Markup {
    match key.strip_prefix("job/") {
        Some(id) => html! { "job " (job(page, id)) },
        None => lease(page, key),
    }
}
