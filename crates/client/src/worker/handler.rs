//! Handlers by kind, and one for every other kind, with their types taken away: what is left takes a job and its JSON, and
//! gives an outcome.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use fencehold_core::BadInput;
use fencehold_core::job::JobKind;

use crate::handler::{Argument, BlockingJobHandler, HandlerInput, JobHandler, States, check_arguments};
use crate::job::{Job, JobError, Outcome};

/// What a handler ends with.
pub(super) type HandlerResult = Result<Outcome, JobError>;

/// A handler at work.
pub(super) enum RunningHandler {
    /// To be driven.
    Future(Pin<Box<dyn Future<Output = HandlerResult> + Send>>),
    /// To be called, on a thread that it may block.
    Call(Box<dyn FnOnce() -> HandlerResult + Send>),
}

type StartHandler = dyn Fn(Job, Box<str>, Arc<States>) -> RunningHandler + Send + Sync;

/// A handler.
pub(super) struct ErasedHandler {
    run: Box<StartHandler>,
    blocks: bool,
    arguments: Vec<Argument>,
}

/// The handlers of a worker.
#[derive(Default)]
pub(super) struct Handlers {
    by_kind: HashMap<JobKind, ErasedHandler>,
    /// For every kind that has none of its own.
    any: Option<ErasedHandler>,
    states: Arc<States>,
    /// The layers around async handlers.
    #[cfg(feature = "tower")]
    pub(super) service: Option<super::layer::HandlerService>,
}

impl Handlers {
    pub(super) fn add(&mut self, kind: &str, handler: ErasedHandler) -> Result<(), BadInput> {
        let kind = JobKind::new(kind)?;
        match self.by_kind.insert(kind.clone(), handler) {
            None => Ok(()),
            Some(_) => Err(BadInput::new("kind", format!("{kind} has two handlers"))),
        }
    }

    pub(super) fn add_any(&mut self, handler: ErasedHandler) -> Result<(), BadInput> {
        match self.any.replace(handler) {
            None => Ok(()),
            Some(_) => Err(BadInput::new("worker", "has two handlers of any kind")),
        }
    }

    fn is_empty(&self) -> bool {
        self.by_kind.is_empty() && self.any.is_none()
    }

    /// A state for all of them.
    pub(super) fn add_state<T: Send + Sync + 'static>(&mut self, state: T) -> Result<(), BadInput> {
        Arc::make_mut(&mut self.states).add(state)
    }

    /// Whether each can have the arguments that it takes.
    pub(super) fn check(&self) -> Result<(), BadInput> {
        if self.is_empty() {
            return Err(BadInput::new("worker", "has no handler, so every job would fail"));
        }
        let named = self.by_kind.iter().map(|(kind, handler)| (format!("of kind {kind}"), handler));
        let mut all = named.chain(self.any.iter().map(|handler| ("of every other kind".to_owned(), handler)));
        all.try_for_each(|(which, handler)| check_arguments(&handler.arguments, &self.states, &which))
    }

    fn find(&self, kind: &JobKind) -> Option<&ErasedHandler> {
        self.by_kind.get(kind).or(self.any.as_ref())
    }

    /// Whether the handler of a kind needs a thread.
    pub(super) fn block(&self, kind: &JobKind) -> bool {
        self.find(kind).is_some_and(|handler| handler.blocks)
    }

    /// Whether any of them does.
    pub(super) fn any_blocks(&self) -> bool {
        self.by_kind.values().chain(&self.any).any(|handler| handler.blocks)
    }

    /// Begins the handler of the job's kind, or says what becomes of a job that has none here.
    pub(super) fn run(&self, job: Job, payload: Box<str>) -> Result<RunningHandler, JobError> {
        let Some(handler) = self.find(job.kind()) else {
            return Err(JobError::new(format!(
                "this worker has no handler of kind {} (it has {}); add one, or take the queue off this worker",
                job.kind(),
                self.kinds().join(", ")
            )));
        };
        let run = (handler.run)(job.clone(), payload, Arc::clone(&self.states));
        #[cfg(feature = "tower")]
        let run = match (run, &self.service) {
            (RunningHandler::Future(run), Some(service)) => {
                RunningHandler::Future(service.run(super::layer::AttemptRequest::new(job, run)))
            }
            (run, _) => run,
        };
        Ok(run)
    }

    /// The kinds that have a handler of their own, in order.
    pub(super) fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = self.by_kind.keys().map(JobKind::as_str).collect();
        kinds.sort_unstable();
        kinds
    }
}

pub(super) fn asynchronous<A, H>(handler: H) -> ErasedHandler
where
    H: JobHandler<A, Future: Send + 'static> + Send + Sync + 'static,
{
    let handler = Arc::new(handler);
    let run = move |job: Job, payload: Box<str>, states: Arc<States>| {
        let handler = Arc::clone(&handler);
        RunningHandler::Future(Box::pin(async move {
            let run = handler.call(&HandlerInput { job: &job, payload: &payload, states: &states })?;
            drop(payload);
            H::result(run.await)
        }))
    };
    ErasedHandler { run: Box::new(run), blocks: false, arguments: H::arguments() }
}

pub(super) fn blocking<A, H>(handler: H) -> ErasedHandler
where
    H: BlockingJobHandler<A> + Send + Sync + 'static,
{
    let handler = Arc::new(handler);
    let run = move |job: Job, payload: Box<str>, states: Arc<States>| {
        let handler = Arc::clone(&handler);
        RunningHandler::Call(Box::new(move || {
            handler.call(&HandlerInput { job: &job, payload: &payload, states: &states })
        }))
    };
    ErasedHandler { run: Box::new(run), blocks: true, arguments: H::arguments() }
}
