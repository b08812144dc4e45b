//! Handlers by kind, and one for every other kind, with their types taken away: what is left takes a job and its JSON, and
//! gives an outcome.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use fencehold_core::BadInput;
use fencehold_core::job::JobKind;
use serde::de::DeserializeOwned;

use crate::blocking;
use crate::job::{IntoOutcome, Job, JobError, Outcome};
use crate::json;

/// What a handler ends with.
pub(super) type HandlerResult = Result<Outcome, JobError>;

/// A handler at work.
pub(super) enum RunningHandler {
    /// To be driven.
    Future(Pin<Box<dyn Future<Output = HandlerResult> + Send>>),
    /// To be called, on a thread that it may block.
    Call(Box<dyn FnOnce() -> HandlerResult + Send>),
}

/// A handler.
pub(super) type Handler = Arc<dyn Fn(Job, Box<str>) -> RunningHandler + Send + Sync>;

/// The handlers of a worker.
#[derive(Default)]
pub(super) struct Handlers {
    by_kind: HashMap<JobKind, Handler>,
    /// For every kind that has none of its own.
    any: Option<Handler>,
}

impl Handlers {
    pub(super) fn add(&mut self, kind: &str, handler: Handler) -> Result<(), BadInput> {
        let kind = JobKind::new(kind)?;
        match self.by_kind.insert(kind.clone(), handler) {
            None => Ok(()),
            Some(_) => Err(BadInput::new("kind", format!("{kind} has two handlers"))),
        }
    }

    pub(super) fn add_any(&mut self, handler: Handler) -> Result<(), BadInput> {
        match self.any.replace(handler) {
            None => Ok(()),
            Some(_) => Err(BadInput::new("worker", "has two handlers of any kind")),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_kind.is_empty() && self.any.is_none()
    }

    /// The handler of a kind, or what becomes of a job that has none here.
    pub(super) fn get(&self, kind: &JobKind) -> Result<&Handler, JobError> {
        self.by_kind.get(kind).or(self.any.as_ref()).ok_or_else(|| {
            JobError::new(format!(
                "this worker has no handler of kind {kind} (it has {}); add one, or take the queue off this worker",
                self.kinds().join(", ")
            ))
        })
    }

    /// The kinds that have a handler of their own, in order.
    pub(super) fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = self.by_kind.keys().map(JobKind::as_str).collect();
        kinds.sort_unstable();
        kinds
    }
}

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
        RunningHandler::Future(Box::pin(async move {
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
        RunningHandler::Call(Box::new(move || {
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
