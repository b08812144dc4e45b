//! Changing jobs: some by id, or all that match, page by page.

use fencehold_contract::job::{
    ChangeJobBatchResponse, ChangeJobResult, ChangeJobsRequest, ChangedJob, JobAction, JobFilter, JobSelector,
};
use fencehold_contract::json;
use fencehold_core::Owner;
use fencehold_core::job::JobId;
use fencehold_core::limits::PAGE_MAX;

use super::filter::{FilterArgs, at_most};
use crate::context::{Context, OpenStore};
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::follow::state_colour;
use crate::identity;
use crate::output::{Format, note};
use crate::show::{Cell, Colour, Progress, Table};
use crate::verb::{DONE, VerbResult};

pub(super) const MORE: &str = "\
Name jobs, or filter them: each job that matches is checked and changed in one step. --dry-run only lists them. The \
result is printed job by job; if a job that was named is refused, the exit code is not 0.";

/// Which jobs to change.
#[derive(Debug, clap::Args)]
pub(super) struct JobSelection {
    /// The jobs
    #[arg(value_name = "JOB")]
    jobs: Vec<JobId>,
    /// All jobs of the namespace
    #[arg(long, conflicts_with = "jobs")]
    all: bool,
    /// Only print what would be done
    #[arg(long)]
    dry_run: bool,
    /// Who does it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
    #[command(flatten)]
    filter: FilterArgs,
}

/// What is done, and the word for it.
pub(super) struct JobChange {
    pub(super) action: JobAction,
    /// `cancelled`.
    pub(super) done: &'static str,
}

impl JobSelection {
    pub(super) async fn change(self, context: &Context, change: JobChange) -> VerbResult {
        match (self.jobs.is_empty(), self.filter.is_empty(), self.all) {
            (true, true, false) => {
                return Err(Failure::new(ExitStatus::Usage, "no jobs are named")
                    .with_next("Name jobs, or filter them (--queue, --state, …), or take all with --all."));
            }
            (false, false, _) => {
                return Err(Failure::new(ExitStatus::Usage, "jobs are named, and filters too")
                    .with_next("Give the one or the other."));
            }
            _ => {}
        }
        let store = context.open_to_look()?;
        store.closing(async |store| self.carry_out(context, store, change).await).await
    }

    async fn carry_out(self, context: &Context, store: &OpenStore, change: JobChange) -> VerbResult {
        let by = self.by.map_or_else(identity::person, Ok)?;
        let request = |selector| ChangeJobsRequest {
            dry_run: self.dry_run,
            ..ChangeJobsRequest::new(selector, change.action.clone(), by.clone())
        };
        let results = if self.jobs.is_empty() {
            matching(store, change.done, self.filter.filter(), request).await?
        } else {
            let request = request(JobSelector::Ids { job_ids: self.jobs.clone() });
            store
                .ask(async |jobs, call| jobs.change_jobs(call, request.clone()).await)
                .await?
                .results
        };
        let response = ChangeJobBatchResponse { results, next_cursor: None };
        let results = &response.results;
        // One that was named alone gets its refusal in full.
        let alone = match (self.jobs.as_slice(), results.as_slice()) {
            ([id], [ChangeJobResult { result: Err(refusal), .. }]) => {
                Some(Failure::refused_change(*id, refusal.clone()))
            }
            _ => None,
        };
        let lines = results
            .iter()
            .map(|changed| json::ItemResult::<ChangedJob>::from(Result::from(changed.clone())));
        if context.output.is_json() || alone.is_none() {
            context.output.list(&response, lines, "no job matches", || table(results))?;
        }
        if let Some(failure) = alone {
            return Err(failure);
        }
        let refused = results.iter().filter(|changed| changed.result.is_err()).count();
        if context.output.format == Format::Table && results.len() > 1 {
            note(&summary(results.len() - refused, refused, change.done, self.dry_run));
        }
        if refused > 0 && !self.jobs.is_empty() {
            return Err(Failure::new(
                ExitStatus::Failed,
                format!("{refused} of {} jobs were refused", results.len()),
            ));
        }
        Ok(DONE)
    }
}

async fn matching(
    store: &OpenStore,
    done: &'static str,
    filter: JobFilter,
    request: impl Fn(JobSelector) -> ChangeJobsRequest,
) -> Result<Vec<ChangeJobResult>, Failure> {
    let mut progress = Progress::new(done, Some(at_most(store, &filter).await?));
    let selector = match filter {
        filter if filter == JobFilter::default() => JobSelector::All {},
        filter => JobSelector::Filter { filter },
    };
    let mut results = Vec::new();
    let mut cursor = None;
    loop {
        let page = ChangeJobsRequest { cursor, limit: PAGE_MAX, ..request(selector.clone()) };
        let acted = store.ask(async |jobs, call| jobs.change_jobs(call, page.clone()).await).await?;
        let many = acted.results.len() as u64;
        progress.add(many, many);
        results.extend(acted.results);
        match acted.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(results),
        }
    }
}

fn summary(done: usize, refused: usize, word: &str, dry_run: bool) -> String {
    let would = if dry_run { "would be " } else { "" };
    let but = if refused > 0 { format!(", {refused} refused") } else { String::new() };
    format!("{done} jobs {would}{word}{but}")
}

fn table(results: &[ChangeJobResult]) -> Table {
    let mut table = Table::new(["JOB", "STATE"]);
    for changed in results {
        table.row([
            changed.job_id.into(),
            match &changed.result {
                Ok(state) => Cell::from(state).in_colour(state_colour(*state)),
                Err(refusal) => Cell::from(format!("refused: {refusal}")).in_colour(Colour::Warning),
            },
        ]);
    }
    table
}
