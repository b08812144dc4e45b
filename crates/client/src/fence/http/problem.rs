//! What is refused, as RFC 9457 has it, and the one table from errors to status codes.

use fencehold_core::{BadInput, Key, Owner, Token};
use http::{HeaderValue, Response, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::fence::error::FenceError;

/// The body of a refusal (`application/problem+json`).
///
/// ```
/// use fencehold::fence::http::FenceProblem;
///
/// let body = br#"{"type": "urn:fencehold:stale-token", "title": "The token is stale", "status": 412,
///                 "detail": "stop the work", "key": "reports/daily", "token": 33, "highest_token": 34}"#;
/// let problem = FenceProblem::parse(body).expect("a problem");
/// assert!(problem.is_stale(), "stop the work, and acquire anew");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FenceProblem {
    /// Which kind of problem: `urn:fencehold:` and `stale-token`, `token-required`, `bad-input`, `unavailable` or
    /// `unusable`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind, for people.
    pub title: String,
    /// The status code.
    pub status: u16,
    /// What happened, and what to do next.
    pub detail: String,
    /// Of a stale token: for which key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Of a stale token: the one that was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// Of a stale token: the highest that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_token: Option<Token>,
    /// Of a stale token: who showed that one, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_by: Option<Owner>,
}

const STALE: &str = "urn:fencehold:stale-token";

impl FenceProblem {
    /// Reads the body of an answer. `None`: it is something else.
    pub fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// Whether another holder has had the key since: stop the work, and never send this again under the same token.
    pub fn is_stale(&self) -> bool {
        self.kind == STALE
    }

    fn new(kind: &str, status: StatusCode, title: &str, detail: &str) -> Self {
        FenceProblem {
            kind: kind.to_owned(),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.to_owned(),
            key: None,
            token: None,
            highest_token: None,
            raised_by: None,
        }
    }

    pub(super) fn token_required() -> Self {
        FenceProblem::new(
            "urn:fencehold:token-required",
            StatusCode::PRECONDITION_REQUIRED,
            "A fencing token is required",
            "this request changes what a lease protects: send the lease's key and token as Fencing-Key and \
             Fencing-Token",
        )
    }

    pub(super) fn bad_headers(bad: &BadInput) -> Self {
        FenceProblem::new(
            "urn:fencehold:bad-input",
            StatusCode::BAD_REQUEST,
            "The fencing headers make no sense",
            &bad.to_string(),
        )
    }

    pub(super) fn refused(error: FenceError) -> Self {
        match error {
            FenceError::Stale { key, token, highest_token, raised_by, .. } => {
                let (status, title) = (StatusCode::PRECONDITION_FAILED, "The token is stale");
                let problem = FenceProblem {
                    key: Some(key.clone()),
                    token: Some(token),
                    highest_token: Some(highest_token),
                    raised_by: raised_by.clone(),
                    ..FenceProblem::new(STALE, status, title, "")
                };
                // What the marks are called may be a path of this machine, which stays private.
                let resource = "this service".to_owned();
                let shown = FenceError::Stale { resource, key, token, highest_token, raised_by };
                FenceProblem { detail: shown.to_string(), ..problem }
            }
            FenceError::BadInput(bad) => FenceProblem::bad_headers(&bad),
            error if error.is_retryable() => FenceProblem::new(
                "urn:fencehold:unavailable",
                StatusCode::SERVICE_UNAVAILABLE,
                "The marks of the fence are unavailable",
                "the token could not be checked, so nothing was done; try again",
            ),
            _ => FenceProblem::new(
                "urn:fencehold:unusable",
                StatusCode::INTERNAL_SERVER_ERROR,
                "The marks of the fence cannot be used",
                "the token could not be checked, so nothing was done; the log of the service says why",
            ),
        }
    }

    pub(super) fn response<B: From<String>>(&self) -> Response<B> {
        let body = serde_json::to_string(self).unwrap_or_default();
        let mut response = Response::new(B::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        // What was refused today may be the newest tomorrow, and the other way round.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}
