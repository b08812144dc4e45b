//! `fencehold job ls` and `count`: which jobs there are.

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::job::{JobCounts, JobFilter, JobPage, JobView, ListJobsRequest};
use fencehold_core::Owner;
use fencehold_core::job::{JobKind, JobState, QueueName};
use fencehold_core::limits::PAGE_MAX;

use super::options::{Label, parse_label};
use crate::context::{Context, OpenStore, pages};
use crate::duration::show_ms;
use crate::failure::Failure;
use crate::follow::state_colour;
use crate::output::{Format, note};
use crate::show::{Cell, Table, facts};
use crate::verb::VerbResult;

const STATE_HELP: &str = "Only in this state (repeatable): queued, scheduled, running, completed, failed, cancelled, \
                          quarantined, in_doubt";

/// Which jobs. What is not named does not matter.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Which jobs")]
pub(super) struct FilterArgs {
    /// Only in this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// Only of this kind
    #[arg(long)]
    kind: Option<JobKind>,
    #[arg(long, value_name = "STATE", help = STATE_HELP)]
    state: Vec<JobState>,
    /// Only with this label (repeatable: with all of them)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    label: Vec<Label>,
    /// Only those that this owner works on
    #[arg(long)]
    owner: Option<Owner>,
    /// Only with this text in the payload
    #[arg(long, value_name = "TEXT")]
    payload_contains: Option<String>,
}

impl FilterArgs {
    pub(super) fn filter(self) -> JobFilter {
        let FilterArgs { queue, kind, state: states, label: labels, owner, payload_contains } = self;
        JobFilter { queue, kind, states, labels, owner, payload_contains }
    }
}

/// List jobs, oldest first
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold job ls --queue emails --state queued --state running
fencehold job ls --state failed --label customer=7 -o jsonl
fencehold job ls --payload-contains a@example.org --limit 10")]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most this many; 0 is all
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let most = if self.limit == 0 { usize::MAX } else { self.limit };
        let filter = self.filter.filter();
        let mut listed = Vec::new();
        let (mut count, mut more) = (0, false);
        context
            .look(async |store| {
                pages(async |cursor| {
                    let limit = PAGE_MAX.min(most - count);
                    let request = ListJobsRequest { filter: filter.clone(), cursor, limit };
                    let page = store
                        .ask(async |jobs, call| jobs.list_jobs(call, request.clone()).await)
                        .await?;
                    count += page.jobs.len();
                    if context.output.format == Format::Jsonl {
                        // As they come: there may be millions.
                        page.jobs.iter().try_for_each(|job| context.output.line(job))?;
                    } else {
                        listed.extend(page.jobs);
                    }
                    more = page.next_cursor.is_some() && count >= most;
                    Ok(page.next_cursor.filter(|_| !more))
                })
                .await
            })
            .await?;
        let page = JobPage { jobs: listed, next_cursor: None };
        context.output.list(&page, &page.jobs, "no jobs", table)?;
        if more {
            note(&format!("these are the first {count}; --limit 0 lists all"));
        }
        Ok(())
    }
}

fn table(jobs: &[JobView]) -> Table {
    let now_ms = SystemClock.now().wall_ms;
    Table::of(["JOB", "STATE", "QUEUE", "KIND", "SINCE", "ATTEMPTS"], jobs, |job| {
        let since = match job.due_in_ms {
            Some(ms) => format!("due in {}", show_ms(ms)),
            None => format!("{} ago", show_ms(now_ms.saturating_sub(job.state_changed_at_ms))),
        };
        [
            job.id.into(),
            Cell::from(job.state).in_colour(state_colour(job.state)),
            job.queue.as_str().into(),
            job.kind.as_str().into(),
            since.into(),
            job.attempt_count.into(),
        ]
    })
}

/// Count jobs by state
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold job count
fencehold job count --queue emails -o json | jq .queued")]
pub(crate) struct CountArgs {
    /// Only in this queue
    #[arg(long)]
    queue: Option<QueueName>,
}

impl CountArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let all = context.look(async |store| counts(store, self.queue.as_ref()).await).await?;
        let lines = JobState::ALL.map(|state| (state.name(), all.get(state).to_string()));
        context.output.one(&all, |style| facts(style, lines))
    }
}

/// How many jobs there are, in a queue or in all of them.
async fn counts(store: &OpenStore, queue: Option<&QueueName>) -> Result<JobCounts, Failure> {
    let mut all = JobCounts::default();
    for view in store.ask(async |jobs, call| jobs.list_queues(call).await).await?.queues {
        if queue.is_none_or(|queue| *queue == view.name) {
            for state in JobState::ALL {
                *all.get_mut(state) += view.job_counts.get(state);
            }
        }
    }
    Ok(all)
}

/// The same in these states; without any, in every state.
pub(super) async fn count(
    store: &OpenStore,
    queue: Option<&QueueName>,
    states: &[JobState],
) -> Result<u64, Failure> {
    let all = counts(store, queue).await?;
    let states = if states.is_empty() { &JobState::ALL[..] } else { states };
    Ok(states.iter().map(|state| all.get(*state)).sum())
}
