//! `fencehold job cancel`, `retry` and `rm`: some jobs by id, or all that match, page by page.

use fencehold_contract::job::{
    ChangeJobBatchResponse, ChangeJobResult, ChangeJobsRequest, ChangedJob, JobAction, JobFilter, JobSelector,
};
use fencehold_contract::json;
use fencehold_core::job::JobId;
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{Owner, Reason};

use super::ls::{FilterArgs, count};
use crate::context::{Context, OpenStore, pages};
use crate::failure::Failure;
use crate::follow::state_colour;
use crate::identity::ByArgs;
use crate::output::{Format, note};
use crate::show::{Cell, Colour, Progress, Table};
use crate::verb::VerbResult;

pub(super) const MORE: &str = "\
Name jobs, or filter them: each job that matches is checked and changed in one step. --dry-run only lists them. The \
result is printed job by job; if a job that was named is refused, the exit code is not 0.";

/// Cancel jobs; the worker of a running one is asked to stop
#[derive(Debug, clap::Args)]
#[command(after_help = MORE, before_help = "\
fencehold job cancel 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 --reason 'typo'
fencehold job cancel --queue emails --label campaign=may --dry-run")]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    which: JobSelection,
    /// Why; kept in the job's history
    #[arg(long)]
    reason: Option<Reason>,
    /// Do not wait for its worker: a token is consumed, so that its late writes are refused
    #[arg(long)]
    force: bool,
}

impl CancelArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let action = JobAction::Cancel { reason: self.reason, force: self.force };
        self.which.change(context, action, "cancelled").await
    }
}

/// Delete jobs; a running one only with --force, which is recorded
#[derive(Debug, clap::Args)]
#[command(after_help = MORE, before_help = "\
fencehold job rm 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55
fencehold job rm --queue emails --state completed")]
pub(crate) struct RmArgs {
    #[command(flatten)]
    which: JobSelection,
    /// Also while it is running
    #[arg(long)]
    force: bool,
}

impl RmArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        self.which
            .change(context, JobAction::Delete { force: self.force }, "deleted")
            .await
    }
}

// Which jobs to change.
#[derive(Debug, clap::Args)]
pub(crate) struct JobSelection {
    /// The jobs
    #[arg(value_name = "JOB")]
    jobs: Vec<JobId>,
    /// All jobs of the namespace
    #[arg(long, conflicts_with = "jobs")]
    all: bool,
    /// Only print what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    by: ByArgs,
    #[command(flatten)]
    filter: FilterArgs,
}

impl JobSelection {
    /// One job, by its id.
    pub(super) fn one(job: Option<JobId>, by: Option<Owner>) -> Self {
        let (jobs, by, filter) = (job.into_iter().collect(), ByArgs::of(by), FilterArgs::default());
        JobSelection { jobs, all: false, dry_run: false, by, filter }
    }

    /// Does something to the jobs, and says with the word for it what became of each.
    pub(super) async fn change(self, context: &Context, action: JobAction, done: &'static str) -> VerbResult {
        let filter = self.filter.filter();
        match (self.jobs.is_empty(), filter == JobFilter::default(), self.all) {
            (true, true, false) => {
                return Err(Failure::usage("no jobs are named")
                    .with_next("Name jobs, or filter them (--queue, --state, …), or take all with --all."));
            }
            (false, false, _) => {
                return Err(
                    Failure::usage("jobs are named, and filters too").with_next("Give the one or the other.")
                );
            }
            _ => {}
        }
        let by = self.by.owner()?;
        let request = |selector| ChangeJobsRequest {
            dry_run: self.dry_run,
            ..ChangeJobsRequest::new(selector, action.clone(), by.clone())
        };
        let results = context
            .look(async |store| {
                if self.jobs.is_empty() {
                    return matching(store, done, filter, request).await;
                }
                let request = request(JobSelector::Ids { job_ids: self.jobs.clone() });
                let acted = store
                    .ask(async |jobs, call| jobs.change_jobs(call, request.clone()).await)
                    .await?;
                Ok(acted.results)
            })
            .await?;
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
            context.output.list_as(&response, lines, "no job matches", || table(results))?;
        }
        if let Some(failure) = alone {
            return Err(failure);
        }
        let refused = results.iter().filter(|changed| changed.result.is_err()).count();
        if context.output.format == Format::Table && results.len() > 1 {
            let would = if self.dry_run { "would be " } else { "" };
            let but = if refused > 0 { format!(", {refused} refused") } else { String::new() };
            note(&format!("{} jobs {would}{done}{but}", results.len() - refused));
        }
        if refused > 0 && !self.jobs.is_empty() {
            return Err(Failure::failed(format!("{refused} of {} jobs were refused", results.len())));
        }
        Ok(())
    }
}

async fn matching(
    store: &OpenStore,
    done: &'static str,
    filter: JobFilter,
    request: impl Fn(JobSelector) -> ChangeJobsRequest,
) -> Result<Vec<ChangeJobResult>, Failure> {
    // At most: counted by queue and state alone.
    let most = count(store, filter.queue.as_ref(), &filter.states).await?;
    let progress = Progress::jobs(done, Some(most));
    let selector = match filter {
        filter if filter == JobFilter::default() => JobSelector::All {},
        filter => JobSelector::Filter { filter },
    };
    let mut results = Vec::new();
    pages(async |cursor| {
        let page = ChangeJobsRequest { cursor, limit: PAGE_MAX, ..request(selector.clone()) };
        let acted = store.ask(async |jobs, call| jobs.change_jobs(call, page.clone()).await).await?;
        let many = acted.results.len() as u64;
        progress.add(many, many);
        results.extend(acted.results);
        Ok(acted.next_cursor)
    })
    .await?;
    Ok(results)
}

fn table(results: &[ChangeJobResult]) -> Table {
    Table::of(["JOB", "STATE"], results, |changed| {
        let state = match &changed.result {
            Ok(state) => Cell::from(state).in_colour(state_colour(*state)),
            Err(refusal) => Cell::from(format!("refused: {refusal}")).in_colour(Colour::Warning),
        };
        [changed.job_id.into(), state]
    })
}
