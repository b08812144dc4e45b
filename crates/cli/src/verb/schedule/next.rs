//! `fencehold schedule next`: when a schedule, or a cron expression, is due.

use clap::ArgGroup;
use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_core::job::ScheduleName;
use fencehold_core::job::schedule::{Cron, Zone};
use fencehold_core::wire::Moment;
use serde::Serialize;

use super::get::find;
use crate::context::Context;
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::show::{Table, utc};
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold schedule next nightly
  # Try an expression before it is used
  fencehold schedule next --cron '30 2 * * SUN' \\
    --time-zone Europe/Berlin --count 10
";

/// Show the next runs of a schedule, or of a cron expression
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
#[command(group = ArgGroup::new("which").required(true).args(["name", "cron"]))]
pub(crate) struct Args {
    /// Of this schedule
    #[arg(value_name = "NAME")]
    name: Option<ScheduleName>,
    /// Of this cron expression
    #[arg(long, value_name = "CRON")]
    cron: Option<Cron>,
    /// Its time zone
    #[arg(long, default_value = "UTC", conflicts_with = "name")]
    time_zone: Zone,
    /// How many runs
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

#[derive(Debug, Serialize)]
struct Runs {
    runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
struct Run {
    at: Moment,
    /// What the clock of the time zone shows then.
    local: String,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let (cron, zone) = match (self.cron, &self.name) {
            (Some(cron), _) => (cron, self.time_zone),
            (None, Some(name)) => kept(context, name).await?,
            (None, None) => return Err(Failure::new(ExitStatus::Usage, "name a schedule, or give --cron")),
        };
        let mut runs = Vec::new();
        let mut after_ms = SystemClock.now().wall_ms;
        for _ in 0..self.count {
            let Some(at_ms) = cron.next_after(after_ms, &zone) else { break };
            runs.push(Run { at: Moment { wall_ms: at_ms }, local: zone.show(at_ms) });
            after_ms = at_ms;
        }
        let nothing = format!("{cron} never comes to pass");
        let runs = Runs { runs };
        context.output.list(&runs, &runs.runs, &nothing, || table(&runs.runs))?;
        Ok(DONE)
    }
}

/// The expression and the time zone of a schedule that a store has.
async fn kept(context: &Context, name: &ScheduleName) -> Result<(Cron, Zone), Failure> {
    let spec = find(context, name).await?.spec;
    Ok((Cron::parse(&spec.cron)?, Zone::parse(&spec.time_zone)?))
}

fn table(runs: &[Run]) -> Table {
    let mut table = Table::new(["UTC", "LOCAL"]);
    for run in runs {
        table.row([utc(run.at.wall_ms).into(), run.local.as_str().into()]);
    }
    table
}
