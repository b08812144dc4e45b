//! Live updates: a stream that says that something happened. The page then asks for itself again, so what it shows has one source.
//!
//! The events come from the feed that all watchers of a namespace share (`crate::watch`): a page that is open costs the store nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use fencehold_contract::ListEventsRequest;
use fencehold_contract::http::{NoQuery, op};
use fencehold_contract::problem::Problem;
use futures_util::stream;
use http::Request;

use super::page::PageRequest;
use crate::ServerInner;
use crate::access::CallerIdentity;
use crate::http::dispatch::problem_response;
use crate::http::stream::event_stream;
use crate::limit::WaitSlot;
use crate::watch::{Delivery, EventFilter, Watcher};

/// Where nothing happens for this long, a comment is sent: a connection that broke is noticed at both ends.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// One open page.
struct OpenPage {
    server: Arc<ServerInner>,
    who: CallerIdentity,
    watcher: Watcher,
    greeted: bool,
    _seat: WaitSlot<CallerIdentity>,
}

pub(super) async fn watch(State(server): State<Arc<ServerInner>>, request: Request<Body>) -> Response {
    let (parts, _) = request.into_parts();
    let begun = match PageRequest::admit(server, parts) {
        Ok(page) => begin(&page).await,
        Err(problem) => Err(problem),
    };
    match begun {
        Ok(open) => event_stream(stream::unfold(open, async |mut open| Some((open.next().await?, open)))),
        Err(problem) => problem_response(&problem),
    }
}

/// Asks for the newest event as the caller: who may not read events gets no stream.
async fn begin(page: &PageRequest) -> Result<OpenPage, Problem> {
    let server = Arc::clone(&page.server);
    let who = page.caller.who.clone();
    let refused = |_: &_| server.metrics.waiting_refused.add_one();
    let seat = server.gate.seat(&who).inspect_err(refused)?;
    let newest = page.call::<op::GetStoreStatus>(NoQuery {}).await?.newest_event_seq;
    let first = ListEventsRequest { cursor: Some(newest), limit: 1, ..ListEventsRequest::default() };
    page.call::<op::ListEvents>(first).await?;
    let filter = EventFilter {
        prefix: page.fields.get("prefix").map(str::to_owned),
        task_prefix: None,
        notices: true,
    };
    let (watcher, _) = Watcher::begin(&server, &page.namespace, filter, newest);
    Ok(OpenPage { server, who, watcher, greeted: false, _seat: seat })
}

impl OpenPage {
    /// The next message. `None`: the stream has ended, and the browser comes back.
    async fn next(&mut self) -> Option<String> {
        if !self.greeted {
            self.greeted = true;
            return Some(":\n\n".to_owned());
        }
        let waiting = tokio::time::timeout(SIGN_OF_LIFE, self.watcher.news());
        let news = self.server.shutdown.unless(waiting).await.ok()?;
        // Nothing more is sent to a token that was revoked, or has expired, since.
        self.server.still_admits(&self.who).ok()?;
        match news {
            Ok(Ok(Delivery::Batches(_))) => Some("event: changed\ndata: changed\n\n".to_owned()),
            // A page that comes back asks for itself anew, so it misses nothing.
            Ok(Ok(Delivery::End(_)) | Err(_)) => None,
            Err(_) => Some(":\n\n".to_owned()),
        }
    }
}
