//! Connections: letting them in, and letting them go in good order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use crate::Server;

/// How long a caller may take to send the headers of a request.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// How long connections have to finish what is under way when the server stops.
const FINISH_WITHIN: Duration = Duration::from_secs(10);
/// A caller that has vanished without a word is noticed after about this time, and leaves the line.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;
/// When no connection can be let in (too many open files), how long to wait for one to go.
const FULL_PAUSE: Duration = Duration::from_millis(50);

/// One connection, as its requests know it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Who is at the other end.
    #[expect(dead_code, reason = "for the record of who did what")]
    pub(crate) peer: SocketAddr,
    cut: Arc<Notify>,
}

impl Connection {
    /// Ends the connection at once, whatever is still to be sent.
    pub(crate) fn cut(&self) {
        self.cut.notify_one();
    }
}

impl Server {
    /// Serves until told to stop. Then whoever stands in line is sent home, what is under way is finished, and every
    /// connection is closed.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
        let router = self.router();
        let (going, _) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, peer)) => {
                    prepare(&stream);
                    connections.spawn(converse(stream, peer, router.clone(), going.subscribe()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be let in");
                    pause(FULL_PAUSE).await;
                }
            }
        }
        drop(listener);
        self.0.stopping.stop();
        going.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(FINISH_WITHIN, all).await.is_err() {
            tracing::warn!("some connections did not finish in time and were cut off");
        }
        Ok(())
    }
}

/// One connection from its first request to its last.
async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    router: axum::Router,
    mut going: watch::Receiver<bool>,
) {
    let here = Connection { peer, cut: Arc::default() };
    let cut = Arc::clone(&here.cut);
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(here.clone());
        router.clone().oneshot(request)
    });
    let talk = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .serve_connection(TokioIo::new(stream), service);
    let mut talk = std::pin::pin!(talk);
    let mut leaving = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut talk => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "a connection broke off");
                }
                return;
            }
            () = cut.notified() => return,
            _ = going.wait_for(|going| *going), if !leaving => {
                leaving = true;
                talk.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Answers leave at once, and a caller that has vanished is noticed.
fn prepare(stream: &TcpStream) {
    use rustix::net::sockopt;
    let prepared = stream
        .set_nodelay(true)
        .and_then(|()| Ok(sockopt::set_socket_keepalive(stream, true)?))
        .and_then(|()| Ok(sockopt::set_tcp_keepidle(stream, KEEPALIVE)?))
        .and_then(|()| Ok(sockopt::set_tcp_keepintvl(stream, KEEPALIVE / KEEPALIVE_PROBES)?))
        .and_then(|()| Ok(sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?));
    if let Err(error) = prepared {
        tracing::debug!(%error, "a connection goes without its options");
    }
}

#[expect(clippy::disallowed_methods, reason = "the system needs real time to have room again")]
async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
