//! Routes. An operation that is more than one call of the contract has a handler here; the others follow from the list of operations,
//! `fencehold_contract::http`.

mod batch;
pub(crate) mod dispatch;
mod hold_changes;
pub(crate) mod job;
pub(crate) mod lease;
mod probe;
pub(crate) mod stream;

pub(crate) use probe::Readiness;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use fencehold_contract::http::{HOLD_CHANGES_PATH, every_call, every_single, op};

use crate::{ServerInner, dashboard};
use dispatch::Routes;

pub(crate) fn router(server: &Arc<ServerInner>) -> Router {
    let mut routes = Routes::default();
    routes.add_single_with::<op::EnqueueJob, _, _>(job::enqueue);
    routes.add::<op::RevokeLease, _, _>(lease::revoke);
    routes.add::<op::RevokeLeaseBatch, _, _>(lease::revoke_batch);
    routes.add::<op::GetLease, _, _>(lease::get);
    routes.add::<op::GetStoreCapabilities, _, _>(lease::capabilities);
    routes.add::<op::EnqueueJobBatch, _, _>(job::enqueue);
    routes.add::<op::GetJob, _, _>(job::get);
    routes.add::<op::BeginOperation, _, _>(job::begin);
    routes.add::<op::GetQueue, _, _>(job::get_queue);
    routes.add::<op::DeleteQueue, _, _>(job::delete_queue);
    routes.add::<op::GetSchedule, _, _>(job::get_schedule);
    routes.add::<op::DeleteSchedule, _, _>(job::delete_schedule);
    routes.add::<op::ResolveEffect, _, _>(job::resolve_effect);
    routes.add::<op::CreateAccessToken, _, _>(async |asked, request| {
        asked.store.create_token(&asked.call, request).await
    });
    routes.add::<op::ListAccessTokens, _, _>(async |asked, _| asked.store.tokens(&asked.call).await);
    routes.add::<op::RevokeAccessToken, _, _>(async |asked, request| {
        asked.store.revoke_token(&asked.call, request).await
    });
    routes.add::<op::ListAuditEntries, _, _>(async |asked, request| {
        asked.store.audit(&asked.call, request).await
    });
    // Every other operation is a call of the contract as it stands, or a batch of one.
    every_call(&mut routes);
    every_single(&mut routes);
    let batched = Arc::new(routes.batched());
    routes.add::<op::PerformBatch, _, _>(move |asked, request| {
        batch::perform(asked, request, Arc::clone(&batched))
    });
    debug_assert_eq!(routes.count(), fencehold_contract::http::ALL.len(), "an operation without a route");
    let routes = routes.into_router().merge(dashboard::routes(server));
    routes
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
