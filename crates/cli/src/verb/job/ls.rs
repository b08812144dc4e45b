//! `fencehold job ls`: which jobs there are.

use fencehold_contract::job::{JobView, ListJobsRequest};
use fencehold_core::limits::PAGE_MAX;

use super::filter::FilterArgs;
use crate::context::{Context, Store};
use crate::duration::show_ms;
use crate::follow::state_colour;
use crate::output::{Format, note};
use crate::show::{Cell, Table, or_dash, utc};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold job ls --queue emails --state queued --state running
  fencehold job ls --state failed --label customer=7 -o jsonl
  fencehold job ls --contains a@example.org --limit 10
";

/// List jobs, in the order of their arrival
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most so many; 0: all
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open_to_look()?;
        store.closing(async |store| self.list(context, store).await).await
    }

    async fn list(self, context: &Context, store: &Store) -> Outcome {
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
            context.output.many(&listed, "no jobs", || table(&listed))?;
        }
        if more {
            note(&format!("these are the first {count}; there may be more: --limit 0 lists all"));
        }
        Ok(DONE)
    }
}

fn table(jobs: &[JobView]) -> Table {
    let mut table = Table::new([
        "JOB", "QUEUE", "KIND", "STATE", "TOKEN", "ATTEMPTS", "SINCE", "DUE IN", "OWNER", "LEFT",
    ]);
    for job in jobs {
        let runner = job.runner.as_ref();
        table.row([
            job.id.into(),
            job.queue.as_str().into(),
            job.kind.as_str().into(),
            Cell::from(job.state).in_colour(state_colour(job.state)),
            or_dash((job.attempt_count > 0).then_some(job.token)),
            job.attempt_count.into(),
            utc(job.state_changed_at_ms).into(),
            or_dash(job.due_in_ms.map(show_ms)),
            or_dash(runner.map(|runner| runner.owner.as_str())),
            or_dash(runner.map(|runner| show_ms(runner.remaining_ms))),
        ]);
    }
    table
}
