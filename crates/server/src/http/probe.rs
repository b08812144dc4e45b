//! What is not an operation: the two probes, the document, and what is said where there is nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_contract::{CallContext, LeaseStore};
use fencehold_core::Namespace;
use http::{Method, Request, Uri, header};

use super::dispatch::problem_response;
use crate::{ServerInner, observe, shutdown};

/// How long the store may take to say that it is there.
const TIMEOUT_MS: u64 = 2_000;
/// For how long it is believed.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(250);
const NOT_READY: &str =
    "the store does not answer, or grants nothing after `store advance`; the server's log says why";

/// Whether the server runs. Says nothing of the store: a restart would not help it.
pub(super) async fn live() -> &'static str {
    "alive\n"
}

/// Whether requests should be sent here.
pub(super) async fn ready(State(server): State<Arc<ServerInner>>) -> Response {
    if server.shutdown.is_stopping() {
        return problem_response(&shutdown::problem());
    }
    match server.readiness.look(&*server.store).await {
        Ok(()) => "ready\n".into_response(),
        Err(retry_after_ms) => {
            let problem = Problem::new(ErrorKind::Unavailable, NOT_READY);
            problem_response(&problem.with(|problem| problem.retry_after_ms = retry_after_ms))
        }
    }
}

/// Nothing, or when to ask again.
type Readable = Result<(), Option<u64>>;

/// Whether the store answers. Anybody may ask, so it costs one small read a moment, however many do, and says no more than
/// that: the reason stands in the log.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// What was found last, and when. A request that comes while another looks waits for what that one finds.
    last: tokio::sync::Mutex<Option<(Instant, Readable)>>,
}

impl Readiness {
    #[expect(
        clippy::disallowed_methods,
        reason = "how often a store is asked by strangers is a matter of real time"
    )]
    async fn look(&self, store: &dyn LeaseStore) -> Readable {
        let mut last = self.last.lock().await;
        if let Some((at, found)) = *last
            && at.elapsed() < LOOKED_AT_EVERY
        {
            return found;
        }
        let call = CallContext::new(Namespace::default()).with_timeout_ms(TIMEOUT_MS);
        let found = match store.closed_for_ms(&call).await {
            Ok(0) => Ok(()),
            Ok(closed_for_ms) => Err(Some(closed_for_ms)),
            Err(error) => {
                tracing::warn!(%error, "not ready: the store does not answer");
                Err(Problem::from(error).retry_after_ms)
            }
        };
        *last = Some((Instant::now(), found));
        found
    }
}

/// What the server counts, for callers that may see all of it: queues have names, and belong to tenants.
pub(super) async fn metrics(State(server): State<Arc<ServerInner>>, request: Request<Body>) -> Response {
    let (parts, _) = request.into_parts();
    match server.identify(&parts) {
        Ok(caller) if caller.reads_metrics() => {
            ([(header::CONTENT_TYPE, observe::CONTENT_TYPE)], observe::render(&server).await).into_response()
        }
        Ok(_) => {
            let detail = "metrics are of all namespaces, and need a token with the scope metrics:read or admin for all of them";
            problem_response(&Problem::new(ErrorKind::Forbidden, detail))
        }
        Err(problem) => problem_response(&problem),
    }
}

/// The OpenAPI document: made from the types by a test (`tests/openapi`), and committed.
pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("openapi.json")).into_response()
}

pub(super) async fn no_such_path(uri: Uri) -> Response {
    let detail = format!("there is nothing at {}; /v1/openapi.json lists what there is", uri.path());
    problem_response(&Problem::new(ErrorKind::PathNotFound, detail))
}

pub(super) async fn bad_method(method: Method, uri: Uri) -> Response {
    let detail = format!("{} does not take {method}; /v1/openapi.json lists what it takes", uri.path());
    problem_response(&Problem::new(ErrorKind::MethodNotAllowed, detail))
}
