//! A stream of the keys on whose hold another caller acted, for one who holds something through this server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use fencehold_contract::http::{HoldChange, HttpOperation, op};
use fencehold_contract::problem::Problem;
use futures_util::stream;
use http::Request;

use super::dispatch::{HandlerResult, RequestContext, problem_response};
use super::stream::event_stream;
use crate::ServerInner;
use crate::access::CallerHoldChanges;

/// Where nothing happens for this long, a comment is sent: a connection that broke is noticed at both ends.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Goes out first, so that the caller knows that from now on events come.
const COMMENT: &str = ":\n\n";

pub(super) async fn watch(State(server): State<Arc<ServerInner>>, request: Request<Body>) -> Response {
    match begin(server, request) {
        Ok(changes) => {
            let messages = stream::unfold((changes, true), async |(mut changes, first)| {
                let message = if first { Some(COMMENT.to_owned()) } else { next(&mut changes).await };
                message.map(|message| (message, (changes, false)))
            });
            event_stream(messages)
        }
        Err(problem) => problem_response(&problem),
    }
}

fn begin(server: Arc<ServerInner>, request: Request<Body>) -> HandlerResult<CallerHoldChanges> {
    let (parts, _) = request.into_parts();
    let admitted = server.admit(&parts, &op::ListEvents::SPEC)?;
    server.shutdown.check()?;
    let asked =
        RequestContext::new(server, admitted, ("watch_holds", op::ListEvents::SPEC.scopes), &parts, None)?;
    asked.store.hold_changes(&asked.call).map_err(Problem::from)
}

/// The next message; `None`: this stream has ended, and its caller learns by renewing what it would have heard here.
async fn next(changes: &mut CallerHoldChanges) -> Option<String> {
    let server = Arc::clone(&changes.server);
    let waiting = tokio::time::timeout(SIGN_OF_LIFE, changes.next());
    let change: Result<HoldChange, _> = server.shutdown.unless(waiting).await.ok()?;
    // Nothing more is sent to a token that was revoked, or has expired, since.
    let _: () = server.still_admits(&changes.who).map_err(|_: Problem| ()).ok()?;
    let Ok(change) = change else { return Some(COMMENT.to_owned()) };
    let data = serde_json::to_string(&change).ok()?;
    Some(format!("data: {data}\n\n"))
}
