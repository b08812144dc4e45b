//! Leases and the store: what is more than one call of the contract.

use fencehold_contract::http::{GetLeaseRequest, Nothing, RevokeLeaseBatchResponse, ServerCapabilities};
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_contract::{Capabilities, LeaseStore as _, LeaseView, RevokeLeasesRequest};

use super::answer::{Answer, Asked};

pub(super) async fn revoke(asked: Asked, request: RevokeLeasesRequest) -> Answer<RevokeLeaseBatchResponse> {
    let revoked = asked.store.revoke(&asked.call, request).await?;
    Ok(RevokeLeaseBatchResponse { revoked })
}

pub(super) async fn get(asked: Asked, request: GetLeaseRequest) -> Answer<LeaseView> {
    let key = request.key;
    let view = asked.store.get(&asked.call, key.clone()).await?;
    view.ok_or_else(|| {
        let mut problem = Problem::new(ErrorKind::NoSuchKey, format!("{key}: nothing is kept of this key"));
        problem.key = Some(key);
        problem
    })
}

pub(super) async fn capabilities(asked: Asked, _: Nothing) -> Answer<ServerCapabilities> {
    let Capabilities {
        store,
        supports_fair_waiting: fair,
        supports_waiting: waits,
        supports_preemption: preempts,
        supports_jobs: jobs,
        durable,
        min_ttl_ms: ttl_ms_min,
    } = asked.store.capabilities();
    let store = store.to_owned();
    Ok(ServerCapabilities {
        store,
        supports_fair_waiting: fair,
        supports_waiting: waits,
        supports_preemption: preempts,
        supports_jobs: jobs,
        durable,
        min_ttl_ms: ttl_ms_min,
    })
}
