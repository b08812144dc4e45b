//! What every page has: head, navigation, messages; and the headers of every response.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use fencehold_contract::http::{HttpOperation, op};
use fencehold_contract::problem::{ErrorKind, Problem};
use http::{HeaderName, HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, html};

use super::page::{Page, PageRequest};
use super::session::Theme;
use super::{assets, text};
use crate::access::CallerIdentity;
use crate::http::dispatch::without_paths;

/// Everything comes from this server, and nothing is written into a page that a browser would run.
pub(super) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The headers of every response. A referrer stays with this origin: without one, browsers send forms without their origin.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::CACHE_CONTROL, "no-store"),
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// A response with the headers of every page and these.
pub(super) fn with_headers<const N: usize>(
    status: StatusCode,
    more: [(HeaderName, &str); N],
    body: impl Into<Body>,
) -> Response {
    let mut response = (status, body.into()).into_response();
    for (name, value) in HEADERS.into_iter().chain(more) {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// How often an open page asks for itself at most; and one that is put together from many calls.
const REFRESH_MS: [u32; 2] = [1_000, 5_000];

/// An entry of the navigation: path, name, and whether the caller may see it.
type Entry = (&'static str, &'static str, fn(&PageRequest) -> bool);

fn sees<O: HttpOperation>(page: &PageRequest) -> bool {
    page.may::<O>()
}

fn sees_jobs<O: HttpOperation>(page: &PageRequest) -> bool {
    page.has_jobs() && page.may::<O>()
}

fn sees_access<O: HttpOperation>(page: &PageRequest) -> bool {
    page.server.access.access_cache().is_some() && page.may::<O>()
}

const ENTRIES: [Entry; 9] = [
    ("./", "Overview", |_| true),
    ("leases", "Leases", sees::<op::ListLeases>),
    ("queues", "Queues", sees_jobs::<op::ListQueues>),
    ("jobs", "Jobs", sees_jobs::<op::ListJobs>),
    ("workers", "Workers", |page| {
        page.may::<op::ListLeases>() || sees_jobs::<op::ListJobs>(page) || page.may::<op::ListEvents>()
    }),
    ("schedules", "Schedules", sees_jobs::<op::ListSchedules>),
    ("effects", "Effects", sees_jobs::<op::ListEffects>),
    ("audit", "Audit", sees_access::<op::ListAuditEntries>),
    ("access-tokens", "Access tokens", sees_access::<op::ListAccessTokens>),
];

fn document(title: &str, theme: Theme, has_script: bool, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme.name()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (text::plain_beginning(title, 80)) " · Fencehold" }
                link rel="stylesheet" href=(assets::url("dashboard.css"));
                link rel="icon" type="image/svg+xml" href=(assets::url("icon.svg"));
                @if has_script { script src=(assets::url("dashboard.js")) defer {} }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// A page as a response.
pub(super) fn respond(request: &PageRequest, status: StatusCode, page: &Page) -> Response {
    with_headers(status, [], html_of(request, page))
}

/// A page, with the navigation around it.
pub(super) fn html_of(request: &PageRequest, page: &Page) -> String {
    let live = page.live_prefix.as_deref().filter(|_| request.may::<op::ListEvents>());
    let live = live.map(|prefix| request.href("live", &[("prefix", prefix)]));
    let refresh_ms = REFRESH_MS[usize::from(["Overview", "Workers"].contains(&page.section))];
    let body = html! {
        a class="skip" href="#main" { "Skip to the content" }
        header class="top" {
            a class="brand" href=(request.href("./", &[])) { img src=(assets::url("icon.svg")) alt="" width="18" height="18"; "Fencehold" }
            nav aria-label="Pages" {
                @for (path, name, _) in ENTRIES.iter().filter(|(.., may_see)| may_see(request)) {
                    a href=(request.href(path, &[])) aria-current=[(page.section == *name).then_some("page")] { (name) }
                }
            }
            span id="live" class="live" role="status" data-state="off" {}
            (settings(request, page))
        }
        main id="main" tabindex="-1" data-now=(request.now_ms) data-live=[live] data-refresh-ms=(refresh_ms) { (page.main) }
    };
    document(&page.title, request.theme, true, &body)
}

/// The namespace, the theme and the session.
fn settings(request: &PageRequest, page: &Page) -> Markup {
    let back = request
        .href_of(if page.section == "Overview" { "" } else { here(request) }, request.fields.without(""));
    html! {
        details class="menu" id="settings" {
            summary {
                span class="muted" { "namespace " } (text::cell(request.namespace.as_str()))
            }
            div class="panel" {
                @if request.caller.world.is_none() {
                    form action="./" method="get" class="inline" {
                        label { "Namespace" input name="namespace" value=(request.namespace) maxlength="64" autocapitalize="none"; }
                        button { "Show" }
                    }
                }
                form action="theme" method="post" class="inline" {
                    input type="hidden" name="back" value=(back);
                    span class="label" { "Theme" }
                    @for theme in Theme::ALL {
                        button name="theme" value=(theme.name()) aria-pressed=(request.theme == theme) { (theme.name()) }
                    }
                }
                @if let CallerIdentity::Token { id, name } = &request.caller.who {
                    form action="logout" method="post" class="inline" {
                        span { "Access token " (text::cell(name)) " " span class="muted" { (id) } }
                        button { "Log out" }
                    }
                } @else {
                    p class="muted" { "This server asks for no access token." }
                }
            }
        }
    }
}

/// The path of a view, as links to it have it.
fn here(request: &PageRequest) -> &str {
    request.path().trim_start_matches('/')
}

/// A problem, with the navigation around it.
pub(super) fn problem(request: &PageRequest, problem: &Problem) -> Response {
    let main = html! { h1 { "This could not be done" } (notice(problem)) };
    let page = Page { title: "A problem".to_owned(), section: section_of(request), live_prefix: None, main };
    respond(request, status_of(problem), &page)
}

fn section_of(request: &PageRequest) -> &'static str {
    let found = ENTRIES.iter().find(|(path, ..)| *path == here(request));
    found.map_or("", |(_, name, _)| name)
}

fn status_of(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A problem of a caller that was not let in.
pub(super) fn problem_alone(problem: &Problem) -> Response {
    let body = html! {
        main id="main" class="alone" {
            h1 { "Fencehold" }
            (notice(problem))
            @if problem.kind == ErrorKind::Unauthorized { p { a href="login" { "Log in" } } }
        }
    };
    with_headers(status_of(problem), [], document("A problem", Theme::System, false, &body))
}

/// What went wrong, and what to do.
pub(super) fn notice(problem: &Problem) -> Markup {
    let shown = without_paths(problem);
    let problem = shown.as_ref().unwrap_or(problem);
    let advice = match problem.kind {
        ErrorKind::Forbidden => Some(
            "An operator can make an access token that allows it: fencehold access-token create NAME --scope … --namespace …",
        ),
        ErrorKind::Unavailable | ErrorKind::Stopping => {
            Some("Nothing was done. Reload the page to try again.")
        }
        ErrorKind::OutcomeUnknown => {
            Some("Open the page again to see what became of it, before you repeat it.")
        }
        ErrorKind::NotHeld | ErrorKind::Lost | ErrorKind::WrongState => {
            Some("It has changed since the page was made. Open the page again to see how it stands.")
        }
        _ => None,
    };
    html! {
        div class="notice bad" role="alert" {
            strong { (problem.title) }
            p { (text::text(&problem.detail)) }
            @if let Some(advice) = advice { p { (advice) } }
        }
    }
}

/// An empty state: what there is not, and a command that makes one.
pub(super) fn empty(says: &str, command: Option<&str>) -> Markup {
    html! {
        div class="empty" {
            p { (says) }
            @if let Some(command) = command { code class="copy" { (command) } }
        }
    }
}

/// The form to log in with.
pub(super) fn login(
    status: StatusCode,
    theme: Theme,
    back: Option<&str>,
    problem: Option<&Problem>,
) -> Response {
    let body = html! {
        main id="main" class="alone" {
            h1 { "Fencehold" }
            @if let Some(problem) = problem {
                div class="notice bad" role="alert" { p { (text::text(&problem.detail)) } }
            }
            form action="login" method="post" class="stack" {
                input type="hidden" name="back" value=(back.unwrap_or_default());
                // For managers of passwords, which keep each under a name.
                input type="text" autocomplete="username" value="fencehold" hidden;
                label {
                    "Access token"
                    input name="access_token" type="password" required autofocus autocomplete="current-password" spellcheck="false"
                        placeholder="fencehold_…";
                }
                button class="primary" { "Log in" }
            }
            p class="muted" { "The session ends with the browser, and at once when the access token is revoked. An operator makes one:" }
            code class="copy" { "fencehold access-token create dashboard --role reader --namespace default" }
        }
    };
    with_headers(status, [], document("Log in", theme, false, &body))
}
