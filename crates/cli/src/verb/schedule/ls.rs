//! `fencehold schedule ls`: what is enqueued when.

use fencehold_contract::http::ScheduleList;
use fencehold_contract::job::ScheduleView;

use crate::context::Context;
use crate::show::{Table, or_dash, utc};
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold schedule ls
  fencehold schedule ls -o jsonl | jq -r .next_run_at
";

/// List schedules: when each runs next, and what it enqueues
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        let schedules = store
            .closing(async |store| store.ask(async |jobs, call| jobs.list_schedules(call).await).await)
            .await?;
        let list = ScheduleList { schedules };
        context
            .output
            .list(&list, &list.schedules, "no schedules", || table(&list.schedules))?;
        Ok(DONE)
    }
}

fn table(schedules: &[ScheduleView]) -> Table {
    let mut table = Table::new(["NAME", "CRON", "TIME ZONE", "QUEUE", "KIND", "NEXT RUN"]);
    for ScheduleView { spec, next_run_at_ms, .. } in schedules {
        table.row([
            spec.name.as_str().into(),
            spec.cron.as_str().into(),
            spec.time_zone.as_str().into(),
            spec.queue.as_str().into(),
            spec.kind.as_str().into(),
            or_dash(next_run_at_ms.map(utc)),
        ]);
    }
    table
}
