//! `fencehold event …`: what happened to leases and jobs.

#[cfg(feature = "server")]
use std::path::{Path, PathBuf};

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::{EventPage, FlatEvent};
#[cfg(feature = "server")]
use fencehold_core::Namespace;
use fencehold_core::Task;
#[cfg(feature = "server")]
use fencehold_server::event_log::{self, EventLogError, LogLine, LogRecord};
#[cfg(feature = "server")]
use serde_json::value::RawValue;

use super::job::parse_moment;
use crate::context::Context;
use crate::duration::parse_ms;
#[cfg(feature = "server")]
use crate::failure::Failure;
use crate::follow::{self, EventFilter};
use crate::verb::{VerbResult, verbs};

verbs! {
    /// List and watch what happens to leases and jobs
    #[command(before_help = "\
fencehold event ls --prefix reports/
fencehold event watch")]
    Verb:
    Ls = LsArgs,
    Watch = WatchArgs,
}

/// List what happened to leases and jobs, oldest first
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold event ls
fencehold event ls --cursor 1042 -o jsonl
fencehold event ls --prefix job/01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55
fencehold event ls --task-prefix run-42
fencehold event ls --since 2h --until 2026-11-18T09:00:00Z

# All that a server has logged, also what its store has forgotten
fencehold event ls --event-log /var/log/fencehold --all-namespaces --since 7d")]
#[command(after_help = "\
A store keeps its newest events only; `fencehold serve --event-log DIR` logs them all. Renewals are not events: they are \
many, and say nothing new. From a log come also acts of force (`audit`) and what is missing (`gap`).")]
pub(crate) struct LsArgs {
    /// Only of keys that start with this; a job's is job/ID
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only of leases for this task and those below it: run-42 covers run-42/a
    #[arg(long, value_name = "TASK")]
    task_prefix: Option<Task>,
    /// Only what came after this event
    #[arg(long, value_name = "SEQ")]
    cursor: Option<u64>,
    /// Not before this moment, or so long ago: 24h
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    since: Option<u64>,
    /// Not after this moment, or so long ago: 1h
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    until: Option<u64>,
    /// Read the event log of a server in this directory, and no store
    #[cfg(feature = "server")]
    #[arg(long, value_name = "DIR")]
    event_log: Option<PathBuf>,
    /// Of every namespace of the event log
    #[cfg(feature = "server")]
    #[arg(long, requires = "event_log", conflicts_with = "cursor")]
    all_namespaces: bool,
}

/// Reads how long ago it was, or the moment itself; in wall time.
fn parse_when(text: &str) -> Result<u64, String> {
    match parse_ms(text) {
        Ok(ago_ms) => Ok(SystemClock.now().wall_ms.saturating_sub(ago_ms)),
        Err(_) => parse_moment(text).map_err(|error| format!("neither a duration nor a moment: {error}")),
    }
}

impl LsArgs {
    fn filter(&self) -> EventFilter<'_> {
        EventFilter { prefix: self.prefix.as_deref(), task_prefix: self.task_prefix.as_ref() }
    }

    /// Whether this is the time that was asked for.
    fn is_within(&self, at_ms: u64) -> bool {
        self.since.is_none_or(|since| at_ms >= since) && self.until.is_none_or(|until| at_ms <= until)
    }

    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        #[cfg(feature = "server")]
        if let Some(directory) = &self.event_log {
            return self.log(context, directory);
        }
        let filter = self.filter();
        let (mut events, next_cursor) = context
            .look(async |store| follow::past(store, self.cursor, filter).await)
            .await?;
        events.retain(|event| self.is_within(event.at_ms));
        let page = EventPage { events, next_cursor };
        let events = &page.events;
        context
            .output
            .list_as(&page, events.iter().map(FlatEvent), "no events", || follow::table(events))
    }
}

#[cfg(feature = "server")]
impl LsArgs {
    /// What a server has logged.
    fn log(&self, context: &Context, directory: &Path) -> VerbResult {
        context.output.refuse_env()?;
        let mut lines = Vec::new();
        for line in event_log::read(directory).map_err(unreadable)? {
            lines.push(line.map_err(unreadable)?);
        }
        lines.retain(|line| self.is_wanted(line, &context.namespace));
        let raw = |line: &LogLine| RawValue::from_string(line.text.clone()).ok();
        let page = LogPage { lines: lines.iter().filter_map(raw).collect() };
        context
            .output
            .list_as(&page, &page.lines, "nothing was logged", || follow::log_table(&lines))
    }

    fn is_wanted(&self, line: &LogLine, namespace: &Namespace) -> bool {
        let is_here = || {
            line.namespace
                .as_deref()
                .is_none_or(|name| name == "*" || name == namespace.as_str())
        };
        let is_included = || match &line.record {
            LogRecord::Event(event) => self.filter().includes(event),
            LogRecord::Gap(_) => true,
            _ => self.prefix.is_none() && self.task_prefix.is_none(),
        };
        let is_after = |cursor| match &line.record {
            LogRecord::Event(event) => event.seq > cursor,
            LogRecord::Gap(_) => true,
            _ => false,
        };
        !matches!(line.record, LogRecord::Begin)
            && (self.all_namespaces || is_here())
            && self.is_within(line.at_ms)
            && is_included()
            && self.cursor.is_none_or(is_after)
    }
}

/// The lines of an event log, as they stand there.
#[cfg(feature = "server")]
#[derive(serde::Serialize)]
struct LogPage {
    lines: Vec<Box<RawValue>>,
}

#[cfg(feature = "server")]
fn unreadable(error: EventLogError) -> Failure {
    Failure::failed(error.to_string())
        .with_next("--event-log takes the directory that `fencehold serve --event-log` was given.")
}

/// Watch what happens to leases and jobs, after what has happened already
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold event watch
fencehold event watch --prefix reports/ -o jsonl | jq -r .type
fencehold event watch --task-prefix run-42")]
pub(crate) struct WatchArgs {
    /// Only of keys that start with this; a job's is job/ID
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only of leases for this task and those below it: run-42 covers run-42/a
    #[arg(long, value_name = "TASK")]
    task_prefix: Option<Task>,
    /// Begin after this event
    #[arg(long, value_name = "SEQ")]
    cursor: Option<u64>,
}

impl WatchArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let output = context.output;
        let filter = EventFilter { prefix: self.prefix.as_deref(), task_prefix: self.task_prefix.as_ref() };
        let store = context.open_to_wait()?;
        store
            .closing(async |store| {
                let (events, next) = follow::past(store, self.cursor, filter).await?;
                events.iter().try_for_each(|event| follow::print(output, event))?;
                follow::follow(store, output, next, filter).await
            })
            .await
    }
}
