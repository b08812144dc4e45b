//! Where a test can hold, count or cut a request. Compiled only with the feature `gates`.

use std::pin::Pin;
#[cfg(feature = "gates")]
use std::sync::Arc;

/// What kind of request passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EtcdRequest {
    /// A transaction that only reads.
    Read,
    /// A transaction that writes, if its comparisons hold.
    Write,
    /// An etcd lease is made.
    LeaseGrant,
    /// An etcd lease is ended.
    LeaseRevoke,
    /// An etcd lease is kept alive.
    KeepAlive,
    /// How long an etcd lease has left.
    TimeToLive,
    /// A watch is opened.
    Watch,
    /// A member is asked for its version.
    Status,
    /// A user and a password are shown.
    Authenticate,
}

/// Stands between the store and the cluster.
pub trait EtcdRequestHook: std::fmt::Debug + Send + Sync {
    /// Called before a request leaves, which waits for as long as this does.
    fn before(&self, request: EtcdRequest) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Called when its answer has arrived. True: the answer is lost on the last step.
    fn loses(&self, request: EtcdRequest) -> bool;
}

/// What stands there: nothing, in a shipped build.
#[derive(Debug, Default)]
pub(super) struct Gate(#[cfg(feature = "gates")] pub(super) Option<Arc<dyn EtcdRequestHook>>);
