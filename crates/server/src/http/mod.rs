//! Routes. An operation that is more than one call of the contract has a handler here; the others follow from the list of operations,
//! `fencehold_contract::http`.

mod access;
mod dispatch;
mod hold_changes;
mod job;
mod lease;
mod probe;
mod stream;

pub(crate) use probe::Readiness;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use fencehold_contract::http::{HOLD_CHANGES_PATH, every_call, every_single, op};

use crate::ServerInner;
use dispatch::Routes;

pub(crate) fn router(server: &Arc<ServerInner>) -> Router {
    let mut routes = Routes::default();
    routes.add_single_with::<op::EnqueueJob, _>(job::enqueue);
    routes.add::<op::RevokeLease, _>(lease::revoke);
    routes.add::<op::RevokeLeaseBatch, _>(lease::revoke_batch);
    routes.add::<op::GetLease, _>(lease::get);
    routes.add::<op::GetStoreCapabilities, _>(lease::capabilities);
    routes.add::<op::EnqueueJobBatch, _>(job::enqueue);
    routes.add::<op::GetJob, _>(job::get);
    routes.add::<op::BeginOperation, _>(job::begin);
    routes.add::<op::GetQueue, _>(job::get_queue);
    routes.add::<op::DeleteQueue, _>(job::delete_queue);
    routes.add::<op::GetSchedule, _>(job::get_schedule);
    routes.add::<op::DeleteSchedule, _>(job::delete_schedule);
    routes.add::<op::ResolveEffect, _>(job::resolve_effect);
    routes.add::<op::CreateAccessToken, _>(access::create);
    routes.add::<op::ListAccessTokens, _>(access::list);
    routes.add::<op::RevokeAccessToken, _>(access::revoke);
    routes.add::<op::ListAuditEntries, _>(access::audit);
    // Every other operation is a call of the contract as it stands, or a batch of one.
    every_call(&mut routes);
    every_single(&mut routes);
    debug_assert_eq!(routes.count(), fencehold_contract::http::ALL.len(), "an operation without a route");
    routes
        .into_router()
        .route("/v1/events/stream", get(stream::watch))
        .route(HOLD_CHANGES_PATH, get(hold_changes::watch))
        .route("/v1/openapi.json", get(probe::document))
        .route("/metrics", get(probe::metrics))
        .route("/livez", get(probe::live))
        .route("/readyz", get(probe::ready))
        .method_not_allowed_fallback(probe::bad_method)
        .fallback(probe::no_such_path)
        .with_state(Arc::clone(server))
}
