//! *Lock Timeout & Lease Management*, a guide in six parts: what leases are, how to acquire them and choose their ttl, idempotency,
//! renewal and workers, guarantees after failures, and what to run in production. Each of its numbered sections is a row or
//! more below: what it asks for, the command that does it here, and what that command says.
//!
//! | their word | ours | command |
//! |---|---|---|
//! | hard timeout | max age | `fencehold run --max-age 2h` |
//! | polling, blocking, event-driven acquisition | no `--wait`; `--wait`; waiters are woken | `fencehold run --key KEY --wait 1m` |
//! | TTL formula | advice from what was seen | `fencehold advise KEY` |
//! | backoff with jitter | retry policy | `--retry exponential:1s..1h~20%` |
//! | clock drift, NTP, logical clocks | store time | `fencehold doctor`, `fencehold race run R20` |
//! | idempotency key, dedup window | unique key, unique window; of requests: operation | `--unique-key`, `POST /v1/operations/begin` |
//! | leader election | election; from a shell a key | `fencehold run --key leader --wait 1h` |
//! | fencing token | token | `FENCEHOLD_TOKEN`, `fencehold race run R06` |
//! | heartbeat at TTL / 3 | renewal | `fencehold plan` counts them |
//! | draining | the command is ended before another owner can hold the key | `fencehold run`, exit code 76 |
//! | graceful preemption | yield | `--priority`, `--preempt-within` |
//! | checkpoint | the same | `fencehold job checkpoint` |
//! | thundering herd, mass expiry | race R29 | `fencehold race run R29` |
//! | split brain | the older holder is refused | `fencehold race run R08` |
//! | compensating transaction | compensation | `fencehold race run R40` |
//! | audit trail | events, endings | `fencehold event ls`, `fencehold explain KEY` |
//! | renewal failure rate, lease exhaustion | metrics | `/metrics`, `fencehold lease stats` |
#![cfg(all(feature = "file", feature = "race", feature = "server"))]

use serde_json::json;

use super::Trace;
use crate::support::{TestDirectory, path_with_fencehold, said};

/// The section's number, what it asks for, the command, its exit code, and what is among what it says.
type Row = (&'static str, &'static str, &'static str, i32, &'static [&'static str]);

/// Waits until a key looks like this.
const UNTIL: &str =
    r#"until_key() { until fencehold lease get "$1" -o json | grep -q "$2"; do sleep 0.02; done; }"#;

const FOUNDATIONS: &[Row] = &[
    (
        "1.1",
        "a lease that is not renewed ends by itself, and the next owner proceeds",
        "fencehold lease acquire cart/1 --ttl 200ms --owner gone >/dev/null
         fencehold run --key cart/1 --wait 60s -- sh -c 'echo proceeds under token $FENCEHOLD_TOKEN'",
        0,
        &["proceeds under token 2"],
    ),
    (
        "1.1",
        "a hard timeout is another thing: it ends work that still renews",
        "fencehold run --key pay/1 --max-age 300ms -- sleep 1000",
        76,
        &["the lease on pay/1 under token 1 was lost"],
    ),
    (
        "1.2",
        "lease durations are derived from what the work takes, not made up",
        "fencehold run --key pay/2 -- true && fencehold advise pay/2",
        0,
        &["suggested ttl", "P99 of the work"],
    ),
];

const ACQUISITION: &[Row] = &[
    (
        "2.1",
        "polling: refused at once, and by whom",
        "fencehold lease acquire order/1 --owner checkout --task order-1 --ttl 1h >/dev/null
         fencehold run --key order/1 -- true",
        75,
        &["order/1 is held by checkout for task order-1 under token 1"],
    ),
    (
        "2.1",
        "blocking, for so long and no longer",
        "fencehold run --key order/1 --wait 100ms -- true",
        75,
        &["order/1 is held by checkout"],
    ),
    (
        "2.1",
        "event-driven: one in line is woken by the release",
        r#"eval "$(fencehold lease acquire line/1 -o env)"
         fencehold run --key line/1 --wait 60s -- echo woken &
         until_key line/1 '"waiter_count": 1'
         fencehold lease release line/1 && wait $!"#,
        0,
        &["woken"],
    ),
    (
        "2.2",
        "ttl = P99 of the work + P99 of a round trip + margin",
        "fencehold advise pay/2",
        0,
        &["P99 of the work", "P99 of a round trip", "margin"],
    ),
    (
        "2.2",
        "exponential backoff with a bound and jitter",
        "job=$(fencehold job enqueue --queue retried --kind k --payload 1 --retry exponential:1s..1h~20%)
         fencehold work --queue retried --until-empty -- false
         fencehold job get $job -o json",
        0,
        &[r#""state": "scheduled""#, r#""max_delay_ms": 3600000"#, r#""jitter_percent": 20"#],
    ),
    ("2.3", "no lease depends on a wall clock", "fencehold doctor", 0, &["no lease depends on it"]),
    ("2.3", "a clock that jumps forward ends nothing", "fencehold race run R20", 0, &["the promise held"]),
    (
        "2.3",
        "one that is set back makes nothing immortal",
        "fencehold race run R21",
        0,
        &["the promise held"],
    ),
];

const IDEMPOTENCY: &[Row] = &[
    (
        "3.1",
        "the same request within the window is the same job",
        r#"enqueue() { fencehold job enqueue --queue orders --kind charge --payload "$1" --unique-key order-17 --unique-window 7d; }
         first=$(enqueue '{"cents":5}') && second=$(enqueue '{"cents":5}') && [ "$first" = "$second" ] && echo one job"#,
        0,
        &["one job"],
    ),
    (
        "3.1",
        "the same key for another request is refused",
        r#"fencehold job enqueue --queue orders --kind charge --payload '{"cents":6}' --unique-key order-17"#,
        2,
        &["the unique key is taken by job", "which has another payload"],
    ),
    (
        "3.2",
        "one leader at a time; when it dies, the next one leads under a larger token",
        r"fencehold run --key leader --owner first --ttl 1s -- sleep 1000 & leader=$!
         until_key leader first
         fencehold run --key leader --owner second --wait 60s -- sh -c 'echo second leads under token $FENCEHOLD_TOKEN' &
         until_key leader 'waiter_count.: 1'
         kill -9 $leader; wait $!",
        0,
        &["second leads under token 2"],
    ),
    (
        "3.3",
        "a stale token is refused in the step that writes",
        "fencehold race run R06",
        0,
        &["stale_write_blocked", "the promise held"],
    ),
    (
        "3.3",
        "a lock without tokens loses the same race",
        "fencehold race run R06 --naive",
        1,
        &["promise_broken"],
    ),
];

const RENEWAL: &[Row] = &[
    (
        "4.1",
        "renewal at a third of the ttl: three a ttl for each lease",
        "fencehold plan --leases 100k --ttl 30s --store postgres",
        0,
        &["renewals a second  10 0"],
    ),
    (
        "4.1",
        "a holder that cannot renew stops its work",
        "fencehold run --key drain/1 -- sleep 1000 & until_key drain/1 owner
         fencehold lease revoke drain/1 --by ops --reason 'moved elsewhere' >/dev/null; wait $!",
        76,
        &["drain/1 under token 1 was lost", "moved elsewhere"],
    ),
    (
        "4.2",
        "SIGTERM ends the work in good order and releases the lease",
        r#"fencehold run --key term/1 -- sh -c 'trap "echo saved; exit 0" TERM; touch up; while :; do sleep 0.02; done' & work=$!
         until [ -e up ]; do sleep 0.02; done
         kill -TERM $work; wait $work && fencehold lease get term/1 -o json"#,
        0,
        &["saved", r#""outcome": "released""#],
    ),
    (
        "4.2",
        "urgent work asks a holder of lower priority to yield",
        r#"eval "$(fencehold lease acquire gpu/3 -o env)"
         fencehold run --key gpu/3 --owner urgent --priority 5 --preempt-within 10s --wait 60s -- echo urgent work runs & urgent=$!
         until_key gpu/3 yield_request
         fencehold lease renew gpu/3 && fencehold lease release gpu/3 && wait $urgent && fencehold lease get gpu/3 -o json"#,
        0,
        &["yield", "urgent work runs", r#""outcome": "yielded""#],
    ),
    (
        "4.2",
        "work that yields leaves a checkpoint, and the next attempt goes on from it",
        r#"fencehold job enqueue --queue exports --kind rows --payload 1 >/dev/null
         eval "$(fencehold job claim --queue exports -o env)"
         fencehold job checkpoint --text 'row 7' && fencehold job release
         fencehold work --queue exports --until-empty -- sh -c 'echo from $(cat "$FENCEHOLD_CHECKPOINT_FILE")'
         fencehold job wait "$FENCEHOLD_JOB_ID""#,
        0,
        &["from row 7"],
    ),
    ("4.3", "a mass expiry blocks no one", "fencehold race run R29", 0, &["the promise held"]),
    (
        "4.3",
        "a store that is down is asked again until the timeout, and no longer",
        "fencehold --store http://127.0.0.1:1 --timeout 200ms lease ls",
        69,
        &["127.0.0.1:1"],
    ),
];

const FAILURES: &[Row] = &[
    ("5.1", "tried more than once, completed once", "fencehold race run R06-job", 0, &["the promise held"]),
    (
        "5.1",
        "an effect whose record is lost reaches the other side under the same key",
        "fencehold race run R17",
        0,
        &["the promise held"],
    ),
    (
        "5.2",
        "of two that believe they hold it, the older one is refused",
        "fencehold race run R08",
        0,
        &["the promise held"],
    ),
    ("5.2", "also before the newer one has written", "fencehold race run R18", 0, &["the promise held"]),
    (
        "5.3",
        "what happened, with times, tokens and outcomes, and who used force",
        "fencehold event ls --prefix drain/1 -o jsonl && fencehold explain drain/1",
        0,
        &["lease_acquired", r#""outcome":"revoked""#, "ops", "moved elsewhere"],
    ),
    (
        "5.3",
        "what was done of a job that is cancelled is undone once",
        "fencehold race run R40",
        0,
        &["the promise held"],
    ),
];

const PRODUCTION: &[Row] = &[
    ("6.1", "in your database, or beside it", "fencehold doctor", 0, &["postgres:", "etcd:", "s3:"]),
    (
        "6.2",
        "what a grant that is on disk costs here",
        "fencehold bench lease --clients 1 --duration 100ms",
        0,
        &["acquire", "release", "renew", "P99"],
    ),
    (
        "6.3",
        "how leases ended: expired against released",
        "fencehold lease stats --since 1h",
        0,
        &["released", "expired   2 ", "revoked   1", "yielded   1"],
    ),
    (
        "6.3",
        "latency, renewals, tokens and deduplication as metrics",
        r#"fencehold serve --listen 127.0.0.1:0 2>served & server=$!
         until address=$(grep -o 'http://127[0-9.:]*' served); do sleep 0.02; done
         FENCEHOLD_STORE=$address fencehold run --key seen -- true
         curl -sf "${address%%$'\n'*}/metrics"; kill $server; wait $server"#,
        0,
        &[
            "fencehold_leases_acquired_total 1",
            r#"fencehold_leases_ended_total{outcome="released"} 1"#,
            "fencehold_acquire_wait_duration_seconds",
            "fencehold_jobs_deduplicated_total",
        ],
    ),
];

#[test]
fn each_section_is_a_command() {
    let dir = TestDirectory::new();
    let mut trace = Trace::default();
    let parts = [FOUNDATIONS, ACQUISITION, IDEMPOTENCY, RENEWAL, FAILURES, PRODUCTION];
    for &(section, asks, command, code, says) in parts.into_iter().flatten() {
        let mut shell = dir.shell(&format!("exec 2>&1\n{UNTIL}\n{command}"));
        let ran = said(shell.env("PATH", path_with_fencehold()).env("HOME", dir.path("")));
        trace.add(json!({ "section": section, "asks": asks, "code": ran.code }));
        ran.ended(code).prints(says);
    }
    let sections = "1.1 1.2 2.1 2.2 2.3 3.1 3.2 3.3 4.1 4.2 4.3 5.1 5.2 5.3 6.1 6.2 6.3";
    let mut seen: Vec<&str> = trace.0.iter().map(|line| line["section"].as_str().unwrap()).collect();
    seen.dedup();
    assert_eq!(seen.join(" "), sections, "every section of the guide, in its order");
}
