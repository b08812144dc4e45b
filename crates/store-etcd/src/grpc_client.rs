//! The way to the cluster: one request to one member, with a time limit; after a failure the next member is asked.
//!
//! Deliberately absent: retries. The caller knows whether it may ask again, and what a lost answer means.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, ConnectError, Status, Streaming};
use tonic_prost::ProstCodec;

use fencehold_contract::{EtcdTls, EtcdUrl, StoreError};
use fencehold_net::AttemptError;

use super::key_names::KeyRange;
use super::messages::{
    AuthenticateRequest, AuthenticateResponse, Compare, EmptyResponse, LeaseGrantRequest, LeaseGrantResponse,
    LeaseId, LeaseTtl, RangeResponse, RequestOp, StatusResponse, TxnRequest, TxnResponse, WatchCreateRequest,
    WatchOp, WatchRequest, WatchResponse,
};
use super::request_hook::{EtcdRequest, Gate};

/// How long one member has for one answer. An election takes about as long, so that the next try finds its result.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// How often an open connection is tested. etcd takes more than one ping in five seconds for abuse.
const PING_EVERY: Duration = Duration::from_secs(10);
/// A page of records at their largest is below this.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(super) enum RequestError {
    /// Nothing was done. It may be tried again.
    Unreached(String),
    /// It was sent, and may have been carried out, now or later.
    Unclear(String),
    /// The etcd lease that a key was to be put on, or that was named, is gone. Nothing was done.
    LeaseGone,
    /// Trying again would not help.
    Refused(String),
}

impl From<RequestError> for AttemptError {
    fn from(fault: RequestError) -> Self {
        match fault {
            RequestError::Unreached(why) => AttemptError::NotDone(why),
            RequestError::Unclear(why) => AttemptError::Unknown(why),
            RequestError::LeaseGone => {
                AttemptError::NotDone("an etcd lease ended while it was needed".to_owned())
            }
            RequestError::Refused(why) => AttemptError::Unusable(why),
        }
    }
}

struct Member {
    name: String,
    channel: Channel,
}

struct Login {
    user: String,
    password: String,
}

/// The members of a cluster, and which of them is asked.
pub(super) struct GrpcClient {
    members: Vec<Member>,
    current: AtomicUsize,
    sent: Arc<AtomicU64>,
    login: Option<Login>,
    /// What the cluster gave for user and password.
    pass: Mutex<Option<MetadataValue<Ascii>>>,
    #[cfg_attr(not(feature = "gates"), expect(dead_code, reason = "only a test stands in the way"))]
    gate: Gate,
}

impl GrpcClient {
    /// Connects when the first request leaves. Must be called within a runtime.
    pub(super) fn new(url: &EtcdUrl, sent: Arc<AtomicU64>, gate: Gate) -> Result<Self, StoreError> {
        let unusable = |why: String| StoreError::Unusable { store: url.to_string(), message: why };
        let tls = url.tls.as_ref().map(tls_config).transpose().map_err(unusable)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let member = |name: &String| {
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{name}"))?
                .connect_timeout(CONNECT_WITHIN)
                .http2_keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(CONNECT_WITHIN);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone())?;
            }
            Ok(Member { name: name.clone(), channel: endpoint.connect_lazy() })
        };
        let members = url.members.iter().map(member).collect::<Result<_, tonic::transport::Error>>();
        let login = url.user.clone().zip(url.password.clone());
        Ok(GrpcClient {
            members: members.map_err(|error| unusable(because(&error)))?,
            current: AtomicUsize::new(0),
            sent,
            login: login.map(|(user, password)| Login { user, password }),
            pass: Mutex::new(None),
            gate,
        })
    }

    /// A transaction: does the first if all comparisons hold, else the second. Linearizable, also if it only reads.
    pub(super) async fn txn(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> Result<TxnResponse, RequestError> {
        let kind = if compare.is_empty() { EtcdRequest::Read } else { EtcdRequest::Write };
        self.unary(kind, "/etcdserverpb.KV/Txn", TxnRequest { compare, success, failure })
            .await
    }

    /// Writes if all comparisons hold, and says whether they did.
    pub(super) async fn write(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
    ) -> Result<bool, RequestError> {
        Ok(self.txn(compare, success, Vec::new()).await?.succeeded)
    }

    /// Reads ranges in one transaction.
    pub(super) async fn read(&self, ops: Vec<RequestOp>) -> Result<Vec<RangeResponse>, RequestError> {
        Ok(self.txn(Vec::new(), ops, Vec::new()).await?.into_ranges().collect())
    }

    /// Makes an etcd lease of at least this length, and gives its number.
    pub(super) async fn lease_grant(&self, ttl_ms: u64) -> Result<i64, RequestError> {
        let ttl = i64::try_from(ttl_ms.div_ceil(1000)).unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl };
        let granted: LeaseGrantResponse = self
            .unary(EtcdRequest::LeaseGrant, "/etcdserverpb.Lease/LeaseGrant", request)
            .await?;
        if granted.ttl < ttl {
            return Err(RequestError::Refused(format!(
                "a lease of {ttl} s was asked for, and {} s given",
                granted.ttl
            )));
        }
        Ok(granted.id)
    }

    /// Ends an etcd lease and removes what was put on it. One that is gone already is fine.
    pub(super) async fn lease_revoke(&self, id: i64) -> Result<(), RequestError> {
        let revoked: Result<EmptyResponse, _> = self
            .unary(EtcdRequest::LeaseRevoke, "/etcdserverpb.Lease/LeaseRevoke", LeaseId { id })
            .await;
        match revoked {
            Ok(_) | Err(RequestError::LeaseGone) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    pub(super) async fn time_to_live(&self, id: i64) -> Result<LeaseTtl, RequestError> {
        self.unary(EtcdRequest::TimeToLive, "/etcdserverpb.Lease/LeaseTimeToLive", LeaseId { id })
            .await
    }

    /// Keeps etcd leases alive: one answer for each, in order. What that is worth, the caller must find out: a leader
    /// that was deposed says yes as well.
    pub(super) async fn keep_alive(&self, ids: &[i64]) -> Result<Vec<LeaseTtl>, RequestError> {
        let asked: Vec<_> = ids.iter().map(|id| LeaseId { id: *id }).collect();
        self.at_a_member(EtcdRequest::KeepAlive, async |member| {
            let path = "/etcdserverpb.Lease/LeaseKeepAlive";
            let mut answers: Streaming<LeaseTtl> =
                self.stream(member, path, stream::iter(asked.clone())).await?;
            let mut kept = Vec::with_capacity(ids.len());
            while kept.len() < ids.len() {
                kept.push(answers.message().await?.ok_or_else(|| Status::unavailable("cut short"))?);
            }
            Ok(kept)
        })
        .await
    }

    /// Watches for the first change of any of these after a revision.
    pub(super) async fn watch(&self, spans: Vec<KeyRange>, after: i64) -> Result<WatchStream, RequestError> {
        let create = |KeyRange(key, range_end): KeyRange| {
            let create = WatchCreateRequest { key, range_end, start_revision: after.saturating_add(1) };
            WatchRequest { request: Some(WatchOp::Create(create)) }
        };
        let asked: Vec<_> = spans.into_iter().map(create).collect();
        let changes = self
            .at_a_member(EtcdRequest::Watch, async |member| {
                // The way there stays open: closing it would end the watch.
                let asked = stream::iter(asked.clone()).chain(stream::pending());
                self.stream(member, "/etcdserverpb.Watch/Watch", asked).await
            })
            .await?;
        Ok(WatchStream(changes))
    }

    /// Watches one name, or a span of them, from now on.
    pub(super) async fn watch_from_now(&self, span: KeyRange) -> Result<WatchStream, RequestError> {
        // Revision 0 is the one that is to come.
        self.watch(vec![span], -1).await
    }

    /// The version of every member that answers.
    pub(super) async fn versions(&self) -> Result<Vec<(String, String)>, RequestError> {
        let mut versions = Vec::new();
        let mut missing = None;
        for _ in &self.members {
            let name = self.member().1.name.clone();
            let status: Result<StatusResponse, RequestError> = self
                .unary(EtcdRequest::Status, "/etcdserverpb.Maintenance/Status", EmptyResponse {})
                .await;
            match status {
                Ok(status) => {
                    versions.push((name, status.version));
                    self.go_on_from(self.member().0);
                }
                Err(fault) => missing = Some(fault),
            }
        }
        if versions.is_empty() { Err(missing.unwrap_or(RequestError::LeaseGone)) } else { Ok(versions) }
    }

    fn member(&self) -> (usize, &Member) {
        let nth = self.current.load(Ordering::Relaxed);
        (nth, &self.members[nth % self.members.len()])
    }

    /// The next request goes to the next member, unless that was done already.
    fn go_on_from(&self, nth: usize) {
        let next = (nth + 1) % self.members.len();
        let _ = self.current.compare_exchange(nth, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn unary<Q, A>(&self, kind: EtcdRequest, path: &'static str, message: Q) -> Result<A, RequestError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.at_a_member(kind, async |member| {
            let mut grpc = grpc(member).await?;
            let request = self.dressed(tonic::Request::new(message.clone()));
            let answer = grpc
                .unary(request, PathAndQuery::from_static(path), ProstCodec::default())
                .await?;
            Ok(answer.into_inner())
        })
        .await
    }

    async fn stream<Q, A>(
        &self,
        member: &Member,
        path: &'static str,
        messages: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = grpc(member).await?;
        let request = self.dressed(tonic::Request::new(messages));
        let answer = grpc
            .streaming(request, PathAndQuery::from_static(path), ProstCodec::default())
            .await?;
        Ok(answer.into_inner())
    }

    /// Sends one request to the current member; after a failure, the next one goes to another.
    async fn at_a_member<A>(
        &self,
        kind: EtcdRequest,
        send: impl AsyncFn(&Member) -> Result<A, Status>,
    ) -> Result<A, RequestError> {
        self.log_in().await?;
        #[cfg(feature = "gates")]
        if let Some(gate) = &self.gate.0 {
            gate.before(kind).await;
        }
        let (nth, member) = self.member();
        self.sent.fetch_add(1, Ordering::Relaxed);
        let answer = match tokio::time::timeout(ANSWER_WITHIN, send(member)).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::unavailable(format!("no answer within {} ms", ANSWER_WITHIN.as_millis()))),
        };
        #[cfg(feature = "gates")]
        let answer = match &self.gate.0 {
            Some(gate) if gate.loses(kind) => Err(Status::unavailable("the answer was lost by a gate")),
            _ => answer,
        };
        answer.map_err(|status| {
            let fault = self.fault(kind, &member.name, &status);
            if matches!(fault, RequestError::Unreached(_) | RequestError::Unclear(_)) {
                self.go_on_from(nth);
            }
            fault
        })
    }

    fn fault(&self, kind: EtcdRequest, member: &str, status: &Status) -> RequestError {
        let why = format!("{member}: {}", told(status));
        match status.code() {
            Code::NotFound => RequestError::LeaseGone,
            Code::Unauthenticated | Code::InvalidArgument
                if self.login.is_some()
                    && kind != EtcdRequest::Authenticate
                    && (why.contains("invalid auth token") || why.contains("auth store is old")) =>
            {
                // What it gave us has run out, or users were changed. The next request logs in anew.
                *self.pass.lock().unwrap_or_else(PoisonError::into_inner) = None;
                RequestError::Unreached(why)
            }
            Code::InvalidArgument if why.contains("user name is empty") => RequestError::Refused(format!(
                "{why}: the cluster wants a user, as in etcd://USER:PASSWORD@…"
            )),
            Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented => {
                RequestError::Refused(why)
            }
            // A full disk or a flood is refused before anything is done.
            Code::ResourceExhausted => RequestError::Unreached(why),
            _ if matches!(kind, EtcdRequest::Write | EtcdRequest::LeaseGrant | EtcdRequest::LeaseRevoke)
                && !never_sent(status) =>
            {
                RequestError::Unclear(why)
            }
            _ => RequestError::Unreached(why),
        }
    }

    /// Shows user and password, if there are any and they were not shown before.
    async fn log_in(&self) -> Result<(), RequestError> {
        let Some(Login { user, password }) = &self.login else { return Ok(()) };
        if self.pass().is_some() {
            return Ok(());
        }
        let (nth, member) = self.member();
        let request = AuthenticateRequest { name: user.clone(), password: password.clone() };
        let path = PathAndQuery::from_static("/etcdserverpb.Auth/Authenticate");
        let send = async {
            let mut grpc = grpc(member).await?;
            let answer: tonic::Response<AuthenticateResponse> =
                grpc.unary(tonic::Request::new(request), path, ProstCodec::default()).await?;
            Ok(answer.into_inner().token)
        };
        let late = |_| RequestError::Unreached(format!("{}: no answer to the login", member.name));
        let token = tokio::time::timeout(ANSWER_WITHIN, send)
            .await
            .map_err(late)
            .and_then(|sent| {
                sent.map_err(|status| self.fault(EtcdRequest::Authenticate, &member.name, &status))
            })
            .inspect_err(|_| self.go_on_from(nth))?;
        let pass = token
            .parse()
            .map_err(|_| RequestError::Refused("its pass is not ASCII".to_owned()))?;
        *self.pass.lock().unwrap_or_else(PoisonError::into_inner) = Some(pass);
        Ok(())
    }

    fn pass(&self) -> Option<MetadataValue<Ascii>> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request with what every request carries: our pass, and the wish that a member without a leader says so at
    /// once instead of keeping us.
    fn dressed<T>(&self, mut request: tonic::Request<T>) -> tonic::Request<T> {
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(pass) = self.pass() {
            request.metadata_mut().insert("token", pass);
        }
        request
    }
}

impl std::fmt::Debug for GrpcClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.members.iter().map(|member| &member.name).collect();
        f.debug_struct("GrpcClient").field("members", &names).finish_non_exhaustive()
    }
}

/// Changes, as a member tells them.
pub(super) struct WatchStream(Streaming<WatchResponse>);

impl WatchStream {
    /// Returns when something has changed, or when this watch will not tell any more.
    pub(super) async fn changed(&mut self) {
        while let Ok(Some(told)) = self.0.message().await {
            if told.canceled || !told.events.is_empty() {
                return;
            }
        }
    }

    /// The values of what was put next, or none where the watch has just begun. `None`: it tells no more.
    pub(super) async fn told(&mut self) -> Option<Vec<Vec<u8>>> {
        let told = self.0.message().await.ok()??;
        let values = told.events.into_iter().filter_map(|event| event.kv).map(|kv| kv.value);
        (!told.canceled).then(|| values.collect())
    }
}

async fn grpc(member: &Member) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(member.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(grpc)
}

/// Whether a request failed before it left.
fn never_sent(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// What went wrong, in as few words as there are.
fn told(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => because(source),
        None => status.message().trim_start_matches("etcdserver: ").to_owned(),
    }
}

/// The innermost cause: what stands around it is layers of the transport.
fn because(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn tls_config(tls: &EtcdTls) -> Result<ClientTlsConfig, String> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
    };
    let mut config = ClientTlsConfig::new();
    config = match &tls.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(read(ca)?)),
        None => config.with_native_roots(),
    };
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(config)
}
