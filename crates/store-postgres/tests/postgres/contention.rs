//! Contention: gathered by each handle, and added to one table, in few statements and within bounds.

use fencehold_contract::{KeyContention, LeaseStore as _, ListContentionRequest};
use fencehold_core::limits::{CONTENDED_KEYS_MAX, CONTENTION_KEPT_MS};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_servers::calls::{OneByOne as _, call, held_by, lease_request};
use fencehold_test_store::block_on;

use crate::{cluster, migrated, open};

/// How often a handle adds what it has gathered.
const EVERY_MS: u64 = 5_000;

fn number(sql: &str) -> u64 {
    cluster().admin().value(sql).parse().unwrap()
}

fn contention(store: &PostgresStore) -> Vec<KeyContention> {
    block_on(store.list_contention(&call(), ListContentionRequest::default()))
        .unwrap()
        .keys
}

fn is_refused(store: &PostgresStore, key: &str, hold: u8, owner: &str) {
    let refused = block_on(store.acquire(&call(), lease_request(key, hold, owner)));
    assert_eq!(held_by(refused).0, "A");
}

#[test]
fn many_refusals_are_written_together() {
    let schema = migrated();
    cluster().admin().run(&format!(
        "CREATE TABLE {schema}.written (at timestamptz);
         CREATE FUNCTION {schema}.count_written() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO {schema}.written VALUES (clock_timestamp()); RETURN NULL; END $$;
         CREATE TRIGGER counted AFTER INSERT ON {schema}.lease_contention
         FOR EACH STATEMENT EXECUTE FUNCTION {schema}.count_written()"
    ));
    let written = || number(&format!("SELECT count(*) FROM {schema}.written"));
    let now_ms = || number("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)");
    let holder = open(&schema);
    holder.take(lease_request("k", 1, "A"));
    holder.take(lease_request("l", 2, "A"));
    let (store, began_ms) = (open(&schema), now_ms());
    for hold in 10..110 {
        is_refused(&store, if hold % 2 == 0 { "k" } else { "l" }, hold, "B");
    }
    let seen = contention(&store);
    let counts: Vec<(&str, u64)> = seen.iter().map(|seen| (seen.key.as_str(), seen.refused_count)).collect();
    assert_eq!(counts, [("k", 50), ("l", 50)], "the handle knows all that it did");
    let intervals = |ms: u64| (ms - began_ms) / EVERY_MS + 1;
    assert!(written() < intervals(now_ms()) + 1, "{} statements for 100 refusals", written());
    // What a process has gathered by its end is not lost.
    block_on(store.close());
    assert!(written() <= intervals(now_ms()) + 1, "{} statements for 100 refusals", written());
    let others: Vec<_> = contention(&open(&schema))
        .into_iter()
        .map(|seen| (seen.key, seen.refused_count))
        .collect();
    assert_eq!(others, seen.into_iter().map(|seen| (seen.key, seen.refused_count)).collect::<Vec<_>>());
    assert_eq!(number(&format!("SELECT sum(refused_count) FROM {schema}.lease_contention")), 100);
    assert_eq!(number(&format!("SELECT count(*) FROM {schema}.lease_contention")), 2);
}

#[test]
fn what_several_handles_saw_adds_up() {
    let schema = migrated();
    let (holder, one, other) = (open(&schema), open(&schema), open(&schema));
    holder.take(lease_request("k", 1, "A"));
    for hold in 10..13 {
        is_refused(&one, "k", hold, "B");
    }
    block_on(one.close());
    for hold in 20..22 {
        is_refused(&other, "k", hold, "C");
    }
    // The one's from the table, its own from memory: once before it is added, and once after.
    let check = |store: &PostgresStore| {
        let seen = contention(store).remove(0);
        let last = seen.last_refused.unwrap();
        assert_eq!((seen.refused_count, last.owner.as_str()), (5, "C"));
        assert!(seen.begins_at_ms <= last.refused_at_ms);
    };
    check(&other);
    block_on(other.close());
    check(&holder);
}

/// What a process adds, as it sends it: so many refusals of a key, so long ago.
fn gathered(keys: &str, refused: u64, ago_ms: u64, waiters: u64) -> String {
    format!(
        "SELECT lease_contention_add(jsonb_agg(jsonb_build_object('namespace', 'default', 'key', k, 'begins_ago_ms', {ago_ms},
            'last_ago_ms', {ago_ms}, 'refused_count', {refused}, 'refused_owner', 'o{ago_ms}', 'refused_task', NULL,
            'refused_ago_ms', {ago_ms}, 'max_waiter_count', {waiters}))) FROM {keys} AS k"
    )
}

#[test]
fn the_table_keeps_the_keys_of_the_last_hour_and_no_more_than_a_list_has() {
    let schema = migrated();
    let admin = cluster().admin();
    admin.run(&format!("SET search_path = {schema}"));
    let value = |sql: &str| admin.value(sql);
    assert_eq!(value("SELECT limit_contention_ms()"), CONTENTION_KEPT_MS.to_string());
    assert_eq!(value("SELECT limit_contended_keys()"), CONTENDED_KEYS_MAX.to_string());
    let kept = CONTENTION_KEPT_MS;
    value(&gathered("unnest(ARRAY['old', 'back'])", 7, kept + 60_000, 9));
    let count = "SELECT count(*) FROM lease_contention";
    assert_eq!(value(count), "0", "what is too old is not kept");
    value(&gathered("unnest(ARRAY['old', 'back'])", 7, 60_000, 9));
    let hour_ago =
        format!("UPDATE lease_contention SET last_ms = last_ms - {kept}, begins_ms = begins_ms - {kept}");
    admin.run(&hour_ago);
    value(&gathered("unnest(ARRAY['back'])", 1, 1_000, 0));
    let shown = "SELECT string_agg(concat_ws(' ', key, refused_count, max_waiter_count, refused_owner), ', ') FROM lease_contention";
    assert_eq!(value(shown), "back 1 0 o1000", "one that was forgotten begins anew");
    value(&gathered("unnest(ARRAY['back'])", 2, 30_000, 3));
    assert_eq!(value(shown), "back 3 3 o1000", "the later refusal is the last one, added first or not");
    value(&gathered("generate_series(1, 1500)", 1, 20_000, 0));
    assert_eq!(value(count), "1000");
    assert_eq!(
        value("SELECT refused_count FROM lease_contention WHERE key = 'back'"),
        "3",
        "it is newer than those"
    );
    assert_eq!(value("SELECT jsonb_array_length(lease_contention_list('default', NULL, NULL))"), "1000");
    assert_eq!(value("SELECT lease_contention_list('default', NULL, 'ba')->0->>'key'"), "back");
    assert_eq!(value("SELECT lease_contention_list('other', NULL, NULL)::text"), "[]");
}
