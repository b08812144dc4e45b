//! `tower` layers around async handlers.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use super::Worker;
use super::handler::HandlerResult;
use crate::handler::IntoJobError;
use crate::job::{Job, JobError, Outcome};
use crate::wake::lock;

type HandlerFuture = Pin<Box<dyn Future<Output = HandlerResult> + Send>>;

/// One attempt, on its way through the layers to its handler.
pub struct AttemptRequest {
    job: Job,
    handler: HandlerFuture,
}

impl AttemptRequest {
    pub(super) fn new(job: Job, handler: HandlerFuture) -> Self {
        AttemptRequest { job, handler }
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }
}

impl fmt::Debug for AttemptRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptRequest").field("job", &self.job).finish_non_exhaustive()
    }
}

/// The handlers of a worker, with the layers that are around them already: what [`Worker::layer`] gives to a layer.
#[derive(Clone)]
pub struct HandlerService(Arc<dyn Fn(AttemptRequest) -> HandlerFuture + Send + Sync>);

impl HandlerService {
    pub(super) fn handlers() -> Self {
        HandlerService(Arc::new(|request| request.handler))
    }

    pub(super) fn run(&self, request: AttemptRequest) -> HandlerFuture {
        (self.0)(request)
    }

    fn of<S, E>(service: S) -> Self
    where
        S: Service<AttemptRequest, Response = Outcome> + Clone + Send + 'static,
        S::Error: IntoJobError<E> + Send,
        S::Future: Send,
    {
        // Locked only to be cloned: many services are not `Sync`.
        let service = Mutex::new(service);
        HandlerService(Arc::new(move |request| {
            let mut service = lock(&service).clone();
            Box::pin(async move {
                poll_fn(|context| service.poll_ready(context))
                    .await
                    .map_err(S::Error::into_job_error)?;
                service.call(request).await.map_err(S::Error::into_job_error)
            })
        }))
    }
}

impl Service<AttemptRequest> for HandlerService {
    type Response = Outcome;
    type Error = JobError;
    type Future = HandlerFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), JobError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: AttemptRequest) -> HandlerFuture {
        self.run(request)
    }
}

impl fmt::Debug for HandlerService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerService").finish_non_exhaustive()
    }
}

impl Worker {
    /// Puts a `tower` layer around all async handlers of this worker: a timeout, a limit, metrics, your own. The layer that is added
    /// last is the outermost. It does not apply to blocking handlers.
    ///
    /// A handler is stopped by being dropped with the response future of its layers. A layer that hands it to another task keeps it running
    /// after its claim is lost.
    ///
    /// ```
    /// # async fn example(fh: fencehold::Fencehold) {
    /// use fencehold::handler::AttemptRequest;
    /// use tower::ServiceBuilder;
    ///
    /// let layers = ServiceBuilder::new().map_request(|request: AttemptRequest| {
    ///     println!("attempt {} at {}", request.job().attempt(), request.job().id());
    ///     request
    /// });
    /// let worker = fh.worker().queue("emails").layer(layers).handle("send", async || {});
    /// # drop(worker);
    /// # }
    /// ```
    pub fn layer<L, E>(self, layer: L) -> Self
    where
        L: Layer<HandlerService>,
        L::Service: Service<AttemptRequest, Response = Outcome> + Clone + Send + 'static,
        <L::Service as Service<AttemptRequest>>::Error: IntoJobError<E> + Send,
        <L::Service as Service<AttemptRequest>>::Future: Send,
    {
        self.set(|terms| {
            let inner = terms.handlers.service.take().unwrap_or_else(HandlerService::handlers);
            terms.handlers.service = Some(HandlerService::of(layer.layer(inner)));
        })
    }
}
