//! Leases and the store: what is more than one call of the contract.

use fencehold_contract::http::{GetRequest, Nothing, RevokedLeases, ServerCapabilities};
use fencehold_contract::problem::{Problem, ProblemKind};
use fencehold_contract::{Capabilities, LeaseStore as _, LeaseView, RevokeRequest};

use super::answer::{Answer, Asked};

pub(super) async fn revoke(asked: Asked, request: RevokeRequest) -> Answer<RevokedLeases> {
    let revoked = asked.store.revoke(&asked.call, request).await?;
    Ok(RevokedLeases { revoked })
}

pub(super) async fn get(asked: Asked, request: GetRequest) -> Answer<LeaseView> {
    let key = request.key;
    let view = asked.store.get(&asked.call, key.clone()).await?;
    view.ok_or_else(|| {
        let mut problem = Problem::new(ProblemKind::NoSuchKey, format!("{key}: nothing is kept of this key"));
        problem.key = Some(key);
        problem
    })
}

pub(super) async fn capabilities(asked: Asked, _: Nothing) -> Answer<ServerCapabilities> {
    let Capabilities { store, fair, waits, preempts, jobs, durable, ttl_ms_min } = asked.store.capabilities();
    let store = store.to_owned();
    Ok(ServerCapabilities { store, fair, waits, preempts, jobs, durable, ttl_ms_min })
}
