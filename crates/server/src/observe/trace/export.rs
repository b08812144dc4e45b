//! Sending spans away, by OTLP over HTTP: gathered for a moment, sent in one request, and dropped when the receiver
//! does not keep up. Nobody's request ever waits for a trace.

use std::sync::Arc;
use std::time::Duration;

use fencehold_store::measure::Counter;
use http::{Request, Uri, header};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use prost::Message as _;
use tokio::sync::mpsc;

use super::messages::{
    AnyValue, ExportRequest, KeyValue, Link, Resource, ResourceSpans, Scope, ScopeSpans, Status, Value,
};
use super::{Attribute, Span, messages};

/// How many spans may wait to be sent.
pub(super) const WAITING_MAX: usize = 8_192;
const BATCH_MAX: usize = 512;
/// How long a batch gathers.
const GATHER: Duration = Duration::from_millis(500);
/// How long a receiver may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const TRIES: u32 = 3;
const PATH: &str = "/v1/traces";

/// Where spans go, and under which name.
#[derive(Clone, Debug)]
pub struct Receiver {
    uri: Uri,
    service: String,
    pub(super) seed: [u8; 16],
}

impl Receiver {
    /// Reads the URL of a receiver; without a path it is the usual one. The seed must be random: it keeps the ids of this
    /// server's spans apart from all others.
    pub fn new(url: &str, service: &str, seed: [u8; 16]) -> Result<Self, String> {
        let wrong = |why: &str| format!("traces.otlp {why}; it looks like http://localhost:4318");
        let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong(
                "must begin with http:// (have a collector on this machine pass spans on encrypted)",
            ));
        }
        let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
        let path = if uri.path().len() > 1 { uri.path() } else { PATH };
        let uri = Uri::builder()
            .scheme("http")
            .authority(authority.clone())
            .path_and_query(path)
            .build();
        Ok(Receiver { uri: uri.map_err(|_| wrong("is not a URL"))?, service: service.to_owned(), seed })
    }

    /// Sends what comes, until nobody is there to send anything.
    pub(super) async fn run(self, mut spans: mpsc::Receiver<Span>, dropped: Arc<Counter>) {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut batch = Vec::new();
        while spans.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let more = async {
                while batch.len() < BATCH_MAX && spans.recv_many(&mut batch, BATCH_MAX).await > 0 {}
            };
            let _ = tokio::time::timeout(GATHER, more).await;
            let count = batch.len() as u64;
            let body = Bytes::from(self.request(batch.drain(..)).encode_to_vec());
            let mut sent = Err(String::new());
            for _ in 0..TRIES {
                sent = self.send(&client, body.clone()).await;
                if sent.is_ok() {
                    break;
                }
            }
            if let Err(why) = sent {
                dropped.add(count);
                tracing::warn!(spans = count, "spans could not be sent to {}: {why}", self.uri);
            }
        }
    }

    async fn send<C>(&self, client: &Client<C, Full<Bytes>>, body: Bytes) -> Result<(), String>
    where
        C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
    {
        let request = Request::post(self.uri.clone())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let answer = tokio::time::timeout(ANSWER_WITHIN, client.request(request)).await;
        let answer = answer
            .map_err(|_| "no answer in time".to_owned())?
            .map_err(|error| error.to_string())?;
        if answer.status().is_success() { Ok(()) } else { Err(format!("the answer was {}", answer.status())) }
    }

    fn request(&self, spans: impl Iterator<Item = Span>) -> ExportRequest {
        let attributes =
            vec![text("service.name", &self.service), text("service.version", env!("CARGO_PKG_VERSION"))];
        let scope = Scope { name: "fencehold".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: spans.map(message).collect() }];
        ExportRequest {
            resource_spans: vec![ResourceSpans { resource: Some(Resource { attributes }), scope_spans }],
        }
    }
}

fn message(span: Span) -> messages::Span {
    /// OTLP's codes for 'error'.
    const ERROR: i32 = 2;
    messages::Span {
        trace_id: span.at.trace.to_vec(),
        span_id: span.at.span.to_vec(),
        parent_span_id: span.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        name: span.name.into_owned(),
        kind: span.kind as i32,
        start_time_unix_nano: span.start_wall_us.saturating_mul(1_000),
        end_time_unix_nano: span.end_wall_us.max(span.start_wall_us).saturating_mul(1_000),
        attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        links: span
            .links
            .iter()
            .map(|link| Link { trace_id: link.trace.to_vec(), span_id: link.span.to_vec() })
            .collect(),
        status: span.error.map(|message| Status { message, code: ERROR }),
    }
}

fn attribute(key: &str, value: Attribute) -> KeyValue {
    let value = match value {
        Attribute::Text(text) => Value::Text(text),
        Attribute::Number(number) => Value::Number(i64::try_from(number).unwrap_or(i64::MAX)),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn text(key: &str, text: &str) -> KeyValue {
    attribute(key, Attribute::Text(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_named_by_a_url() {
        assert_eq!(Receiver::new("http://c:4318", "x", [0; 16]).unwrap().uri, "http://c:4318/v1/traces");
        assert_eq!(Receiver::new("http://c:4318/otlp", "x", [0; 16]).unwrap().uri, "http://c:4318/otlp");
        for bad in ["", "c:4318", "https://c:4318", "grpc://c"] {
            let wrong = Receiver::new(bad, "x", [0; 16]).unwrap_err();
            assert!(wrong.contains("http://localhost:4318"), "{wrong}");
        }
    }
}
