//! `fencehold job ls`: which jobs there are.

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::job::{JobPage, JobView, ListJobsRequest};
use fencehold_core::limits::PAGE_MAX;

use super::filter::FilterArgs;
use crate::context::{Context, OpenStore};
use crate::duration::show_ms;
use crate::follow::state_colour;
use crate::output::{Format, note};
use crate::show::{Cell, Table};
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold job ls --queue emails --state queued --state running
  fencehold job ls --state failed --label customer=7 -o jsonl
  fencehold job ls --payload-contains a@example.org --limit 10
";

/// List jobs, oldest first
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most this many; 0 is all
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        store.closing(async |store| self.list(context, store).await).await
    }

    async fn list(self, context: &Context, store: &OpenStore) -> VerbResult {
        let most = if self.limit == 0 { usize::MAX } else { self.limit };
        let mut request = ListJobsRequest { filter: self.filter.filter(), cursor: None, limit: 0 };
        let mut listed = Vec::new();
        let mut count = 0;
        let more = loop {
            request.limit = PAGE_MAX.min(most - count);
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
            let Some(next) = page.next_cursor else { break false };
            if count >= most {
                break true;
            }
            request.cursor = Some(next);
        };
        if context.output.format != Format::Jsonl {
            let page = JobPage { jobs: listed, next_cursor: None };
            context.output.list(&page, &page.jobs, "no jobs", || table(&page.jobs))?;
        }
        if more {
            note(&format!("these are the first {count}; --limit 0 lists all"));
        }
        Ok(DONE)
    }
}

fn table(jobs: &[JobView]) -> Table {
    let now_ms = SystemClock.now().wall_ms;
    let mut table = Table::new(["JOB", "STATE", "QUEUE", "KIND", "SINCE", "ATTEMPTS"]);
    for job in jobs {
        let since = match job.due_in_ms {
            Some(ms) => format!("due in {}", show_ms(ms)),
            None => format!("{} ago", show_ms(now_ms.saturating_sub(job.state_changed_at_ms))),
        };
        table.row([
            job.id.into(),
            Cell::from(job.state).in_colour(state_colour(job.state)),
            job.queue.as_str().into(),
            job.kind.as_str().into(),
            since.into(),
            job.attempt_count.into(),
        ]);
    }
    table
}
