//! The event log: every event and every act of force, appended to files that outlive the store's own history.
//!
//! Nouns: a *stream* is the events of one namespace, or the audit of the access file; its *cursor* is the number of the last
//! line that was written of it. The files alone say what was written (`files`): a batch is synced before its cursor
//! counts, and a server that starts reads its cursors from the newest file. So it goes on without a gap and without a
//! repetition, whenever the one before it was killed. What the store does not keep any more is a line of type `gap`.
//!
//! Deliberately absent: a list of namespaces, which no store has. The log has those that its settings name, those of access
//! tokens, and those that callers have named to this server.

mod files;
mod lines;
mod read;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::http::access::AuditEntry;
use fencehold_contract::{CallContext, ListEventsRequest, StoreError};
use fencehold_core::Namespace;
use fencehold_core::limits::PAGE_MAX;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::audit::{AuditFilter, AuditOutcome};
use crate::{Server, ServerInner};
use files::LogFiles;
use lines::{GapLine, audit_line, event_line, gap_line, start_line};

pub use read::{LogLine, LogRecord, read};

/// How long one reading waits for something to happen.
const WAIT_MS: u64 = 15_000;
/// How long to retry while the store is unreachable.
const TIMEOUT_MS: u64 = 5_000;
/// How often the audit is looked at, and how often new namespaces are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The pause after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// For how long an act of force may be under way before it is written down as pending.
const PENDING_MS: u64 = 60_000;
/// How many batches may wait to be written.
const BATCHES_WAITING_MAX: usize = 64;
/// How long the last events may take to be written when the server stops.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// Where the log is kept, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventLogOptions {
    /// Its directory: one server has it at a time.
    pub directory: PathBuf,
    /// A file that would become larger is followed by another.
    pub file_bytes: u64,
    /// And one that is older.
    pub file_age_ms: u64,
    /// Files whose last line is older are removed; `None`: none are.
    pub keep_ms: Option<u64>,
    /// Namespaces whose events are logged, beside those that the server knows of.
    pub namespaces: Vec<Namespace>,
}

impl EventLogOptions {
    /// A log in this directory, of which everything is kept.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        EventLogOptions {
            directory: directory.into(),
            file_bytes: 64 << 20,
            file_age_ms: 24 * 3_600_000,
            keep_ms: None,
            namespaces: Vec::new(),
        }
    }
}

/// Why a log cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EventLogError {
    /// Another server has it.
    #[error("the event log {} is in use by another server", .0.display())]
    InUse(PathBuf),
    /// A file is damaged where no crash could have damaged it.
    #[error("line {line} of {} is damaged, and lines follow it", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: u64,
    },
    /// The system refuses.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What it says.
        error: std::io::Error,
    },
}

impl EventLogError {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> EventLogError + use<> {
        let path = path.to_owned();
        |error| EventLogError::Io { path, error }
    }
}

/// A log that is open, and locked against other servers.
#[derive(Debug)]
pub struct EventLog {
    files: LogFiles,
    namespaces: Vec<Namespace>,
}

impl EventLog {
    /// Opens a log, or begins one. A last line that a crash cut off is removed.
    pub fn open(options: EventLogOptions, now_wall_ms: u64) -> Result<EventLog, EventLogError> {
        let namespaces = options.namespaces.clone();
        Ok(EventLog { files: LogFiles::open(options, now_wall_ms)?, namespaces })
    }
}

/// A log that is being written.
#[derive(Debug)]
#[must_use = "what has happened since the last look is not written unless it is finished"]
pub struct RunningEventLog {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RunningEventLog {
    /// Writes what has happened by now, and ends. What cannot be written in time, the next server writes.
    pub async fn finish(mut self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(FINISH_WITHIN, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the last events were not logged in time; the next server goes on from there");
        }
    }
}

impl Server {
    /// Begins to write the log. Must be called on a runtime.
    pub fn write_event_log(&self, log: EventLog) -> RunningEventLog {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(write_log(Arc::clone(&self.0), log, stopped));
        RunningEventLog { stop, task }
    }
}

/// What is written of one thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stream {
    /// The events of a namespace.
    Events(Namespace),
    /// Acts of force through a server.
    Audit,
}

/// Lines of one stream, and its cursor when they are written.
#[derive(Debug)]
struct LogBatch {
    stream: Stream,
    cursor: u64,
    lines: Vec<String>,
}

/// The way to the file.
#[derive(Clone, Debug)]
struct LogSender(mpsc::Sender<(LogBatch, oneshot::Sender<()>)>);

impl LogSender {
    /// Has a batch written. True: it is synced.
    async fn write(&self, batch: LogBatch) -> bool {
        let (done, is_done) = oneshot::channel();
        self.0.send((batch, done)).await.is_ok() && is_done.await.is_ok()
    }
}

async fn write_log(server: Arc<ServerInner>, log: EventLog, stop: watch::Receiver<bool>) {
    let EventLog { files, namespaces } = log;
    let cursors = files.cursors().clone();
    let (sender, batches) = mpsc::channel(BATCHES_WAITING_MAX);
    let sender = LogSender(sender);
    let reading = async {
        let mut readers = JoinSet::new();
        readers.spawn(read_audit(
            Arc::clone(&server),
            cursors.get(&Stream::Audit).copied(),
            sender.clone(),
            stop.clone(),
        ));
        let mut known = BTreeSet::new();
        let logged = cursors.keys().filter_map(|stream| match stream {
            Stream::Events(namespace) => Some(namespace.clone()),
            Stream::Audit => None,
        });
        let mut found: Vec<Namespace> = namespaces.into_iter().chain(logged).collect();
        loop {
            found.extend(server.namespaces());
            for namespace in found.drain(..).filter(|namespace| known.insert(namespace.clone())) {
                let cursor = cursors.get(&Stream::Events(namespace.clone())).copied();
                let position = cursor.map_or(Position::Unknown, Position::After);
                let reader = EventReader { server: Arc::clone(&server), namespace, position };
                readers.spawn(reader.run(sender.clone(), stop.clone()));
            }
            if is_over(&stop) {
                break;
            }
            pause(LOOK_EVERY, &stop).await;
        }
        // Each reads what there is, and ends.
        drop(sender);
        while readers.join_next().await.is_some() {}
    };
    tokio::join!(reading, append_all(Arc::clone(&server), files, batches, stop.clone()));
}

fn is_over(stop: &watch::Receiver<bool>) -> bool {
    *stop.borrow()
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing is ordered by it: what happens meanwhile is read later"
)]
async fn pause(length: Duration, stop: &watch::Receiver<bool>) {
    let mut stop = stop.clone();
    tokio::select! {
        () = tokio::time::sleep(length) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Appends what comes, together what waits, and syncs it before any of it counts as written.
async fn append_all(
    server: Arc<ServerInner>,
    mut files: LogFiles,
    mut batches: mpsc::Receiver<(LogBatch, oneshot::Sender<()>)>,
    stop: watch::Receiver<bool>,
) {
    while let Some(first) = batches.recv().await {
        let mut together = vec![first];
        while together.len() < BATCHES_WAITING_MAX
            && let Ok(next) = batches.try_recv()
        {
            together.push(next);
        }
        let (writing, told): (Vec<_>, Vec<_>) = together.into_iter().unzip();
        let writing = Arc::new(writing);
        loop {
            let (batches, now_wall_ms) = (Arc::clone(&writing), server.clock.now().wall_ms);
            // A disk may take its time, and other tasks of this thread do not wait for it.
            let appended = tokio::task::spawn_blocking(move || {
                let appended = files.append(&batches, now_wall_ms);
                (files, appended)
            });
            let Ok((back, appended)) = appended.await else { return };
            files = back;
            match appended {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(%error, "the event log cannot be written; trying again");
                    if is_over(&stop) {
                        return;
                    }
                    pause(RETRY_AFTER, &stop).await;
                }
            }
        }
        for done in told {
            let _ = done.send(());
        }
    }
}

/// Where a reader of events is.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// Nothing was logged of this namespace yet.
    Unknown,
    /// After this event.
    After(u64),
    /// The log has events up to this one, and the store is not that far: it was restored, or is another one.
    Ahead(u64),
}

/// Reads the events of one namespace.
struct EventReader {
    server: Arc<ServerInner>,
    namespace: Namespace,
    position: Position,
}

impl EventReader {
    async fn run(mut self, sender: LogSender, mut stop: watch::Receiver<bool>) {
        let mut had_trouble = false;
        loop {
            let is_last = is_over(&stop);
            let read = tokio::select! {
                biased;
                read = self.read(is_last) => read,
                _ = stop.wait_for(|stop| *stop), if !is_last => continue,
            };
            match read {
                Ok((batch, next, is_full)) => {
                    had_trouble = false;
                    if let Some(batch) = batch
                        && !sender.write(batch).await
                    {
                        return;
                    }
                    self.position = next;
                    if is_last && !is_full {
                        return;
                    }
                }
                Err(StoreError::Unsupported { .. }) => {
                    tracing::warn!("this store keeps no events: the event log has acts of force alone");
                    return;
                }
                Err(error) => {
                    if !std::mem::replace(&mut had_trouble, true) {
                        tracing::warn!(%error, namespace = %self.namespace, "events cannot be read for the event log");
                    }
                    if is_last {
                        return;
                    }
                    pause(RETRY_AFTER, &stop).await;
                }
            }
        }
    }

    /// What is to be written next, where to go on, and whether there may be more at once.
    async fn read(&self, is_last: bool) -> Result<(Option<LogBatch>, Position, bool), StoreError> {
        let cursor = match self.position {
            Position::After(cursor) => Some(cursor),
            Position::Unknown | Position::Ahead(_) => None,
        };
        let wait_ms = if is_last || cursor.is_none() { 0 } else { WAIT_MS };
        let call = CallContext::new(self.namespace.clone()).with_timeout_ms(TIMEOUT_MS);
        let request = ListEventsRequest { cursor, limit: PAGE_MAX, wait_ms, ..ListEventsRequest::default() };
        let at_ms = self.server.clock.now().wall_ms;
        let batch =
            |cursor, lines| LogBatch { stream: Stream::Events(self.namespace.clone()), cursor, lines };
        let page = match self.server.store.list_events(&call, request).await {
            Ok(page) => page,
            Err(StoreError::CursorTooOld { cursor, oldest_cursor }) => {
                let until = oldest_cursor.saturating_sub(1);
                let line = gap_line(&GapLine::forgotten(&self.namespace, at_ms, cursor, until));
                return Ok((Some(batch(until, vec![line])), Position::After(until), true));
            }
            Err(error) => match (error, cursor) {
                (StoreError::BadInput(bad), Some(cursor)) if bad.field == "cursor" => {
                    return Ok((None, Position::Ahead(cursor), true));
                }
                (error, _) => return Err(error),
            },
        };
        let first = page
            .events
            .first()
            .map_or(page.next_cursor, |event| event.seq.saturating_sub(1));
        let mut lines = match self.position {
            Position::After(_) => Vec::new(),
            Position::Unknown => vec![start_line(&self.namespace, at_ms, first)],
            Position::Ahead(cursor) => {
                vec![gap_line(&GapLine::behind(&self.namespace, at_ms, cursor, first))]
            }
        };
        lines.extend(page.events.iter().map(|event| event_line(&self.namespace, event)));
        let written = page.events.last().map_or(first, |event| event.seq);
        let batch = (!lines.is_empty()).then(|| batch(written, lines));
        Ok((batch, Position::After(page.next_cursor), page.events.len() >= PAGE_MAX))
    }
}

/// Reads the audit of the access file.
async fn read_audit(
    server: Arc<ServerInner>,
    cursor: Option<u64>,
    sender: LogSender,
    stop: watch::Receiver<bool>,
) {
    let Some(access_cache) = server.access.access_cache() else { return };
    let mut cursor = cursor.unwrap_or(0);
    loop {
        let is_last = is_over(&stop);
        let newest = AuditFilter { limit: Some(1), ..AuditFilter::default() };
        let after = AuditFilter { after: Some(cursor), ..AuditFilter::default() };
        let read = access_cache
            .read_audit(move |audit| Ok((audit.audit(&newest)?.next_cursor, audit.audit(&after)?.entries)));
        match read.await {
            Ok((newest, entries)) => {
                let now_wall_ms = server.clock.now().wall_ms;
                let settled = entries.iter().take_while(|entry| is_settled(entry, now_wall_ms));
                let settled: Vec<&AuditEntry> = settled.take(PAGE_MAX).collect();
                let mut lines = Vec::new();
                let mut written = cursor;
                if newest < cursor {
                    // The access file was replaced by another one.
                    lines.push(gap_line(&GapLine::other_audit(now_wall_ms, cursor)));
                    written = 0;
                }
                for entry in &settled {
                    if written > 0 && entry.seq > written + 1 {
                        lines.push(gap_line(&GapLine::denials(now_wall_ms, written, entry.seq - 1)));
                    }
                    lines.push(audit_line(entry));
                    written = entry.seq;
                }
                let is_full = settled.len() == PAGE_MAX;
                if !lines.is_empty() {
                    let batch = LogBatch { stream: Stream::Audit, cursor: written, lines };
                    if !sender.write(batch).await {
                        return;
                    }
                }
                let moved = written != cursor;
                cursor = written;
                if moved && (is_full || written == 0) {
                    continue;
                }
            }
            Err(error) => tracing::warn!(%error, "the audit cannot be read for the event log"),
        }
        if is_last {
            return;
        }
        pause(LOOK_EVERY, &stop).await;
    }
}

/// Whether it is known what came of an act, or has been unknown for so long that it will stay so.
fn is_settled(entry: &AuditEntry, now_wall_ms: u64) -> bool {
    entry.outcome != AuditOutcome::Pending.name()
        || entry.at.wall_ms.saturating_add(PENDING_MS) <= now_wall_ms
}
