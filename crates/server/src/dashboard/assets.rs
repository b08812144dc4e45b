//! The files of the dashboard: one stylesheet, one script, one icon. A URL has the hash of its file, so a browser keeps a file for ever
//! and never has an old one.

use std::sync::OnceLock;

use axum::body::Body;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use fencehold_contract::problem::{ErrorKind, Problem};
use http::{HeaderMap, StatusCode, header};
use sha2::{Digest as _, Sha256};

use super::layout;
use crate::access::hex;
use crate::http::dispatch::problem_response;

/// The files: name, type, content.
const FILES: [(&str, &str, &str); 3] = [
    ("dashboard.css", "text/css; charset=utf-8", include_str!("assets/dashboard.css")),
    ("dashboard.js", "text/javascript; charset=utf-8", include_str!("assets/dashboard.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// How much of a hash is in a URL.
const HASH_CHARS: usize = 16;

fn hashes() -> &'static [String; 3] {
    static HASHES: OnceLock<[String; 3]> = OnceLock::new();
    HASHES.get_or_init(|| {
        FILES.map(|(_, _, content)| {
            let mut hash = hex(&Sha256::digest(content));
            hash.truncate(HASH_CHARS);
            hash
        })
    })
}

/// Where a file is, as seen from a page.
pub(super) fn url(name: &str) -> String {
    let files = FILES.iter().zip(hashes());
    let found = files.into_iter().find(|((known, ..), _)| *known == name);
    found.map_or_else(String::new, |(_, hash)| format!("assets/{hash}/{name}"))
}

pub(super) async fn asset(Path((hash, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let mut files = FILES.iter().zip(hashes());
    let found = files.find(|((known, ..), expected)| *known == name && **expected == hash);
    let Some(((_, kind, content), hash)) = found else {
        return problem_response(&Problem::new(ErrorKind::PathNotFound, "there is no such file"));
    };
    let etag = format!("\"{hash}\"");
    let is_known = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let (status, body) = if is_known {
        (StatusCode::NOT_MODIFIED, Body::empty())
    } else {
        (StatusCode::OK, Body::from(*content))
    };
    let headers = [
        (header::CONTENT_TYPE, *kind),
        (header::ETAG, etag.as_str()),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, layout::CONTENT_SECURITY_POLICY),
    ];
    (status, headers, body).into_response()
}
