//! `fencehold schedule ls`: what is enqueued when.

use fencehold_contract::job::ScheduleView;
use fencehold_core::job::{JobKind, JobOptions, QueueName, ScheduleName};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::context::Context;
use crate::show::{Table, or_dash, utc};
use crate::verb::job::{Label, raw};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold schedule ls
  fencehold schedule ls -o json
";

/// List schedules: when each fires next, and what it enqueues
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {}

/// A schedule as programs read it.
#[derive(Debug, Serialize)]
pub(super) struct Entry<'a> {
    name: &'a ScheduleName,
    cron: &'a str,
    zone: &'a str,
    queue: &'a QueueName,
    kind: &'a JobKind,
    payload: Box<RawValue>,
    terms: JobOptions,
    labels: &'a [Label],
    by: &'a str,
    next: Option<String>,
    next_wall_ms: Option<u64>,
    last: Option<String>,
    last_wall_ms: Option<u64>,
}

impl<'a> From<&'a ScheduleView> for Entry<'a> {
    fn from(view: &'a ScheduleView) -> Self {
        let spec = &view.spec;
        Entry {
            name: &spec.name,
            cron: &spec.cron,
            zone: &spec.time_zone,
            queue: &spec.queue,
            kind: &spec.kind,
            payload: raw(&spec.payload),
            terms: spec.options,
            labels: &spec.labels,
            by: spec.by.as_str(),
            next: view.next_run_at_ms.map(utc),
            next_wall_ms: view.next_run_at_ms,
            last: view.last_run_at_ms.map(utc),
            last_wall_ms: view.last_run_at_ms,
        }
    }
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open_to_look()?;
        let schedules = store
            .closing(async |store| store.ask(async |jobs, call| jobs.list_schedules(call).await).await)
            .await?;
        let entries: Vec<Entry<'_>> = schedules.iter().map(Entry::from).collect();
        context.output.many(&entries, "no schedules", || table(&schedules))?;
        Ok(DONE)
    }
}

pub(super) fn table(schedules: &[ScheduleView]) -> Table {
    let mut table = Table::new(["NAME", "CRON", "ZONE", "QUEUE", "KIND", "NEXT", "LAST", "BY"]);
    for ScheduleView { spec, next_run_at_ms: next_wall_ms, last_run_at_ms: last_wall_ms, .. } in schedules {
        table.row([
            spec.name.as_str().into(),
            spec.cron.as_str().into(),
            spec.time_zone.as_str().into(),
            spec.queue.as_str().into(),
            spec.kind.as_str().into(),
            or_dash(next_wall_ms.map(utc)),
            or_dash(last_wall_ms.map(utc)),
            spec.by.as_str().into(),
        ]);
    }
    table
}
