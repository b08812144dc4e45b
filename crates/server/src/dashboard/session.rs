//! Who looks at the dashboard: the session of a browser, and the proof that a form comes from one of our pages.
//!
//! The session is the access token itself, in a cookie that scripts cannot read. So it survives a restart, is valid at every server
//! of the store, and ends at once when the token is revoked or expires. The API never reads the cookie.
//!
//! A form that changes something must come from our own origin, and must carry a text that only pages of the same session have.
//! Deliberately absent: sessions of the server's own.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use fencehold_contract::http::{HttpOperation as _, op};
use fencehold_contract::problem::{ErrorKind, Problem};
use http::header::{AUTHORIZATION, COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::page::{Fields, read_form};
use super::{VIEWS, layout, see_other};
use crate::access::{Bearer, Caller, CallerIdentity, hex};
use crate::{ServerInner, random};

/// The cookie with the access token. A browser accepts the first name only over TLS, for this host alone and every path of it.
const SECURE_COOKIE: &str = "__Host-fencehold";
const PLAIN_COOKIE: &str = "fencehold";
const THEME_COOKIE: &str = "fencehold_theme";
/// How long the choice of a theme lasts: a year.
const THEME_SECONDS: u32 = 31_536_000;
const SESSION_ENDED: &str =
    "your session has ended: its access token was revoked, has expired, or is not known here";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Light or dark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Theme {
    /// As the system is.
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    pub(super) const ALL: [Theme; 3] = [Theme::System, Theme::Light, Theme::Dark];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Theme::System => "system",
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }

    /// What the browser has chosen.
    pub(super) fn of(headers: &HeaderMap) -> Theme {
        let chosen = cookie(headers, THEME_COOKIE);
        Theme::ALL
            .into_iter()
            .find(|theme| chosen == Some(theme.name()))
            .unwrap_or_default()
    }
}

/// The value of a cookie.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Shows the session's access token as the API expects it. One in the header itself comes first: no browser sends it by itself.
/// What is no bearer token there is a proxy's, and is left out.
pub(super) fn apply(parts: &mut Parts) {
    let shown = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let is_bearer = shown
        .and_then(|text| text.split_once(' '))
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if is_bearer {
        return;
    }
    parts.headers.remove(AUTHORIZATION);
    let session = cookie(&parts.headers, SECURE_COOKIE).or_else(|| cookie(&parts.headers, PLAIN_COOKIE));
    if let Some(bearer) = session.and_then(Bearer::parse) {
        show_token(&mut parts.headers, &bearer);
    }
}

fn show_token(headers: &mut HeaderMap, bearer: &Bearer) {
    if let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", bearer.reveal())) {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
}

/// What forms of a session carry: it follows from the access token, so it needs no memory. Without one it is of this process.
pub(super) fn form_token(server: &ServerInner, caller: &Caller, parts: &Parts) -> Result<String, Problem> {
    let mut hash = Sha256::new();
    hash.update(b"fencehold dashboard form\n");
    match caller.who {
        CallerIdentity::Token { .. } => {
            hash.update(parts.headers.get(AUTHORIZATION).map_or(&[][..], HeaderValue::as_bytes));
        }
        CallerIdentity::Anyone => {
            let known = server.dashboard.form_secret.get().copied();
            let fresh = known.map_or_else(random, Ok)?;
            hash.update(server.dashboard.form_secret.get_or_init(|| fresh));
        }
    }
    Ok(hex(&hash.finalize()))
}

/// `Err`: the form is of another session, or of none.
pub(super) fn check_form_token(expected: &str, shown: Option<&str>) -> Result<(), Problem> {
    let shown = shown.unwrap_or_default();
    if expected.as_bytes().ct_eq(shown.as_bytes()).into() {
        return Ok(());
    }
    let detail = "the form is from before the server restarted, or from another session; nothing was done: open the page \
                  again and repeat what you did";
    Err(Problem::new(ErrorKind::Forbidden, detail))
}

/// `Err`: a page of another site sent the request, or nothing shows that one of ours did. Browsers that say from where a request comes
/// know it best: a proxy may change the `Host` that an `Origin` is compared with.
pub(super) fn check_same_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: HeaderName| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_same = match (text(FETCH_SITE), text(ORIGIN), text(HOST)) {
        (Some(site), ..) => site == "same-origin",
        (None, Some(origin), Some(host)) => origin
            .split_once("://")
            .is_some_and(|(_, from)| from.eq_ignore_ascii_case(host)),
        _ => false,
    };
    if is_same {
        return Ok(());
    }
    let detail = "the form was not sent by a page of this dashboard; nothing was done";
    Err(Problem::new(ErrorKind::Forbidden, detail))
}

/// Whether the browser has a session, which may be over.
pub(super) fn is_there(headers: &HeaderMap) -> bool {
    cookie(headers, SECURE_COOKIE)
        .or_else(|| cookie(headers, PLAIN_COOKIE))
        .is_some()
}

/// Leads to the log-in, and from there back.
pub(super) fn ask_to_log_in(target: &str, has_ended: bool) -> Response {
    let back = target.trim_start_matches('/');
    let back = (!back.is_empty()).then_some(("back", back));
    let ended = has_ended.then_some(("ended", "yes"));
    let pairs: Vec<(&str, &str)> = back.into_iter().chain(ended).collect();
    let query = serde_html_form::to_string(&pairs).unwrap_or_default();
    see_other(&if query.is_empty() { "login".to_owned() } else { format!("login?{query}") })
}

/// Where to go from a form that says so: to a page of ours and nowhere else.
fn back_to(back: Option<&str>) -> String {
    let back = back.unwrap_or_default();
    let (path, query) = back.split_once('?').unwrap_or((back, ""));
    let is_ours = !path.is_empty() && VIEWS.iter().any(|(known, _)| known.trim_start_matches('/') == path);
    let pairs = Fields::parse(query);
    let query = serde_html_form::to_string(pairs.without("").collect::<Vec<_>>()).unwrap_or_default();
    let path = if is_ours { path } else { "./" };
    if query.is_empty() || !(is_ours || back.starts_with('?')) {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

pub(super) async fn login_form(State(server): State<Arc<ServerInner>>, request: Request<Body>) -> Response {
    let (parts, _) = request.into_parts();
    if server.access.is_open() {
        return see_other("./");
    }
    let fields = Fields::parse(parts.uri.query().unwrap_or_default());
    let ended = fields
        .has("ended")
        .then(|| Problem::new(ErrorKind::Unauthorized, SESSION_ENDED));
    layout::login(StatusCode::OK, Theme::of(&parts.headers), fields.get("back"), ended.as_ref())
}

pub(super) async fn login(State(server): State<Arc<ServerInner>>, request: Request<Body>) -> Response {
    let (mut parts, body) = request.into_parts();
    let theme = Theme::of(&parts.headers);
    let refused = |problem: &Problem, back: Option<&str>| {
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::UNAUTHORIZED);
        layout::login(status, theme, back, Some(problem))
    };
    if let Err(problem) = check_same_origin(&parts.headers) {
        return refused(&problem, None);
    }
    let fields = match read_form(&server, &parts, body).await {
        Ok((fields, _)) => fields,
        Err(problem) => return refused(&problem, None),
    };
    let back = fields.get("back");
    let shown = fields.get("access_token").map(str::trim).unwrap_or_default();
    let Some(bearer) = Bearer::parse(shown) else {
        let detail = "this is not an access token: it looks like fencehold_ID_SECRET";
        return refused(&Problem::new(ErrorKind::Unauthorized, detail), back);
    };
    show_token(&mut parts.headers, &bearer);
    // As any request would be: an unknown token is counted and logged.
    if let Err(problem) = server.admit(&parts, &op::GetStoreStatus::SPEC) {
        return refused(&problem, back);
    }
    let cookie = session_cookie(is_encrypted(&server, &parts.headers), &bearer.reveal(), "");
    layout::with_headers(
        StatusCode::SEE_OTHER,
        [(LOCATION, back_to(back).as_str()), (SET_COOKIE, cookie.as_str())],
        Body::empty(),
    )
}

pub(super) async fn logout(State(server): State<Arc<ServerInner>>, request: Request<Body>) -> Response {
    let (parts, _) = request.into_parts();
    if let Err(problem) = check_same_origin(&parts.headers) {
        return layout::problem_alone(&problem);
    }
    let cookie = session_cookie(is_encrypted(&server, &parts.headers), "", "; Max-Age=0");
    layout::with_headers(StatusCode::SEE_OTHER, [(LOCATION, "login"), (SET_COOKIE, &cookie)], Body::empty())
}

/// Changes nothing but what the browser remembers, so it needs no session.
pub(super) async fn set_theme(State(server): State<Arc<ServerInner>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let form = match check_same_origin(&parts.headers) {
        Ok(()) => read_form(&server, &parts, body).await,
        Err(problem) => Err(problem),
    };
    let fields = match form {
        Ok((fields, _)) => fields,
        Err(problem) => return layout::problem_alone(&problem),
    };
    let chosen = Theme::ALL.into_iter().find(|theme| fields.get("theme") == Some(theme.name()));
    let theme = chosen.unwrap_or_default().name();
    let cookie = format!("{THEME_COOKIE}={theme}; Path=/; Max-Age={THEME_SECONDS}; SameSite=Lax");
    let back = back_to(fields.get("back"));
    layout::with_headers(
        StatusCode::SEE_OTHER,
        [(LOCATION, back.as_str()), (SET_COOKIE, &cookie)],
        Body::empty(),
    )
}

/// Whether the browser speaks TLS: with this server, or with a proxy that says so. A browser that lies about it harms itself alone.
fn is_encrypted(server: &ServerInner, headers: &HeaderMap) -> bool {
    server.tls.is_some() || headers.get(FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes() == b"https")
}

fn session_cookie(is_encrypted: bool, value: &str, more: &str) -> String {
    let (name, secure) = if is_encrypted { (SECURE_COOKIE, "; Secure") } else { (PLAIN_COOKIE, "") };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}")
}

#[cfg(test)]
mod tests {
    use super::super::ACTIONS;
    use super::*;

    #[test]
    fn a_form_leads_back_to_pages_of_ours_alone() {
        for (back, goes_to) in [
            (Some("leases?prefix=a%2Fb"), "leases?prefix=a%2Fb"),
            (Some("?namespace=team-a"), "./?namespace=team-a"),
            (Some("jobs"), "jobs"),
            (None, "./"),
            (Some("https://site.example/"), "./"),
            (Some("//site.example/leases"), "./"),
            (Some("/\\site.example"), "./"),
            (Some("revoke-lease?key=k"), "./"),
            (Some("leases/../v1/leases"), "./"),
            (Some("leases\r\nset-cookie: a=b"), "./"),
            (Some("leases?a=b\r\nset-cookie: a=b"), "leases?a=b%0D%0Aset-cookie%3A+a%3Db"),
        ] {
            assert_eq!(back_to(back), goes_to, "{back:?}");
        }
        assert!(
            ACTIONS
                .iter()
                .all(|(path, _)| back_to(Some(path.trim_start_matches('/'))) == "./")
        );
    }

    #[test]
    fn a_form_comes_from_the_origin_of_its_page_or_is_refused() {
        let headers = |pairs: &[(HeaderName, &str)]| {
            let value = |text: &str| HeaderValue::from_str(text).unwrap();
            pairs
                .iter()
                .map(|(name, text)| (name.clone(), value(text)))
                .collect::<HeaderMap>()
        };
        for (pairs, is_fine) in [
            (&[(FETCH_SITE, "same-origin")][..], true),
            (&[(HOST, "h:1"), (ORIGIN, "http://h:1")], true),
            (&[(HOST, "proxied:1"), (ORIGIN, "https://h"), (FETCH_SITE, "same-origin")], true),
            (&[(HOST, "h:1"), (ORIGIN, "http://h:1"), (FETCH_SITE, "cross-site")], false),
            (&[(HOST, "h:1"), (ORIGIN, "http://h:1"), (FETCH_SITE, "same-site")], false),
            (&[(FETCH_SITE, "none")], false),
            (&[(HOST, "h:1"), (ORIGIN, "http://h:2")], false),
            (&[(HOST, "h:1"), (ORIGIN, "null")], false),
            (&[(HOST, "h:1")], false),
            (&[], false),
        ] {
            assert_eq!(check_same_origin(&headers(pairs)).is_ok(), is_fine, "{pairs:?}");
        }
    }

    #[test]
    fn a_session_comes_from_a_cookie_and_never_from_what_a_proxy_adds() {
        let bearer = Bearer::from_random([7; 38]);
        let shown = |lines: &[(HeaderName, String)]| {
            let mut parts = Request::new(()).into_parts().0;
            for (name, text) in lines {
                parts.headers.append(name, HeaderValue::from_str(text).unwrap());
            }
            apply(&mut parts);
            parts.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned())
        };
        let session = format!("other=1; {PLAIN_COOKIE}={}", bearer.reveal());
        let expected = Some(format!("Bearer {}", bearer.reveal()));
        assert_eq!(shown(&[(COOKIE, session.clone())]), expected);
        let basic = (AUTHORIZATION, "Basic YTpi".to_owned());
        assert_eq!(shown(&[basic.clone(), (COOKIE, session.clone())]), expected);
        assert_eq!(shown(&[basic]), None);
        let own = "Bearer of-its-own".to_owned();
        assert_eq!(shown(&[(AUTHORIZATION, own.clone()), (COOKIE, session)]), Some(own));
        assert_eq!(shown(&[(COOKIE, format!("{PLAIN_COOKIE}=no token"))]), None);
    }
}
