//! The wire: what travels between Fencehold's server and whoever uses it.
//!
//! Nouns: an [`Operation`] ties a method and a path to the types of its request and its answer, so that server, remote
//! store and OpenAPI document cannot disagree; a [`Problem`] is every error (`application/problem+json`).
//!
//! Durations are in milliseconds and named so (`ttl_ms`), times are RFC 3339, tokens are numbers below 2^53, payloads are
//! plain JSON. A request with a field that is not known is refused: it may have been meant as a safeguard.
//!
//! Deliberately absent: HTTP itself (the server and the remote store bring their own), and rules (they are the core's).

pub mod access;
pub mod desk;
#[cfg(feature = "document")]
mod document;
mod event;
pub mod job;
pub mod lease;
mod operation;
mod problem;
mod scope;
mod value;

#[cfg(feature = "document")]
pub use document::document;
pub use event::{Event, EventPage, EventsRequest, HoldChange};
pub use operation::{ALL, Method, Nothing, Operation, Shape, Spec, Visitor, every, op};
pub use problem::{Kind, Outcome, Problem};
pub use scope::{Role, Scope};
pub use value::{Bytes, Json, Labels, Moment};

/// The header that names the namespace; `default` if it is missing.
pub const NAMESPACE_HEADER: &str = "fencehold-namespace";
/// The header that says for how many milliseconds the caller bears with a store that cannot be reached.
pub const PATIENCE_HEADER: &str = "fencehold-patience-ms";
/// The header under which the same enqueue makes the same jobs.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// The content type of every answer that is an error.
pub const PROBLEM_TYPE: &str = "application/problem+json";
/// Where holders hear that another caller acted on what they hold.
pub const HOLD_CHANGES_PATH: &str = "/v1/holds/stream";
/// The largest body of a request: what one call may carry, as JSON and with room for its names.
pub const BODY_BYTES_MAX: usize = 32 << 20;

/// Derives the schema of a type, where the document is made.
macro_rules! wire {
    ($($item:item)*) => {
        $(#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "document", derive(schemars::JsonSchema))]
        $item)*
    };
}
pub(crate) use wire;
