//! Routes: one line for each operation.

mod access;
mod answer;
mod holds;
mod job;
mod lease;
mod probe;
mod stream;

pub(crate) use probe::Readiness;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use fencehold_contract::http::{HOLD_CHANGES_PATH, op};

use crate::Inner;
use answer::Routes;

pub(crate) fn router(server: &Arc<Inner>) -> Router {
    let mut routes = Routes::default();
    routes.add_call::<op::Acquire>();
    routes.add_call::<op::Renew>();
    routes.add_call::<op::Release>();
    routes.add_call::<op::ListLeases>();
    routes.add_call::<op::Events>();
    routes.add_call::<op::Status>();
    routes.add_call::<op::Advance>();
    routes.add_call::<op::Limits>();
    routes.add_call::<op::OpenNow>();
    routes.add_call::<op::Claim>();
    routes.add_call::<op::RenewClaims>();
    routes.add_call::<op::ReportJobs>();
    routes.add_call::<op::WriteLedger>();
    routes.add_call::<op::Act>();
    routes.add_call::<op::ListJobs>();
    routes.add_call::<op::ListQueues>();
    routes.add_call::<op::SetQueue>();
    routes.add_call::<op::RemoveQueue>();
    routes.add_call::<op::ListSchedules>();
    routes.add_call::<op::SetSchedule>();
    routes.add_call::<op::RemoveSchedule>();
    routes.add_call::<op::ListFindings>();
    routes.add_call::<op::Resolve>();
    routes.add::<op::Revoke, _>(lease::revoke);
    routes.add::<op::GetLease, _>(lease::get);
    routes.add::<op::Capabilities, _>(lease::capabilities);
    routes.add::<op::Enqueue, _>(job::enqueue);
    routes.add::<op::GetJob, _>(job::get);
    routes.add::<op::Begin, _>(job::begin);
    routes.add::<op::CreateToken, _>(access::create);
    routes.add::<op::ListTokens, _>(access::list);
    routes.add::<op::RevokeToken, _>(access::revoke);
    routes.add::<op::ReadAudit, _>(access::audit);
    debug_assert_eq!(routes.count(), fencehold_contract::http::ALL.len(), "an operation without a route");
    routes
        .into_router()
        .route("/v1/events/stream", get(stream::watch))
        .route(HOLD_CHANGES_PATH, get(holds::watch))
        .route("/v1/openapi.json", get(probe::document))
        .route("/metrics", get(probe::metrics))
        .route("/livez", get(probe::live))
        .route("/readyz", get(probe::ready))
        .method_not_allowed_fallback(probe::bad_method)
        .fallback(probe::no_such_path)
        .with_state(Arc::clone(server))
}
