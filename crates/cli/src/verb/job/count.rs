//! `fencehold job count`: how many jobs there are in which state.

use fencehold_contract::job::JobCounts;
use fencehold_core::job::{JobState, QueueName};

use crate::context::{Context, OpenStore};
use crate::show::facts;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold job count
  fencehold job count --queue emails -o json | jq .queued
";

/// Count jobs by state
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only in this queue
    #[arg(long)]
    queue: Option<QueueName>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        store.closing(async |store| self.count(context, store).await).await
    }

    async fn count(self, context: &Context, store: &OpenStore) -> VerbResult {
        let queues = store.ask(async |jobs, call| jobs.list_queues(call).await).await?;
        let mut all = JobCounts::default();
        for mut view in queues {
            if self.queue.as_ref().is_none_or(|queue| *queue == view.name) {
                for state in JobState::ALL {
                    *all.of(state) += *view.job_counts.of(state);
                }
            }
        }
        context.output.one(&all, |style| {
            facts(style, JobState::ALL.map(|state| (state.name(), all.clone().of(state).to_string())))
        })?;
        Ok(DONE)
    }
}
