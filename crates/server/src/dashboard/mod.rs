//! The dashboard: pages for people at `/` of the server, for whom a terminal is not at hand.
//!
//! Nouns: a [`PageRequest`] is a browser's request that was let in; a [`Page`](page::Page) is what it is answered with; a *view* is a page that
//! only looks, an *action* is a form that changes something and leads back to a page; the *session* is the access token in a cookie.
//! Pages are HTML made here, with one script for live updates and one stylesheet, and work without the script.
//!
//! Deliberately absent: access rules and a way to the store. A page is made of operations of the HTTP API, which pass the
//! same points as any request (`access/authorized_store`). Also absent: state, but for renderings that last for seconds (`shared`). Whatever server of a store
//! answers, the page is the same.

mod access_tokens;
mod assets;
mod audit;
mod chart;
mod effects;
mod filter;
mod history;
mod job;
mod jobs;
mod layout;
mod lease;
mod leases;
mod live;
mod matching;
mod overview;
mod page;
mod queues;
mod schedules;
mod session;
mod shared;
mod stuck;
mod text;
mod timeline;
mod workers;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use fencehold_contract::problem::{ErrorKind, Problem};
use futures_util::future::BoxFuture;
use http::{Request, StatusCode, header};

use crate::ServerInner;
use page::{PageRequest, PageResponse};

/// Whether there is a dashboard, and what it has of its own.
#[derive(Debug)]
pub(crate) struct Dashboard {
    enabled: bool,
    /// What forms are bound to while the server asks for no access token: made by this process.
    form_secret: OnceLock<[u8; 32]>,
    /// What open pages show.
    shared: shared::SharedPages,
}

impl Dashboard {
    pub(crate) fn new(enabled: bool) -> Self {
        Dashboard { enabled, form_secret: OnceLock::new(), shared: shared::SharedPages::default() }
    }
}

/// Makes what a request is answered with.
type Handler = fn(Arc<PageRequest>) -> BoxFuture<'static, Result<PageResponse, Problem>>;

/// The pages that only look.
const VIEWS: &[(&str, Handler)] = &[
    ("/", |page| Box::pin(overview::view(page))),
    ("/leases", |page| Box::pin(leases::view(page))),
    ("/lease", |page| Box::pin(lease::view(page))),
    ("/queues", |page| Box::pin(queues::view(page))),
    ("/jobs", |page| Box::pin(jobs::view(page))),
    ("/job", |page| Box::pin(job::view(page))),
    ("/workers", |page| Box::pin(workers::view(page))),
    ("/worker", |page| Box::pin(workers::one(page))),
    ("/matching-leases", |page| Box::pin(matching::leases_view(page))),
    ("/matching-jobs", |page| Box::pin(matching::jobs_view(page))),
    ("/schedules", |page| Box::pin(schedules::view(page))),
    ("/effects", |page| Box::pin(effects::view(page))),
    ("/audit", |page| Box::pin(audit::view(page))),
    ("/access-tokens", |page| Box::pin(access_tokens::view(page))),
];

/// The forms that change something.
const ACTIONS: &[(&str, Handler)] = &[
    ("/revoke-lease", |page| Box::pin(lease::revoke(page))),
    ("/revoke-leases", |page| Box::pin(matching::revoke_leases(page))),
    ("/change-jobs", |page| Box::pin(matching::change_jobs(page))),
    ("/cancel-job", |page| Box::pin(job::cancel(page))),
    ("/retry-job", |page| Box::pin(job::retry(page))),
    ("/delete-job", |page| Box::pin(job::delete(page))),
    ("/set-queue-mode", |page| Box::pin(queues::set_mode(page))),
    ("/resolve-effect", |page| Box::pin(effects::resolve(page))),
    ("/create-access-token", |page| Box::pin(access_tokens::create(page))),
    ("/revoke-access-token", |page| Box::pin(access_tokens::revoke(page))),
];

/// Every route of the dashboard; none if it is switched off.
pub(crate) fn routes(server: &Arc<ServerInner>) -> Router<Arc<ServerInner>> {
    let mut routes = Router::new();
    if !server.dashboard.enabled {
        return routes;
    }
    for (path, handler) in VIEWS.iter().copied() {
        let answer = move |State(server), request| show(server, request, handler);
        routes = routes.route(path, get(answer));
    }
    for (path, handler) in ACTIONS.iter().copied() {
        let answer = move |State(server), request| act(server, request, handler);
        routes = routes.route(path, post(answer));
    }
    routes
        .route("/live", get(live::watch))
        .route("/login", get(session::login_form).post(session::login))
        .route("/logout", post(session::logout))
        .route("/theme", post(session::set_theme))
        .route("/assets/{hash}/{name}", get(assets::asset))
}

/// Answers a request for a page.
async fn show(server: Arc<ServerInner>, request: Request<Body>, handler: Handler) -> Response {
    let (parts, _) = request.into_parts();
    let target = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let had_session = session::is_there(&parts.headers);
    let asks_again = shared::asks_again(&parts.headers);
    match PageRequest::admit(server, parts) {
        Ok(page) if asks_again => shared::answer(Arc::new(page), handler).await,
        Ok(page) => answer(Arc::new(page), handler).await,
        Err(problem) if problem.kind == ErrorKind::Unauthorized => {
            session::ask_to_log_in(&target, had_session)
        }
        Err(problem) => layout::problem_alone(&problem),
    }
}

/// Answers a form that changes something.
async fn act(server: Arc<ServerInner>, request: Request<Body>, handler: Handler) -> Response {
    let (parts, body) = request.into_parts();
    let page = match PageRequest::admit(server, parts) {
        Ok(page) => page,
        Err(problem) => return layout::problem_alone(&problem),
    };
    match page.with_form(body).await {
        Ok(page) => answer(Arc::new(page), handler).await,
        Err(problem) => layout::problem_alone(&problem),
    }
}

async fn answer(page: Arc<PageRequest>, handler: Handler) -> Response {
    let shown = handler(Arc::clone(&page)).await;
    respond(&page, shown)
}

fn respond(page: &PageRequest, shown: Result<PageResponse, Problem>) -> Response {
    match shown {
        Ok(PageResponse::Page(shown)) => layout::respond(page, StatusCode::OK, &shown),
        Ok(PageResponse::Goto(path)) => see_other(&path),
        Err(problem) => layout::problem(page, &problem),
    }
}

/// Leads a browser to a page, after a form. The path is relative, so it is right below a prefix of a proxy too.
fn see_other(path: &str) -> Response {
    layout::with_headers(StatusCode::SEE_OTHER, [(header::LOCATION, path)], Body::empty())
}
