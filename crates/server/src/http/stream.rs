//! Watching: events as they happen, as server-sent events.
//!
//! What happened since the last batch goes out as one message whose id is the cursor to go on from, so a watcher that was
//! cut off loses nothing: it comes back with `Last-Event-ID`. A watcher that does not read is cut off; it would otherwise
//! keep its connection, and what was written for it, for ever.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use fencehold_api::{EventPage, Operation, Problem, op};
use fencehold_core::BadInput;
use fencehold_core::limits::PAGE_MAX;
use fencehold_store::wire::Across;
use fencehold_store::{EventsRequest, StoreError};
use futures_util::stream;
use http::{Request, header};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::answer::{Answer, Asked, from_query, problem_response};
use crate::Inner;
use crate::listen::Connection;

/// Where nothing happens for this long, something is sent all the same: a watcher that has gone is noticed.
const SIGN_OF_LIFE_MS: u64 = 15_000;
/// A watcher that takes nothing for this long is cut off.
const TAKES_WITHIN: Duration = Duration::from_secs(10);
const LAST_EVENT_ID: &str = "last-event-id";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Watch {
    after: Option<u64>,
    prefix: Option<String>,
}

pub(super) async fn watch(
    State(server): State<Arc<Inner>>,
    connection: Option<Extension<Connection>>,
    path: RawPathParams,
    request: Request<Body>,
) -> Response {
    match begin(server, &path, request).await {
        Ok((asked, after, prefix, first)) => {
            let (batches, taken) = mpsc::channel(1);
            let connection = connection.map(|Extension(connection)| connection);
            tokio::spawn(follow(asked, after, prefix, first, batches, connection));
            let taken = stream::unfold(taken, async |mut taken| {
                let batch: String = taken.recv().await?;
                Some((Ok::<_, std::convert::Infallible>(batch), taken))
            });
            let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
            (headers, Body::from_stream(taken)).into_response()
        }
        Err(problem) => problem_response(&problem),
    }
}

/// Reads the first page at once: whatever is wrong with the cursor is the answer, with its status.
async fn begin(
    server: Arc<Inner>,
    path: &RawPathParams,
    request: Request<Body>,
) -> Answer<(Asked, Option<u64>, Option<String>, EventPage)> {
    let (parts, _) = request.into_parts();
    let caller = server.admit(&parts, &op::Events::SPEC)?;
    let Watch { after, prefix } = from_query(path, parts.uri.query())?;
    let after = match parts.headers.get(LAST_EVENT_ID) {
        None => after,
        Some(cursor) => {
            let cursor = cursor.to_str().ok().and_then(|cursor| cursor.parse().ok());
            let bad = || StoreError::BadInput(BadInput::new("Last-Event-ID", "is not a cursor: a number"));
            Some(cursor.ok_or_else(|| -> Problem { bad().across() })?)
        }
    };
    let asked = Asked::new(server, caller, parts)?;
    let first = page(&asked, after, prefix.clone(), 0).await?;
    Ok((asked, after, prefix, first))
}

async fn page(asked: &Asked, after: Option<u64>, prefix: Option<String>, wait_ms: u64) -> Answer<EventPage> {
    let request = EventsRequest { after, prefix, limit: PAGE_MAX, wait_ms };
    let page = asked.in_line(asked.store.events(&asked.call, request)).await?;
    Ok(page.across())
}

/// Hands one batch after the other to the connection, until the watcher goes, or takes nothing.
async fn follow(
    asked: Asked,
    mut after: Option<u64>,
    prefix: Option<String>,
    first: EventPage,
    batches: mpsc::Sender<String>,
    connection: Option<Connection>,
) {
    let mut read = Ok(first);
    loop {
        let (batch, last) = match &read {
            Ok(page) => {
                after = Some(page.next);
                (message(page), false)
            }
            Err(problem) => (failure(problem), true),
        };
        match tokio::time::timeout(TAKES_WITHIN, batches.send(batch)).await {
            Ok(Ok(())) if !last => {}
            Ok(_) => return,
            Err(_) => {
                tracing::info!(after, "a watcher took nothing for too long and was cut off");
                if let Some(connection) = connection {
                    connection.cut();
                }
                return;
            }
        }
        read = tokio::select! {
            read = page(&asked, after, prefix.clone(), SIGN_OF_LIFE_MS) => read,
            () = batches.closed() => return,
        };
    }
}

/// A batch of events; one without events only moves the cursor.
fn message(page: &EventPage) -> String {
    if page.events.is_empty() {
        return format!("id: {}\n\n", page.next);
    }
    let events = serde_json::to_string(&page.events).unwrap_or_default();
    format!("id: {}\nevent: events\ndata: {events}\n\n", page.next)
}

/// Why watching ended.
fn failure(problem: &Problem) -> String {
    let problem = serde_json::to_string(problem).unwrap_or_default();
    format!("event: problem\ndata: {problem}\n\n")
}
