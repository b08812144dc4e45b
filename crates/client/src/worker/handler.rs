//! Handlers by kind, with their types taken away: what is left takes a job and its JSON, and gives an outcome.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use fencehold_core::job::Kind;
use serde::de::DeserializeOwned;

use crate::blocking;
use crate::job::{IntoOutcome, Job, JobError, Outcome};
use crate::json;

/// What a handler ends with.
pub(super) type Ended = Result<Outcome, JobError>;

/// A handler at work.
pub(super) enum Work {
    /// To be driven.
    Future(Pin<Box<dyn Future<Output = Ended> + Send>>),
    /// To be called, on a thread that it may block.
    Call(Box<dyn FnOnce() -> Ended + Send>),
}

/// A handler.
pub(super) type Handler = Arc<dyn Fn(Job, Box<str>) -> Work + Send + Sync>;

/// Handlers by kind.
pub(super) type Handlers = HashMap<Kind, Handler>;

pub(super) fn asynchronous<P, R, F, Fut>(handler: F) -> Handler
where
    P: DeserializeOwned + Send + 'static,
    R: IntoOutcome + 'static,
    F: Fn(Job, P) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, JobError>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |job, payload| {
        let handler = Arc::clone(&handler);
        Work::Future(Box::pin(async move {
            let payload = fitting(&job, &payload)?;
            handler(job, payload).await?.into_outcome()
        }))
    })
}

pub(super) fn blocking<P, R, F>(handler: F) -> Handler
where
    P: DeserializeOwned + Send + 'static,
    R: IntoOutcome + 'static,
    F: Fn(blocking::Job, P) -> Result<R, JobError> + Send + Sync + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |job, payload| {
        let handler = Arc::clone(&handler);
        Work::Call(Box::new(move || {
            let payload = fitting(&job, &payload)?;
            handler(job.into(), payload)?.into_outcome()
        }))
    })
}

/// The payload, as its handler wants it. One that does not fit may yet fit the handler of another worker: it is a failure
/// like any other.
fn fitting<P: DeserializeOwned>(job: &Job, payload: &str) -> Result<P, JobError> {
    json::read("payload", payload).map_err(|bad| {
        JobError::new(format!("no handler of kind {} can take this job: its {bad}", job.kind()))
    })
}

/// What becomes of a job whose kind nobody here handles.
pub(super) fn unknown(kind: &Kind, handlers: &Handlers) -> JobError {
    let mut known: Vec<&str> = handlers.keys().map(Kind::as_str).collect();
    known.sort_unstable();
    JobError::new(format!(
        "this worker has no handler of kind {kind} (it has {}); add one, or take the queue off this worker",
        known.join(", ")
    ))
}
