//! The client's side: a layer that shows a pass with every request.

use std::task::{Context, Poll};

use http::Request;
use tower_layer::Layer;
use tower_service::Service;

use super::headers;
use crate::fence::key_token::KeyToken;

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
