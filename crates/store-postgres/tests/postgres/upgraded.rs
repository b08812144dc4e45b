//! A schema of an earlier version, and what becomes of it: after the upgrade it is the same as a new one.

use std::io::Write as _;
use std::process::{Command, Stdio};

use fencehold_contract::{LeaseStatsRequest, LeaseStore as _};
use fencehold_test_servers::calls::{call, unusable};
use fencehold_test_servers::postgres::as_server;
use fencehold_test_store::block_on;

use crate::cluster::fresh_schema;
use crate::{migrated, open};

/// A dump of schema 21, with data.
const DUMP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures/0c7405e/postgres.sql.gz");

/// Everything that makes a schema: all but the order in which it was made.
const CATALOG: &str = "
SELECT concat_ws(' ', 'routine', p.oid::regprocedure, pg_get_functiondef(p.oid), p.proowner::regrole,
    (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(coalesce(p.proacl, acldefault('f', p.proowner))) AS a),
    obj_description(p.oid, 'pg_proc'))
FROM pg_proc p WHERE p.pronamespace = $1::regnamespace
UNION ALL
SELECT concat_ws(' ', 'relation', c.relkind, c.relname, c.relreplident, c.reloptions, c.relpersistence,
    CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) WHEN 'i' THEN pg_get_indexdef(c.oid) END,
    (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(coalesce(c.relacl, acldefault('r', c.relowner))) AS a),
    obj_description(c.oid, 'pg_class'))
FROM pg_class c WHERE c.relnamespace = $1::regnamespace
UNION ALL
SELECT concat_ws(' ', 'column', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage,
    a.attcollation::regcollation, a.attidentity, a.attisdropped, a.attacl, pg_get_expr(d.adbin, d.adrelid))
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = $1::regnamespace
UNION ALL
SELECT concat_ws(' ', 'constraint', o.conrelid::regclass, o.conname, pg_get_constraintdef(o.oid))
FROM pg_constraint o WHERE o.connamespace = $1::regnamespace
UNION ALL
SELECT concat_ws(' ', 'trigger', pg_get_triggerdef(t.oid), t.tgenabled)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = $1::regnamespace AND NOT t.tgisinternal
UNION ALL
SELECT concat_ws(' ', 'sequence', s.seqrelid::regclass, s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle)
FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid WHERE c.relnamespace = $1::regnamespace
UNION ALL
SELECT concat_ws(' ', 'type', t.typname, t.typtype) FROM pg_type t WHERE t.typnamespace = $1::regnamespace
UNION ALL
SELECT concat_ws(' ', 'schema', (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(n.nspacl) AS a))
FROM pg_namespace n WHERE n.oid = $1::regnamespace
ORDER BY 1";

/// A schema of that version: the dump, restored under another name.
pub(crate) fn old_schema() -> String {
    let schema = fresh_schema();
    let dump = Command::new("gzip").args(["-dc", DUMP]).output().unwrap();
    assert!(dump.status.success());
    let dump = String::from_utf8(dump.stdout)
        .unwrap()
        .replace("CREATE SCHEMA fencehold;", &format!("CREATE SCHEMA {schema};"))
        .replace("'fencehold', 'pg_temp'", &format!("'{schema}', 'pg_temp'"))
        .replace("fencehold.", &format!("{schema}."));
    let url = crate::cluster().url_text(&schema);
    let mut psql = as_server("psql")
        .args(["-q", "-v", "ON_ERROR_STOP=1", "-d", url.split('?').next().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    psql.stdin.take().unwrap().write_all(dump.as_bytes()).unwrap();
    assert!(psql.wait().unwrap().success());
    schema
}

/// What a schema is, line by line, without its name.
fn catalog(schema: &str) -> Vec<String> {
    let rows = crate::cluster().admin().run(&CATALOG.replace("$1", &format!("'{schema}'")));
    rows.into_iter()
        .map(|mut row| row.remove(0).unwrap().replace(schema, "SCHEMA"))
        .collect()
}

#[test]
fn a_schema_that_was_upgraded_is_the_same_as_a_new_one() {
    let (old, new) = (old_schema(), migrated());
    block_on(open(&old).migrate(&call())).unwrap();
    block_on(open(&new).migrate(&call())).unwrap();
    assert_same(&old, &new);
}

/// Functions whose arguments have changed since version 31: what they took then, and what came last since.
const CHANGED: [(&str, &str, &str); 3] = [
    ("lease_list", "text, text, text, text, boolean, bigint, integer, integer", "text"),
    ("lease_revoke_many", "text, text, text, text, bigint, integer, text, text, bigint", "text"),
    ("events_page", "text, bigint, text, integer, bigint", "text"),
];

/// Without what came since, a schema is one of version 31, but for functions: those are made again by every migration, and those whose
/// arguments have changed are there once.
#[test]
fn a_schema_of_an_earlier_version_gets_what_is_new() {
    let (old, new) = (fresh_schema(), fresh_schema());
    block_on(open(&new).migrate(&call())).unwrap();
    block_on(open(&old).migrate(&call())).unwrap();
    let admin = crate::cluster().admin();
    admin.run(&format!(
        "DROP TABLE {old}.event_total, {old}.lease_ended_count, {old}.lease_contention, {old}.job_change, {old}.job_count,
             {old}.job_counted, {old}.job_label; DROP INDEX {old}.job_settled_state, {old}.job_scheduled_place, {old}.job_body_kind;
         CREATE INDEX job_settled_waits ON {old}.job_settled (lane) WHERE state > 5;
         DROP TRIGGER job_labels_added ON {old}.job_body; DROP TRIGGER job_labels_removed ON {old}.job_body; DROP SEQUENCE {old}.upkeep_handle,
             {old}.leases_turn_handle, {old}.leases_turn_until, {old}.leases_turn_asked, {old}.jobs_turn_handle, {old}.jobs_turn_until,
             {old}.jobs_turn_asked; UPDATE {old}.migration SET version = 31"
    ));
    for (name, then, added) in CHANGED {
        admin.run(&format!(
            "DROP FUNCTION {old}.{name}({then}, {added});
             CREATE FUNCTION {old}.{name}({then}) RETURNS integer LANGUAGE sql AS 'SELECT 1'"
        ));
    }
    let names = block_on(open(&old).migrate(&call())).unwrap();
    assert_eq!(
        names,
        [
            "events are counted",
            "tasks below a task",
            "contention is recorded",
            "jobs are enqueued by documents",
            "background work is elected",
            "jobs are counted",
            "counts name an event",
            "many jobs on offer",
            "few jobs one by one"
        ]
    );
    assert_same(&old, &new);
    // What was before is not counted, and that is said.
    let stats = |schema: &str| {
        let asked = LeaseStatsRequest { since_ms: 3_600_000, step_ms: None };
        block_on(open(schema).stats(&call(), asked)).unwrap().complete
    };
    assert_eq!((stats(&old), stats(&new)), (false, true));
}

fn assert_same(old: &str, new: &str) {
    let (old, new) = (catalog(old), catalog(new));
    let only = |these: &[String], those: &[String]| {
        these
            .iter()
            .filter(|line| !those.contains(line))
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(only(&old, &new), only(&new, &old));
    assert!(new.len() > 700 && old.len() == new.len(), "{} and {}", old.len(), new.len());
}

/// Between 21 and 30 there was no release.
#[test]
fn a_schema_that_no_release_has_made_is_refused_and_left_alone() {
    let schema = old_schema();
    let admin = crate::cluster().admin();
    admin.run(&format!("INSERT INTO {schema}.migration (version, name) VALUES (25, 'unreleased')"));
    let before = catalog(&schema);
    let refused = [
        block_on(open(&schema).status(&call())).map(drop),
        block_on(open(&schema).migrate(&call())).map(drop),
        block_on(open(&schema).missing_migrations(&call())).map(drop),
    ];
    for why in refused.map(unusable) {
        assert!(why.contains("has version 25,") && why.contains("schema=NAME"), "{why}");
        assert!(!why.contains("migrate=auto"), "{why}");
    }
    assert_eq!(catalog(&schema), before);
    assert_eq!(block_on(open(&schema).schema_version(&call())).unwrap().found, 25);
}
