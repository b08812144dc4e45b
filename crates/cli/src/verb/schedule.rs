//! `fencehold schedule …`: jobs that are enqueued by the clock.

use clap::ArgGroup;
use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::http::ScheduleList;
use fencehold_contract::job::{ScheduleSpec, ScheduleView};
use fencehold_core::Owner;
use fencehold_core::job::schedule::{Cron, Zone};
use fencehold_core::job::{JobKind, QueueName, ScheduleName};
use fencehold_core::wire::Moment;
use serde::Serialize;

use crate::context::{Context, CreateStore};
use crate::failure::{ErrorKind, Failure};
use crate::identity::{self, ByArgs};
use crate::show::{Table, facts, labels, or_dash, utc};
use crate::verb::job::{JobArgs, Label, Payload, parse_label};
use crate::verb::{VerbResult, verbs};

verbs! {
    /// Enqueue jobs by the clock: cron expressions with time zones
    #[command(before_help = "\
fencehold schedule set nightly --cron '30 3 * * *' \\
  --time-zone Europe/Berlin --queue reports --kind build
fencehold schedule ls
fencehold schedule next nightly")]
    Verb:
    Set = SetArgs,
    Ls = LsArgs,
    Get = GetArgs,
    Rm = RmArgs,
    Next = NextArgs,
}

/// Create a schedule, or replace the one of this name
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold schedule set nightly --cron '30 3 * * *' \\
  --time-zone Europe/Berlin --queue reports --kind build
fencehold schedule set beat --cron '*/5 * * * *' --queue health --kind ping")]
#[command(after_help = "\
The cron expression has five fields: minute, hour, day of month, month, day of week. A run in the hour that is skipped in \
spring happens when the clock jumps; one that would come twice in autumn happens once, unless the hour field is *. Each \
run enqueues one job, however many processes there are. `fencehold schedule next` shows the next runs.")]
#[command(override_usage = "\
fencehold schedule set [OPTIONS] <NAME>
         --cron <CRON> --queue <QUEUE> --kind <KIND>")]
pub(crate) struct SetArgs {
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

impl SetArgs {
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
            .ask_and_close(async |jobs, call| jobs.set_schedule(call, spec.clone()).await)
            .await?;
        print(context, &view)
    }
}

/// List schedules: when each runs next, and what it enqueues
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold schedule ls
fencehold schedule ls -o jsonl | jq -r .next_run_at")]
pub(crate) struct LsArgs {}

impl LsArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let schedules = context.ask(async |jobs, call| jobs.list_schedules(call).await).await?;
        let list = ScheduleList { schedules };
        context.output.list(&list, &list.schedules, "no schedules", table)
    }
}

fn table(schedules: &[ScheduleView]) -> Table {
    let header = ["NAME", "CRON", "TIME ZONE", "QUEUE", "KIND", "NEXT RUN"];
    Table::of(header, schedules, |ScheduleView { spec, next_run_at_ms, .. }| {
        [
            spec.name.as_str().into(),
            spec.cron.as_str().into(),
            spec.time_zone.as_str().into(),
            spec.queue.as_str().into(),
            spec.kind.as_str().into(),
            or_dash(next_run_at_ms.map(utc)),
        ]
    })
}

/// Show a schedule: when it runs, and what it enqueues
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold schedule get nightly
fencehold schedule get nightly -o json | jq -r .next_run_at")]
pub(crate) struct GetArgs {
    /// The schedule
    #[arg(value_name = "NAME")]
    name: ScheduleName,
}

impl GetArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        print(context, &find(context, &self.name).await?)
    }
}

/// The schedule of this name.
async fn find(context: &Context, name: &ScheduleName) -> Result<ScheduleView, Failure> {
    let schedules = context.ask(async |jobs, call| jobs.list_schedules(call).await).await?;
    let found = schedules.into_iter().find(|view| view.spec.name == *name);
    found.ok_or_else(|| not_found(name))
}

fn not_found(name: &ScheduleName) -> Failure {
    Failure::of_kind(ErrorKind::ScheduleNotFound, format!("there is no schedule {name}"))
        .with_next("`fencehold schedule ls` lists the schedules.")
}

fn print(context: &Context, view: &ScheduleView) -> VerbResult {
    context.output.one(view, |style| {
        let spec = &view.spec;
        let moment = |ms: Option<u64>| ms.map_or_else(|| "never".to_owned(), utc);
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
        lines.extend(labels(&spec.labels).map(|labels| ("labels", labels)));
        facts(style, lines)
    })
}

/// Delete a schedule; the jobs that it has enqueued stay
#[derive(Debug, clap::Args)]
#[command(before_help = "fencehold schedule rm nightly")]
pub(crate) struct RmArgs {
    /// The schedule
    #[arg(value_name = "NAME")]
    name: ScheduleName,
    #[command(flatten)]
    by: ByArgs,
}

impl RmArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let (name, by) = (self.name, self.by.owner()?);
        let removed = context
            .ask(async |jobs, call| jobs.delete_schedule(call, name.clone(), by.clone()).await)
            .await?;
        if removed { context.output.done() } else { Err(not_found(&name)) }
    }
}

/// Show the next runs of a schedule, or of a cron expression
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold schedule next nightly
# Try an expression before it is used
fencehold schedule next --cron '30 2 * * SUN' \\
  --time-zone Europe/Berlin --count 10")]
#[command(group = ArgGroup::new("which").required(true).args(["name", "cron"]))]
pub(crate) struct NextArgs {
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

impl NextArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let (cron, zone) = match (self.cron, &self.name) {
            (Some(cron), _) => (cron, self.time_zone),
            (None, Some(name)) => {
                let spec = find(context, name).await?.spec;
                (Cron::parse(&spec.cron)?, Zone::parse(&spec.time_zone)?)
            }
            (None, None) => return Err(Failure::usage("name a schedule, or give --cron")),
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
        context.output.list(&runs, &runs.runs, &nothing, |runs| {
            Table::of(["UTC", "LOCAL"], runs, |run| [utc(run.at.wall_ms).into(), run.local.as_str().into()])
        })
    }
}
