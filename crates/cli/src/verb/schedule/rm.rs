//! `fencehold schedule rm`: a schedule fires no more.

use fencehold_core::Owner;
use fencehold_core::job::ScheduleName;

use crate::context::Context;
use crate::failure::{ErrorKind, Failure};
use crate::identity;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold schedule rm nightly
";

/// Delete a schedule; the jobs that it has enqueued stay
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The schedule
    #[arg(value_name = "NAME")]
    name: ScheduleName,
    /// Who does it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let by = self.by.map_or_else(identity::person, Ok)?;
        let name = self.name;
        let store = context.open_to_look()?;
        let removed = store
            .closing(async |store| {
                let remove = async |jobs: &dyn fencehold_contract::JobStore,
                                    call: &fencehold_contract::CallContext| {
                    jobs.delete_schedule(call, name.clone(), by.clone()).await
                };
                store.ask(remove).await
            })
            .await?;
        if !removed {
            return Err(Failure::of_kind(
                ErrorKind::ScheduleNotFound,
                format!("there is no schedule {name}"),
            )
            .with_next("`fencehold schedule ls` lists the schedules."));
        }
        context.output.done()?;
        Ok(DONE)
    }
}
