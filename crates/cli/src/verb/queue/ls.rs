//! `fencehold queue ls`: what each queue does, and how many jobs it has.

use fencehold_contract::http::QueueList;
use fencehold_contract::job::{QueueMode, QueueView};

use crate::context::Context;
use crate::show::{Cell, Colour, Table};
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold queue ls
  fencehold queue ls -o jsonl | jq -r 'select(.job_counts.failed > 0).name'
";

/// List queues: their mode, and how many unfinished jobs they have
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        let queues = store
            .closing(async |store| store.ask(async |jobs, call| jobs.list_queues(call).await).await)
            .await?;
        let list = QueueList { queues };
        context.output.list(&list, &list.queues, "no queues", || table(&list.queues))?;
        Ok(DONE)
    }
}

fn table(queues: &[QueueView]) -> Table {
    let mut table =
        Table::new(["QUEUE", "MODE", "QUEUED", "SCHEDULED", "RUNNING", "FAILED", "QUARANTINED", "IN DOUBT"]);
    for QueueView { name, mode, job_counts, .. } in queues {
        let mode_colour = if *mode == QueueMode::Open { Colour::Good } else { Colour::Warning };
        // What a person has to look at should catch the eye.
        let alarm =
            |count: u64| Cell::from(count).in_colour(if count > 0 { Colour::Bad } else { Colour::Plain });
        table.row([
            name.as_str().into(),
            Cell::from(mode.name()).in_colour(mode_colour),
            job_counts.queued.into(),
            job_counts.scheduled.into(),
            job_counts.running.into(),
            alarm(job_counts.failed),
            alarm(job_counts.quarantined),
            alarm(job_counts.in_doubt),
        ]);
    }
    table
}
