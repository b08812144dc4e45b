//! `fencehold queue ls`: what each queue does, and how many jobs it has.

use fencehold_contract::job::{QueueMode, QueueView};

use crate::context::Context;
use crate::show::{Cell, Colour, Table};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold queue ls
  fencehold queue ls -o jsonl | jq -r 'select(.counts.failed > 0).queue'
";

/// List queues: what they do, and how many jobs they have in which state
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open_to_look()?;
        let queues = store
            .closing(async |store| store.ask(async |jobs, call| jobs.list_queues(call).await).await)
            .await?;
        context.output.many(&queues, "no queues", || table(&queues))?;
        Ok(DONE)
    }
}

pub(super) fn table(queues: &[QueueView]) -> Table {
    let mut table = Table::new([
        "QUEUE",
        "MODE",
        "QUEUED",
        "SCHEDULED",
        "RUNNING",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "QUARANTINED",
        "INDETERMINATE",
        "CLAIMERS",
    ]);
    for QueueView { name: queue, mode, job_counts: counts, waiting_claim_count: claimers, .. } in queues {
        let mode_colour = if *mode == QueueMode::Open { Colour::Good } else { Colour::Warning };
        // What waits for a person should catch the eye.
        let alarm =
            |count: u64| Cell::from(count).in_colour(if count > 0 { Colour::Bad } else { Colour::Plain });
        table.row([
            queue.as_str().into(),
            Cell::from(mode.name()).in_colour(mode_colour),
            counts.queued.into(),
            counts.scheduled.into(),
            counts.running.into(),
            counts.completed.into(),
            alarm(counts.failed),
            counts.cancelled.into(),
            alarm(counts.quarantined),
            alarm(counts.in_doubt),
            (*claimers).into(),
        ]);
    }
    table
}
