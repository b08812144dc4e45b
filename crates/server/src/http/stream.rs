//! A stream of server-sent events for one watcher.
//!
//! What happened since the last message goes out as one whose id is the cursor to go on from, so a watcher that was cut off
//! loses nothing: it comes back with `Last-Event-ID`. A watcher that does not read is cut off; it would otherwise keep its
//! connection, and what was written for it, for ever.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use fencehold_contract::http::{HttpOperation, op};
use fencehold_contract::problem::Problem;
use fencehold_contract::{EventPage, FlatEvent, LeaseStore as _, ListEventsRequest};
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{BadInput, Task};
use futures_util::{Stream, StreamExt as _, stream};
use http::{Request, header};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::dispatch::{HandlerResult, RequestContext, from_query, problem_response, without_paths};
use crate::ServerInner;
use crate::access::{Caller, CallerIdentity};
use crate::limit::WaitSlot;
use crate::listen::Connection;
use crate::watch::{Delivery, EventFilter, TooSlow, Watcher};

/// Where nothing happens for this long, something is sent all the same: a watcher that has gone is noticed.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// A watcher that takes nothing for this long is cut off.
const TAKES_WITHIN: Duration = Duration::from_secs(10);
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WatchQuery {
    cursor: Option<u64>,
    prefix: Option<String>,
    task_prefix: Option<Task>,
}

/// One watcher's stream.
struct EventStream {
    asked: RequestContext,
    who: CallerIdentity,
    filter: EventFilter,
    /// The cursor to go on from.
    after: u64,
    batches: mpsc::Sender<String>,
    _seat: WaitSlot<CallerIdentity>,
}

/// Why a stream ended.
enum StreamEnd {
    /// The watcher has gone.
    Left,
    /// It takes nothing.
    Slow,
    /// It can be reported no more, and why.
    Told(Box<Problem>),
}

fn told(problem: Problem) -> StreamEnd {
    StreamEnd::Told(Box::new(problem))
}

pub(super) async fn watch(
    State(server): State<Arc<ServerInner>>,
    connection: Option<Extension<Connection>>,
    path: RawPathParams,
    request: Request<Body>,
) -> Response {
    let (batches, taken) = mpsc::channel(1);
    match begin(server, &path, request, batches).await {
        Ok((stream, first)) => {
            let connection = connection.map(|Extension(connection)| connection);
            tokio::spawn(stream.run(first, connection));
            let taken = stream::unfold(taken, async |mut taken| Some((taken.recv().await?, taken)));
            event_stream(taken)
        }
        Err(problem) => problem_response(&problem),
    }
}

/// Server-sent events, each a text, until there are no more.
pub(crate) fn event_stream(messages: impl Stream<Item = String> + Send + 'static) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    let messages = messages.map(Ok::<_, std::convert::Infallible>);
    (headers, Body::from_stream(messages)).into_response()
}

/// Reads the first page at once: whatever is wrong with the cursor is the answer, with its status.
async fn begin(
    server: Arc<ServerInner>,
    path: &RawPathParams,
    request: Request<Body>,
    batches: mpsc::Sender<String>,
) -> HandlerResult<(EventStream, EventPage)> {
    let (parts, _) = request.into_parts();
    let (caller, namespace) = server.admit(&parts, &op::ListEvents::SPEC)?;
    let WatchQuery { cursor: after, prefix, task_prefix } = from_query(path, parts.uri.query())?;
    let filter = EventFilter { prefix, task_prefix, notices: false };
    let after = match parts.headers.get(LAST_EVENT_ID) {
        None => after,
        Some(cursor) => {
            let cursor = cursor.to_str().ok().and_then(|cursor| cursor.parse().ok());
            Some(cursor.ok_or_else(|| BadInput::new("Last-Event-ID", "is not a cursor: a number"))?)
        }
    };
    let Caller { who, .. } = caller.clone();
    let seat = server
        .gate
        .seat(&who)
        .inspect_err(|_| server.metrics.waiting_refused.add_one())
        .map_err(Problem::from)?;
    let asked = RequestContext::new(
        server,
        (caller, namespace),
        ("watch_events", op::ListEvents::SPEC.scopes),
        &parts,
        None,
    )?;
    let first = page(&asked, after, &filter).await?;
    let after = after.unwrap_or(0);
    Ok((EventStream { asked, who, filter, after, batches, _seat: seat }, first))
}

async fn page(asked: &RequestContext, after: Option<u64>, filter: &EventFilter) -> HandlerResult<EventPage> {
    let EventFilter { prefix, task_prefix, .. } = filter.clone();
    let request = ListEventsRequest { cursor: after, prefix, task_prefix, limit: PAGE_MAX, wait_ms: 0 };
    let page = asked.in_line(asked.store.list_events(&asked.call, request)).await?;
    Ok(page)
}

impl EventStream {
    async fn run(mut self, first: EventPage, connection: Option<Connection>) {
        let Err(end) = self.tell(first).await;
        match end {
            StreamEnd::Left => {}
            StreamEnd::Slow => {
                tracing::info!(after = self.after, "a watcher took too little for too long and was cut off");
                if let Some(connection) = connection {
                    connection.cut();
                }
            }
            StreamEnd::Told(problem) => {
                let shown = without_paths(&problem);
                let problem = serde_json::to_string(shown.as_ref().unwrap_or(&problem)).unwrap_or_default();
                let _ = self.send(format!("event: problem\ndata: {problem}\n\n")).await;
            }
        }
    }

    /// First what the store has, then what the feed brings.
    async fn tell(&mut self, first: EventPage) -> Result<std::convert::Infallible, StreamEnd> {
        let mut is_full = first.events.len() >= PAGE_MAX;
        self.tell_page(&first).await?;
        // A stream may last for days, and its first page is long.
        drop(first);
        while is_full {
            is_full = self.read().await?;
        }
        let filter = self.filter.clone();
        let (watcher, told) =
            Watcher::begin(&self.asked.server, &self.asked.call.namespace, filter, self.after);
        while self.after < told {
            self.read().await?;
        }
        loop {
            let news = tokio::select! {
                news = tokio::time::timeout(SIGN_OF_LIFE, watcher.news()) => news,
                () = self.batches.closed() => return Err(StreamEnd::Left),
            };
            match news {
                Ok(Ok(Delivery::Batches(batches))) => {
                    let (items, next) = Delivery::items(&batches, self.after);
                    self.tell_items(&items, next).await?;
                }
                Ok(Ok(Delivery::End(problem))) => {
                    return Err(StreamEnd::Told(Box::new(Problem::clone(&problem))));
                }
                Ok(Err(TooSlow)) => return Err(StreamEnd::Slow),
                Err(_) => {
                    let next = watcher.quiet_until().unwrap_or(self.after).max(self.after);
                    self.tell_items("", next).await?;
                }
            }
        }
    }

    /// Tells what the store has next. True: there may be more.
    async fn read(&mut self) -> Result<bool, StreamEnd> {
        let page = page(&self.asked, Some(self.after), &self.filter).await.map_err(told)?;
        self.tell_page(&page).await?;
        Ok(page.events.len() >= PAGE_MAX)
    }

    async fn tell_page(&mut self, page: &EventPage) -> Result<(), StreamEnd> {
        let events: Vec<_> = page.events.iter().map(FlatEvent).collect();
        let events = serde_json::to_string(&events).unwrap_or_default();
        let items = events.trim_start_matches('[').trim_end_matches(']');
        self.tell_items(items, page.next_cursor).await
    }

    /// One message: the items of an array of events; without any it only moves the cursor.
    async fn tell_items(&mut self, items: &str, next: u64) -> Result<(), StreamEnd> {
        // Nothing more is sent to a token that was revoked, or has expired, since.
        self.asked.server.still_admits(&self.who).map_err(told)?;
        self.after = next;
        self.send(if items.is_empty() {
            format!("id: {next}\n\n")
        } else {
            format!("id: {next}\nevent: events\ndata: [{items}]\n\n")
        })
        .await
    }

    async fn send(&self, message: String) -> Result<(), StreamEnd> {
        match tokio::time::timeout(TAKES_WITHIN, self.batches.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(StreamEnd::Left),
            Err(_) => Err(StreamEnd::Slow),
        }
    }
}
