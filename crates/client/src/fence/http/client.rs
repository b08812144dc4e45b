//! The client's side: a layer that shows a pass with every request.

use std::task::{Context, Poll};

use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use super::headers;
use crate::fence::pass::Pass;

/// Shows a pass with every request. One that is in the extensions of a request goes before the layer's own, so that one
/// client can serve many leases.
///
/// ```
/// use fencehold::fence::http::PassLayer;
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
/// let client = ServiceBuilder::new().layer(PassLayer::new(&lease)).service(transport);
/// # client.oneshot(axum::http::Request::new(String::new())).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct PassLayer {
    pass: Option<Pass>,
}

impl PassLayer {
    /// Shows this pass, where a request brings none. [`PassLayer::default`] shows only what requests bring.
    pub fn new(pass: impl Into<Pass>) -> Self {
        PassLayer { pass: Some(pass.into()) }
    }
}

impl<S> Layer<S> for PassLayer {
    type Service = PassService<S>;

    fn layer(&self, inner: S) -> PassService<S> {
        PassService { inner, pass: self.pass.clone() }
    }
}

/// A client behind a [`PassLayer`].
#[derive(Clone, Debug)]
pub struct PassService<S> {
    inner: S,
    pass: Option<Pass>,
}

impl<S, B> Service<Request<B>> for PassService<S>
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
        let own = request.extensions().get::<Pass>().cloned();
        if let Some(pass) = own.as_ref().or(self.pass.as_ref()) {
            headers::show(pass, request.headers_mut());
        }
        self.inner.call(request)
    }
}
