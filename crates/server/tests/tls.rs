//! Encryption: what is served with which certificate, and what happens when the files change.
#![allow(clippy::disallowed_methods, reason = "real sockets live in real time")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::clock::{ManualClock, SystemClock};
use fencehold_server::ServerOptions;
use fencehold_server::tls::Tls;
use fencehold_test_servers::certificate as fixture;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::plain_client::{self, eventually};

fn serve(tls: Arc<Tls>) -> SocketAddr {
    let encrypted = move || {
        let mut options = ServerOptions::default();
        options.tls = Some(tls);
        options
    };
    plain_client::serve(&ManualClock::new(), encrypted).address()
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn connect(address: SocketAddr) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(fixture("ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(address.ip().to_string()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    StreamOwned::new(connection, stream)
}

/// Whether it is alive, on a connection that stays.
fn is_alive(stream: &mut Stream) -> bool {
    write!(stream, "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = [0; 1_000];
    let length = stream.read(&mut answer).unwrap();
    answer[..length].starts_with(b"HTTP/1.1 200")
}

/// The certificate that a new connection is greeted with.
fn certificate(address: SocketAddr) -> Vec<u8> {
    let mut stream = connect(address);
    assert!(is_alive(&mut stream));
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn a_certificate_is_replaced_while_the_server_runs_and_a_broken_one_is_not_used() {
    let place = tempfile::tempdir().unwrap();
    let (cert, key) = (place.path().join("cert.pem"), place.path().join("key.pem"));
    std::fs::copy(fixture("server.pem"), &cert).unwrap();
    std::fs::copy(fixture("server.key"), &key).unwrap();
    let tls = Arc::new(Tls::load(&cert, &key).unwrap());
    let address = serve(Arc::clone(&tls));
    let mut first = connect(address);
    assert!(is_alive(&mut first));
    let before = certificate(address);
    // Half of a pair is none: for a moment the files do not fit each other, as when they are copied one by one.
    std::fs::copy(fixture("client.pem"), &cert).unwrap();
    assert!(tls.refresh().is_err(), "what the server does now and then");
    assert_eq!(certificate(address), before);
    std::fs::copy(fixture("client.key"), &key).unwrap();
    let after = eventually("the new certificate is used", || {
        Some(certificate(address)).filter(|shown| *shown != before)
    });
    std::fs::write(&cert, "not a certificate").unwrap();
    assert!(tls.refresh().is_err());
    assert_eq!(certificate(address), after, "the last good one stays");
    assert!(is_alive(&mut first), "who is connected stays connected");
}

#[test]
fn whoever_speaks_plainly_gets_nothing_and_harms_nobody() {
    let tls = Tls::load(&fixture("server.pem"), &fixture("server.key")).unwrap();
    let address = serve(Arc::new(tls));
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP/1.1 200"));
    certificate(address);
}

#[test]
fn files_that_do_not_fit_are_refused_with_their_names_and_without_their_content() {
    for (cert, key, says) in [
        ("server.pem", "client.key", "cannot be used"),
        ("server.key", "server.key", "no certificate"),
        ("server.pem", "ca.pem", "no private key"),
        ("missing.pem", "server.key", "missing.pem"),
    ] {
        let why = Tls::load(&fixture(cert), &fixture(key)).unwrap_err();
        assert!(why.contains(says) && !why.contains("BEGIN"), "{why}");
    }
}

#[test]
fn a_remote_store_trusts_the_authority_that_its_url_names_and_no_other() {
    let tls = Tls::load(&fixture("server.pem"), &fixture("server.key")).unwrap();
    let address = serve(Arc::new(tls));
    let open = |url: String| fencehold_stores::open(&url.parse().unwrap(), Arc::new(SystemClock));
    let store = open(format!("https://{address}?ca={}", fixture("ca.pem").display())).unwrap();
    assert_eq!(store.capabilities().store, "https:");
    let distrusted = open(format!("https://{address}")).unwrap_err().to_string();
    assert!(distrusted.contains(&address.to_string()), "the system does not trust it: {distrusted}");
    let missing = open(format!("https://{address}?ca=/nowhere/ca.pem")).unwrap_err().to_string();
    assert!(missing.contains("/nowhere/ca.pem"), "{missing}");
}
