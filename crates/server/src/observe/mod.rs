//! What can be seen of a running server from outside: metrics, traces.
//!
//! No metric has a label for a key, a job, an owner or a token: their number has no bound.

mod cancelled;
mod metrics;
mod page;
mod render;
mod trace;

pub(crate) use cancelled::Cancelled;
pub(crate) use metrics::{Metrics, OperationKind, is_wrong_hold};
pub(crate) use page::CONTENT_TYPE;
pub(crate) use render::render;
pub use trace::Receiver;
pub(crate) use trace::{
    Attribute, Span, SpanKind, TraceContext, Tracer, about, attempts, enqueuing, holding, working,
};

/// A value as it is called everywhere else: in the JSON of HTTP.
fn label(value: &impl serde::Serialize) -> String {
    let name = serde_json::to_value(value).ok();
    name.as_ref().and_then(|name| name.as_str()).unwrap_or_default().to_owned()
}

/// How long something takes, for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(std::time::Instant);

#[expect(clippy::disallowed_methods, reason = "how long something took is for people, and decides nothing")]
impl Stopwatch {
    pub(crate) fn start() -> Self {
        Stopwatch(std::time::Instant::now())
    }

    pub(crate) fn us(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
