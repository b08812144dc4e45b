//! Changing what a queue does.

use fencehold_contract::job::{QueueMode, SetQueueModeRequest};
use fencehold_core::Owner;
use fencehold_core::job::QueueName;

use super::get::print;
use crate::context::{Context, CreateStore};
use crate::identity;
use crate::verb::{DONE, VerbResult};

/// Which queue, and who changes it.
#[derive(Debug, clap::Args)]
pub(super) struct ModeArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    queue: QueueName,
    /// Who does it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
    #[command(flatten)]
    create: CreateStore,
}

impl ModeArgs {
    pub(super) async fn set(self, context: &Context, mode: QueueMode) -> VerbResult {
        self.queue.check_open()?;
        let by = self.by.map_or_else(identity::person, Ok)?;
        let request = SetQueueModeRequest { queue: self.queue, mode, by };
        let store = context.open(self.create)?;
        let view = store
            .closing(async |store| {
                store
                    .ask(async |jobs, call| jobs.set_queue_mode(call, request.clone()).await)
                    .await
            })
            .await?;
        print(context, &view)?;
        Ok(DONE)
    }
}
