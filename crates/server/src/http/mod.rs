//! Routes: one line for each operation.

mod access;
mod answer;
mod desk;
mod holds;
mod job;
mod lease;
mod probe;
mod stream;

pub(crate) use probe::Readiness;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use fencehold_api::{HOLD_CHANGES_PATH, op};

use crate::Inner;
use answer::Routes;

pub(crate) fn router(server: &Arc<Inner>) -> Router {
    let mut routes = Routes::default();
    routes.add::<op::Acquire, _>(lease::acquire);
    routes.add::<op::Renew, _>(lease::renew);
    routes.add::<op::Release, _>(lease::release);
    routes.add::<op::Revoke, _>(lease::revoke);
    routes.add::<op::GetLease, _>(lease::get);
    routes.add::<op::ListLeases, _>(lease::list);
    routes.add::<op::Events, _>(lease::events);
    routes.add::<op::Capabilities, _>(lease::capabilities);
    routes.add::<op::Status, _>(lease::status);
    routes.add::<op::Advance, _>(lease::advance);
    routes.add::<op::Limits, _>(lease::limits);
    routes.add::<op::OpenNow, _>(lease::open_now);
    routes.add::<op::Enqueue, _>(job::enqueue);
    routes.add::<op::Claim, _>(job::claim);
    routes.add::<op::RenewClaims, _>(job::renew);
    routes.add::<op::ReportJobs, _>(job::report);
    routes.add::<op::WriteLedger, _>(job::ledger);
    routes.add::<op::GetJob, _>(job::get);
    routes.add::<op::ListJobs, _>(job::list);
    routes.add::<op::Act, _>(desk::act);
    routes.add::<op::ListQueues, _>(desk::queues);
    routes.add::<op::SetQueue, _>(desk::set_queue);
    routes.add::<op::RemoveQueue, _>(desk::remove_queue);
    routes.add::<op::ListSchedules, _>(desk::schedules);
    routes.add::<op::SetSchedule, _>(desk::set_schedule);
    routes.add::<op::RemoveSchedule, _>(desk::remove_schedule);
    routes.add::<op::Begin, _>(desk::begin);
    routes.add::<op::ListFindings, _>(desk::findings);
    routes.add::<op::Resolve, _>(desk::resolve);
    routes.add::<op::CreateToken, _>(access::create);
    routes.add::<op::ListTokens, _>(access::list);
    routes.add::<op::RevokeToken, _>(access::revoke);
    routes.add::<op::ReadAudit, _>(access::audit);
    debug_assert_eq!(routes.count(), fencehold_api::ALL.len(), "an operation without a route");
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
