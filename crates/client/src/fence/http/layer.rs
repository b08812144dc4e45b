//! The server's side: a layer in front of handlers, and a service that only raises. The client's side: a layer that shows a pass
//! with every request.

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
        let marks = self.marks.clone();
        Box::pin(async move {
            let (pass, at_work) = match admit(&marks, request.headers()).await {
                Ok(admitted) => admitted,
                Err(problem) => return Ok(problem.response()),
            };
            request.extensions_mut().insert(pass);
            let answer = inner.call(request).await;
            drop(at_work);
            answer
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
        let (marks, headers) = (self.marks.clone(), request.into_parts().0.headers);
        Box::pin(async move {
            let mut raised = Response::new(String::new());
            *raised.status_mut() = StatusCode::NO_CONTENT;
            let admitted = admit(&marks, &headers).await;
            Ok(admitted.map_or_else(|problem| problem.response(), |_| raised))
        })
    }
}

/// Lets a request through whose token is the newest. For as long as the guard lives, it is at work.
async fn admit(
    marks: &FenceMarks,
    headers: &HeaderMap,
) -> Result<(KeyToken, ActiveRequest), Box<FenceProblem>> {
    let pass = headers::read(headers).map_err(|bad| FenceProblem::bad_headers(&bad))?;
    let pass = pass.ok_or_else(FenceProblem::token_required)?;
    match marks.enter(&pass).await {
        Ok(at_work) => Ok((pass, at_work)),
        Err(error) => {
            if !matches!(error, FenceError::Stale { .. }) {
                let (key, token) = (&pass.key, pass.token.get());
                tracing::error!(%key, token, "a token could not be checked: {error}");
            }
            Err(Box::new(FenceProblem::refused(error)))
        }
    }
}

/// Shows a pass with every request. One that is in the extensions of a request goes before the layer's own, so that one
/// client can serve many leases.
///
/// ```
/// use fencehold::fence::http::FenceClientLayer;
/// use fencehold::Fencehold;
/// use tower::ServiceBuilder;
/// # use tower::{ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let transport = service_fn(|request: axum::http::Request<String>| async move {
/// #     assert_eq!(request.headers()["fencing-token"], "1");
/// #     Ok::<_, std::convert::Infallible>(())
/// # });
/// let fh = Fencehold::connect("memory:").await?;
/// let lease = fh.lease("orders").acquire().await?;
/// let client = ServiceBuilder::new().layer(FenceClientLayer::new(&lease)).service(transport);
/// # client.oneshot(axum::http::Request::new(String::new())).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct FenceClientLayer {
    pass: Option<KeyToken>,
}

impl FenceClientLayer {
    /// Shows this pass, where a request brings none. [`FenceClientLayer::default`] shows only what requests bring.
    pub fn new(pass: impl Into<KeyToken>) -> Self {
        FenceClientLayer { pass: Some(pass.into()) }
    }
}

impl<S> Layer<S> for FenceClientLayer {
    type Service = FenceClientService<S>;

    fn layer(&self, inner: S) -> FenceClientService<S> {
        FenceClientService { inner, pass: self.pass.clone() }
    }
}

/// A client behind a [`FenceClientLayer`].
#[derive(Clone, Debug)]
pub struct FenceClientService<S> {
    inner: S,
    pass: Option<KeyToken>,
}

impl<S, B> Service<Request<B>> for FenceClientService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        let own = request.extensions().get::<KeyToken>().cloned();
        if let Some(pass) = own.as_ref().or(self.pass.as_ref()) {
            headers::set_headers(pass, request.headers_mut());
        }
        self.inner.call(request)
    }
}
