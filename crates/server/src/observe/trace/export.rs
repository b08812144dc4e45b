//! Sending spans away, by OTLP over HTTP: gathered for a moment, sent in one request, and dropped when the receiver
//! does not keep up. No request ever waits for a trace.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::metrics::Counter;
use http::{Uri, header};
use prost::Message as _;
use reqwest::{Certificate, Client};
use tokio::sync::{mpsc, oneshot};

use super::messages::{
    AnyValue, ExportRequest, KeyValue, OtlpLink, OtlpResource, OtlpScope, OtlpStatus, OtlpValue,
    ResourceSpans, ScopeSpans,
};
use super::{Attribute, Span, messages};

/// How many spans may wait to be sent.
pub(super) const WAITING_MAX: usize = 8_192;
const BATCH_MAX: usize = 512;
/// How long a batch gathers.
const GATHER: Duration = Duration::from_millis(500);
/// How long a receiver may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// And when the server ends and waits for the last of them.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);
const TRIES: u32 = 3;
const PATH: &str = "/v1/traces";

/// Where spans go, and under which name.
#[derive(Clone)]
pub struct Receiver {
    uri: Uri,
    /// The same without what is secret in it, for messages.
    place: String,
    service: String,
    /// Who vouches for it; `None`: whom the system trusts.
    authority: Option<Vec<Certificate>>,
    pub(super) seed: [u8; 16],
}

/// What waits to be sent.
#[derive(Debug)]
pub(super) enum ExportQueue {
    Span(Box<Span>),
    /// A caller wants to know when all before it are sent.
    Flush(oneshot::Sender<()>),
}

/// Waits until what was handed in so far is sent, or has been tried for long enough.
pub(super) async fn flush(sender: &mpsc::Sender<ExportQueue>) {
    let sent = async {
        let (done, told) = oneshot::channel();
        if sender.send(ExportQueue::Flush(done)).await.is_ok() {
            let _ = told.await;
        }
    };
    if tokio::time::timeout(FLUSH_WITHIN, sent).await.is_err() {
        tracing::warn!("the last spans could not be sent in time");
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("place", &self.place)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl Receiver {
    /// Reads the URL of a receiver; without a path it is the usual one. The seed must be random: it keeps the ids of this
    /// server's spans apart from all others.
    pub fn new(url: &str, service: &str, seed: [u8; 16]) -> Result<Self, String> {
        let wrong = |why: &str| format!("traces.otlp {why}; it looks like http://localhost:4318");
        let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme));
        let scheme = scheme.ok_or_else(|| wrong("must begin with http:// or https://"))?;
        let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
        let path = if uri.path().len() > 1 { uri.path() } else { PATH };
        let port = authority.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        let place = format!("{scheme}://{}{port}{path}", authority.host());
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(authority.clone())
            .path_and_query(path)
            .build();
        let uri = uri.map_err(|_| wrong("is not a URL"))?;
        Ok(Receiver { uri, place, service: service.to_owned(), authority: None, seed })
    }

    /// Trusts this authority, given as PEM, and no other for its certificate.
    pub fn trusting(self, pem: &[u8]) -> Result<Self, String> {
        let certificates =
            Certificate::from_pem_bundle(pem).map_err(|error| format!("traces.ca is not PEM: {error}"))?;
        if certificates.is_empty() {
            return Err("traces.ca: there is no certificate in the file".to_owned());
        }
        Ok(Receiver { authority: Some(certificates), ..self })
    }

    fn client(&self) -> Result<Client, reqwest::Error> {
        // A provider that is already installed stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER_WITHIN);
        match &self.authority {
            Some(certificates) => client.tls_certs_only(certificates.clone()).build(),
            // There is no certificate to check: the system's authorities need not be read.
            None if self.uri.scheme_str() == Some("http") => client.tls_certs_only([]).build(),
            None => client.build(),
        }
    }

    /// Sends spans until no sender is left.
    pub(super) async fn run(self, mut waiting: mpsc::Receiver<ExportQueue>, dropped: Arc<Counter>) {
        let client = match self.client() {
            Ok(client) => client,
            Err(error) => {
                tracing::error!("no spans can be sent to {}: {}", self.place, root_of(&error));
                return;
            }
        };
        let mut taken = Vec::new();
        while waiting.recv_many(&mut taken, BATCH_MAX).await > 0 {
            let is_asked_for =
                |taken: &[ExportQueue]| taken.iter().any(|one| matches!(one, ExportQueue::Flush(_)));
            let more = async {
                while taken.len() < BATCH_MAX
                    && !is_asked_for(&taken)
                    && waiting.recv_many(&mut taken, BATCH_MAX).await > 0
                {}
            };
            let _ = tokio::time::timeout(GATHER, more).await;
            let (mut spans, mut asked) = (Vec::new(), Vec::new());
            for one in taken.drain(..) {
                match one {
                    ExportQueue::Span(span) => spans.push(*span),
                    ExportQueue::Flush(done) => asked.push(done),
                }
            }
            self.deliver(&client, spans, &dropped).await;
            for done in asked {
                let _ = done.send(());
            }
        }
    }

    /// Sends a batch, a few times if need be.
    async fn deliver(&self, client: &Client, spans: Vec<Span>, dropped: &Counter) {
        if spans.is_empty() {
            return;
        }
        let count = spans.len() as u64;
        let body = self.request(spans.into_iter()).encode_to_vec();
        let mut tries = 0;
        while let Err(why) = self.send(client, body.clone()).await {
            tries += 1;
            if tries == TRIES {
                dropped.add(count);
                tracing::warn!(spans = count, "spans could not be sent to {}: {why}", self.place);
                return;
            }
        }
    }

    async fn send(&self, client: &Client, body: Vec<u8>) -> Result<(), String> {
        let request = client
            .post(self.uri.to_string())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .body(body);
        let answer = request.send().await.map_err(|error| root_of(&error))?;
        if answer.status().is_success() { Ok(()) } else { Err(format!("the answer was {}", answer.status())) }
    }

    fn request(&self, spans: impl Iterator<Item = Span>) -> ExportRequest {
        let attributes =
            vec![text("service.name", &self.service), text("service.version", env!("CARGO_PKG_VERSION"))];
        let scope = OtlpScope { name: "fencehold".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: spans.map(message).collect() }];
        ExportRequest {
            resource_spans: vec![ResourceSpans { resource: Some(OtlpResource { attributes }), scope_spans }],
        }
    }
}

/// What is at the bottom of an error: the rest says where in the client it happened, and repeats the URL.
fn root_of(error: &reqwest::Error) -> String {
    let mut root = error.source();
    while let Some(deeper) = root.and_then(|cause| cause.source()) {
        root = Some(deeper);
    }
    root.map_or_else(|| error.to_string(), ToString::to_string)
}

fn message(span: Span) -> messages::OtlpSpan {
    /// OTLP's codes for 'error'.
    const ERROR: i32 = 2;
    messages::OtlpSpan {
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
            .map(|link| OtlpLink { trace_id: link.trace.to_vec(), span_id: link.span.to_vec() })
            .collect(),
        status: span.error.map(|message| OtlpStatus { message, code: ERROR }),
    }
}

fn attribute(key: &str, value: Attribute) -> KeyValue {
    let value = match value {
        Attribute::Text(text) => OtlpValue::Text(text),
        Attribute::Number(number) => OtlpValue::Number(i64::try_from(number).unwrap_or(i64::MAX)),
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
        assert_eq!(Receiver::new("https://c:4318", "x", [0; 16]).unwrap().uri, "https://c:4318/v1/traces");
        for bad in ["", "c:4318", "grpc://c"] {
            let wrong = Receiver::new(bad, "x", [0; 16]).unwrap_err();
            assert!(wrong.contains("http://localhost:4318"), "{wrong}");
        }
        let receiver = Receiver::new("https://team:s3cret@c:4318", "x", [0; 16]).unwrap();
        assert_eq!(receiver.place, "https://c:4318/v1/traces", "a password stands in no message");
        assert!(!format!("{receiver:?}").contains("s3cret"), "nor where a receiver is shown whole");
    }

    #[test]
    fn an_authority_that_is_none_is_refused_before_anything_is_sent() {
        let receiver = || Receiver::new("https://c:4318", "x", [0; 16]).unwrap();
        for bad in ["", "not a certificate", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            let wrong = receiver().trusting(bad.as_bytes()).unwrap_err();
            assert!(wrong.starts_with("traces.ca"), "{wrong}");
        }
    }
}
