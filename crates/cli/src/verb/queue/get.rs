//! `fencehold queue get`: one queue.

use fencehold_contract::job::{JobCounts, QueueMode, QueueView};
use fencehold_core::job::{JobState, QueueName};

use crate::context::Context;
use crate::failure::Failure;
use crate::show::facts;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold queue get emails
  fencehold queue get emails -o json | jq .job_counts.failed
";

/// Show a queue: its mode, and how many jobs it has in each state
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The queue
    #[arg(value_name = "QUEUE")]
    queue: QueueName,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        let queues = store
            .closing(async |store| store.ask(async |jobs, call| jobs.list_queues(call).await).await)
            .await?;
        let found = queues.into_iter().find(|view| view.name == self.queue);
        // One that nothing is kept of is open and empty.
        let view = found.unwrap_or(QueueView {
            name: self.queue,
            mode: QueueMode::Open,
            job_counts: JobCounts::default(),
            waiting_claim_count: 0,
        });
        print(context, &view)?;
        Ok(DONE)
    }
}

pub(super) fn print(context: &Context, view: &QueueView) -> Result<(), Failure> {
    context.output.one(view, |style| {
        let mut counts = view.job_counts;
        let counts = JobState::ALL.map(|state| (state.name(), counts.of(state).to_string()));
        let lines = [("queue", view.name.to_string()), ("mode", view.mode.name().to_owned())];
        let waiting = [("waiting claims", view.waiting_claim_count.to_string())];
        facts(style, lines.into_iter().chain(counts).chain(waiting))
    })
}
