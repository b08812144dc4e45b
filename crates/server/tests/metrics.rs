//! What the metrics say after things have happened; and that the alert rules ask only for what is there.
#![allow(clippy::disallowed_methods, reason = "real sockets live in real time")]

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use fencehold_contract::clock::ManualClock;
use fencehold_server::ServerOptions;
use serde_json::{Value, json};

use crate::plain_client::{PlainClient, eventually, serve};

fn page(client: &PlainClient) -> String {
    let (status, page) = client.ask("GET", "/metrics", "", "");
    assert_eq!(status, 200, "{page}");
    page
}

fn value(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
}

/// What the page says of each of these.
#[track_caller]
fn assert_values(page: &str, expected: &[(&str, f64)]) {
    for (name, expected) in expected {
        assert!((value(page, name) - expected).abs() < 1e-9, "{name} is {}", value(page, name));
    }
}

fn hold(number: u8) -> String {
    format!("{number:02x}").repeat(16)
}

fn acquire(client: &PlainClient, key: &str, number: u8) -> (u16, Value) {
    let body = json!({ "key": key, "hold_id": hold(number), "owner": "o", "ttl_ms": 10_000 });
    let (status, said) = client.ask("POST", "/v1/leases/acquire", "", &body.to_string());
    (status, serde_json::from_str(&said).unwrap())
}

#[test]
fn what_happened_to_leases_is_counted_by_how_it_ended() {
    let clock = ManualClock::new();
    let client = serve(&clock, ServerOptions::default);
    for (number, key) in [(1, "released"), (2, "expired"), (3, "revoked")] {
        assert_eq!(acquire(&client, key, number).0, 200);
    }
    assert_eq!(acquire(&client, "released", 4).0, 409);
    let of =
        |key: &str, number: u8| json!({ "holds": [{ "key": key, "hold_id": hold(number), "token": 1 }] });
    clock.advance_ms(4_000);
    client.post("/v1/leases/renew-batch", "", &of("released", 1));
    client.post("/v1/leases/renew-batch", "", &of("released", 9));
    client.post("/v1/leases/release-batch", "", &of("released", 1));
    client.post("/v1/leases/revoke", "", &json!({ "key": "revoked", "by": "p", "reason": "r" }));
    clock.advance_ms(10_000);
    let page = eventually("the expiry", || {
        let page = page(&client);
        (value(&page, "fencehold_leases_ended_total{outcome=\"expired\"}") > 0.0).then_some(page)
    });
    let expected = [
        ("fencehold_leases_acquired_total", 3.0),
        ("fencehold_tokens_issued_total", 3.0),
        ("fencehold_leases_ended_total{outcome=\"released\"}", 1.0),
        ("fencehold_leases_ended_total{outcome=\"expired\"}", 1.0),
        ("fencehold_leases_ended_total{outcome=\"revoked\"}", 1.0),
        ("fencehold_acquire_contended_total", 1.0),
        ("fencehold_renewals_total{outcome=\"renewed\"}", 1.0),
        ("fencehold_renewals_total{outcome=\"refused\"}", 1.0),
        ("fencehold_wrong_hold_ids_total", 1.0),
        ("fencehold_renewal_remaining_ratio_count{type=\"lease\"}", 1.0),
        // It had six of its ten seconds left.
        ("fencehold_renewal_remaining_ratio_sum{type=\"lease\"}", 0.6),
        ("fencehold_requests_total{operation=\"admin\",outcome=\"ok\"}", 1.0),
        ("fencehold_requests_total{operation=\"acquire\",outcome=\"refused\"}", 1.0),
    ];
    assert_values(&page, &expected);
    // Two stale acts are refused: what a late holder tries, and that is seen.
    client.post("/v1/leases/renew-batch", "", &of("expired", 2));
    eventually("the stale write", || {
        (value(&self::page(&client), "fencehold_stale_writes_blocked_total") >= 1.0).then_some(())
    });
}

#[test]
fn what_happens_to_jobs_is_counted_and_queues_show_their_depth_and_age() {
    let clock = ManualClock::new();
    let client = serve(&clock, ServerOptions::default);
    let job = json!({ "id": "01935f6e-7b00-7000-8000-000000000000", "queue": "q", "kind": "k" });
    client.post("/v1/jobs/enqueue-batch", "", &json!({ "jobs": [job] }));
    client.post("/v1/jobs/enqueue-batch", "", &json!({ "jobs": [job] }));
    client.post("/v1/jobs/enqueue-batch", "", &json!({ "jobs": [{ "queue": "q", "kind": "k" }] }));
    clock.advance_ms(90_000);
    let before = page(&client);
    let expected = [
        ("fencehold_jobs_deduplicated_total", 1.0),
        ("fencehold_queue_jobs{namespace=\"default\",queue=\"q\",state=\"queued\"}", 2.0),
        ("fencehold_queue_oldest_queued_seconds{namespace=\"default\",queue=\"q\"}", 90.0),
    ];
    assert_values(&before, &expected);
    let _crashes = client.claim(1, &clock);
    clock.advance_ms(1_000);
    eventually("the crash", || (value(&page(&client), "fencehold_job_crashes_total") > 0.0).then_some(()));
    let claimed = client.claim(2, &clock);
    client.report(&claimed, &json!({ "type": "complete" }));
    let after = page(&client);
    let completed = "fencehold_job_attempts_ended_total{outcome=\"completed\"}";
    assert_values(&after, &[("fencehold_job_attempts_started_total", 2.0), (completed, 1.0)]);
    for secret in [hold(1), hold(2), "01935f6e".to_owned()] {
        assert!(!after.contains(&secret), "a label for a job, or worse");
    }
}

#[test]
fn what_is_answered_from_the_ledger_is_a_hit() {
    let clock = ManualClock::new();
    let client = serve(&clock, ServerOptions::default);
    let hits = |of: &str| {
        let name = format!("fencehold_ledger_hits_total{{type=\"{of}\"}}");
        value(&page(&client), &name)
    };
    let begin = |number: u8| {
        let body = json!({ "idempotency_key": "pay/7", "payload": { "to": "ada" }, "hold_id": hold(number), "owner": "o",
            "ttl_ms": 60_000, "idempotency_window_ms": 3_600_000 });
        client.post("/v1/operations/begin", "", &body)
    };
    begin(1);
    assert!(hits("operation").abs() < 1e-9, "it was begun for the first time");
    begin(2);
    assert!((hits("operation") - 1.0).abs() < 1e-9, "it was asked for again");
    client.post("/v1/jobs/enqueue-batch", "", &json!({ "jobs": [{ "queue": "q", "kind": "k" }] }));
    let claimed = client.claim(1, &clock);
    let write = |entry: Value| {
        let attempt = json!({ "job_id": claimed["job_id"], "hold_id": claimed["hold_id"], "token": claimed["token"], "entry": entry });
        client.post("/v1/effects/write-batch", "", &json!({ "entries": [attempt] }));
    };
    write(json!({ "type": "begin", "effect": "charge", "in_doubt_policy": "manual" }));
    write(json!({ "type": "record", "effect": "charge", "value": 7 }));
    assert!(hits("effect").abs() < 1e-9, "nothing was asked for twice");
    write(json!({ "type": "begin", "effect": "charge", "in_doubt_policy": "manual" }));
    assert!((hits("effect") - 1.0).abs() < 1e-9, "it is recorded");
}

#[test]
fn a_cancelled_job_that_runs_on_is_counted_with_its_time() {
    let clock = ManualClock::new();
    let client = serve(&clock, ServerOptions::default);
    client.post("/v1/jobs/enqueue-batch", "", &json!({ "jobs": [{ "queue": "q", "kind": "k" }] }));
    let claimed = client.claim(1, &clock);
    let name = "fencehold_queue_oldest_cancel_requested_seconds";
    assert!(!page(&client).contains(&format!("{name}{{")), "nothing was cancelled");
    let cancel = json!({ "job_id": claimed["job_id"], "by": "P" });
    client.post("/v1/jobs/cancel", "", &cancel);
    let series = format!("{name}{{namespace=\"default\",queue=\"q\"}}");
    let first = page(&client);
    // It was seen for the first time.
    let count = series.replace(name, "fencehold_queue_jobs_cancel_requested");
    assert_values(&first, &[(&series, 0.0), (&count, 1.0)]);
    let attempt =
        json!({ "job_id": claimed["job_id"], "hold_id": claimed["hold_id"], "token": claimed["token"] });
    for _ in 0..5 {
        clock.advance_ms(600);
        client.post("/v1/jobs/renew-batch", "", &json!({ "attempts": [attempt] }));
    }
    assert_values(&page(&client), &[(&series, 3.0)]);
    client.report(&claimed, &json!({ "type": "complete" }));
    assert!(!page(&client).contains(&format!("{name}{{")), "it has ended");
}

/// Every `label="value"` that some rule picks, with the metric that it picks from. Of `label=~"a|b"`, each.
fn selected(rules: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    for (at, _) in rules.match_indices("fencehold_") {
        let rest = &rules[at..];
        let name = rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap();
        let picked = rest[name.len()..]
            .strip_prefix('{')
            .and_then(|rest| Some(rest.split_once('}')?.0));
        for label in picked.into_iter().flat_map(|picked| picked.split(',')) {
            match label.split_once("=~") {
                Some((label, values)) => {
                    let values = values.trim_matches('"').split('|');
                    found.extend(values.map(|value| (name, format!("{label}=\"{value}\""))));
                }
                None => found.push((name, label.to_owned())),
            }
        }
    }
    found
}

/// Each alert of some rules, with what stands below its name.
fn alerts(rules: &str) -> Vec<(&str, &str)> {
    let rules = rules.split("- alert: ").skip(1);
    rules
        .map(|rule| rule.split_once('\n').expect("a rule has more lines"))
        .collect()
}

#[test]
fn the_alert_rules_ask_only_for_what_there_is_and_each_has_a_runbook() {
    let client = serve(&ManualClock::new(), ServerOptions::default);
    client.post("/v1/jobs/enqueue-batch", "", &json!({ "jobs": [{ "queue": "q", "kind": "k" }] }));
    let page = page(&client);
    let there = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let there: BTreeSet<&str> = there.collect();
    let runbooks = include_str!("../../../docs/runbooks.md");
    let (fixed, slo) = (include_str!("../../../deploy/alerts.yml"), include_str!("../../../deploy/slo.yml"));
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    for rules in [fixed, slo] {
        let asked: BTreeSet<&str> = rules
            .split(word)
            .filter(|name| name.starts_with("fencehold_"))
            .map(|name| name.strip_suffix("_bucket").or(name.strip_suffix("_count")).unwrap_or(name))
            .collect();
        assert!(asked.len() > 2 && selected(rules).len() > 3, "{asked:?}");
        let missing: Vec<_> = asked.difference(&there).collect();
        assert!(missing.is_empty(), "no such metrics: {missing:?}");
        for (name, label) in selected(rules) {
            let has = |line: &str| line.starts_with(name) && line.contains(&label);
            assert!(page.lines().any(has), "{name} never has {label}");
        }
        for (alert, rule) in alerts(rules) {
            let link = format!("runbook: docs/runbooks.md#{}\n", alert.to_lowercase());
            assert!(rule.contains(&link), "{alert} does not link to its runbook");
            let (_, runbook) = runbooks
                .split_once(&format!("\n## {alert}\n"))
                .unwrap_or_else(|| panic!("no runbook for {alert}"));
            let runbook = runbook.split("\n## ").next().unwrap_or_default();
            for part in ["**What it means.**", "**What to look at.**", "**What is safe to do.**"] {
                assert!(runbook.contains(part), "the runbook of {alert} does not say: {part}");
            }
        }
    }
    let known: Vec<&str> = [fixed, slo].into_iter().flat_map(alerts).map(|(alert, _)| alert).collect();
    for heading in runbooks.lines().filter_map(|line| line.strip_prefix("## Fencehold")) {
        assert!(known.contains(&&*format!("Fencehold{heading}")), "a runbook without an alert: {heading}");
    }
    // Prometheus' own tool has the last word on both.
    promtool(&["check", "metrics"], &page);
    promtool(&["test", "rules", concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/alerts.test.yml")], "");
    promtool(&["test", "rules", concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/slo.test.yml")], "");
}

/// Runs it where `cargo xtask servers` has put it, else wherever it is.
fn promtool(words: &[&str], input: &str) {
    let own = std::env::current_exe().unwrap();
    let mut fetched = own.ancestors().map(|folder| folder.join("servers/debian/usr/bin/promtool"));
    let program = fetched.find(|program| program.exists()).unwrap_or_else(|| "promtool".into());
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn();
    let mut child = child.expect("promtool is not on this machine: `cargo xtask servers` fetches it");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap();
    assert!(said.status.success(), "{said:?}");
}

/// The labels by which a query groups.
fn grouped_by(query: &str) -> Vec<&str> {
    let lists = query.split("by (").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    lists.flat_map(|list| list.split(',').map(str::trim)).collect()
}

#[test]
fn the_grafana_dashboard_asks_only_for_what_there_is() {
    let client = serve(&ManualClock::new(), ServerOptions::default);
    client.post("/v1/jobs/enqueue-batch", "", &json!({ "jobs": [{ "queue": "q", "kind": "k" }] }));
    let page = page(&client);
    let dashboard = include_str!("../../../deploy/grafana.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let mut rules = String::from("groups: [{ name: grafana, rules: [\n");
    for panel in panels.filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{} shows nothing", panel["title"]);
        for target in targets {
            let query = target["expr"].as_str().unwrap();
            // Prometheus adds `instance` to all it scrapes, and Grafana replaces its variables.
            let query = query.replace("instance=~\"$instance\"", "").replace("$__rate_interval", "5m");
            let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            let names: Vec<&str> = query.split(word).filter(|name| name.starts_with("fencehold_")).collect();
            assert!(!names.is_empty(), "{query} asks for nothing of ours");
            let labels = grouped_by(&query);
            for name in names {
                let metric = name.strip_suffix("_bucket").unwrap_or(name);
                assert!(page.contains(&format!("# TYPE {metric} ")), "no such metric: {name} in {query}");
                for label in labels.iter().filter(|label| **label != "instance") {
                    let has = |line: &str| line.starts_with(name) && line.contains(&format!("{label}=\""));
                    assert!(page.lines().any(has), "{name} never has {label}: {query}");
                }
            }
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend.split("{{").skip(1).filter_map(|rest| Some(rest.split_once("}}")?.0)) {
                assert!(labels.contains(&label), "{legend:?} names what {query} does not group by");
            }
            rules.extend([
                "{ record: \"a:b\", labels: { n: \"",
                &rules.len().to_string(),
                "\" }, expr: '",
                &query,
                "' },\n",
            ]);
        }
    }
    assert!(page.contains("fencehold_build_info{"), "servers are chosen by it");
    // Prometheus reads each query.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yml");
    std::fs::write(&file, rules + "] }]\n").unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()], "");
}
