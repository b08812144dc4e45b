//! Acting on all that match a filter: how many there are first, then progress a step at a time.
//!
//! A step changes one page of what matches and leads to the next by a form with everything that it needs, so nothing is kept
//! between steps: the script sends that form by itself, and without the script a person does. To leave the page is to stop.

use std::sync::Arc;

use fencehold_contract::http::{
    CancelJobBatchRequest, DeleteJobBatchRequest, LeaseSelector, NoQuery, RetryJobBatchRequest,
    RevokeLeaseBatchRequest, op,
};
use fencehold_contract::job::{
    ChangeJobBatchResponse, ChangeJobResult, JobFilter, JobSelector, ListJobsRequest,
};
use fencehold_contract::problem::Problem;
use fencehold_contract::{ListLeasesRequest, RevokedLease};
use fencehold_core::BadInput;
use fencehold_core::limits::PAGE_MAX;
use maud::{Markup, html};

use super::page::{Fields, Page, PageRequest, PageResponse, ROWS_MAX};
use super::{filter, jobs, layout, text};
use crate::http::lease;

/// How many pages of a list are counted.
const PAGES_COUNTED: usize = 10;
/// How many jobs a step changes.
const STEP: usize = 500;
/// The fields of the filter of jobs.
const JOB_FIELDS: [&str; 6] = ["queue", "kind", "state", "label", "owner", "payload"];
/// The fields of the filter of leases: what is revoked is named by one of them.
const LEASE_FIELDS: [&str; 3] = ["prefix", "owner", "task"];

/// How many match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    number: u64,
    /// Whether there are no more than that.
    is_exact: bool,
}

impl Count {
    fn shown(self, one: &str, many: &str) -> String {
        let at_least = if self.is_exact { "" } else { "at least " };
        let what = if self.number == 1 { one } else { many };
        format!("{at_least}{} {what}", text::number(self.number))
    }
}

/// What is done to all jobs that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Retry,
    Cancel,
    Delete,
}

impl Action {
    const ALL: [Action; 3] = [Action::Retry, Action::Cancel, Action::Delete];

    const fn name(self) -> &'static str {
        match self {
            Action::Retry => "retry",
            Action::Cancel => "cancel",
            Action::Delete => "delete",
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            Action::Retry => "Retry",
            Action::Cancel => "Cancel",
            Action::Delete => "Delete",
        }
    }

    const fn done(self) -> &'static str {
        match self {
            Action::Retry => "retried",
            Action::Cancel => "cancelled, or their workers were asked to stop",
            Action::Delete => "deleted",
        }
    }

    const fn explains(self) -> &'static str {
        match self {
            Action::Retry => {
                "Each starts over, with its failures and crashes counted from zero. What runs or is ready is left alone."
            }
            Action::Cancel => {
                "They are not tried again. A worker that runs one learns it when it renews next."
            }
            Action::Delete => {
                "They are forgotten, with their attempts and results. What runs is left alone. This cannot be taken back."
            }
        }
    }

    fn may(self, page: &PageRequest) -> bool {
        match self {
            Action::Retry => page.may::<op::RetryJobBatch>(),
            Action::Cancel => page.may::<op::CancelJobBatch>(),
            Action::Delete => page.may::<op::DeleteJobBatch>(),
        }
    }
}

/// The way from a list of jobs to this, for those who may.
pub(super) fn jobs_link(page: &PageRequest) -> Markup {
    html! {
        @if Action::ALL.iter().any(|action| action.may(page)) {
            a class="button" href=(page.href_of("matching-jobs", page.fields.only(&JOB_FIELDS))) { "Act on all that match…" }
        }
    }
}

/// The way from a list of leases to this, for those who may.
pub(super) fn leases_link(page: &PageRequest) -> Markup {
    html! {
        @if page.may::<op::RevokeLeaseBatch>() && LEASE_FIELDS.iter().any(|name| page.fields.has(name)) {
            a class="button" href=(page.href_of("matching-leases", page.fields.only(&LEASE_FIELDS))) { "Revoke all that match…" }
        }
    }
}

/// The filter in words.
fn said(page: &PageRequest, names: &[&str]) -> Markup {
    html! {
        @for (nth, (name, value)) in page.fields.only(names).enumerate() {
            @if nth > 0 { ", " }
            span class="muted" { (name) " " } strong { (text::cell(value)) }
        }
    }
}

/// The filter as fields of a form.
fn hidden(fields: &Fields, names: &[&str]) -> Markup {
    html! { @for (name, value) in fields.only(names) { input type="hidden" name=(name) value=(value); } }
}

/// How many jobs match: what the counts of queues say, if they say it, and otherwise what the first pages of the list have.
async fn count_jobs(page: &PageRequest, filter: &JobFilter) -> Result<Count, Problem> {
    let by_counts =
        JobFilter { queue: filter.queue.clone(), states: filter.states.clone(), ..JobFilter::default() };
    if *filter == by_counts {
        let queues = page.call::<op::ListQueues>(NoQuery {}).await?.queues;
        let queues = queues
            .iter()
            .filter(|queue| filter.queue.as_ref().is_none_or(|name| *name == queue.name));
        let of = |counts: fencehold_contract::job::JobCounts| -> u64 {
            let states = fencehold_core::job::JobState::ALL;
            let states = states
                .iter()
                .filter(|state| filter.states.is_empty() || filter.states.contains(state));
            states.map(|state| counts.get(*state)).sum()
        };
        return Ok(Count { number: queues.map(|queue| of(queue.job_counts)).sum(), is_exact: true });
    }
    let mut count = Count::default();
    let mut cursor = None;
    for _ in 0..PAGES_COUNTED {
        let request = ListJobsRequest { filter: filter.clone(), cursor, limit: PAGE_MAX };
        let listed = page.call::<op::ListJobs>(request).await?;
        count.number += listed.jobs.len() as u64;
        cursor = listed.next_cursor;
        if cursor.is_none() {
            count.is_exact = true;
            break;
        }
    }
    Ok(count)
}

/// How many jobs match, and what can be done to all of them.
pub(super) async fn jobs_view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let filter = jobs::filter_of(&page.fields)?;
    let count = count_jobs(&page, &filter).await?;
    let shown = count.shown("job", "jobs");
    let all =
        if count.number == 1 { "this job".to_owned() } else { format!("all {}", count.shown("job", "jobs")) };
    let main = html! {
        h1 { (shown) " " span class="muted" { @if count.number == 1 { "matches" } @else { "match" } } }
        p { @if filter == JobFilter::default() { "All jobs of this namespace." } @else { (said(&page, &JOB_FIELDS)) } }
        @if count.number == 0 && count.is_exact {
            (layout::empty("There is nothing to act on.", None))
        } @else {
            div class="acts" {
                @for action in Action::ALL.into_iter().filter(|action| action.may(&page)) {
                    details class="act" id=(action.name()) {
                        summary { (action.verb()) "…" }
                        form action=(page.href("change-jobs", &[])) method="post" class="stack" {
                            p { (action.explains()) }
                            (page.form_token())
                            (hidden(&page.fields, &JOB_FIELDS))
                            input type="hidden" name="action" value=(action.name());
                            input type="hidden" name="total" value=(count.number);
                            (page.by_field())
                            @if action == Action::Cancel { label { "Reason" input name="reason" required maxlength="200"; } }
                            label class="check" { input type="checkbox" name="confirm" value="yes" required; (action.verb()) " " (all) }
                            button class=(if action == Action::Retry { "primary" } else { "danger" }) { (action.verb()) " " (all) }
                        }
                    }
                }
            }
        }
        p { a href=(page.href_of("jobs", page.fields.only(&JOB_FIELDS))) { "Back to the list" } }
    };
    Ok(Page { title: format!("{shown} match"), section: "Jobs", live_prefix: None, main }.into())
}

/// How far a change has come. The form of the next step carries it.
#[derive(Debug)]
struct Progress {
    total: u64,
    done: u64,
    refused: u64,
    /// Why one of them was not changed.
    why: Option<String>,
}

impl Progress {
    fn of(fields: &Fields) -> Result<Progress, Problem> {
        Ok(Progress {
            total: fields.need("total")?,
            done: fields.read("done")?.unwrap_or_default(),
            refused: fields.read("refused")?.unwrap_or_default(),
            why: fields.get("why").map(str::to_owned),
        })
    }

    fn add(&mut self, results: Vec<ChangeJobResult>) {
        for result in results {
            match Result::from(result) {
                Ok(fencehold_contract::job::ChangedJob { .. }) => self.done = self.done.saturating_add(1),
                Err(problem) => {
                    let problem: Problem = problem;
                    self.refused = self.refused.saturating_add(1);
                    self.why.get_or_insert(problem.detail.clone());
                }
            }
        }
    }
}

/// One step of a change of all that match.
pub(super) async fn change_jobs(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    page.confirmed()?;
    let named = page.fields.get("action");
    let action = Action::ALL.into_iter().find(|action| named == Some(action.name()));
    let action = action.ok_or_else(|| BadInput::new("action", "must be retry, cancel or delete"))?;
    let mut progress = Progress::of(&page.fields)?;
    let changed = step(&page, action).await?;
    progress.add(changed.results);
    let back = page.href_of("jobs", page.fields.only(&JOB_FIELDS));
    let seen = progress.done.saturating_add(progress.refused);
    let main = html! {
        h1 { (action.verb()) " all that match" }
        p { (said(&page, &JOB_FIELDS)) }
        @if let Some(cursor) = changed.next_cursor {
            progress max=(progress.total.max(seen)) value=(seen) aria-label="Progress" {}
            p role="status" { (text::number(seen)) " of " (text::number(progress.total.max(seen))) }
            form action=(page.href("change-jobs", &[])) method="post" class="inline" data-continue="yes" {
                (page.form_token())
                (hidden(&page.fields, &[&JOB_FIELDS[..], &["action", "total", "by", "reason", "confirm"]].concat()))
                input type="hidden" name="cursor" value=(cursor);
                input type="hidden" name="done" value=(progress.done);
                input type="hidden" name="refused" value=(progress.refused);
                @if let Some(why) = &progress.why { input type="hidden" name="why" value=(text::plain_beginning(why, 200)); }
                button class="primary" { "Go on" }
                a href=(back) { "Stop here" }
            }
        } @else {
            progress max="1" value="1" aria-label="Progress" {}
            div class="notice good" role="status" {
                strong { (text::number(progress.done)) @if progress.done == 1 { " job was " } @else { " jobs were " } (action.done()) }
                @if progress.refused > 0 {
                    p { (text::number(progress.refused)) " could not be" @if let Some(why) = &progress.why { ", the first because " (text::text(why)) } }
                }
            }
            p { a href=(back) { "Back to the list" } }
        }
    };
    Ok(Page { title: format!("{} all that match", action.verb()), section: "Jobs", live_prefix: None, main }
        .into())
}

/// Changes one page of what matches.
async fn step(page: &PageRequest, action: Action) -> Result<ChangeJobBatchResponse, Problem> {
    let filter = jobs::filter_of(&page.fields)?;
    let selector =
        if filter == JobFilter::default() { JobSelector::All {} } else { JobSelector::Filter { filter } };
    let (by, cursor, limit) = (page.by()?, page.fields.read("cursor")?, STEP);
    let (dry_run, force) = (false, false);
    match action {
        Action::Retry => {
            let request = RetryJobBatchRequest { selector, by, dry_run, cursor, limit };
            page.call::<op::RetryJobBatch>(request).await
        }
        Action::Cancel => {
            let reason = Some(page.fields.need("reason")?);
            let request = CancelJobBatchRequest { selector, by, reason, force, dry_run, cursor, limit };
            page.call::<op::CancelJobBatch>(request).await
        }
        Action::Delete => {
            let request = DeleteJobBatchRequest { selector, by, force, dry_run, cursor, limit };
            page.call::<op::DeleteJobBatch>(request).await
        }
    }
}

/// What names the leases: one of the fields. `Err`: none is there, or more than one.
fn selector(fields: &Fields) -> Result<LeaseSelector, Problem> {
    let given: Vec<&str> = LEASE_FIELDS.into_iter().filter(|name| fields.has(name)).collect();
    match given[..] {
        ["owner"] => Ok(LeaseSelector::Owner { owner: fields.need("owner")? }),
        ["task"] => Ok(LeaseSelector::TaskPrefix { task_prefix: fields.need("task")? }),
        ["prefix"] => Ok(LeaseSelector::Prefix { prefix: fields.need("prefix")? }),
        _ => {
            let problem = "leases are revoked by one of key prefix, owner and task: name exactly one of them";
            Err(BadInput::new("filter", problem).into())
        }
    }
}

/// How many leases match, and the form that revokes them.
pub(super) async fn leases_view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    selector(&page.fields)?;
    let mut count = Count::default();
    let mut cursor = None;
    for _ in 0..PAGES_COUNTED {
        let request = ListLeasesRequest {
            prefix: page.fields.get("prefix").map(str::to_owned),
            owner: page.fields.read("owner")?,
            task_prefix: page.fields.read("task")?,
            cursor,
            limit: PAGE_MAX,
            ..ListLeasesRequest::default()
        };
        let listed = page.call::<op::ListLeases>(request).await?;
        count.number += listed.leases.len() as u64;
        cursor = listed.next_cursor;
        if cursor.is_none() {
            count.is_exact = true;
            break;
        }
    }
    let shown = count.shown("hold", "holds");
    let main = html! {
        h1 { (shown) " " span class="muted" { @if count.number == 1 { "matches" } @else { "match" } } }
        p { (said(&page, &LEASE_FIELDS)) }
        @if count.number == 0 && count.is_exact {
            (layout::empty("There is nothing to revoke.", None))
        } @else {
            form action=(page.href("revoke-leases", &[])) method="post" class="stack panel" {
                p { "Ends every hold that matches at that moment. The holders learn it when they renew next, and may act until then: only a fence keeps them out." }
                (page.form_token())
                (hidden(&page.fields, &LEASE_FIELDS))
                (page.by_field())
                label { "Reason" input name="reason" required maxlength="200" placeholder="why, for the holders and for the audit"; }
                label class="check" { input type="checkbox" name="confirm" value="yes" required; "End these holds by force" }
                button class="danger" { "Revoke " (shown) }
            }
        }
        p { a href=(page.href_of("leases", page.fields.only(&LEASE_FIELDS))) { "Back to the list" } }
    };
    Ok(Page { title: format!("{shown} match"), section: "Leases", live_prefix: None, main }.into())
}

/// Revokes all that match.
pub(super) async fn revoke_leases(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    page.confirmed()?;
    let selector = selector(&page.fields)?;
    let request = RevokeLeaseBatchRequest { selector, by: page.by()?, reason: page.fields.need("reason")? };
    let results = lease::revoke_batch(page.context::<op::RevokeLeaseBatch>()?, request)
        .await?
        .results;
    let revoked: Vec<RevokedLease> = results.into_iter().flatten().collect();
    let count = revoked.len() as u64;
    let main = html! {
        h1 { "Revoke all that match" }
        p { (said(&page, &LEASE_FIELDS)) }
        div class="notice good" role="status" {
            strong { (text::number(count)) @if count == 1 { " hold was ended" } @else { " holds were ended" } }
            @if count > 0 { p { "Their tokens are refused by every fence that has seen a larger one." } }
        }
        @if count > 0 {
            ul class="plain" { @for lease in revoked.iter().take(ROWS_MAX) { li { (filter::lease(&page, lease.key.as_str())) } } }
            @if revoked.len() > ROWS_MAX { p class="muted small" { "The first " (ROWS_MAX) "." } }
        }
        p { a href=(page.href_of("leases", page.fields.only(&LEASE_FIELDS))) { "Back to the list" } }
    };
    Ok(Page { title: "Revoke all that match".to_owned(), section: "Leases", live_prefix: None, main }.into())
}
