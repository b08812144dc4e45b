//! Acting on jobs: on some by name, or on all that match, page by page.

use fencehold_contract::job::{ChangeJobsRequest, ChangedJob, JobAction, JobFilter, JobSelector};
use fencehold_core::Owner;
use fencehold_core::job::JobId;
use fencehold_core::limits::PAGE_MAX;
use serde::Serialize;

use super::filter::{FilterArgs, at_most};
use crate::context::{Context, Store};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::follow::state_colour;
use crate::identity;
use crate::output::{Format, note};
use crate::show::{Cell, Colour, Progress, Table};
use crate::verb::{DONE, Outcome};

pub(super) const MORE: &str = "\
Names of jobs, or filters: all that match are acted upon, each looked at and changed in one step. --dry-run only says \
which. What was done is printed job by job; if a job that was named is refused, the exit code is not 0.";

/// Which jobs to act upon.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// These jobs
    #[arg(value_name = "JOB")]
    jobs: Vec<JobId>,
    /// Every job there is
    #[arg(long, conflicts_with = "jobs")]
    all: bool,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Who does it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
    #[command(flatten)]
    filter: FilterArgs,
}

/// What is done, in the words for it.
pub(super) struct Deed {
    pub(super) action: JobAction,
    /// `cancelled`.
    pub(super) done: &'static str,
}

/// What became of one job, as programs read it.
#[derive(Debug, Serialize)]
struct Line {
    id: JobId,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

impl Line {
    fn of(item: &ChangedJob) -> Self {
        match &item.result {
            Ok(state) => Line { id: item.job_id, state: Some(state.name()), refused: None },
            Err(refusal) => Line { id: item.job_id, state: None, refused: Some(refusal.to_string()) },
        }
    }
}

impl Which {
    pub(super) async fn act(self, context: &Context, deed: Deed) -> Outcome {
        match (self.jobs.is_empty(), self.filter.is_empty(), self.all) {
            (true, true, false) => {
                return Err(Failure::new(Exit::Usage, "no jobs are named").with_next(
                    "Name jobs, or say which with filters like --queue, or mean every job with --all.",
                ));
            }
            (false, false, _) => {
                return Err(Failure::new(Exit::Usage, "jobs are named, and filters too")
                    .with_next("Give the one or the other."));
            }
            _ => {}
        }
        let store = context.open_to_look()?;
        store.closing(async |store| self.carry_out(context, store, deed).await).await
    }

    async fn carry_out(self, context: &Context, store: &Store, deed: Deed) -> Outcome {
        let by = self.by.map_or_else(identity::person, Ok)?;
        let request = |on| ChangeJobsRequest {
            selector: on,
            action: deed.action.clone(),
            by: by.clone(),
            dry_run: self.dry_run,
        };
        let items = if self.jobs.is_empty() {
            matching(store, deed.done, self.filter.filter(), request).await?
        } else {
            let request = request(JobSelector::Jobs(self.jobs.clone()));
            store
                .ask(async |jobs, call| jobs.change_jobs(call, request.clone()).await)
                .await?
                .results
        };
        // One that was named alone gets its refusal in full.
        if let ([one], [named]) = (self.jobs.as_slice(), items.as_slice())
            && let Err(refusal) = &named.result
        {
            return Err(Failure::refused_job(*one, refusal.clone()));
        }
        let lines: Vec<Line> = items.iter().map(Line::of).collect();
        context.output.many(&lines, "no job matches", || table(&items))?;
        let refused = items.iter().filter(|item| item.result.is_err()).count();
        if context.output.format == Format::Table && items.len() > 1 {
            note(&summary(items.len() - refused, refused, deed.done, self.dry_run));
        }
        if refused > 0 && !self.jobs.is_empty() {
            return Err(Failure::new(
                Exit::Failed,
                format!("{refused} of {} jobs were refused", items.len()),
            ));
        }
        Ok(DONE)
    }
}

async fn matching(
    store: &Store,
    done: &'static str,
    filter: JobFilter,
    request: impl Fn(JobSelector) -> ChangeJobsRequest,
) -> Result<Vec<ChangedJob>, Failure> {
    let mut progress = Progress::new(done, Some(at_most(store, &filter).await?));
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let page = request(JobSelector::Matching { filter: filter.clone(), cursor, limit: PAGE_MAX });
        let acted = store.ask(async |jobs, call| jobs.change_jobs(call, page.clone()).await).await?;
        let many = acted.results.len() as u64;
        progress.add(many, many);
        items.extend(acted.results);
        match acted.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(items),
        }
    }
}

fn summary(done: usize, refused: usize, word: &str, dry_run: bool) -> String {
    let would = if dry_run { "would be " } else { "" };
    let but = if refused > 0 { format!(", {refused} refused") } else { String::new() };
    format!("{done} jobs {would}{word}{but}")
}

fn table(items: &[ChangedJob]) -> Table {
    let mut table = Table::new(["JOB", "STATE"]);
    for item in items {
        table.row([
            item.job_id.into(),
            match &item.result {
                Ok(state) => Cell::from(state).in_colour(state_colour(*state)),
                Err(refusal) => Cell::from(format!("refused: {refusal}")).in_colour(Colour::Warning),
            },
        ]);
    }
    table
}
