//! Connections: letting them in, so many at once, and letting them go in good order.
//!
//! A connection over the limit is answered 503 and closed, at no cost to those that are open.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fencehold_contract::http::PROBLEM_TYPE;
use fencehold_contract::problem::{ErrorKind, Problem};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use crate::Server;
use crate::config::ListenAddresses;
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

/// The sockets that a server accepts connections on.
#[derive(Debug)]
pub struct Listeners(Vec<TcpListener>);

impl Listeners {
    /// Listens on each of these addresses. One that this machine does not have is left out, unless it is the only one:
    /// `localhost` stands for `::1` too where there is no IPv6.
    pub async fn bind(addresses: &ListenAddresses) -> io::Result<Self> {
        let mut listeners: Vec<TcpListener> = Vec::new();
        let mut absent = None;
        for address in addresses.as_slice() {
            let mut at = *address;
            // A port that the system chooses is the same on every address.
            if let (0, Some(first)) = (at.port(), listeners.first()) {
                at.set_port(first.local_addr()?.port());
            }
            match TcpListener::bind(at).await {
                Ok(listener) => listeners.push(listener),
                Err(error) => {
                    let is_absent = error.kind() == io::ErrorKind::AddrNotAvailable
                        || error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error());
                    let error = io::Error::new(error.kind(), format!("{at}: {error}"));
                    if !is_absent {
                        return Err(error);
                    }
                    tracing::info!(%error, "an address is not one of this machine, and is left out");
                    absent.get_or_insert(error);
                }
            }
        }
        match absent {
            Some(error) if listeners.is_empty() => Err(error),
            _ => Ok(Listeners(listeners)),
        }
    }

    /// Where they listen.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.0.iter().map(TcpListener::local_addr).collect()
    }

    /// The next connection, of whichever socket. Each comes first in turn. Cancel safe.
    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.rotate_left(1);
        let any = |context: &mut Context<'_>| {
            let mut accepted = self.0.iter().map(|listener| listener.poll_accept(context));
            accepted.find(Poll::is_ready).unwrap_or(Poll::Pending)
        };
        std::future::poll_fn(any).await
    }
}

impl From<TcpListener> for Listeners {
    fn from(listener: TcpListener) -> Self {
        Listeners(vec![listener])
    }
}

impl Server {
    /// Serves until `stop`. Then requests in line are refused, those under way are finished, and every connection is closed.
    /// Until then a new request learns it: a renewal is still carried out, and nothing new is granted.
    pub async fn serve(
        &self,
        listeners: impl Into<Listeners>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let mut listeners = listeners.into();
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
                accepted = listeners.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                Some(_) = farewells.join_next() => continue,
            };
            match self.let_in(accepted, &going, false).await {
                Ok((task, stream)) => drop(connections.spawn(task.receive(stream, router.clone()))),
                // A client that expects encryption would not understand a plain word.
                Err(Some(stream)) if self.0.tls.is_none() && farewells.len() < FAREWELLS_MAX => {
                    farewells.spawn(tokio::time::timeout(FAREWELL, turn_away(stream)));
                }
                Err(_) => {}
            }
        }
        self.0.shutdown.stop();
        going.send_replace(true);
        let end = self.see_off(listeners, connections, router);
        if tokio::time::timeout(self.0.grace, end).await.is_err() {
            tracing::warn!("some connections did not finish in time and were cut off");
        }
        if let Some(certificates) = certificates {
            certificates.abort();
        }
        self.0.tracer.flush().await;
        Ok(())
    }

    /// Lets a connection in. `Err`: there is no room for it, or there is none.
    async fn let_in(
        &self,
        accepted: io::Result<(TcpStream, SocketAddr)>,
        going: &watch::Sender<bool>,
        once: bool,
    ) -> Result<(ConnectionTask, TcpStream), Option<TcpStream>> {
        match accepted {
            Ok((stream, peer)) => {
                let Some(admitted) = self.0.gate.connect() else {
                    self.0.metrics.connections_turned_away.add_one();
                    return Err(Some(stream));
                };
                prepare(&stream);
                let (server, going) = (self.clone(), going.subscribe());
                Ok((ConnectionTask { peer, admitted, server, going, once }, stream))
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be let in");
                pause(FULL_PAUSE).await;
                Err(None)
            }
        }
    }

    /// Sees those off who are here. A request that comes before the last of them has gone is answered once: a holder renews, a
    /// balancer learns that the server is not ready. They delay nothing: without a request under way the server closes at once.
    async fn see_off(&self, mut listeners: Listeners, mut connections: JoinSet<()>, router: axum::Router) {
        let mut late = JoinSet::new();
        let (going, _) = watch::channel(false);
        loop {
            let accepted = tokio::select! {
                biased;
                gone = connections.join_next() => match gone {
                    Some(_) => continue,
                    None => break,
                },
                accepted = listeners.accept() => accepted,
                Some(_) = late.join_next() => continue,
            };
            if let Ok((task, stream)) = self.let_in(accepted, &going, true).await {
                late.spawn(task.receive(stream, router.clone()));
            }
        }
        drop(listeners);
        going.send_replace(true);
        while late.join_next().await.is_some() {}
    }
}

/// One connection, from when it was let in.
struct ConnectionTask {
    peer: SocketAddr,
    admitted: OwnedSemaphorePermit,
    server: Server,
    going: watch::Receiver<bool>,
    /// One request, and no more.
    once: bool,
}

impl ConnectionTask {
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
        let ConnectionTask { peer, admitted: _admitted, mut going, once, .. } = self;
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

/// Says 503 to a client there is no room for. What they have sent is read and forgotten: closing over unread bytes would
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

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[&str]) -> ListenAddresses {
        let all = all.iter().map(|address| address.parse().unwrap()).collect();
        ListenAddresses::new(&"name:1".parse().unwrap(), all).unwrap()
    }

    async fn bind(all: &[&str]) -> io::Result<Listeners> {
        Listeners::bind(&addresses(all)).await
    }

    #[tokio::test]
    async fn every_address_of_a_name_is_listened_on_at_one_port() {
        let mut listeners = bind(&["127.0.0.1:0", "127.0.0.2:0"]).await.unwrap();
        let at = listeners.addresses().unwrap();
        assert_eq!((at.len(), at[0].port()), (2, at[1].port()));
        // All are waiting before the first is let in. Many at one address keep none out at the other.
        let mut clients = Vec::new();
        for to in [at[0], at[0], at[1], at[1]] {
            clients.push(TcpStream::connect(to).await.unwrap());
        }
        let mut reached = [listeners.accept().await.unwrap().0, listeners.accept().await.unwrap().0]
            .map(|stream| stream.local_addr().unwrap());
        reached.sort();
        assert_eq!(reached, [at[0], at[1]]);
        drop((clients, listeners));
        assert!(TcpStream::connect(at[1]).await.is_err(), "dropped, and still there");
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_an_error_and_one_of_another_machine_only_if_it_is_alone() {
        let taken = bind(&["127.0.0.1:0"]).await.unwrap();
        let at = taken.addresses().unwrap()[0].to_string();
        let error = bind(&[&at.replace("127.0.0.1", "127.0.0.2"), &at]).await.unwrap_err();
        assert!(error.kind() == io::ErrorKind::AddrInUse && error.to_string().contains(&at), "{error}");
        // For documentation (RFC 5737): no machine has them.
        let error = bind(&["203.0.113.1:0", "198.51.100.1:0"]).await.unwrap_err();
        assert!(error.to_string().contains("203.0.113.1:0"), "{error}");
        let here = bind(&["0.0.0.0:0", "203.0.113.1:0"]).await.unwrap().addresses().unwrap();
        assert_eq!((here.len(), here[0].ip().is_unspecified()), (1, true), "{here:?}");
    }
}
