//! Everything that others build on, as it was when it was last looked at: help, SQL, metrics, events. A change of it shows in the diff of
//! `tests/golden`, which `FENCEHOLD_WRITE_GOLDENS=1 cargo test --workspace --all-features --test cli golden::` writes anew. The document of
//! the HTTP API is held against its types by the tests of the server.
#![cfg(feature = "file")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use fencehold_core::EventData;
use fencehold_test_servers::postgres::{Durable, PostgresServer};

use crate::support::{TestDirectory, every_verb, get_page, serve};

/// Holds a text against the one that is kept.
fn assert_golden(name: &str, now: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("FENCEHOLD_WRITE_GOLDENS").is_some() {
        fs::write(&path, now).unwrap();
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = kept.lines().zip(now.lines()).find(|(kept, now)| kept != now);
    let (kept_line, now_line) = differs.unwrap_or(("(its end)", "(its end)"));
    assert!(
        kept == now,
        "tests/golden/{name} differs:\n- {kept_line}\n+ {now_line}\nif that is meant: \
         FENCEHOLD_WRITE_GOLDENS=1 cargo test --workspace --all-features --test cli golden::"
    );
}

#[test]
fn the_help_of_every_verb() {
    let mut text = String::new();
    for verb in every_verb(&TestDirectory::new()).iter().filter(|verb| verb.name != "help") {
        let asked = format!("{} --help", verb.name);
        text.extend(["$ fencehold ", asked.trim_start(), "\n", &verb.help, "\n"]);
    }
    assert_golden("help.txt", &text);
}

#[test]
fn the_metrics() {
    let dir = TestDirectory::new();
    let (_server, address) = serve(&dir, "127.0.0.1:0");
    // A queue has series of its own.
    dir.enqueue("1", "");
    assert_golden("metrics.txt", &without_values(&get_page(&address, "/metrics")));
}

/// What each metric is, and which labels it has.
fn without_values(page: &str) -> String {
    let mut lines: BTreeSet<String> = BTreeSet::new();
    for line in page.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            // By name, with what it is behind it.
            let (word, rest) = comment.split_once(' ').unwrap();
            let (name, text) = rest.split_once(' ').unwrap();
            lines.insert(format!("{name} {word} {text}"));
        } else {
            let series = line.rsplit_once(' ').unwrap().0;
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels
                .trim_end_matches('}')
                .split("\",")
                .filter_map(|label| label.split_once('='));
            let labels: Vec<&str> = labels.map(|(label, _)| label).collect();
            lines.insert(format!("{name} {{{}}}", labels.join(",")));
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

#[test]
fn what_the_schema_of_a_database_has() {
    let (dir, cluster) = (TestDirectory::new(), PostgresServer::start(Durable::No));
    let store = cluster.url_text("fencehold");
    dir.succeeds(&["--store", &store, "store", "migrate"]);
    let admin = cluster.admin();
    let mut text = String::new();
    for sql in [
        "SELECT format('function %s(%s) -> %s', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid))
            FROM pg_proc p WHERE p.pronamespace = 'fencehold'::regnamespace",
        "SELECT format('%s %s: %s', CASE c.relkind WHEN 'v' THEN 'view' ELSE 'table' END, c.relname,
                string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum))
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            WHERE c.relnamespace = 'fencehold'::regnamespace AND c.relkind IN ('r', 'p', 'v') GROUP BY c.oid, c.relkind, c.relname",
    ] {
        let mut lines: Vec<String> = admin.run(sql).into_iter().map(|row| row.into_iter().flatten().collect()).collect();
        lines.sort();
        text.extend(lines.iter().flat_map(|line| [line.as_str(), "\n"]));
    }
    assert_golden("schema.txt", &text);
}

#[test]
fn the_kinds_of_events() {
    // serde names all of them when it is asked for one that is not there.
    let error = serde_json::from_str::<EventData>("\"none of them\"").unwrap_err().to_string();
    let (_, kinds) = error.split_once("expected one of ").unwrap();
    let kinds: BTreeSet<&str> = kinds.split('`').skip(1).step_by(2).collect();
    assert!(kinds.contains("lease_acquired"), "{error}");
    assert_golden("events.txt", &kinds.into_iter().flat_map(|kind| [kind, "\n"]).collect::<String>());
}
