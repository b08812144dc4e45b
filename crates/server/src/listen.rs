//! Connections: letting them in, so many at once, and letting them go in good order.
//!
//! A connection over the limit is answered 503 and closed, and costs nobody who is connected anything.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::http::PROBLEM_TYPE;
use fencehold_contract::problem::{ErrorKind, Problem};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use crate::Server;
use crate::limit::Admitted;
use crate::tls::Tls;

/// A caller that has vanished without a word is noticed after about this time, and leaves the line.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;
/// When no connection can be let in (too many open files), how long to wait for one to go.
const FULL_PAUSE: Duration = Duration::from_millis(50);
/// How many of those that are turned away are seen off at once. More are closed without a word.
const FAREWELLS_MAX: usize = 256;
/// How long seeing one off may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often certificates are looked at.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(1);

/// One connection, as its requests know it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Who is at the other end.
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
    /// connection is closed. Until then whoever comes is told so: a renewal is still carried out, and nothing new is given.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
        let router = self.router();
        let (going, _) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut farewells = JoinSet::new();
        let certificates = self.0.tls.clone().map(|tls| tokio::spawn(renew_certificates(tls)));
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                Some(_) = farewells.join_next() => continue,
            };
            match self.let_in(accepted).await {
                Entry::Admitted(stream, peer, admitted) => {
                    let going = going.subscribe();
                    let visit = Visit { peer, admitted, server: self.clone(), going, once: false };
                    connections.spawn(visit.receive(stream, router.clone()));
                }
                // Whoever expects encryption would not understand a plain word.
                Entry::Full(stream) if self.0.tls.is_none() && farewells.len() < FAREWELLS_MAX => {
                    farewells.spawn(tokio::time::timeout(FAREWELL, turn_away(stream)));
                }
                Entry::Full(_) | Entry::Failed => {}
            }
        }
        self.0.stopping.stop();
        going.send_replace(true);
        let end = self.see_off(listener, connections, router);
        if tokio::time::timeout(self.0.grace, end).await.is_err() {
            tracing::warn!("some connections did not finish in time and were cut off");
        }
        if let Some(certificates) = certificates {
            certificates.abort();
        }
        self.0.tracer.flush().await;
        Ok(())
    }

    /// Lets a connection in, if there is room.
    async fn let_in(&self, accepted: io::Result<(TcpStream, SocketAddr)>) -> Entry {
        match accepted {
            Ok((stream, peer)) => {
                let Some(admitted) = self.0.gate.connections.admit() else {
                    self.0.metrics.connections_turned_away.add_one();
                    return Entry::Full(stream);
                };
                prepare(&stream);
                Entry::Admitted(stream, peer, admitted)
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be let in");
                pause(FULL_PAUSE).await;
                Entry::Failed
            }
        }
    }

    /// Sees those off who are here. Whoever comes before the last of them has gone is answered once: a holder renews, a
    /// balancer learns that the server is not ready. They keep nobody: without anything under way the door closes at once.
    async fn see_off(&self, listener: TcpListener, mut connections: JoinSet<()>, router: axum::Router) {
        let mut late = JoinSet::new();
        let (going, _) = watch::channel(false);
        loop {
            let accepted = tokio::select! {
                biased;
                gone = connections.join_next() => match gone {
                    Some(_) => continue,
                    None => break,
                },
                accepted = listener.accept() => accepted,
                Some(_) = late.join_next() => continue,
            };
            if let Entry::Admitted(stream, peer, admitted) = self.let_in(accepted).await {
                let going = going.subscribe();
                let visit = Visit { peer, admitted, server: self.clone(), going, once: true };
                late.spawn(visit.receive(stream, router.clone()));
            }
        }
        drop(listener);
        going.send_replace(true);
        while late.join_next().await.is_some() {}
    }
}

/// What became of somebody at the door.
enum Entry {
    Admitted(TcpStream, SocketAddr, Admitted),
    Full(TcpStream),
    Failed,
}

/// One connection, from when it was let in.
struct Visit {
    peer: SocketAddr,
    admitted: Admitted,
    server: Server,
    going: watch::Receiver<bool>,
    /// One request, and no more.
    once: bool,
}

impl Visit {
    async fn receive(self, stream: TcpStream, router: axum::Router) {
        let Some(tls) = &self.server.0.tls else { return self.converse(stream, router).await };
        let peer = self.peer;
        match tokio::time::timeout(self.headers_within(), tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => self.converse(stream, router).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "no encryption could be agreed on"),
            Err(_) => tracing::debug!(%peer, "agreeing on encryption took too long"),
        }
    }

    /// How long a caller may take to send the headers of a request.
    fn headers_within(&self) -> Duration {
        Duration::from_millis(self.server.0.gate.limits.header_ms)
    }

    /// From the first request to the last.
    async fn converse(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        router: axum::Router,
    ) {
        let headers_within = self.headers_within();
        let Visit { peer, admitted: _admitted, mut going, once, .. } = self;
        let here = Connection { peer, cut: Arc::default() };
        let cut = Arc::clone(&here.cut);
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(here.clone());
            router.clone().oneshot(request)
        });
        let talk = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(headers_within)
            .keep_alive(!once)
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
}

/// Says 503 to somebody there is no room for. What they have sent is read and forgotten: closing over unread bytes would
/// reset the connection, and take the answer with it.
async fn turn_away(mut stream: TcpStream) -> io::Result<()> {
    let mut problem =
        Problem::new(ErrorKind::Unavailable, "the server has as many connections as it takes; try again");
    problem.retry_after_ms = Some(1_000);
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {PROBLEM_TYPE}\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await?;
    let mut unread = [0; 1_024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// Has certificates that were replaced be used from then on.
#[expect(clippy::disallowed_methods, reason = "files change in the machine's time")]
async fn renew_certificates(tls: Arc<Tls>) {
    let mut every = tokio::time::interval(CERTIFICATES_EVERY);
    // What is wrong is said once, not every second.
    let mut said = None;
    loop {
        every.tick().await;
        // A disk that hangs must not keep those who are connected.
        let looking = Arc::clone(&tls);
        let looked = tokio::task::spawn_blocking(move || looking.refresh()).await;
        let refreshed = looked.unwrap_or_else(|error| Err(error.to_string()));
        match &refreshed {
            Ok(true) => tracing::info!("the certificate was replaced, and is used from now on"),
            Ok(false) => {}
            Err(why) if said.as_ref() == Some(why) => {}
            Err(why) => tracing::error!("the new certificate is not used, and the old one stays: {why}"),
        }
        said = refreshed.err();
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
