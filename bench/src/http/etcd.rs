//! The peer: Debian's `etcd`, one member. Just enough of its API to lock a key and to unlock it.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use fencehold_load::{Failed, LoadClient, Timer, run};
use prost::{Message, Oneof};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::server::Server;

/// For how long a key is taken.
const TTL_S: i64 = 60;

/// How a key is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockMethod {
    /// Under a lease with a ttl of its own, as ours: grant, put if there is none, revoke.
    LeaseEach,
    /// Under one lease for all that the connection takes, as a session of etcd's own lock: put if there is none, delete.
    OneSession,
}

/// A private server in a directory of its own.
pub(super) struct Etcd {
    url: String,
    _server: Server,
}

impl Etcd {
    pub(super) async fn start(directory: &Path) -> Result<Etcd, Failed> {
        std::fs::create_dir_all(directory)?;
        let (client, peer) = (free_port()?, free_port()?);
        let url = format!("http://127.0.0.1:{client}");
        let peers = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new("etcd");
        command
            .current_dir(directory)
            .args(["--name", "bench", "--data-dir", "data", "--log-level", "error"])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("bench={peers}")]);
        let ready = || async {
            let first = EtcdPairs::connect(&url, LockMethod::LeaseEach, 0).await?;
            run([first], std::time::Duration::ZERO).await.map(drop)
        };
        let server = Server::start(&mut command, "etcd-server", ready).await?;
        Ok(Etcd { url, _server: server })
    }

    /// Clients that take a key of their own and give it back, each over a connection of its own. Counts pairs; the latency is
    /// that of taking.
    pub(super) async fn pairs(&self, way: LockMethod, clients: usize) -> Result<Vec<EtcdPairs>, Failed> {
        let mut all = Vec::with_capacity(clients);
        for nth in 0..clients {
            all.push(EtcdPairs::connect(&self.url, way, nth).await?);
        }
        Ok(all)
    }
}

pub(super) struct EtcdPairs {
    connection: Connection,
    way: LockMethod,
    key: Vec<u8>,
    session: i64,
}

impl EtcdPairs {
    async fn connect(url: &str, way: LockMethod, client: usize) -> Result<EtcdPairs, Failed> {
        let channel = Endpoint::from_shared(url.to_owned())?.tcp_nodelay(true).connect().await?;
        let mut connection = Connection(Grpc::new(channel));
        let session = connection.grant().await?;
        Ok(EtcdPairs { connection, way, key: format!("bench/{client:08}").into_bytes(), session })
    }

    async fn take(&mut self) -> Result<i64, Failed> {
        let lease = match self.way {
            LockMethod::LeaseEach => self.connection.grant().await?,
            LockMethod::OneSession => self.session,
        };
        self.connection.take(&self.key, lease).await?;
        Ok(lease)
    }
}

impl LoadClient for EtcdPairs {
    async fn round(&mut self, timer: &Timer) -> Result<u64, Failed> {
        let lease = timer.time(0, self.take()).await?;
        match self.way {
            LockMethod::LeaseEach => self.connection.revoke(lease).await?,
            LockMethod::OneSession => self.connection.give_back(&self.key).await?,
        }
        Ok(1)
    }

    async fn end(mut self) -> Result<(), Failed> {
        self.connection.revoke(self.session).await
    }
}

struct Connection(Grpc<Channel>);

impl Connection {
    async fn grant(&mut self) -> Result<i64, Failed> {
        let granted: Lease = self.ask("/etcdserverpb.Lease/LeaseGrant", LeaseTerms { ttl: TTL_S }).await?;
        Ok(granted.id)
    }

    async fn revoke(&mut self, id: i64) -> Result<(), Failed> {
        self.ask("/etcdserverpb.Lease/LeaseRevoke", LeaseName { id })
            .await
            .map(|_: Nothing| ())
    }

    async fn take(&mut self, key: &[u8], lease: i64) -> Result<(), Failed> {
        let is_new = Compare { target: CREATED, key: key.to_vec(), against: Some(Against::Created(0)) };
        let put = Put { key: key.to_vec(), value: b"bench-owner-of-20-by".to_vec(), lease };
        let request = Txn { compare: vec![is_new], success: vec![TxnOp { act: Some(Op::Put(put)) }] };
        let taken: TxnResult = self.ask("/etcdserverpb.KV/Txn", request).await?;
        if taken.succeeded { Ok(()) } else { Err("a key of its own was held".into()) }
    }

    async fn give_back(&mut self, key: &[u8]) -> Result<(), Failed> {
        self.ask("/etcdserverpb.KV/DeleteRange", Delete { key: key.to_vec() })
            .await
            .map(|_: Nothing| ())
    }

    async fn ask<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A, Failed>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.0.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        Ok(self.0.unary(tonic::Request::new(request), path, codec).await?.into_inner())
    }
}

/// A port that is free, unless another process takes it first.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// What is compared: the revision that created a key; 0: there is no such key.
const CREATED: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct LeaseTerms {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseName {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<TxnOp>,
}

#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "Against", tags = "5")]
    against: Option<Against>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Against {
    #[prost(int64, tag = "5")]
    Created(i64),
}

#[derive(Clone, PartialEq, Message)]
struct TxnOp {
    #[prost(oneof = "Op", tags = "2")]
    act: Option<Op>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Op {
    #[prost(message, tag = "2")]
    Put(Put),
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct TxnResult {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}
