//! `fencehold schedule get`: one schedule.

use fencehold_contract::job::ScheduleView;
use fencehold_core::job::ScheduleName;

use crate::context::Context;
use crate::failure::{ErrorKind, Failure};
use crate::show::{facts, utc};
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold schedule get nightly
  fencehold schedule get nightly -o json | jq -r .next_run_at
";

/// Show a schedule: when it runs, and what it enqueues
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The schedule
    #[arg(value_name = "NAME")]
    name: ScheduleName,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let view = find(context, &self.name).await?;
        print(context, &view)?;
        Ok(DONE)
    }
}

/// The schedule of this name.
pub(super) async fn find(context: &Context, name: &ScheduleName) -> Result<ScheduleView, Failure> {
    let store = context.open_to_look()?;
    let schedules = store
        .closing(async |store| store.ask(async |jobs, call| jobs.list_schedules(call).await).await)
        .await?;
    schedules.into_iter().find(|view| view.spec.name == *name).ok_or_else(|| {
        Failure::of_kind(ErrorKind::ScheduleNotFound, format!("there is no schedule {name}"))
            .with_next("`fencehold schedule ls` lists the schedules.")
    })
}

pub(super) fn print(context: &Context, view: &ScheduleView) -> Result<(), Failure> {
    context.output.one(view, |style| {
        let spec = &view.spec;
        let moment = |ms: Option<u64>| ms.map_or_else(|| "never".to_owned(), utc);
        let labels: Vec<String> = spec.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut lines = vec![
            ("schedule", spec.name.to_string()),
            ("cron", spec.cron.clone()),
            ("time zone", spec.time_zone.clone()),
            ("next run", moment(view.next_run_at_ms)),
            ("last run", moment(view.last_run_at_ms)),
            ("queue", spec.queue.to_string()),
            ("kind", spec.kind.to_string()),
            ("payload", spec.payload.to_string()),
            ("retry", spec.options.retry.to_string()),
            ("set by", spec.by.to_string()),
        ];
        if !labels.is_empty() {
            lines.push(("labels", labels.join(", ")));
        }
        facts(style, lines)
    })
}
