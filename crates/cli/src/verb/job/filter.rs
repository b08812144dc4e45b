//! Which jobs: the filter of several commands.

use fencehold_contract::job::JobFilter;
use fencehold_core::Owner;
use fencehold_core::job::{JobKind, JobState, QueueName};

use super::options::{Label, parse_label};
use crate::context::OpenStore;
use crate::failure::Failure;

const STATE_HELP: &str = "Only in this state (repeatable): queued, scheduled, running, completed, failed, cancelled, \
                          quarantined, in_doubt";

/// Which jobs. What is not named does not matter.
#[derive(Clone, Debug, clap::Args)]
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
        JobFilter {
            queue: self.queue,
            kind: self.kind,
            states: self.state,
            labels: self.label,
            owner: self.owner,
            payload_contains: self.payload_contains,
        }
    }

    /// Whether nothing was named.
    pub(super) fn is_empty(&self) -> bool {
        self.clone().filter() == JobFilter::default()
    }
}

/// How many jobs there are at most that match: counted by queue and state alone. For a progress bar.
pub(super) async fn at_most(store: &OpenStore, filter: &JobFilter) -> Result<u64, Failure> {
    let queues = store.ask(async |jobs, call| jobs.list_queues(call).await).await?;
    let states = if filter.states.is_empty() { &JobState::ALL[..] } else { &filter.states };
    let named = |queue: &QueueName| filter.queue.as_ref().is_none_or(|named| named == queue);
    Ok(queues
        .into_iter()
        .filter(|view| named(&view.name))
        .map(|mut view| states.iter().map(|state| *view.job_counts.of(*state)).sum::<u64>())
        .sum())
}
