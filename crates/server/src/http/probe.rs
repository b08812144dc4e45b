//! What is not an operation: the two probes, the document, and what is said where there is nothing.

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fencehold_api::{Kind, Problem};
use fencehold_core::Namespace;
use fencehold_store::Call;
use fencehold_store::wire::Across;
use http::{Method, Request, Uri, header};

use super::answer::problem_response;
use crate::{Inner, observe, stopping};

/// How long the store may take to say that it is there.
const PATIENCE_MS: u64 = 2_000;

/// Whether the server runs. Says nothing of the store: a restart would not help it.
pub(super) async fn live() -> &'static str {
    "alive\n"
}

/// Whether requests should be sent here.
pub(super) async fn ready(State(server): State<Arc<Inner>>) -> Response {
    if server.stopping.is_stopping() {
        return problem_response(&stopping::problem());
    }
    let call = Call::new(Namespace::default()).with_patience_ms(PATIENCE_MS);
    match server.store.status(&call).await {
        Ok(_) => "ready\n".into_response(),
        Err(error) => {
            let mut problem = Problem::new(Kind::Unavailable, error.to_string());
            problem.retry_after_ms = Across::<Problem>::across(error).retry_after_ms;
            problem_response(&problem)
        }
    }
}

/// What the server counts, for whoever may see all of it: queues have names, and belong to somebody.
pub(super) async fn metrics(State(server): State<Arc<Inner>>, request: Request<Body>) -> Response {
    let (parts, _) = request.into_parts();
    match server.identify(&parts) {
        Ok(caller) if caller.is_operator() => {
            ([(header::CONTENT_TYPE, observe::CONTENT_TYPE)], observe::render(&server).await).into_response()
        }
        Ok(_) => {
            let detail =
                "metrics are of all namespaces, and need a token with the scope admin for all of them";
            problem_response(&Problem::new(Kind::Forbidden, detail))
        }
        Err(problem) => problem_response(&problem),
    }
}

pub(super) async fn document() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| fencehold_api::document().to_string());
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

pub(super) async fn no_such_path(uri: Uri) -> Response {
    let detail = format!("there is nothing at {}; /v1/openapi.json lists what there is", uri.path());
    problem_response(&Problem::new(Kind::NoSuchPath, detail))
}

pub(super) async fn bad_method(method: Method, uri: Uri) -> Response {
    let detail = format!("{} does not take {method}; /v1/openapi.json lists what it takes", uri.path());
    problem_response(&Problem::new(Kind::BadMethod, detail))
}
