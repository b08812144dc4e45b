//! What stands in the rows of each list: which columns there are, and what is in them.

use fencehold_contract::LeaseView;
use fencehold_contract::job::{JobView, QueueMode, QueueView};
use fencehold_core::job::{JobId, JobState};
use fencehold_core::{Event, EventData, Key, Owner};

use super::query::term;
use super::state::Tab;
use super::workers::Worker;
use crate::duration::show_ms;
use crate::follow::{Sentence, how_colour, state_colour};
use crate::show::{Colour, utc};

/// A column: its title, its width, and how many columns the terminal must have for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: Width,
    pub(super) is_number: bool,
    /// Narrower terminals do without it.
    pub(super) from_columns: u16,
}

/// How wide a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Fixed(u16),
    /// A share of what is left.
    Share(u16),
}

/// A text, and how it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) colour: Colour,
}

impl Cell {
    pub(super) fn new(text: impl ToString, colour: Colour) -> Self {
        Cell { text: text.to_string(), colour }
    }

    fn plain(text: impl ToString) -> Self {
        Cell::new(text, Colour::Plain)
    }

    fn dash() -> Self {
        Cell::new("-", Colour::Faint)
    }

    fn or_dash(text: Option<impl ToString>) -> Self {
        text.map_or_else(Cell::dash, Cell::plain)
    }

    /// A number that is faint where there is none of it.
    fn count(count: u64, colour: Colour) -> Self {
        Cell::new(count, if count == 0 { Colour::Faint } else { colour })
    }
}

/// From how many columns on a terminal is wide.
pub(super) const WIDE: u16 = 100;

const fn text(title: &'static str, share: u16) -> Column {
    Column { title, width: Width::Share(share), is_number: false, from_columns: 0 }
}

const fn fixed(title: &'static str, width: u16) -> Column {
    Column { title, width: Width::Fixed(width), is_number: false, from_columns: 0 }
}

const fn number(title: &'static str, width: u16) -> Column {
    Column { is_number: true, ..fixed(title, width) }
}

const fn wide(column: Column) -> Column {
    Column { from_columns: WIDE, ..column }
}

const LEASES: &[Column] = &[
    text("KEY", 3),
    text("OWNER", 2),
    wide(text("TASK", 1)),
    number("TOKEN", 7),
    number("HELD FOR", 8),
    number("LEFT", 6),
    number("LINE", 4),
    wide(fixed("STATE", 17)),
];
const QUEUES: &[Column] = &[
    text("QUEUE", 1),
    fixed("MODE", 8),
    number("QUEUED", 8),
    number("SCHEDULED", 9),
    number("RUNNING", 7),
    number("FAILED", 7),
    number("STUCK", 6),
    wide(number("WAITING CLAIMS", 14)),
    wide(number("COMPLETED", 10)),
];
const JOBS: &[Column] = &[
    fixed("JOB", 13),
    fixed("STATE", 11),
    text("QUEUE", 1),
    text("KIND", 1),
    text("WORKER", 1),
    number("SINCE", 8),
    number("TRIES", 5),
];
const WORKERS: &[Column] = &[
    text("WORKER", 1),
    number("LEASES", 6),
    number("JOBS", 5),
    number("RENEWED", 8),
    number("LEAST LEFT", 10),
    number("LOST", 4),
    number("LAST LOST", 9),
    wide(number("LAST SEEN", 9)),
];
const EVENTS: &[Column] =
    &[fixed("TIME", 8), text("KEY", 2), fixed("EVENT", 19), number("TOKEN", 6), text("DETAIL", 3)];

/// The columns of a list.
pub(super) fn columns(tab: Tab) -> &'static [Column] {
    match tab {
        Tab::Leases => LEASES,
        Tab::Queues => QUEUES,
        Tab::Jobs => JOBS,
        Tab::Workers => WORKERS,
        Tab::Events => EVENTS,
    }
}

/// A row of a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Row<'a> {
    Lease(&'a LeaseView),
    Queue(&'a QueueView),
    Job(&'a JobView),
    Worker(&'a Owner, &'a Worker),
    Event(&'a Event),
}

/// What a row leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Lease(Key),
    Job(JobId),
    /// A list with a filter.
    List(Tab, String),
}

/// The job whose events have this key.
pub(super) fn job_of(key: &Key) -> Option<JobId> {
    key.as_str().strip_prefix("job/")?.parse().ok()
}

impl Row<'_> {
    /// What it is known by from one picture to the next.
    pub(super) fn id(&self) -> String {
        match self {
            Row::Lease(lease) => lease.key.to_string(),
            Row::Queue(queue) => queue.name.to_string(),
            Row::Job(job) => job.id.to_string(),
            Row::Worker(owner, _) => owner.to_string(),
            Row::Event(event) => event.seq.to_string(),
        }
    }

    pub(super) fn target(&self) -> Option<Target> {
        Some(match self {
            Row::Lease(lease) => Target::Lease(lease.key.clone()),
            Row::Queue(queue) => Target::List(Tab::Jobs, term("queue", queue.name.as_str())),
            Row::Job(job) => Target::Job(job.id),
            Row::Worker(owner, _) => Target::List(Tab::Leases, term("owner", owner.as_str())),
            Row::Event(event) => match (&event.data, job_of(&event.key)) {
                (_, Some(job)) => Target::Job(job),
                (EventData::QueueChanged { queue, .. }, _) => {
                    Target::List(Tab::Jobs, term("queue", queue.as_str()))
                }
                (EventData::ScheduleFired { .. }, _) => return None,
                _ => Target::Lease(event.key.clone()),
            },
        })
    }

    /// Whether a text is in what is shown of it. What the store has filtered already is not looked at.
    pub(super) fn contains(&self, text: &str) -> bool {
        let has = |texts: &[&str]| texts.iter().any(|shown| shown.contains(text));
        match self {
            Row::Lease(_) => true,
            Row::Queue(queue) => has(&[queue.name.as_str()]),
            Row::Job(job) => {
                let owner = job.runner.as_ref().map_or("", |runner| runner.owner.as_str());
                has(&[&job.id.to_string(), job.kind.as_str(), job.queue.as_str(), owner])
            }
            Row::Worker(owner, _) => has(&[owner.as_str()]),
            Row::Event(event) => {
                let said = Sentence::of(&event.data);
                has(&[event.key.as_str(), &said.what, &said.detail])
            }
        }
    }

    /// Its cells, one for each column.
    pub(super) fn cells(&self, now_ms: u64) -> Vec<Cell> {
        match self {
            Row::Lease(lease) => lease_cells(lease),
            Row::Queue(queue) => queue_cells(queue),
            Row::Job(job) => job_cells(job, now_ms),
            Row::Worker(owner, worker) => worker_cells(owner, worker, now_ms),
            Row::Event(event) => event_cells(event),
        }
    }

    /// All of it in one line, where its columns cut it short.
    pub(super) fn line(&self) -> String {
        match self {
            Row::Lease(lease) => match &lease.holder {
                Some(holder) => {
                    let task =
                        holder.task.as_ref().map(|task| format!(" for task {task}")).unwrap_or_default();
                    let yields = holder.yield_request.as_ref();
                    let yields = yields.map(|request| format!(", asked to yield by {}", request.contender));
                    format!("{} is held by {}{task}{}", lease.key, holder.owner, yields.unwrap_or_default())
                }
                None => format!("{} is {}", lease.key, lease_state(lease).text),
            },
            Row::Queue(queue) => {
                let counts = &queue.job_counts;
                format!(
                    "{}: {} quarantined, {} in doubt, {} completed, {} cancelled; waiting claims: {}",
                    queue.name,
                    counts.quarantined,
                    counts.in_doubt,
                    counts.completed,
                    counts.cancelled,
                    queue.waiting_claim_count
                )
            }
            Row::Job(job) => {
                let worker = job.runner.as_ref();
                let worker = worker.map(|runner| format!(", {} works on it", runner.owner));
                format!("{} in {}{}", job.id, job.queue, worker.unwrap_or_default())
            }
            Row::Worker(owner, _) => owner.to_string(),
            Row::Event(event) => {
                let said = Sentence::of(&event.data);
                let detail =
                    if said.detail.is_empty() { String::new() } else { format!(": {}", said.detail) };
                format!("{} {}{detail}", short_key(event), said.what)
            }
        }
    }
}

fn lease_cells(lease: &LeaseView) -> Vec<Cell> {
    let holder = lease.holder.as_ref();
    let owner = match holder {
        Some(holder) => Cell::plain(&holder.owner),
        None => lease_state(lease),
    };
    vec![
        Cell::plain(&lease.key),
        owner,
        Cell::or_dash(holder.and_then(|holder| holder.task.as_ref())),
        Cell::plain(lease.token),
        Cell::or_dash(holder.map(|holder| show_ms(holder.age_ms))),
        holder.map_or_else(Cell::dash, |holder| left(holder.remaining_ms, holder.ttl_ms)),
        Cell::count(lease.waiter_count, Colour::Warning),
        lease_state(lease),
    ]
}

/// A holder that renews does so every third of its ttl: one that has less than a third left is late.
pub(super) fn left(remaining_ms: u64, ttl_ms: u64) -> Cell {
    Cell::new(show_ms(remaining_ms), if remaining_ms < ttl_ms / 3 { Colour::Warning } else { Colour::Plain })
}

pub(super) fn lease_state(lease: &LeaseView) -> Cell {
    match (&lease.holder, lease.endings.last()) {
        (Some(holder), _) if holder.yield_request.is_some() => Cell::new("asked to yield", Colour::Warning),
        (Some(_), _) => Cell::new("held", Colour::Good),
        (None, Some(ending)) => {
            let colour = match how_colour(ending.outcome) {
                Colour::Plain => Colour::Faint,
                colour => colour,
            };
            Cell::new(format!("free ({})", ending.outcome), colour)
        }
        (None, None) => Cell::new("free", Colour::Faint),
    }
}

fn queue_cells(queue: &QueueView) -> Vec<Cell> {
    let counts = &queue.job_counts;
    let mode = if queue.mode == QueueMode::Open { Colour::Good } else { Colour::Warning };
    vec![
        Cell::plain(&queue.name),
        Cell::new(queue.mode.name(), mode),
        Cell::count(counts.queued, Colour::Plain),
        Cell::count(counts.scheduled, Colour::Plain),
        Cell::count(counts.running, Colour::Good),
        Cell::count(counts.failed, Colour::Bad),
        Cell::count(counts.quarantined + counts.in_doubt, Colour::Bad),
        Cell::count(queue.waiting_claim_count, Colour::Plain),
        Cell::count(counts.completed, Colour::Plain),
    ]
}

fn job_cells(job: &JobView, now_ms: u64) -> Vec<Cell> {
    let since = match job.due_in_ms {
        Some(ms) if job.state == JobState::Scheduled => format!("in {}", show_ms(ms)),
        _ => show_ms(now_ms.saturating_sub(job.state_changed_at_ms)),
    };
    let id = job.id.to_string();
    // Its end: ids that were made one after the other begin alike.
    vec![
        Cell::plain(format!("…{}", end_of(&id, 12))),
        Cell::new(job.state, state_colour(job.state)),
        Cell::plain(&job.queue),
        Cell::plain(&job.kind),
        Cell::or_dash(job.runner.as_ref().map(|runner| &runner.owner)),
        Cell::plain(since),
        Cell::plain(job.attempt_count),
    ]
}

fn worker_cells(owner: &Owner, worker: &Worker, now_ms: u64) -> Vec<Cell> {
    let ago = |at_ms: Option<u64>| Cell::or_dash(at_ms.map(|at_ms| show_ms(now_ms.saturating_sub(at_ms))));
    vec![
        Cell::plain(owner),
        Cell::count(worker.lease_count, Colour::Plain),
        Cell::count(worker.job_count, Colour::Plain),
        Cell::or_dash(worker.renewed_ago_ms.map(show_ms)),
        worker
            .least_left
            .map_or_else(Cell::dash, |(left_ms, ttl_ms)| left(left_ms, ttl_ms)),
        Cell::count(worker.lost_count, Colour::Bad),
        ago(worker.lost_at_ms),
        ago(worker.seen_at_ms),
    ]
}

fn event_cells(event: &Event) -> Vec<Cell> {
    let said = Sentence::of(&event.data);
    vec![
        Cell::plain(time(event.at_ms)),
        Cell::plain(short_key(event)),
        Cell::new(said.what, said.colour),
        Cell::or_dash(said.token),
        Cell::plain(said.detail),
    ]
}

fn end_of(text: &str, chars: usize) -> String {
    text.chars().skip(text.chars().count().saturating_sub(chars)).collect()
}

/// The key; that of a job with the end of its id, which is what tells it from others.
fn short_key(event: &Event) -> String {
    let key = event.key.as_str();
    if job_of(&event.key).is_some() { format!("job/…{}", end_of(key, 8)) } else { key.to_owned() }
}

/// The time of day.
pub(super) fn time(wall_ms: u64) -> String {
    let exact = utc(wall_ms);
    exact
        .split_once('T')
        .map_or(exact.clone(), |(_, time)| time.trim_end_matches('Z').to_owned())
}
