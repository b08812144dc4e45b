//! TLS: what `sslmode` says is what is done.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{StoreError, StoreUrl};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_servers::calls::{call, unavailable};
use fencehold_test_store::block_on;

use crate::cluster::{Durable, PostgresServer, give_to_server};

/// Of an authority for tests.
fn fixture(name: &str) -> String {
    fencehold_test_servers::certificate(name).display().to_string()
}

fn speaks_tls(directory: &Path) -> Vec<String> {
    let place = |name: &str| {
        let path = directory.join(name);
        std::fs::copy(fixture(name), &path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        give_to_server(&path);
        path.display().to_string()
    };
    let (certificate, key) = (place("server.pem"), place("server.key"));
    vec!["ssl=on".to_owned(), format!("ssl_cert_file={certificate}"), format!("ssl_key_file={key}")]
}

/// Creates or checks the schema. A refusal comes when the time is up: it is tried again until then.
fn connect(cluster: &PostgresServer, mode: &str, timeout_ms: u64) -> Result<(), StoreError> {
    let url = cluster.url_text("tls").replace("sslmode=disable", mode);
    let StoreUrl::Postgres(url) = url.parse().unwrap() else { panic!("{url}") };
    let store = PostgresStore::open(&url, Arc::new(SystemClock))?;
    block_on(store.migrate(&call().with_timeout_ms(timeout_ms))).map(drop)
}

#[test]
fn a_connection_is_as_secret_as_its_url_asks_for() {
    let cluster = PostgresServer::start_with(Durable::No, speaks_tls);
    let signed = format!("sslmode=verify-full&sslrootcert={}", fixture("ca.pem"));
    for mode in ["sslmode=disable", "sslmode=prefer", "sslmode=require", &*signed] {
        connect(&cluster, mode, 60_000).unwrap();
    }
    // Not signed by anybody whom the system trusts; and an authority that is none.
    let why = unavailable(connect(&cluster, "sslmode=verify-full", 3_000));
    assert!(why.contains("certificate"), "{why}");
    let other = format!("sslmode=verify-full&sslrootcert={}", fixture("server.key"));
    assert!(connect(&cluster, &other, 3_000).is_err());
}

#[test]
fn a_server_without_tls_is_refused_where_it_is_required() {
    let why = unavailable(connect(crate::cluster(), "sslmode=require", 3_000));
    assert!(why.to_lowercase().contains("tls"), "{why}");
}
