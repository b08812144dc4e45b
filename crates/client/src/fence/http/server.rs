//! The server's side: a layer in front of handlers, and a service that only raises.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::headers;
use super::marks::{ActiveRequest, FenceMarks};
use super::problem::FenceProblem;
use crate::fence::error::FenceError;
use crate::fence::key_token::KeyToken;

type ResponseFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Lets requests through only under tokens that are not older than the highest seen for their key.
///
/// Requests of safe methods (`GET`, `HEAD`, `OPTIONS`, `TRACE`) pass unchecked: they change nothing. All others must show
/// a key and a token. The handler finds the [`KeyToken`] in the request's extensions. See the [module](super) for what this
/// promises and what not.
///
/// The body of the handler's answers must be one that can be made of a `String`, as those of `axum` and `hyper` can.
///
/// ```
/// use axum::Router;
/// use axum::routing::post;
/// use fencehold::fence::http::{FenceLayer, FenceMarks, RaiseService};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("orders");
/// let marks = FenceMarks::in_file(path).await?;
/// let service: Router = Router::new()
///     .route("/orders", post(|| async { "shipped" }))
///     .layer(FenceLayer::new(marks.clone()))
///     .route_service("/fence", RaiseService::new(marks));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FenceLayer {
    marks: FenceMarks,
}

impl FenceLayer {
    /// Checks against these marks.
    pub fn new(marks: FenceMarks) -> Self {
        FenceLayer { marks }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService { inner, marks: self.marks.clone() }
    }
}

/// A service behind a [`FenceLayer`].
#[derive(Clone, Debug)]
pub struct FenceService<S> {
    inner: S,
    marks: FenceMarks,
}

impl<S, In, Out> Service<Request<In>> for FenceService<S>
where
    S: Service<Request<In>, Response = Response<Out>> + Clone + Send + 'static,
    S::Future: Send,
    In: Send + 'static,
    Out: From<String>,
{
    type Response = Response<Out>;
    type Error = S::Error;
    type Future = ResponseFuture<Response<Out>, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<In>) -> Self::Future {
        // The one that was made ready is the one to call; its clone waits for the next request.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        if request.method().is_safe() {
            return Box::pin(inner.call(request));
        }
        let pass = match shown(request.headers()) {
            Ok(pass) => pass,
            Err(problem) => return Box::pin(async move { Ok(problem.response()) }),
        };
        request.extensions_mut().insert(pass.clone());
        let marks = self.marks.clone();
        Box::pin(async move {
            match enter(&marks, &pass).await {
                Err(problem) => Ok(problem.response()),
                Ok(at_work) => {
                    let answer = inner.call(request).await;
                    drop(at_work);
                    answer
                }
            }
        })
    }
}

/// Raises the fence and does nothing else: what a new holder asks for first. Any request that shows a pass is one;
/// it is answered with 204 when nothing older is at work any more in this process. Mount it on a path of its own.
#[derive(Clone, Debug)]
pub struct RaiseService {
    marks: FenceMarks,
}

impl RaiseService {
    /// Raises these marks.
    pub fn new(marks: FenceMarks) -> Self {
        RaiseService { marks }
    }
}

impl<In: Send + 'static> Service<Request<In>> for RaiseService {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = ResponseFuture<Response<String>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let marks = self.marks.clone();
        let pass = shown(request.headers());
        Box::pin(async move {
            let raised = match pass {
                Ok(pass) => enter(&marks, &pass).await.map(drop),
                Err(problem) => Err(problem),
            };
            Ok(raised.map_or_else(|problem| problem.response(), |()| no_content()))
        })
    }
}

fn no_content() -> Response<String> {
    let mut response = Response::new(String::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn shown(headers: &HeaderMap) -> Result<KeyToken, Box<FenceProblem>> {
    match headers::read(headers) {
        Ok(Some(pass)) => Ok(pass),
        Ok(None) => Err(Box::new(FenceProblem::token_required())),
        Err(bad) => Err(Box::new(FenceProblem::bad_headers(&bad))),
    }
}

async fn enter(marks: &FenceMarks, pass: &KeyToken) -> Result<ActiveRequest, Box<FenceProblem>> {
    marks.enter(pass).await.map_err(|error| {
        if !matches!(error, FenceError::Stale { .. }) {
            tracing::error!(key = %pass.key, token = pass.token.get(), "a token could not be checked: {error}");
        }
        Box::new(FenceProblem::refused(error))
    })
}
