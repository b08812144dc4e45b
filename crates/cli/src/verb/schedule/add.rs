//! `fencehold schedule add`: make a schedule, or change it.

use fencehold_contract::job::ScheduleSpec;
use fencehold_core::Owner;
use fencehold_core::job::schedule::{Cron, Zone};
use fencehold_core::job::{JobKind, QueueName, ScheduleName};

use super::ls::{Entry, table};
use crate::context::{Context, Create};
use crate::identity;
use crate::verb::job::{Label, Payload, TermsArgs, parse_label};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold schedule add nightly --cron '30 3 * * *' --zone Europe/Berlin --queue reports --kind build
  fencehold schedule add beat --cron '*/5 * * * *' --queue health --kind ping --payload '{\"to\":\"all\"}'
";

const MORE: &str = "\
A line has five fields: minute, hour, day of the month, month, day of the week. What falls into the hour that is skipped \
in spring fires when the clock jumps; what would come twice in autumn fires once, unless the hours are a *. Each \
firing enqueues one job, however many processes there are. `fencehold schedule next` shows when a line is due.";

/// Make a schedule, or change the one of this name
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// Its name
    #[arg(value_name = "NAME")]
    name: ScheduleName,
    /// When: a cron line of five fields, or @daily and the like
    #[arg(long, value_name = "LINE")]
    cron: Cron,
    /// By whose clock: an IANA name like Europe/Berlin
    #[arg(long, default_value = "UTC")]
    zone: Zone,
    /// Where its jobs stand in line
    #[arg(long)]
    queue: QueueName,
    /// What they are
    #[arg(long)]
    kind: JobKind,
    /// What they are about
    #[arg(long, value_name = "JSON", default_value = "null", allow_hyphen_values = true)]
    payload: Payload,
    /// For finding them again (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    label: Vec<Label>,
    /// Who makes it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
    #[command(flatten)]
    terms: TermsArgs,
    #[command(flatten)]
    create: Create,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        self.queue.check_open()?;
        let spec = ScheduleSpec {
            name: self.name,
            cron: self.cron.to_string(),
            time_zone: self.zone.to_string(),
            queue: self.queue,
            kind: self.kind,
            payload: self.payload.0,
            options: self.terms.terms()?,
            labels: self.label,
            by: self.by.map_or_else(identity::person, Ok)?,
        };
        let store = context.open(self.create)?;
        let view = store
            .closing(async |store| {
                store.ask(async |jobs, call| jobs.set_schedule(call, spec.clone()).await).await
            })
            .await?;
        context
            .output
            .one(&Entry::from(&view), |palette| table(std::slice::from_ref(&view)).render(palette))?;
        Ok(DONE)
    }
}
