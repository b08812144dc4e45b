//! `fencehold queue rm`: a queue that has no jobs and no schedules goes.

use fencehold_core::Owner;
use fencehold_core::job::QueueName;

use crate::context::Context;
use crate::failure::{ErrorKind, Failure};
use crate::identity;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold queue rm emails
";

const MORE: &str = "\
A queue that has jobs, also finished ones, or schedules is not deleted. One that is empty and open, and for which no \
claim waits, vanishes by itself.";

/// Delete a queue that has no jobs and no schedules
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// The queue
    #[arg(value_name = "QUEUE")]
    queue: QueueName,
    /// Who does it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        self.queue.check_open()?;
        let by = self.by.map_or_else(identity::person, Ok)?;
        let queue = self.queue;
        let store = context.open_to_look()?;
        let removed = store
            .closing(async |store| {
                let remove = async |jobs: &dyn fencehold_contract::JobStore,
                                    call: &fencehold_contract::CallContext| {
                    jobs.delete_queue(call, queue.clone(), by.clone()).await
                };
                store.ask(remove).await
            })
            .await?;
        if !removed {
            return Err(Failure::of_kind(ErrorKind::QueueNotFound, format!("there is no queue {queue}"))
                .with_next("`fencehold queue ls` lists the queues."));
        }
        context.output.done()?;
        Ok(DONE)
    }
}
