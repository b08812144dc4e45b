//! One request to the server, and its answer.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fencehold_contract::http::{
    HttpOperation, Method, NAMESPACE_HEADER, OperationSpec, PROBLEM_TYPE, TIMEOUT_HEADER,
};
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_contract::{CallContext, RemoteUrl, StoreError};
use fencehold_core::Namespace;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Certificate, Client, Response, StatusCode};

use super::budget::RequestError;

/// How long a connection may take to come about.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// A server that has vanished without a word is noticed after about this time, also while waiting in line.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;
/// A line of a stream that is longer is not a server's.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Where the token of access comes from, unless it is in the URL.
const TOKEN_VARIABLE: &str = "FENCEHOLD_ACCESS_TOKEN";

pub(super) struct HttpClient {
    base: Arc<str>,
    /// Servers of one store, of which one is asked until it cannot answer.
    servers: Vec<String>,
    asked: AtomicUsize,
    client: Client,
    sent: AtomicU64,
}

impl HttpClient {
    pub(super) fn new(url: &RemoteUrl) -> Result<Self, StoreError> {
        let base = url.base.clone();
        let unusable = |why: String| StoreError::Unusable { store: base.clone(), message: why };
        // Keep a provider that is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut headers = HeaderMap::new();
        let variable = || std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
        if let Some(token) = url.token.clone().or_else(variable) {
            let shown = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            let mut shown =
                shown.map_err(|_| unusable(format!("the token in {TOKEN_VARIABLE} is not plain text")))?;
            shown.set_sensitive(true);
            headers.insert(AUTHORIZATION, shown);
        }
        let mut client = Client::builder()
            .default_headers(headers)
            // Only the budget of the call sends a request again: it knows how to say so.
            .retry(reqwest::retry::never())
            // An access token is shown only to the server that was named.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_WITHIN)
            .tcp_nodelay(true)
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE / KEEPALIVE_PROBES)
            .tcp_keepalive_retries(KEEPALIVE_PROBES);
        if let Some(ca) = &url.ca {
            let read = std::fs::read(ca).map_err(|error| error.to_string());
            let certificates =
                read.and_then(|pem| Certificate::from_pem_bundle(&pem).map_err(|error| root_of(&error)));
            let certificates = certificates
                .map_err(|error| unusable(format!("{} cannot be read: {error}", ca.display())))?;
            client = client.tls_certs_only(certificates);
        } else if base.starts_with("http:") {
            // There is no certificate to check here, and reading the system's authorities takes longer than everything else.
            client = client.tls_certs_only([]);
        }
        let client = client.build().map_err(|error| unusable(root_of(&error)))?;
        let (asked, sent) = (AtomicUsize::default(), AtomicU64::default());
        Ok(HttpClient { base: base.into(), servers: url.servers.clone(), asked, client, sent })
    }

    /// How many requests were sent.
    pub(super) fn requests_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// How many servers there are to ask.
    pub(super) fn servers(&self) -> usize {
        self.servers.len()
    }

    fn server(&self) -> (usize, &str) {
        let nth = self.asked.load(Ordering::Relaxed);
        (
            nth,
            self.servers
                .get(nth % self.servers.len().max(1))
                .map_or(&*self.base, String::as_str),
        )
    }

    /// Asks the next server from now on, unless another request has moved on already.
    fn move_on(&self, from: usize) {
        let _ = self
            .asked
            .compare_exchange(from, from.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The server, for messages.
    pub(super) fn place(&self) -> &Arc<str> {
        &self.base
    }

    /// Asks one server once.
    pub(super) async fn send<O: HttpOperation>(
        &self,
        call: &CallContext,
        request: &O::Request,
    ) -> Result<O::Response, RequestError> {
        read::<O>(&self.send_text(O::SPEC, call, write::<O>(request)?).await?)
    }

    /// Asks one server once. Where that one cannot answer, or does not in time (the future is dropped), the next request
    /// goes to another.
    pub(super) async fn send_text(
        &self,
        spec: OperationSpec,
        call: &CallContext,
        written: String,
    ) -> Result<String, RequestError> {
        let (nth, server) = self.server();
        let mut turn = RequestAttempt { wire: self, nth, answered: false };
        let outcome = self.exchange(server, spec, call, written).await;
        turn.answered = match &outcome {
            Ok(_) => true,
            Err(RequestError::Problem(problem)) => !is_elsewhere(problem),
            Err(_) => false,
        };
        outcome
    }

    /// Asks the current server once for a stream that does not end.
    pub(super) async fn stream(
        &self,
        path: &str,
        namespace: &Namespace,
    ) -> Result<ResponseLines, RequestError> {
        let (_, server) = self.server();
        let asked = self
            .client
            .get(format!("{server}{path}"))
            .header(NAMESPACE_HEADER, namespace.as_str());
        let answer = asked.send().await.map_err(|error| fault_of(&error))?;
        match answer.status() {
            StatusCode::OK => Ok(ResponseLines { answer, read: Vec::new() }),
            status => Err(refused(status, answer).await),
        }
    }

    /// Sends what was written for an operation, and gets what is to be read.
    async fn exchange(
        &self,
        server: &str,
        spec: OperationSpec,
        call: &CallContext,
        written: String,
    ) -> Result<String, RequestError> {
        let asked = match spec.method {
            Method::Get => {
                let (path, query) = place_fields(spec.path, &written);
                self.client.get(format!("{server}{path}?{query}"))
            }
            Method::Post => {
                let json = HeaderValue::from_static("application/json");
                self.client
                    .post(format!("{server}{}", spec.path))
                    .header(CONTENT_TYPE, json)
                    .body(written)
            }
        };
        self.sent.fetch_add(1, Ordering::Relaxed);
        let asked = asked
            .header(NAMESPACE_HEADER, call.namespace.as_str())
            .header(TIMEOUT_HEADER, call.timeout_ms);
        let answer = asked.send().await.map_err(|error| fault_of(&error))?;
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(refused(status, answer).await);
        }
        let body = answer.bytes().await.map_err(|error| fault_of(&error))?;
        // UTF-8 is validated once per body, not once per string.
        String::from_utf8(body.into()).map_err(|error| unread(spec.method, &error))
    }
}

/// Writes a request: its query, or its body.
pub(super) fn write<O: HttpOperation>(request: &O::Request) -> Result<String, RequestError> {
    match O::SPEC.method {
        Method::Get => serde_html_form::to_string(request).map_err(|error| unfit(&error)),
        Method::Post => serde_json::to_string(request).map_err(|error| unfit(&error)),
    }
}

/// Reads the body of a response.
pub(super) fn read<O: HttpOperation>(text: &str) -> Result<O::Response, RequestError> {
    serde_json::from_str(text).map_err(|error| unread(O::SPEC.method, &error))
}

/// Whether another server may be able to do what this one says that it cannot.
fn is_elsewhere(problem: &Problem) -> bool {
    matches!(problem.kind, ErrorKind::Stopping | ErrorKind::Unavailable | ErrorKind::RateLimited)
}

fn unfit(error: &dyn std::error::Error) -> RequestError {
    RequestError::Stranger(format!("a request cannot be written: {error}"))
}

fn unread(method: Method, error: &dyn std::error::Error) -> RequestError {
    let why = format!("what it answers is not understood: {error}");
    match method {
        Method::Get => RequestError::Stranger(why),
        Method::Post => RequestError::Unread(why),
    }
}

/// An answer that does not end, line by line.
pub(super) struct ResponseLines {
    answer: Response,
    read: Vec<u8>,
}

impl ResponseLines {
    /// The next line, without its end; `None`: no more comes. Not cancel safe but for giving it up.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.read.len() > LINE_BYTES_MAX {
                return None;
            }
            let chunk = self.answer.chunk().await.ok()??;
            self.read.extend_from_slice(&chunk);
        }
    }
}

/// One request at one server.
struct RequestAttempt<'w> {
    wire: &'w HttpClient,
    nth: usize,
    answered: bool,
}

impl Drop for RequestAttempt<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.wire.move_on(self.nth);
        }
    }
}

/// Takes what belongs into the path out of the fields of a request; the rest is its query.
fn place_fields(path: &str, fields: &str) -> (String, String) {
    let mut path = path.to_owned();
    let mut query = Vec::new();
    for field in fields.split('&') {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        let place = format!("{{{name}}}");
        if path.contains(&place) {
            path = path.replace(&place, value);
        } else {
            query.push(field);
        }
    }
    (path, query.join("&"))
}

/// What an answer that is none means.
async fn refused(status: StatusCode, answer: Response) -> RequestError {
    let kind = answer
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let is_problem = kind.starts_with(PROBLEM_TYPE);
    let body = match answer.bytes().await {
        Ok(body) => body,
        Err(error) => return fault_of(&error),
    };
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) if is_problem => RequestError::Problem(Box::new(problem)),
        // Something in between: a proxy that lost the server.
        _ if status.is_server_error() => RequestError::Unclear(format!("it answers with status {status}")),
        _ => RequestError::Stranger(format!("it answers with status {status}, as no Fencehold server does")),
    }
}

fn fault_of(error: &reqwest::Error) -> RequestError {
    let why = root_of(error);
    match error {
        error if is_distrust(error) => RequestError::Distrusted(why),
        error if error.is_connect() => RequestError::Unreached(why),
        _ => RequestError::Unclear(why),
    }
}

/// Whether no encryption could be agreed on: its certificate was not accepted, or it speaks something else. Asking again
/// does not change that.
fn is_distrust(error: &reqwest::Error) -> bool {
    fn holds(error: &(dyn std::error::Error + 'static)) -> bool {
        // An error of the system hides what it carries.
        let carried = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        error.is::<rustls::Error>()
            || carried.is_some_and(|carried| holds(carried))
            || error.source().is_some_and(holds)
    }
    error.is_connect() && error.source().is_some_and(holds)
}

/// What is at the bottom of an error: the rest says where in the client it happened.
fn root_of(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    let mut said = if error.is_timeout() { "no answer came in time".to_owned() } else { error.to_string() };
    while let Some(deeper) = cause {
        said = deeper.to_string();
        cause = deeper.source();
    }
    said
}
