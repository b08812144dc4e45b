//! `fencehold queue …`.

use fencehold_contract::job::{JobCounts, QueueMode, QueueView, SetQueueModeRequest};
use fencehold_core::job::{JobState, QueueName};

use crate::context::{Context, CreateStore};
use crate::failure::{ErrorKind, Failure};
use crate::identity::ByArgs;
use crate::show::{Cell, Colour, Table, facts};
use crate::verb::{VerbResult, verbs};

verbs! {
    /// List, pause, resume, drain and delete queues
    #[command(before_help = "\
fencehold queue ls
fencehold queue pause emails
fencehold queue resume emails")]
    Verb:
    Ls = LsArgs,
    Get = GetArgs,
    /// Pause a queue: it takes jobs and hands out none
    #[command(before_help = "fencehold queue pause emails")]
    Pause = ModeArgs => set(QueueMode::Paused),
    /// Resume a queue: it takes jobs and hands them out again
    #[command(before_help = "fencehold queue resume emails")]
    Resume = ModeArgs => set(QueueMode::Open),
    /// Drain a queue: it takes no new jobs and hands out those it has
    #[command(before_help = "fencehold queue drain emails")]
    Drain = ModeArgs => set(QueueMode::Draining),
    Rm = RmArgs,
}

/// List queues: their mode, and how many unfinished jobs they have
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold queue ls
fencehold queue ls -o jsonl | jq -r 'select(.job_counts.failed > 0).name'")]
pub(crate) struct LsArgs {}

impl LsArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let list = context.ask(async |jobs, call| jobs.list_queues(call).await).await?;
        context.output.list(&list, &list.queues, "no queues", table)
    }
}

fn table(queues: &[QueueView]) -> Table {
    let header = ["QUEUE", "MODE", "QUEUED", "SCHEDULED", "RUNNING", "FAILED", "QUARANTINED", "IN DOUBT"];
    Table::of(header, queues, |QueueView { name, mode, job_counts, .. }| {
        let mode_colour = if *mode == QueueMode::Open { Colour::Good } else { Colour::Warning };
        // What a person has to look at should catch the eye.
        let alarm =
            |count: u64| Cell::from(count).in_colour(if count > 0 { Colour::Bad } else { Colour::Plain });
        [
            name.as_str().into(),
            Cell::from(mode.name()).in_colour(mode_colour),
            job_counts.queued.into(),
            job_counts.scheduled.into(),
            job_counts.running.into(),
            alarm(job_counts.failed),
            alarm(job_counts.quarantined),
            alarm(job_counts.in_doubt),
        ]
    })
}

/// Show a queue: its mode, and how many jobs it has in each state
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold queue get emails
fencehold queue get emails -o json | jq .job_counts.failed")]
pub(crate) struct GetArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    queue: QueueName,
}

impl GetArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let list = context.ask(async |jobs, call| jobs.list_queues(call).await).await?;
        let found = list.queues.into_iter().find(|view| view.name == self.queue);
        // One that nothing is kept of is open and empty.
        let view = found.unwrap_or(QueueView {
            name: self.queue,
            mode: QueueMode::Open,
            job_counts: JobCounts::default(),
            waiting_claim_count: 0,
        });
        print(context, &view)
    }
}

fn print(context: &Context, view: &QueueView) -> VerbResult {
    context.output.one(view, |style| {
        let counts = view.job_counts;
        let counts = JobState::ALL.map(|state| (state.name(), counts.get(state).to_string()));
        let lines = [("queue", view.name.to_string()), ("mode", view.mode.name().to_owned())];
        let waiting = [("waiting claims", view.waiting_claim_count.to_string())];
        facts(style, lines.into_iter().chain(counts).chain(waiting))
    })
}

// Which queue, and who changes what it does.
#[derive(Debug, clap::Args)]
pub(crate) struct ModeArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    queue: QueueName,
    #[command(flatten)]
    by: ByArgs,
    #[command(flatten)]
    create: CreateStore,
}

impl ModeArgs {
    async fn set(self, context: &Context, mode: QueueMode) -> VerbResult {
        self.queue.check_open()?;
        let request = SetQueueModeRequest { queue: self.queue, mode, by: self.by.owner()? };
        let store = context.open(self.create)?;
        let view = store
            .ask_and_close(async |jobs, call| jobs.set_queue_mode(call, request.clone()).await)
            .await?;
        print(context, &view)
    }
}

/// Delete a queue that has no jobs and no schedules
#[derive(Debug, clap::Args)]
#[command(before_help = "fencehold queue rm emails")]
#[command(after_help = "\
A queue that has jobs, also finished ones, or schedules is not deleted. One that is empty and open, and for which no \
claim waits, vanishes by itself.")]
pub(crate) struct RmArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    queue: QueueName,
    #[command(flatten)]
    by: ByArgs,
}

impl RmArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        self.queue.check_open()?;
        let (queue, by) = (self.queue, self.by.owner()?);
        let removed = context
            .ask(async |jobs, call| jobs.delete_queue(call, queue.clone(), by.clone()).await)
            .await?;
        if !removed {
            return Err(Failure::of_kind(ErrorKind::QueueNotFound, format!("there is no queue {queue}"))
                .with_next("`fencehold queue ls` lists the queues."));
        }
        context.output.done()
    }
}
