//! S3, Google Cloud Storage and Azure Blob Storage, through OpenDAL: what a condition is called there, and what an
//! answer means.
//!
//! Deliberately absent: OpenDAL's retry layer (see [`Cas`](super::Cas)).

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fmt};

use async_trait::async_trait;
use fencehold_contract::{ObjectUrl, Scheme, StoreError};
use futures_util::StreamExt as _;
use opendal::options::WriteOptions;
use opendal::{
    Buffer, Error, ErrorKind, HttpBody, HttpTransport, HttpTransporter, OperationContext, Operator, services,
};
use opendal_http_transport_reqwest::ReqwestTransport;

use super::cas::{Cas, CasError, ObjectVersion, ReadObject, WriteResult};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// The HTTP status of the last answer to the operation that runs in this task: OpenDAL's errors do not tell it.
    static STATUS: Arc<AtomicU16>;
}

/// One of the three clouds, or what speaks its language.
#[derive(Debug)]
pub struct Cloud {
    scheme: Scheme,
    bucket: String,
    sent: Arc<AtomicU64>,
    operator: Operator,
}

impl Cloud {
    /// Makes ready to speak with a place. Nothing is sent yet.
    pub fn open(place: &ObjectUrl) -> Result<Self, StoreError> {
        Self::with_transport(place, transport().map_err(|why| unusable(place, why))?)
    }

    /// The same with a gate in front of every request.
    #[cfg(feature = "gates")]
    pub fn behind(
        place: &ObjectUrl,
        gate: std::sync::Arc<dyn super::ObjectRequestHook>,
    ) -> Result<Self, StoreError> {
        Self::with_transport(
            place,
            super::request_hook::guard(transport().map_err(|why| unusable(place, why))?, gate),
        )
    }

    fn with_transport(place: &ObjectUrl, transport: HttpTransporter) -> Result<Self, StoreError> {
        let operator = match place.scheme {
            Scheme::S3 => Operator::new(s3(place)),
            Scheme::Gs => Operator::new(gcs(place)),
            Scheme::Az => Operator::new(azblob(place)?),
        };
        let operator = operator.map_err(|error| unusable(place, describe(&error)))?;
        let sent = Arc::new(AtomicU64::new(0));
        let counted = HttpTransporter::new(Counted { transport, sent: Arc::clone(&sent) });
        let context = OperationContext::new().with_http_transport(counted);
        let bucket = place.bucket.clone();
        Ok(Cloud { scheme: place.scheme, bucket, sent, operator: operator.with_context(context) })
    }

    /// Runs one operation for at most so long.
    async fn ask<T>(
        &self,
        limit: Duration,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, OperationError> {
        let status = Arc::new(AtomicU16::new(0));
        let answered = tokio::time::timeout(limit, STATUS.scope(Arc::clone(&status), operation)).await;
        match answered {
            Err(_) => Err(OperationError::Late(limit)),
            Ok(answer) => {
                answer.map_err(|error| OperationError::Said { error, status: status.load(Ordering::Relaxed) })
            }
        }
    }

    /// What a fault means where nothing was written.
    fn refused(&self, fault: &OperationError) -> CasError {
        let why = fault.to_string();
        match fault {
            OperationError::Said { status: 401, .. } => CasError::Refused {
                why: format!(
                    "{why}; it does not accept the credentials that were found: correct or renew them"
                ),
            },
            OperationError::Said { error, status }
                if error.kind() == ErrorKind::PermissionDenied || *status == 403 =>
            {
                let why = format!(
                    "{why}; the credentials do not allow it: let them read, write and list in {} {}",
                    self.bucket_kind(),
                    self.bucket
                );
                CasError::Refused { why }
            }
            fault if fault.is_no_bucket() => self.no_bucket(&why),
            OperationError::Said { error, .. }
                if matches!(error.kind(), ErrorKind::ConfigInvalid | ErrorKind::Unsupported) =>
            {
                CasError::Refused { why }
            }
            OperationError::Late(_) | OperationError::Said { .. } => CasError::Unavailable { why },
        }
    }

    /// What a fault of a list means: a folder that is empty is no fault, so 404 speaks of the bucket.
    fn not_listed(&self, fault: &OperationError) -> CasError {
        if fault.is_not_found() { self.no_bucket(&fault.to_string()) } else { self.refused(fault) }
    }

    fn bucket_kind(&self) -> &'static str {
        match self.scheme {
            Scheme::S3 | Scheme::Gs => "bucket",
            Scheme::Az => "container",
        }
    }

    fn no_bucket(&self, said: &str) -> CasError {
        let why = format!(
            "there is no {} {} ({said}); create it, or correct its name in the store's URL",
            self.bucket_kind(),
            self.bucket
        );
        CasError::Refused { why }
    }

    /// What a fault says about a conditional write. Only an answer that can mean nothing else is taken for a refusal.
    fn outcome(&self, fault: &OperationError) -> Result<WriteResult, CasError> {
        let OperationError::Said { error, status } = fault else {
            return Ok(WriteResult::Unknown { why: fault.to_string() });
        };
        match error.kind() {
            ErrorKind::ConditionNotMatch if !error.is_temporary() => Ok(WriteResult::Lost),
            // The object that was to be overwritten is gone.
            ErrorKind::NotFound => Ok(WriteResult::Lost),
            ErrorKind::PermissionDenied | ErrorKind::ConfigInvalid | ErrorKind::Unsupported => {
                Err(self.refused(fault))
            }
            // Who was not recognised has not written.
            _ if matches!(status, 401 | 403) => Err(self.refused(fault)),
            _ => Ok(WriteResult::Unknown { why: fault.to_string() }),
        }
    }

    /// What conditions name: an entity tag, which says what is in an object and is therefore as good as the nonce in it; on
    /// Google Cloud Storage a generation.
    fn version(&self, metadata: &opendal::Metadata) -> Option<ObjectVersion> {
        let version = match self.scheme {
            Scheme::Gs => metadata.version(),
            Scheme::S3 | Scheme::Az => metadata.etag(),
        };
        version.map(|version| ObjectVersion(version.to_owned()))
    }
}

/// Why an operation gave nothing.
enum OperationError {
    /// No answer came within this time.
    Late(Duration),
    /// OpenDAL's error, and the HTTP status that it was made from; 0 where no answer came.
    Said { error: Error, status: u16 },
}

impl OperationError {
    fn is_not_found(&self) -> bool {
        matches!(self, OperationError::Said { error, .. } if error.kind() == ErrorKind::NotFound)
    }

    /// S3 alone tells a missing bucket from a missing object in a way that OpenDAL passes on.
    fn is_no_bucket(&self) -> bool {
        matches!(self, OperationError::Said { error, status: 404 } if error.kind() == ErrorKind::ConfigInvalid)
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperationError::Late(limit) => write!(f, "no answer within {} ms", limit.as_millis()),
            OperationError::Said { error, status: 0 } => f.write_str(&describe(error)),
            OperationError::Said { error, status } => {
                let reason = http::StatusCode::from_u16(*status)
                    .ok()
                    .and_then(|status| status.canonical_reason());
                write!(f, "HTTP {status} {}", reason.unwrap_or_default())?;
                if error.message().trim().is_empty() { Ok(()) } else { write!(f, ": {}", describe(error)) }
            }
        }
    }
}

/// An error for people: its kind, what was said, and the deepest cause; not its context, which has addresses with
/// signatures in them.
fn describe(error: &Error) -> String {
    const CHARS_MAX: usize = 300;
    let mut text = format!("{}: {}", error.kind(), error.message());
    if let Some(deepest) = std::iter::successors(error.source(), |&cause| cause.source()).last() {
        text = format!("{text}: {deepest}");
    }
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(CHARS_MAX)
        .collect()
}

#[async_trait]
impl Cas for Cloud {
    fn requests_sent(&self) -> Option<u64> {
        Some(self.sent.load(Ordering::Relaxed))
    }

    async fn read(&self, name: &str, limit: Duration) -> Result<Option<ReadObject>, CasError> {
        let read = async {
            // One request: its answer has both the version and the body.
            let mut stream = self.operator.reader(name).await?.into_stream(..).await?;
            let metadata = stream.metadata().await?;
            let mut body = Vec::new();
            while let Some(part) = stream.next().await {
                body.extend_from_slice(&part?.to_vec());
            }
            Ok::<_, Error>((metadata, body))
        };
        match self.ask(limit, read).await {
            Err(fault) if fault.is_not_found() => Ok(None),
            Err(fault) => Err(self.refused(&fault)),
            Ok((metadata, body)) => match self.version(&metadata) {
                Some(version) => Ok(Some(ReadObject { body, version })),
                None => Err(CasError::Refused { why: "it names no version of what it gives".to_owned() }),
            },
        }
    }

    async fn write(
        &self,
        name: &str,
        version: Option<&ObjectVersion>,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<WriteResult, CasError> {
        let mut condition = WriteOptions { if_not_exists: version.is_none(), ..WriteOptions::default() };
        let named = match self.scheme {
            Scheme::Gs => &mut condition.if_version_match,
            Scheme::S3 | Scheme::Az => &mut condition.if_match,
        };
        *named = version.map(|version| version.0.clone());
        match self.ask(limit, self.operator.write_options(name, body, condition)).await {
            Ok(metadata) => Ok(match self.version(&metadata) {
                Some(version) => WriteResult::Won(version),
                None => WriteResult::Unknown { why: "the answer names no version".to_owned() },
            }),
            Err(fault) if fault.is_not_found() && version.is_none() => {
                // An object that is to be created cannot be missing: the bucket is.
                self.reach(limit).await?;
                Ok(WriteResult::Unknown { why: fault.to_string() })
            }
            Err(fault) => self.outcome(&fault),
        }
    }

    async fn list(&self, folder: &str, limit: Duration) -> Result<Vec<String>, CasError> {
        let list = async { self.operator.list_with(folder).recursive(true).await };
        let entries = self.ask(limit, list).await.map_err(|fault| self.not_listed(&fault))?;
        let files = entries.into_iter().filter(|entry| entry.metadata().mode().is_file());
        Ok(files.map(|entry| entry.path().to_owned()).collect())
    }

    async fn reach(&self, limit: Duration) -> Result<(), CasError> {
        let list = async {
            let mut lister = self.operator.lister_with("").limit(1).await?;
            // The first page is enough.
            lister.next().await.transpose()
        };
        match self.ask(limit, list).await {
            Err(fault) if fault.is_not_found() || fault.is_no_bucket() => {
                Err(self.no_bucket(&fault.to_string()))
            }
            // Any other fault, as a permission to list that is missing, says nothing about the bucket.
            _ => Ok(()),
        }
    }

    async fn remove(&self, name: &str, limit: Duration) -> Result<(), CasError> {
        self.ask(limit, self.operator.delete(name))
            .await
            .map_err(|fault| self.refused(&fault))
    }
}

/// Counts what is sent.
struct Counted {
    transport: HttpTransporter,
    sent: Arc<AtomicU64>,
}

impl HttpTransport for Counted {
    async fn fetch(&self, request: http::Request<Buffer>) -> Result<http::Response<HttpBody>, Error> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let note = |status| STATUS.try_with(|last| last.store(status, Ordering::Relaxed));
        // An operation may take more than one request: what counts is the answer to the last.
        let _ = note(0);
        let answer = self.transport.fetch(request).await?;
        let _ = note(answer.status().as_u16());
        Ok(answer)
    }
}

/// A client of this handle's own: connections belong to the thread that made them.
fn transport() -> Result<HttpTransporter, String> {
    // A provider that is already installed stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        // A write that is sent twice meets itself.
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_WITHIN)
        .build()
        .map_err(|error| format!("no HTTP client can be made: {error}"))?;
    Ok(HttpTransporter::new(ReqwestTransport::new(client)))
}

fn unusable(place: &ObjectUrl, why: String) -> StoreError {
    StoreError::Unusable { store: place.to_string(), message: why }
}

/// A variable of the environment that is set to something.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Credentials as AWS tools find them: `AWS_*`, profiles, roles, and the machine's own.
fn s3(place: &ObjectUrl) -> services::S3 {
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
fn gcs(place: &ObjectUrl) -> services::Gcs {
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
fn azblob(place: &ObjectUrl) -> Result<services::Azblob, StoreError> {
    let variable = |name: &str| variable(name).filter(|_| place.keys().is_none());
    let mut builder = match variable("AZURE_STORAGE_CONNECTION_STRING") {
        Some(text) => services::Azblob::from_connection_string(&text).map_err(|_| {
            unusable(place, "AZURE_STORAGE_CONNECTION_STRING cannot be understood".to_owned())
        })?,
        None => services::Azblob::default(),
    };
    builder = builder.container(&place.bucket).root(&place.prefix);
    let given =
        |part: fn(&fencehold_contract::url::Keys) -> &String| place.keys().map(|keys| part(keys).clone());
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
