//! What a URL says about sessions, as other programs of PostgreSQL understand it, reaches the server.

use fencehold_contract::{LeaseStore as _, PostgresUrl, StoreUrl};
use fencehold_test_servers::calls::{call, unavailable};
use fencehold_test_store::block_on;

use crate::cluster::fresh_schema;
use crate::{cluster, open_url};

fn url(schema: &str, option: &str) -> PostgresUrl {
    match format!("{}&{option}", cluster().url_text(schema)).parse().unwrap() {
        StoreUrl::Postgres(url) => *url,
        other => panic!("{other}"),
    }
}

#[test]
fn sessions_have_the_name_of_the_application() {
    let schema = fresh_schema();
    let store = open_url(&url(&schema, &format!("application_name=app%20{schema}")));
    block_on(store.ping(&call())).unwrap();
    let named = format!("SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'app {schema}'");
    assert_eq!(cluster().admin().value(&named), "t");
    block_on(store.close());
}

#[test]
fn sessions_have_the_settings_of_the_url() {
    let read_only = url(&fresh_schema(), "options=-c%20default_transaction_read_only%3Don");
    let store = open_url(&read_only);
    // A session that takes no writes is not used: so the setting is there.
    let why = unavailable(block_on(store.ping(&call().with_timeout_ms(2_000))));
    assert!(why.contains("read-only") || why.contains("does not allow writes"), "{why}");
    block_on(store.close());
}
