//! One rendering for all browsers that show the same page and ask for it again, because something happened to what it shows.
//!
//! Every open page asks again after a change, so fifty people who watch a busy store would ask ten times a second for what the store takes a
//! tenth of a second to find. A rendering is therefore shown again for [`SHOWN_FOR`] times as long as it took: a page costs the store a
//! twentieth of the time, however many watch it. With an older rendering goes when there is a newer one.
//!
//! Deliberately absent: pages that a person opens. They are as things stand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::response::Response;
use fencehold_contract::problem::Problem;
use fencehold_core::Namespace;
use http::{HeaderMap, HeaderName, StatusCode};
use tokio::sync::Mutex as AsyncMutex;

use super::page::{PageRequest, PageResponse};
use super::session::Theme;
use super::{Handler, layout, respond};
use crate::access::CallerIdentity;
use crate::locked;

/// The script says so where a page asks for itself again.
const AGAIN: HeaderName = HeaderName::from_static("fencehold-again");
/// How old the rendering is.
const AGE_MS: HeaderName = HeaderName::from_static("fencehold-age-ms");
/// In how many milliseconds there is a newer one.
const NEXT_IN_MS: HeaderName = HeaderName::from_static("fencehold-next-in-ms");

/// For how many times as long as it took a rendering is shown, and for how long at most.
const SHOWN_FOR: u64 = 20;
const SHOWN_FOR_MS_MAX: u64 = 5_000;
/// How many pages are kept. Those that no request asks for at the moment make room.
const PAGES_MAX: usize = 32;

/// What two requests must have in common to be answered with the same page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    pub(super) who: CallerIdentity,
    pub(super) namespace: Namespace,
    pub(super) theme: Theme,
    pub(super) form_token: String,
    /// Path and query.
    pub(super) target: String,
}

/// A page as it was found.
#[derive(Debug)]
struct Rendering {
    begun_ms: u64,
    until_ms: u64,
    html: Bytes,
}

/// Held while the page is made: other requests wait, and take what was made.
type Place = Arc<AsyncMutex<Option<Rendering>>>;

/// The last rendering of each page that is open somewhere.
#[derive(Debug, Default)]
pub(super) struct SharedPages(Mutex<HashMap<PageKey, Place>>);

impl SharedPages {
    fn place(&self, key: PageKey) -> Place {
        let mut pages = locked(&self.0);
        if pages.len() >= PAGES_MAX && !pages.contains_key(&key) {
            pages.retain(|_, place| Arc::strong_count(place) > 1);
        }
        Arc::clone(pages.entry(key).or_default())
    }
}

/// Whether a page asks for itself again.
pub(super) fn asks_again(headers: &HeaderMap) -> bool {
    headers.contains_key(AGAIN)
}

/// Answers a page that asks for itself again.
pub(super) async fn answer(page: Arc<PageRequest>, handler: Handler) -> Response {
    let server = Arc::clone(&page.server);
    let now_ms = || server.clock.now().store_ms;
    let place = server.dashboard.shared.place(page.key());
    let mut known = place.lock().await;
    let begun_ms = now_ms();
    if let Some(known) = known.as_ref().filter(|known| begun_ms < known.until_ms) {
        let age_ms = begun_ms.saturating_sub(known.begun_ms).to_string();
        let next_in_ms = (known.until_ms - begun_ms).to_string();
        let headers = [(AGE_MS, age_ms.as_str()), (NEXT_IN_MS, next_in_ms.as_str())];
        return layout::with_headers(StatusCode::OK, headers, Body::from(known.html.clone()));
    }
    let shown: Result<PageResponse, Problem> = handler(Arc::clone(&page)).await;
    *known = None;
    if let Ok(PageResponse::Page(shown)) = &shown {
        let html = Bytes::from(layout::html_of(&page, shown));
        let took_ms = now_ms().saturating_sub(begun_ms);
        let until_ms = begun_ms + took_ms.saturating_mul(SHOWN_FOR).min(SHOWN_FOR_MS_MAX);
        *known = Some(Rendering { begun_ms, until_ms, html: html.clone() });
        return layout::with_headers(StatusCode::OK, [], Body::from(html));
    }
    respond(&page, shown)
}
