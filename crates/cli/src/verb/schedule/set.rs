//! `fencehold schedule set`: create a schedule, or replace it.

use fencehold_contract::job::ScheduleSpec;
use fencehold_core::Owner;
use fencehold_core::job::schedule::{Cron, Zone};
use fencehold_core::job::{JobKind, QueueName, ScheduleName};

use super::get::print;
use crate::context::{Context, CreateStore};
use crate::identity;
use crate::verb::job::{JobArgs, Label, Payload, parse_label};
use crate::verb::{DONE, VerbResult};

const USAGE: &str = "\
fencehold schedule set [OPTIONS] <NAME>
         --cron <CRON> --queue <QUEUE> --kind <KIND>";

const EXAMPLES: &str = "\
Examples:
  fencehold schedule set nightly --cron '30 3 * * *' \\
    --time-zone Europe/Berlin --queue reports --kind build
  fencehold schedule set beat --cron '*/5 * * * *' --queue health --kind ping
";

const MORE: &str = "\
The cron expression has five fields: minute, hour, day of month, month, day of week. A run in the hour that is skipped in \
spring happens when the clock jumps; one that would come twice in autumn happens once, unless the hour field is *. Each \
run enqueues one job, however many processes there are. `fencehold schedule next` shows the next runs.";

/// Create a schedule, or replace the one of this name
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
#[command(override_usage = USAGE)]
pub(crate) struct Args {
    /// Its name
    #[arg(value_name = "NAME")]
    name: ScheduleName,
    /// When: a cron expression of five fields, or @daily and the like
    #[arg(long, value_name = "CRON")]
    cron: Cron,
    /// Its time zone, as in Europe/Berlin
    #[arg(long, default_value = "UTC")]
    time_zone: Zone,
    /// The queue of its jobs
    #[arg(long)]
    queue: QueueName,
    /// Their kind
    #[arg(long)]
    kind: JobKind,
    /// Their payload
    #[arg(long, value_name = "JSON", default_value = "null", allow_hyphen_values = true)]
    payload: Payload,
    /// Label, to find them by (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    label: Vec<Label>,
    /// Who sets it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
    #[command(flatten)]
    options: JobArgs,
    #[command(flatten)]
    create: CreateStore,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        self.queue.check_open()?;
        let spec = ScheduleSpec {
            name: self.name,
            cron: self.cron.to_string(),
            time_zone: self.time_zone.to_string(),
            queue: self.queue,
            kind: self.kind,
            payload: self.payload.0,
            options: self.options.options()?,
            labels: self.label,
            by: self.by.map_or_else(identity::person, Ok)?,
        };
        let store = context.open(self.create)?;
        let view = store
            .closing(async |store| {
                store.ask(async |jobs, call| jobs.set_schedule(call, spec.clone()).await).await
            })
            .await?;
        print(context, &view)?;
        Ok(DONE)
    }
}
