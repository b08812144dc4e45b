//! Telling a queue what to do.

use fencehold_contract::job::{QueueMode, SetQueueModeRequest};
use fencehold_core::Owner;
use fencehold_core::job::QueueName;

use super::ls::table;
use crate::context::{Context, Create};
use crate::identity;
use crate::verb::{DONE, Outcome};

/// Which queue, and who says so.
#[derive(Debug, clap::Args)]
pub(super) struct Order {
    /// Which queue
    #[arg(value_name = "QUEUE")]
    queue: QueueName,
    /// Who does it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
    #[command(flatten)]
    create: Create,
}

impl Order {
    pub(super) async fn give(self, context: &Context, mode: QueueMode) -> Outcome {
        self.queue.check_open()?;
        let by = self.by.map_or_else(identity::person, Ok)?;
        let order = SetQueueModeRequest { queue: self.queue, mode, by };
        let store = context.open(self.create)?;
        let view = store
            .closing(async |store| {
                store
                    .ask(async |jobs, call| jobs.set_queue_mode(call, order.clone()).await)
                    .await
            })
            .await?;
        context
            .output
            .one(&view, |palette| table(std::slice::from_ref(&view)).render(palette))?;
        Ok(DONE)
    }
}
