//! `fencehold schedule next`: when a schedule, or a cron line, is due.

use clap::ArgGroup;
use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_core::job::ScheduleName;
use fencehold_core::job::schedule::{Cron, Zone};
use serde::Serialize;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::show::{Table, utc};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold schedule next nightly
  # Try a line before it is used
  fencehold schedule next --cron '30 2 * * SUN' --zone Europe/Berlin --count 10
";

/// Show when a schedule, or a cron line, fires next
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
#[command(group = ArgGroup::new("which").required(true).args(["name", "cron"]))]
pub(crate) struct Args {
    /// Of this schedule
    #[arg(value_name = "NAME")]
    name: Option<ScheduleName>,
    /// Of this line
    #[arg(long, value_name = "LINE")]
    cron: Option<Cron>,
    /// By whose clock the line is read
    #[arg(long, default_value = "UTC", conflicts_with = "name")]
    zone: Zone,
    /// How many firings
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

#[derive(Debug, Serialize)]
struct Firing {
    at: String,
    at_wall_ms: u64,
    /// What the clock of the zone shows then.
    local: String,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        context.output.refuse_env()?;
        let (cron, zone) = match (self.cron, &self.name) {
            (Some(cron), _) => (cron, self.zone),
            (None, Some(name)) => kept(context, name).await?,
            (None, None) => return Err(Failure::new(Exit::Usage, "name a schedule, or give a line")),
        };
        let mut firings = Vec::new();
        let mut after_ms = SystemClock.now().wall_ms;
        for _ in 0..self.count {
            let Some(at_ms) = cron.next_after(after_ms, &zone) else { break };
            firings.push(Firing { at: utc(at_ms), at_wall_ms: at_ms, local: zone.show(at_ms) });
            after_ms = at_ms;
        }
        let nothing = format!("{cron} never comes to pass");
        context.output.many(&firings, &nothing, || table(&firings))?;
        Ok(DONE)
    }
}

/// The line and the zone of a schedule that a store has.
async fn kept(context: &Context, name: &ScheduleName) -> Result<(Cron, Zone), Failure> {
    let store = context.open_to_look()?;
    let schedules = store
        .closing(async |store| store.ask(async |jobs, call| jobs.list_schedules(call).await).await)
        .await?;
    let found = schedules.into_iter().find(|view| view.spec.name == *name);
    let spec = found.map(|view| view.spec).ok_or_else(|| {
        Failure::new(Exit::Failed, format!("there is no schedule {name}"))
            .with_next("`fencehold schedule ls` lists the schedules there are.")
    })?;
    Ok((Cron::parse(&spec.cron)?, Zone::parse(&spec.time_zone)?))
}

fn table(firings: &[Firing]) -> Table {
    let mut table = Table::new(["UTC", "LOCAL"]);
    for firing in firings {
        table.row([firing.at.as_str().into(), firing.local.as_str().into()]);
    }
    table
}
