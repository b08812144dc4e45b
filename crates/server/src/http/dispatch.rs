//! From a request to its answer, the same way for every operation: who asks, what, and what came of it.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use fencehold_contract::http::{
    CallVisitor, HttpOperation, IDEMPOTENCY_HEADER, Method, PROBLEM_TYPE, Scope, SingleOperation,
    StoreOperation, TIMEOUT_HEADER,
};
use fencehold_contract::operation::{JobRequest, StoreBackend as _, StoreRequest, unexpected_response};
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::{BadInput, Namespace};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ServerInner;
use crate::access::{AuthorizedStore, Caller};
use crate::limit::{BadBody, MemoryShare};
use crate::observe::TraceContext;

/// For how long to retry while the store is unreachable, unless the caller says otherwise.
const TIMEOUT_MS: u64 = 5_000;
/// And at most.
const TIMEOUT_MS_MAX: u64 = 60_000;
/// The header of W3C's trace context.
const TRACE_HEADER: &str = "traceparent";

/// What a handler works with.
pub(super) struct RequestContext {
    pub(super) server: Arc<ServerInner>,
    /// The store, as far as this caller may use it.
    pub(super) store: AuthorizedStore,
    pub(super) call: CallContext,
    pub(super) idempotency_key: Option<HeaderValue>,
}

impl RequestContext {
    /// Of a request that was let in. What is kept of its head is copied: a request that waits would else keep all of what its head
    /// was read into.
    pub(super) fn new(
        server: Arc<ServerInner>,
        (caller, namespace): (Caller, Namespace),
        operation: (&'static str, &'static [Scope]),
        parts: &Parts,
        share: Option<MemoryShare>,
    ) -> Result<Self, Problem> {
        let timeout_ms = match parts.headers.get(TIMEOUT_HEADER) {
            None => TIMEOUT_MS,
            Some(value) => patience_of(value)
                .ok_or_else(|| BadInput::new(TIMEOUT_HEADER, "must be a number of milliseconds"))?,
        };
        let call = CallContext::new(namespace).with_timeout_ms(timeout_ms).relayed();
        let trace = parts
            .headers
            .get(TRACE_HEADER)
            .and_then(|value| TraceContext::parse(value.to_str().ok()?));
        let store = AuthorizedStore::new(Arc::clone(&server), caller, operation, trace, share);
        let copied = |value: &HeaderValue| HeaderValue::from_bytes(value.as_bytes()).ok();
        let idempotency_key = parts.headers.get(IDEMPOTENCY_HEADER).and_then(copied);
        Ok(RequestContext { server, store, call, idempotency_key })
    }

    /// Waits for something in line: until it comes, or the server stops, or (this future is dropped) the caller goes.
    pub(super) async fn in_line<T>(
        &self,
        waiting: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Problem> {
        Ok(self.server.shutdown.unless(waiting).await??)
    }
}

/// For how long to retry while the store is unreachable: a number, of which more than the most counts as that.
fn patience_of(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(TIMEOUT_MS_MAX).min(TIMEOUT_MS_MAX))
}

/// What comes of an operation.
pub(super) type HandlerResult<T> = Result<T, Problem>;

/// The operations that have a handler.
#[derive(Default)]
pub(super) struct Routes {
    router: Router<Arc<ServerInner>>,
    names: Vec<&'static str>,
}

/// Operations that have a handler already are left alone.
impl CallVisitor for Routes {
    fn visit_call<O: StoreOperation>(&mut self) {
        if !self.names.contains(&O::SPEC.name) {
            self.add::<O, _, _>(call::<O>);
        }
    }

    fn visit_single<O: SingleOperation>(&mut self) {
        if !self.names.contains(&O::SPEC.name) {
            self.add_single_with::<O, _, _>(call::<O::Batch>);
        }
    }
}

impl Routes {
    /// Has an operation answered by this.
    pub(super) fn add<O, H, Answer>(&mut self, handler: H)
    where
        O: HttpOperation,
        H: Fn(RequestContext, O::Request) -> Answer + Clone + Send + Sync + 'static,
        Answer: Future<Output = HandlerResult<O::Response>> + Send,
    {
        let answer =
            move |State(server): State<Arc<ServerInner>>, path: RawPathParams, request: Request<Body>| {
                let handler = handler.clone();
                async move {
                    match answer::<O, _>(server, &path, request, handler).await {
                        Ok(answer) => json(StatusCode::OK, "application/json", &answer),
                        Err(problem) => problem_response(&problem),
                    }
                }
            };
        let method: MethodRouter<Arc<ServerInner>> = match O::SPEC.method {
            Method::Get => get(answer),
            Method::Post => post(answer),
        };
        self.router = std::mem::take(&mut self.router).route(O::SPEC.path, method);
        self.names.push(O::SPEC.name);
    }

    /// Has an operation about one thing carried out as a batch of one.
    pub(super) fn add_single_with<O, H, Answer>(&mut self, batch: H)
    where
        O: SingleOperation,
        H: Fn(RequestContext, <O::Batch as HttpOperation>::Request) -> Answer + Clone + Send + Sync + 'static,
        Answer: Future<Output = HandlerResult<<O::Batch as HttpOperation>::Response>> + Send,
    {
        self.add::<O, _, _>(move |asked, request| {
            let batch = batch.clone();
            async move {
                let about = O::about(&request);
                let answer = batch(asked, O::batch(request)).await?;
                O::only(answer).map_err(|problem| problem.with(about))
            }
        });
    }

    pub(super) fn count(&self) -> usize {
        self.names.len()
    }

    pub(super) fn into_router(self) -> Router<Arc<ServerInner>> {
        self.router
    }
}

/// An operation that is a call of the contract.
async fn call<O: StoreOperation>(asked: RequestContext, request: O::Request) -> HandlerResult<O::Response> {
    let ask = O::ask(request);
    // Only these wait in line, and are given up when the server stops.
    let waits = matches!(
        ask,
        StoreRequest::Acquire(_) | StoreRequest::Events(_) | StoreRequest::Job(JobRequest::Claim(_))
    );
    let performing = asked.store.execute(&asked.call, ask);
    let answer = if waits { asked.in_line(performing).await? } else { performing.await? };
    O::answer(answer).ok_or_else(|| unexpected_response().into())
}

async fn answer<O: HttpOperation, Answer: Future<Output = HandlerResult<O::Response>>>(
    server: Arc<ServerInner>,
    path: &RawPathParams,
    request: Request<Body>,
    handler: impl Fn(RequestContext, O::Request) -> Answer,
) -> HandlerResult<O::Response> {
    let (parts, body) = request.into_parts();
    // First of all: nothing is read for one who may not ask.
    let caller = server.admit(&parts, &O::SPEC)?;
    let (request, share) = match O::SPEC.method {
        Method::Get => (from_query(path, parts.uri.query())?, None),
        Method::Post => {
            let (request, share) = from_body(&server, &parts.headers, body).await?;
            (request, Some(share))
        }
    };
    let asked = RequestContext::new(server, caller, (O::SPEC.name, O::SPEC.scopes), &parts, share)?;
    drop(parts);
    handler(asked, request).await
}

/// A request that is in the path and the query.
pub(super) fn from_query<T: DeserializeOwned>(path: &RawPathParams, query: Option<&str>) -> HandlerResult<T> {
    let path: Vec<(&str, &str)> = path.iter().collect();
    let mut fields = serde_html_form::to_string(&path).unwrap_or_default();
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        if !fields.is_empty() {
            fields.push('&');
        }
        fields.push_str(query);
    }
    serde_html_form::from_str(&fields).map_err(|error| BadInput::new("query", error.to_string()).into())
}

/// A request that is in the body, with its share of the memory for bodies.
async fn from_body<T: DeserializeOwned>(
    server: &ServerInner,
    headers: &HeaderMap,
    body: Body,
) -> HandlerResult<(T, MemoryShare)> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return Err(Problem::new(ErrorKind::NotJson, "send the body as content-type: application/json"));
    }
    let taken = server
        .gate
        .bodies
        .take(headers, body)
        .await
        .map_err(|bad_body| match bad_body {
            BadBody::TooLarge { limit } => {
                server.metrics.bodies_too_large.add_one();
                let detail = format!("the body has more than {limit} bytes; send less at a time");
                let problem = Problem::new(ErrorKind::BodyTooLarge, detail);
                problem.with(|problem| problem.limit = u64::try_from(limit).ok())
            }
            BadBody::TooSlow => {
                server.metrics.bodies_too_slow.add_one();
                Problem::new(ErrorKind::Unavailable, "the body did not come in time; nothing was done")
            }
            BadBody::Broken => BadInput::new("body", "broke off").into(),
        })?;
    // UTF-8 is validated once per body.
    let unread = |error: &dyn std::error::Error| BadInput::new("body", error.to_string());
    let text = std::str::from_utf8(&taken.bytes).map_err(|error| unread(&error))?;
    let request = serde_json::from_str(text).map_err(|error| unread(&error))?;
    Ok((request, taken.share))
}

fn json(status: StatusCode, kind: &'static str, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, kind)], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A problem without the paths of this machine that a store named in it: they stand in the log instead. `None`: it names
/// none.
pub(super) fn without_paths(problem: &Problem) -> Option<Problem> {
    if !matches!(problem.kind, ErrorKind::Unavailable | ErrorKind::OutcomeUnknown | ErrorKind::Unusable) {
        return None;
    }
    let place = problem.store.as_deref().filter(|_| problem.kind == ErrorKind::Unusable);
    let clean = |text: &str| {
        let text = place.map_or_else(|| text.to_owned(), |place| text.replace(place, "the server's store"));
        hide_paths(&text)
    };
    let mut shown = problem.clone();
    shown.detail = clean(&problem.detail);
    shown.message = problem.message.as_deref().map(clean);
    shown.store = problem.store.as_deref().map(clean);
    if shown == *problem {
        return None;
    }
    tracing::warn!(detail = problem.detail, "an answer named a path of this machine, which was left out");
    Some(shown)
}

/// A text without its absolute paths.
fn hide_paths(text: &str) -> String {
    let begins = |before: Option<char>| before.is_none_or(|c| c.is_whitespace() || "\"'`(:=,".contains(c));
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let is_path = begins(shown.chars().next_back())
            && from[1..].starts_with(|c: char| !c.is_whitespace() && c != '/');
        if !is_path {
            shown.push('/');
            rest = &from[1..];
            continue;
        }
        let end = from
            .find(|c: char| c.is_whitespace() || "\"'`),;".contains(c))
            .unwrap_or(from.len());
        let (path, after) = from.split_at(end);
        shown.push_str("(a path of the server)");
        // A colon after a path ends what is said of it.
        shown.push_str(if path.ends_with(':') { ":" } else { "" });
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// A problem as a whole answer.
pub(super) fn problem_response(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let shown = without_paths(problem);
    let mut response = json(status, PROBLEM_TYPE, shown.as_ref().unwrap_or(problem));
    if let Some(retry_after_ms) = problem.retry_after_ms {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, retry_after_ms.div_ceil(1_000).into());
    }
    if status == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_server_are_hidden_and_nothing_else() {
        let hidden =
            hide_paths("/var/lib/fencehold: no space; see file:/srv/x, `/a b` at http://h:1/p and 3/4");
        assert_eq!(
            hidden,
            "(a path of the server): no space; see file:(a path of the server), `(a path of the server) b` at \
             http://h:1/p and 3/4"
        );
        let mut problem = Problem::new(ErrorKind::Unusable, "data/x cannot be used as a store: damaged");
        problem.store = Some("data/x".to_owned());
        let shown = without_paths(&problem).unwrap();
        assert_eq!(shown.detail, "the server's store cannot be used as a store: damaged");
        assert!(without_paths(&Problem::new(ErrorKind::PathNotFound, "there is nothing at /x")).is_none());
    }
}
