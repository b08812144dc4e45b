//! From a request to its answer, the same way for every operation: who asks, what, and what came of it.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use fencehold_contract::http::{
    CallVisitor, HttpOperation, IDEMPOTENCY_HEADER, Method, OperationSpec, PROBLEM_TYPE, Scope,
    SingleOperation, StoreOperation, Subject, TIMEOUT_HEADER,
};
use fencehold_contract::operation::{
    JobRequest, StoreBackend as _, StoreRequest, StoreResponse, unexpected_response,
};
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::{BadInput, Namespace};
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use serde::de::DeserializeOwned;

use crate::ServerInner;
use crate::access::{AuthorizedStore, Caller};
use crate::limit::{BadBody, BodyBytes, MemoryShare};
use crate::observe::TraceContext;

/// For how long to retry while the store is unreachable, unless the caller says otherwise.
const TIMEOUT_MS: u64 = 5_000;
/// And at most.
const TIMEOUT_MS_MAX: u64 = 60_000;
/// The header of W3C's trace context.
const TRACE_HEADER: &str = "traceparent";

/// What a handler works with.
pub(crate) struct RequestContext {
    pub(super) server: Arc<ServerInner>,
    /// The store, as far as this caller may use it.
    pub(crate) store: AuthorizedStore,
    pub(crate) call: CallContext,
    pub(super) idempotency_key: Option<HeaderValue>,
    /// Whether it is one of a batch, and so must not wait.
    in_batch: bool,
}

impl RequestContext {
    /// Of a request that was let in. What is kept of its head is copied: a request that waits would else keep all of what its head
    /// was read into.
    pub(crate) fn new(
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
        Ok(RequestContext { server, store, call, idempotency_key, in_batch: false })
    }

    /// Of one operation of the batch that this request is.
    pub(super) fn for_operation(&self, spec: &OperationSpec) -> Self {
        let store = self.store.for_operation(spec.name, spec.scopes);
        let (server, call) = (Arc::clone(&self.server), self.call.clone());
        RequestContext { server, store, call, idempotency_key: None, in_batch: true }
    }

    /// Waits for something in line: until it comes, or the server stops, or (this future is dropped) the caller goes.
    pub(super) async fn in_line<T>(
        &self,
        waiting: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Problem> {
        Ok(self.server.shutdown.unless(waiting).await??)
    }

    /// Has the store carry out a call.
    async fn perform(&self, ask: StoreRequest) -> HandlerResult<StoreResponse> {
        if self.in_batch && ask.wait_ms() > 0 {
            let message = "an operation of a batch does not wait: send it in a request of its own";
            return Err(BadInput::new("wait_ms", message).into());
        }
        // Only these wait in line, and are given up when the server stops.
        let waits = matches!(
            ask,
            StoreRequest::Acquire(_) | StoreRequest::Events(_) | StoreRequest::Job(JobRequest::Claim(_))
        );
        let performing = self.store.execute(&self.call, ask);
        if waits { self.in_line(performing).await } else { Ok(performing.await?) }
    }
}

/// For how long to retry while the store is unreachable: a number, of which more than the most counts as that.
fn patience_of(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(TIMEOUT_MS_MAX).min(TIMEOUT_MS_MAX))
}

/// What comes of an operation.
pub(crate) type HandlerResult<T> = Result<T, Problem>;

/// Reads the request of an operation. `Err`: it cannot be read.
type Reading = dyn Fn(&str) -> HandlerResult<Box<dyn PendingOperation>> + Send + Sync;

/// A request that was read.
pub(super) trait PendingOperation: Send {
    /// What it is about.
    fn subjects(&self) -> Vec<Subject>;
    /// Carries it out and writes the answer.
    fn perform(self: Box<Self>, asked: RequestContext) -> BoxFuture<'static, HandlerResult<Vec<u8>>>;
}

/// Writes what the store answered. `None`: it answered something else.
type Writing = fn(StoreResponse) -> Option<HandlerResult<Vec<u8>>>;
/// Says in a problem which thing it is about.
type About = Box<dyn FnOnce(&mut Problem) + Send>;

/// Carries out a call of the contract: compiled once, not once for each operation.
fn perform_call(
    asked: RequestContext,
    ask: StoreRequest,
    write: Writing,
    about: Option<About>,
) -> BoxFuture<'static, HandlerResult<Vec<u8>>> {
    Box::pin(async move {
        let written = write(asked.perform(ask).await?).ok_or_else(unexpected_response)?;
        written.map_err(|problem| match about {
            Some(about) => problem.with(about),
            None => problem,
        })
    })
}

/// One that is a call of the contract.
struct ReadCall<O: HttpOperation>(O::Request);

impl<O: StoreOperation> PendingOperation for ReadCall<O> {
    fn subjects(&self) -> Vec<Subject> {
        O::subjects(&self.0)
    }

    fn perform(self: Box<Self>, asked: RequestContext) -> BoxFuture<'static, HandlerResult<Vec<u8>>> {
        let write: Writing = |answer| Some(written(serde_json::to_vec(&O::answer(answer)?)));
        perform_call(asked, O::ask(self.0), write, None)
    }
}

fn read_call<O: StoreOperation>(text: &str) -> HandlerResult<Box<dyn PendingOperation>> {
    Ok(Box::new(ReadCall::<O>(read_request::<O>(text)?)))
}

/// One about one thing, carried out as a batch of one.
struct ReadSingle<O: HttpOperation>(O::Request);

impl<O: SingleOperation> PendingOperation for ReadSingle<O> {
    fn subjects(&self) -> Vec<Subject> {
        O::subjects(&self.0)
    }

    fn perform(self: Box<Self>, asked: RequestContext) -> BoxFuture<'static, HandlerResult<Vec<u8>>> {
        let about = O::about(&self.0);
        let write: Writing = |answer| {
            let only = O::only(O::Batch::answer(answer)?);
            Some(only.and_then(|only| written(serde_json::to_vec(&only))))
        };
        perform_call(asked, O::Batch::ask(O::batch(self.0)), write, Some(about))
    }
}

fn read_single<O: SingleOperation>(text: &str) -> HandlerResult<Box<dyn PendingOperation>> {
    Ok(Box::new(ReadSingle::<O>(read_request::<O>(text)?)))
}

/// One with a handler of its own.
struct ReadRequest<O: HttpOperation, H> {
    request: O::Request,
    handler: Arc<H>,
}

impl<O, H, Answer> PendingOperation for ReadRequest<O, H>
where
    O: HttpOperation,
    H: Fn(RequestContext, O::Request) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = HandlerResult<O::Response>> + Send + 'static,
{
    fn subjects(&self) -> Vec<Subject> {
        O::subjects(&self.request)
    }

    fn perform(self: Box<Self>, asked: RequestContext) -> BoxFuture<'static, HandlerResult<Vec<u8>>> {
        let answer = (self.handler)(asked, self.request);
        Box::pin(async move { written(serde_json::to_vec(&answer.await?)) })
    }
}

/// The request of an operation, from its fields or its body.
fn read_request<O: HttpOperation>(text: &str) -> HandlerResult<O::Request> {
    match O::SPEC.method {
        Method::Get => from_fields(text),
        Method::Post => serde_json::from_str(text).map_err(|error| unread_body(&error)),
    }
}

/// How one operation is answered. Its types are known to `reading` alone: the way there and back is compiled once, not once
/// for each operation.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) spec: OperationSpec,
    reading: Arc<Reading>,
}

impl Endpoint {
    async fn answer(
        self,
        server: Arc<ServerInner>,
        path: RawPathParams,
        request: Request<Body>,
    ) -> HandlerResult<Response> {
        let (parts, body) = request.into_parts();
        // First of all: nothing is read for one who may not ask.
        let caller = server.admit(&parts, &self.spec)?;
        let (asked, operation) = {
            let (text, share) = match self.spec.method {
                Method::Get => (Bytes::from(fields_of(&path, parts.uri.query())), None),
                Method::Post => {
                    let BodyBytes { bytes, share } = body_of(&server, &parts.headers, body).await?;
                    (bytes, Some(share))
                }
            };
            let operation = (self.spec.name, self.spec.scopes);
            let asked = RequestContext::new(server, caller, operation, &parts, share)?;
            drop(parts);
            // UTF-8 is validated once per body.
            let text = str::from_utf8(&text).map_err(|error| unread_body(&error))?;
            (asked, self.read(text)?)
        };
        let answer = operation.perform(asked).await?;
        Ok(json(StatusCode::OK, "application/json", answer))
    }

    pub(super) fn read(&self, text: &str) -> HandlerResult<Box<dyn PendingOperation>> {
        (self.reading)(text)
    }
}

/// The operations that have a handler.
#[derive(Default)]
pub(super) struct Routes {
    router: Router<Arc<ServerInner>>,
    endpoints: HashMap<&'static str, Endpoint>,
}

/// Operations that have a handler already are left alone.
impl CallVisitor for Routes {
    fn visit_call<O: StoreOperation>(&mut self) {
        if !self.endpoints.contains_key(O::SPEC.name) {
            self.route(Endpoint { spec: O::SPEC, reading: Arc::new(read_call::<O>) });
        }
    }

    fn visit_single<O: SingleOperation>(&mut self) {
        if !self.endpoints.contains_key(O::SPEC.name) {
            self.route(Endpoint { spec: O::SPEC, reading: Arc::new(read_single::<O>) });
        }
    }
}

impl Routes {
    /// Has an operation answered by this.
    pub(super) fn add<O, H, Answer>(&mut self, handler: H)
    where
        O: HttpOperation,
        H: Fn(RequestContext, O::Request) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = HandlerResult<O::Response>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let reading = move |text: &str| -> HandlerResult<Box<dyn PendingOperation>> {
            let request = read_request::<O>(text)?;
            Ok(Box::new(ReadRequest::<O, H> { request, handler: Arc::clone(&handler) }))
        };
        self.route(Endpoint { spec: O::SPEC, reading: Arc::new(reading) });
    }

    fn route(&mut self, endpoint: Endpoint) {
        let OperationSpec { name, method, path, .. } = endpoint.spec;
        self.endpoints.insert(name, endpoint.clone());
        let answer = move |State(server): State<Arc<ServerInner>>,
                           path: RawPathParams,
                           request: Request<Body>| async move {
            let answer = endpoint.answer(server, path, request).await;
            answer.unwrap_or_else(|problem| problem_response(&problem))
        };
        let method: MethodRouter<Arc<ServerInner>> = match method {
            Method::Get => get(answer),
            Method::Post => post(answer),
        };
        self.router = std::mem::take(&mut self.router).route(path, method);
    }

    /// Those that may be in a batch, by name.
    pub(super) fn batched(&self) -> HashMap<&'static str, Endpoint> {
        let batched = self.endpoints.iter().filter(|(_, endpoint)| endpoint.spec.batched);
        batched.map(|(name, endpoint)| (*name, endpoint.clone())).collect()
    }

    /// Has an operation about one thing carried out as a batch of one.
    pub(super) fn add_single_with<O, H, Answer>(&mut self, batch: H)
    where
        O: SingleOperation,
        H: Fn(RequestContext, <O::Batch as HttpOperation>::Request) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = HandlerResult<<O::Batch as HttpOperation>::Response>> + Send + 'static,
    {
        self.add::<O, _, _>(move |asked, request| {
            let about = O::about(&request);
            let answer = batch(asked, O::batch(request));
            async move { O::only(answer.await?).map_err(|problem| problem.with(about)) }
        });
    }

    pub(super) fn count(&self) -> usize {
        self.endpoints.len()
    }

    pub(super) fn into_router(self) -> Router<Arc<ServerInner>> {
        self.router
    }
}

/// An operation that is a call of the contract.
pub(crate) async fn call<O: StoreOperation>(
    asked: RequestContext,
    request: O::Request,
) -> HandlerResult<O::Response> {
    let ask = O::ask(request);
    // Boxed, so that what waits for it is compiled without all that it consists of.
    let performing: BoxFuture<'_, HandlerResult<StoreResponse>> = Box::pin(asked.perform(ask));
    O::answer(performing.await?).ok_or_else(|| unexpected_response().into())
}

/// A request that is in the path and the query.
pub(super) fn from_query<T: DeserializeOwned>(path: &RawPathParams, query: Option<&str>) -> HandlerResult<T> {
    from_fields(&fields_of(path, query))
}

fn from_fields<T: DeserializeOwned>(fields: &str) -> HandlerResult<T> {
    serde_html_form::from_str(fields).map_err(|error| BadInput::new("query", error.to_string()).into())
}

/// The fields of a request that is in the path and the query.
fn fields_of(path: &RawPathParams, query: Option<&str>) -> String {
    let path: Vec<(&str, &str)> = path.iter().collect();
    let mut fields = serde_html_form::to_string(&path).unwrap_or_default();
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        if !fields.is_empty() {
            fields.push('&');
        }
        fields.push_str(query);
    }
    fields
}

/// The body of a request that is in it, with its share of the memory for bodies.
async fn body_of(server: &ServerInner, headers: &HeaderMap, body: Body) -> HandlerResult<BodyBytes> {
    if !has_content_type(headers, "application/json") {
        return Err(Problem::new(ErrorKind::NotJson, "send the body as content-type: application/json"));
    }
    read_body(server, headers, body).await
}

/// Whether the body of a request is said to be of this type.
pub(crate) fn has_content_type(headers: &HeaderMap, expected: &str) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(expected))
}

/// A body, within the limits of the server.
pub(crate) async fn read_body(
    server: &ServerInner,
    headers: &HeaderMap,
    body: Body,
) -> HandlerResult<BodyBytes> {
    let taken = server.gate.bodies.take(headers, body).await;
    taken.map_err(|bad_body| match bad_body {
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
    })
}

fn unread_body(error: &dyn std::error::Error) -> Problem {
    BadInput::new("body", error.to_string()).into()
}

fn written(json: serde_json::Result<Vec<u8>>) -> HandlerResult<Vec<u8>> {
    json.map_err(|error| {
        tracing::error!(%error, "an answer could not be written");
        Problem::new(ErrorKind::Unusable, "the answer could not be written; the server's log says why")
    })
}

fn json(status: StatusCode, kind: &'static str, bytes: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, kind)], bytes).into_response()
}

/// A problem without the paths of this machine that a store named in it: they stand in the log instead. `None`: it names
/// none.
pub(crate) fn without_paths(problem: &Problem) -> Option<Problem> {
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
pub(crate) fn problem_response(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let shown = without_paths(problem);
    let bytes = serde_json::to_vec(shown.as_ref().unwrap_or(problem)).unwrap_or_default();
    let mut response = json(status, PROBLEM_TYPE, bytes);
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
