//! S3, Google Cloud Storage and Azure Blob Storage, through OpenDAL: what a condition is called there, and what an
//! answer means.
//!
//! Deliberately absent: OpenDAL's retry layer (see [`Cas`](super::Cas)).

use std::env;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opendal::options::WriteOptions;
use opendal::{
    Buffer, Error, ErrorKind, HttpBody, HttpTransport, HttpTransporter, OperationContext, Operator, services,
};
use opendal_http_transport_reqwest::ReqwestTransport;

use super::cas::{Cas, CasError, Object, Version, Written};
use super::place::{ObjectPlace, Scheme};
use crate::error::StoreError;

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// One of the three clouds, or what speaks its language.
#[derive(Debug)]
pub struct Cloud {
    scheme: Scheme,
    sent: Arc<AtomicU64>,
    operator: Operator,
}

impl Cloud {
    /// Makes ready to speak with a place. Nothing is sent yet.
    pub fn open(place: &ObjectPlace) -> Result<Self, StoreError> {
        Self::with_transport(place, transport().map_err(|why| unusable(place, why))?)
    }

    /// The same with a gate in front of every request.
    #[cfg(feature = "gates")]
    pub fn behind(place: &ObjectPlace, gate: std::sync::Arc<dyn super::Gate>) -> Result<Self, StoreError> {
        Self::with_transport(
            place,
            super::gate::guard(transport().map_err(|why| unusable(place, why))?, gate),
        )
    }

    fn with_transport(place: &ObjectPlace, transport: HttpTransporter) -> Result<Self, StoreError> {
        let operator = match place.scheme {
            Scheme::S3 => Operator::new(s3(place)),
            Scheme::Gs => Operator::new(gcs(place)),
            Scheme::Az => Operator::new(azblob(place)?),
        };
        let operator = operator.map_err(|error| unusable(place, describe(&error)))?;
        let sent = Arc::new(AtomicU64::new(0));
        let counted = HttpTransporter::new(Counted { transport, sent: Arc::clone(&sent) });
        let context = OperationContext::new().with_http_transport(counted);
        Ok(Cloud { scheme: place.scheme, sent, operator: operator.with_context(context) })
    }

    async fn write(
        &self,
        name: &str,
        body: Vec<u8>,
        condition: WriteOptions,
        limit: Duration,
    ) -> Result<Written, CasError> {
        let write = self.operator.write_options(name, body, condition);
        let Ok(written) = tokio::time::timeout(limit, write).await else {
            return Ok(Written::Unknown { why: format!("no answer within {} ms", limit.as_millis()) });
        };
        match written {
            Ok(metadata) => Ok(match self.version(&metadata) {
                Some(version) => Written::Won(version),
                None => Written::Unknown { why: "the answer names no version".to_owned() },
            }),
            Err(error) => outcome(&error),
        }
    }

    /// What conditions name: an entity tag, which says what is in an object and is therefore as good as the nonce in it; on
    /// Google Cloud Storage a generation.
    fn version(&self, metadata: &opendal::Metadata) -> Option<Version> {
        let version = match self.scheme {
            Scheme::Gs => metadata.version(),
            Scheme::S3 | Scheme::Az => metadata.etag(),
        };
        version.map(|version| Version(version.to_owned()))
    }
}

/// What an error says about a conditional write. Only an answer that can mean nothing else is taken for a refusal.
fn outcome(error: &Error) -> Result<Written, CasError> {
    match error.kind() {
        ErrorKind::ConditionNotMatch if !error.is_temporary() => Ok(Written::Lost),
        // The object that was to be overwritten is gone.
        ErrorKind::NotFound => Ok(Written::Lost),
        ErrorKind::PermissionDenied | ErrorKind::ConfigInvalid | ErrorKind::Unsupported => {
            Err(CasError::Refused { why: describe(error) })
        }
        _ => Ok(Written::Unknown { why: describe(error) }),
    }
}

fn refused(error: &Error) -> CasError {
    let why = describe(error);
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ConfigInvalid | ErrorKind::Unsupported => {
            CasError::Refused { why }
        }
        _ => CasError::Unavailable { why },
    }
}

/// An error for people: its kind, what was said, and the deepest cause; not its context, which has addresses with
/// signatures in them.
fn describe(error: &Error) -> String {
    const CHARS_MAX: usize = 300;
    let mut text = format!("{}: {}", error.kind(), error.message());
    let mut cause = error.source();
    let mut deepest = None;
    while let Some(deeper) = cause {
        deepest = Some(deeper.to_string());
        cause = deeper.source();
    }
    if let Some(deepest) = deepest {
        text = format!("{text}: {deepest}");
    }
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(CHARS_MAX)
        .collect()
}

fn late(limit: Duration) -> CasError {
    CasError::Unavailable { why: format!("no answer within {} ms", limit.as_millis()) }
}

#[async_trait]
impl Cas for Cloud {
    fn requests_sent(&self) -> Option<u64> {
        Some(self.sent.load(Ordering::Relaxed))
    }

    async fn read(&self, name: &str, limit: Duration) -> Result<Option<Object>, CasError> {
        let read = async {
            // One request: its answer has both the version and the body.
            let mut stream = self.operator.reader(name).await?.into_stream(..).await?;
            let metadata = stream.metadata().await?;
            let mut body = Vec::new();
            while let Some(part) = next(&mut stream).await {
                body.extend_from_slice(&part?.to_vec());
            }
            Ok::<_, Error>((metadata, body))
        };
        match tokio::time::timeout(limit, read).await {
            Err(_) => Err(late(limit)),
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Ok(Err(error)) => Err(refused(&error)),
            Ok(Ok((metadata, body))) => match self.version(&metadata) {
                Some(version) => Ok(Some(Object { body, version })),
                None => Err(CasError::Refused { why: "it names no version of what it gives".to_owned() }),
            },
        }
    }

    async fn create(&self, name: &str, body: Vec<u8>, limit: Duration) -> Result<Written, CasError> {
        let condition = WriteOptions { if_not_exists: true, ..WriteOptions::default() };
        self.write(name, body, condition, limit).await
    }

    async fn swap(
        &self,
        name: &str,
        version: &Version,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Written, CasError> {
        let version = Some(version.0.clone());
        let condition = match self.scheme {
            Scheme::Gs => WriteOptions { if_version_match: version, ..WriteOptions::default() },
            Scheme::S3 | Scheme::Az => WriteOptions { if_match: version, ..WriteOptions::default() },
        };
        self.write(name, body, condition, limit).await
    }

    async fn list(&self, folder: &str, limit: Duration) -> Result<Vec<String>, CasError> {
        let list = self.operator.list_with(folder).recursive(true);
        let entries = match tokio::time::timeout(limit, list).await {
            Err(_) => return Err(late(limit)),
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Ok(Err(error)) => return Err(refused(&error)),
            Ok(Ok(entries)) => entries,
        };
        let files = entries.into_iter().filter(|entry| entry.metadata().mode().is_file());
        Ok(files.map(|entry| entry.path().to_owned()).collect())
    }

    async fn remove(&self, name: &str, limit: Duration) -> Result<(), CasError> {
        match tokio::time::timeout(limit, self.operator.delete(name)).await {
            Err(_) => Err(late(limit)),
            Ok(Err(error)) => Err(refused(&error)),
            Ok(Ok(())) => Ok(()),
        }
    }
}

/// The next part of a body.
async fn next(stream: &mut opendal::BufferStream) -> Option<Result<opendal::Buffer, Error>> {
    use futures_core::Stream as _;
    std::future::poll_fn(|context| std::pin::Pin::new(&mut *stream).poll_next(context)).await
}

/// Counts what is sent.
struct Counted {
    transport: HttpTransporter,
    sent: Arc<AtomicU64>,
}

impl HttpTransport for Counted {
    async fn fetch(&self, request: http::Request<Buffer>) -> Result<http::Response<HttpBody>, Error> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.transport.fetch(request).await
    }
}

/// A client of this handle's own: connections belong to the thread that made them.
fn transport() -> Result<HttpTransporter, String> {
    // Whoever chose another one before us has their way.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        // A write that is sent twice meets itself.
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_WITHIN)
        .build()
        .map_err(|error| format!("no HTTP client can be made: {error}"))?;
    Ok(HttpTransporter::new(ReqwestTransport::new(client)))
}

fn unusable(place: &ObjectPlace, why: String) -> StoreError {
    StoreError::Unusable { place: place.to_string(), why }
}

/// A variable of the environment that is set to something.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Credentials as AWS tools find them: `AWS_*`, profiles, roles, and the machine's own.
fn s3(place: &ObjectPlace) -> services::S3 {
    let mut builder = services::S3::default().bucket(&place.bucket).root(&place.prefix);
    if let Some(region) = &place.region {
        builder = builder.region(region);
    } else if variable("AWS_REGION").is_none() && variable("AWS_DEFAULT_REGION").is_none() {
        // What most S3-alikes call theirs, and where AWS itself answers with the right one.
        builder = builder.region("us-east-1");
    }
    if let Some(endpoint) = &place.endpoint {
        builder = builder.endpoint(endpoint);
    }
    if let Some(keys) = place.keys() {
        builder = builder
            .access_key_id(&keys.name)
            .secret_access_key(&keys.secret)
            .disable_config_load();
    }
    let told = variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if told || place.endpoint.is_some() || place.keys().is_some() {
        // At another endpoint, a role of this machine means nothing.
        builder = builder.disable_ec2_metadata();
    }
    builder
}

/// Credentials as Google's tools find them: `GOOGLE_APPLICATION_CREDENTIALS`, or the machine's own; and
/// `STORAGE_EMULATOR_HOST`, with or without `http://`.
fn gcs(place: &ObjectPlace) -> services::Gcs {
    let mut builder = services::Gcs::default().bucket(&place.bucket).root(&place.prefix);
    let emulator = || {
        let host = variable("STORAGE_EMULATOR_HOST")?;
        Some(if host.contains("://") { host } else { format!("http://{host}") })
    };
    if let Some(endpoint) = place.endpoint.clone().or_else(emulator) {
        builder = builder.endpoint(&endpoint).disable_vm_metadata();
        if variable("GOOGLE_APPLICATION_CREDENTIALS").is_none() {
            // Emulators ask for none.
            builder = builder.skip_signature();
        }
    }
    builder
}

/// Credentials as Azure's tools find them: `AZURE_STORAGE_CONNECTION_STRING`, or `AZURE_STORAGE_ACCOUNT` with
/// `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN`, or whatever `AZURE_*` says of an identity.
fn azblob(place: &ObjectPlace) -> Result<services::Azblob, StoreError> {
    let variable = |name: &str| variable(name).filter(|_| place.keys().is_none());
    let mut builder = match variable("AZURE_STORAGE_CONNECTION_STRING") {
        Some(text) => services::Azblob::from_connection_string(&text).map_err(|_| {
            unusable(place, "AZURE_STORAGE_CONNECTION_STRING cannot be understood".to_owned())
        })?,
        None => services::Azblob::default(),
    };
    builder = builder.container(&place.bucket).root(&place.prefix);
    let given = |part: fn(&super::place::Keys) -> &String| place.keys().map(|keys| part(keys).clone());
    let account = given(|keys| &keys.name).or_else(|| variable("AZURE_STORAGE_ACCOUNT"));
    let account = account.or_else(|| variable("AZURE_STORAGE_ACCOUNT_NAME"));
    let key = given(|keys| &keys.secret)
        .or_else(|| variable("AZURE_STORAGE_KEY"))
        .or_else(|| variable("AZURE_STORAGE_ACCOUNT_KEY"));
    if let Some(endpoint) = &place.endpoint {
        builder = builder.endpoint(endpoint);
    } else if let Some(account) = &account {
        builder = builder.endpoint(&format!("https://{account}.blob.core.windows.net"));
    }
    if let Some(account) = &account {
        builder = builder.account_name(account);
    }
    if let Some(key) = &key {
        builder = builder.account_key(key);
    }
    if let Some(token) = variable("AZURE_STORAGE_SAS_TOKEN") {
        builder = builder.sas_token(token.trim_start_matches('?'));
    }
    if place.endpoint.is_none() && account.is_none() && variable("AZURE_STORAGE_CONNECTION_STRING").is_none()
    {
        let why = "no storage account is named; set AZURE_STORAGE_ACCOUNT (and AZURE_STORAGE_KEY), or \
                   AZURE_STORAGE_CONNECTION_STRING";
        return Err(unusable(place, why.to_owned()));
    }
    Ok(builder)
}
