//! A gate in front of the HTTP transport, for tests: it can hold a chosen request, lose its answer, or count.
//! Never part of a shipped build.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::empty;
use opendal::{Buffer, Error, ErrorKind, HttpBody, HttpTransport, HttpTransporter};

/// One request that is about to be sent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectRequest {
    /// Its method.
    pub method: String,
    /// Where to, without what it is signed with.
    pub path: String,
    /// The query, for conditions that stand there.
    pub query: String,
    /// Whether it may change an object (and is not just the opening of an upload).
    pub writes: bool,
    /// The body that is written.
    pub body: Vec<u8>,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseFate {
    /// It is passed on.
    Pass,
    /// It is replaced by `503 Service Unavailable`.
    Unavailable,
    /// It never comes.
    Silence,
    /// The connection breaks before it.
    Reset,
}

/// Watches over every request of one handle.
pub trait ObjectRequestHook: fmt::Debug + Send + Sync {
    /// Called before a request is sent; it is sent when the future ends.
    fn before(&self, request: &ObjectRequest) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// A status that answers the request with an empty body, without its being sent.
    fn instead(&self, _: &ObjectRequest) -> Option<u16> {
        None
    }

    /// Called when the answer is there: the request was carried out, or refused, with this status.
    fn after(
        &self,
        request: &ObjectRequest,
        status: u16,
    ) -> Pin<Box<dyn Future<Output = ResponseFate> + Send + '_>>;
}

pub(super) fn guard(transport: HttpTransporter, gate: Arc<dyn ObjectRequestHook>) -> HttpTransporter {
    HttpTransporter::new(HookedTransport { transport, gate })
}

#[derive(Clone)]
struct HookedTransport {
    transport: HttpTransporter,
    gate: Arc<dyn ObjectRequestHook>,
}

impl HttpTransport for HookedTransport {
    /// A request that was sent is under way, whether or not anybody still waits for its answer.
    async fn fetch(&self, request: http::Request<Buffer>) -> Result<http::Response<HttpBody>, Error> {
        let guarded = self.clone();
        let under_way = tokio::spawn(async move { guarded.pass(request).await });
        under_way
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unexpected, "the gate broke down")))
    }
}

impl HookedTransport {
    async fn pass(&self, request: http::Request<Buffer>) -> Result<http::Response<HttpBody>, Error> {
        let uri = request.uri();
        let body = request.body().to_vec();
        let method = request.method().as_str().to_owned();
        let query = uri.query().unwrap_or_default().to_owned();
        // Google Cloud Storage first gets a request for an upload, with a body of its own.
        let opens_upload = query.contains("uploadType=resumable") && !query.contains("upload_id=");
        let seen = ObjectRequest {
            writes: matches!(method.as_str(), "PUT" | "POST") && !body.is_empty() && !opens_upload,
            method,
            path: uri.path().to_owned(),
            query,
            body,
        };
        if let Some(status) = self.gate.instead(&seen) {
            let answer = http::Response::builder().status(status).body(HttpBody::new(empty(), Some(0)));
            return answer.map_err(|_| Error::new(ErrorKind::Unexpected, "no such status"));
        }
        self.gate.before(&seen).await;
        let answer = self.transport.fetch(request).await?;
        match self.gate.after(&seen, answer.status().as_u16()).await {
            ResponseFate::Pass => Ok(answer),
            ResponseFate::Unavailable => {
                let (mut parts, _) = answer.into_parts();
                parts.status = http::StatusCode::SERVICE_UNAVAILABLE;
                parts.headers.clear();
                Ok(http::Response::from_parts(parts, HttpBody::new(empty(), Some(0))))
            }
            ResponseFate::Silence => std::future::pending().await,
            ResponseFate::Reset => {
                Err(Error::new(ErrorKind::Unexpected, "connection reset by peer").set_temporary())
            }
        }
    }
}
