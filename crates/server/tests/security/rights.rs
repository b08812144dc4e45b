//! Tokens and their scopes.

use std::io::BufRead as _;

use fencehold_contract::http::{ALL, Method};
use fencehold_server::access::{Bearer, Scope};
use fencehold_server::audit::AuditFilter;
use serde_json::{Value, json};

use super::fixture::{SecurityFixture, TestToken, acquire, eventually, hear, held, hold, send, waits};

pub(super) const JOB: &str = "01935f6e-7b00-7000-8000-000000000000";

/// An attempt, with more of what goes beside it.
fn attempt_and(more: Value) -> Value {
    let mut attempt = json!({ "job_id": JOB, "hold_id": hold(1), "token": 1 });
    if let Value::Object(more) = more {
        attempt.as_object_mut().unwrap().extend(more);
    }
    attempt
}

/// A request of every operation that is as it should be.
pub(crate) fn sample(name: &str) -> Value {
    let report = || attempt_and(json!({ "report": { "type": "release" } }));
    let entry = || attempt_and(json!({ "entry": { "type": "begin", "effect": "e" } }));
    match name {
        "perform_batch" => {
            json!({ "operations": [{ "type": "release_lease", "request": held("k", 1, 1) }] })
        }
        "acquire_lease" => acquire("k", 1, 30_000),
        "renew_lease" | "release_lease" => held("k", 1, 1),
        "renew_lease_batch" | "release_lease_batch" => json!({ "holds": [held("k", 1, 1)] }),
        "revoke_lease" => json!({ "key": "k", "by": "tester", "reason": "a test" }),
        "revoke_lease_batch" => {
            json!({ "selector": { "type": "owner", "owner": "o" }, "by": "tester", "reason": "a test" })
        }
        "advance_store" | "reopen_store" => json!({ "by": "tester" }),
        "set_quota" => json!({ "quota": { "max_jobs": 1_000 }, "by": "tester" }),
        "enqueue_job" => json!({ "kind": "k" }),
        "enqueue_job_batch" => json!({ "jobs": [{ "kind": "k" }] }),
        "claim_jobs" => {
            json!({ "queues": [{ "queue": "q" }], "hold_id": hold(2), "owner": "tester", "ttl_ms": 30_000 })
        }
        "renew_attempt" => attempt_and(Value::Null),
        "renew_attempt_batch" => json!({ "attempts": [attempt_and(Value::Null)] }),
        "report_attempt" => report(),
        "report_attempt_batch" => json!({ "reports": [report()] }),
        "write_effect" => entry(),
        "write_effect_batch" => json!({ "entries": [entry()] }),
        "cancel_job" | "retry_job" | "delete_job" => json!({ "job_id": JOB, "by": "tester" }),
        "cancel_job_batch" | "retry_job_batch" | "delete_job_batch" => {
            json!({ "selector": { "type": "ids", "job_ids": [JOB] }, "by": "tester" })
        }
        "complete_job" | "fail_job" => json!({ "job_id": JOB, "by": "tester", "reason": "r" }),
        "complete_job_batch" | "fail_job_batch" => {
            json!({ "selector": { "type": "ids", "job_ids": [JOB] }, "by": "tester", "reason": "r" })
        }
        "pause_queue" | "resume_queue" | "drain_queue" | "delete_queue" => {
            json!({ "queue": "q", "by": "tester" })
        }
        "set_schedule" => json!({ "name": "s", "cron": "0 0 * * *", "kind": "k", "by": "tester" }),
        "delete_schedule" => json!({ "schedule": "s", "by": "tester" }),
        "begin_operation" => json!({
            "idempotency_key": "u", "idempotency_window_ms": 60_000, "hold_id": hold(3), "owner": "tester",
            "ttl_ms": 30_000,
        }),
        "resolve_effect" => {
            json!({ "job_id": JOB, "effect": "e", "resolution": { "type": "did_not_happen" }, "by": "tester" })
        }
        "create_access_token" => json!({
            "id": "aabbccddeeff", "secret_sha256": "ab".repeat(32), "name": "n", "namespace": "team",
            "scopes": ["lease:read"],
        }),
        "revoke_access_token" => json!({ "access_token_id": "aabbccddeeff" }),
        other => crate::openapi::example::of(other)
            .request
            .unwrap_or_else(|| panic!("no request for {other}")),
    }
}

/// Who may do what, said a second time: the table that people are promised.
fn allowed(name: &str, scope: Scope) -> bool {
    let job = matches!(scope, Scope::JobEnqueue | Scope::JobWork | Scope::JobAdmin | Scope::JobRead);
    // Many at once need no more than one.
    let one = name.strip_suffix("_batch").unwrap_or(name);
    scope == Scope::Admin
        || match one {
            "acquire_lease" | "renew_lease" | "release_lease" => scope == Scope::LeaseWrite,
            "revoke_lease" => scope == Scope::LeaseRevoke,
            "report_blocked_write" => matches!(scope, Scope::LeaseWrite | Scope::JobWork),
            "get_lease" | "list_leases" | "get_lease_stats" | "list_contention" | "list_events" => {
                scope == Scope::LeaseRead
            }
            // Each operation of a batch has its own answer.
            "get_store_capabilities" | "get_store_status" | "perform" => true,
            "enqueue_job" | "begin_operation" => scope == Scope::JobEnqueue,
            "claim_jobs" | "renew_attempt" | "report_attempt" | "write_effect" => scope == Scope::JobWork,
            "cancel_job" | "retry_job" | "delete_job" | "complete_job" | "fail_job" | "pause_queue"
            | "resume_queue" | "drain_queue" | "delete_queue" | "set_schedule" | "delete_schedule"
            | "resolve_effect" => scope == Scope::JobAdmin,
            "get_job" | "list_jobs" | "get_queue" | "list_queues" | "get_schedule" | "list_schedules"
            | "list_effects" => job,
            _ => false,
        }
}

pub(crate) fn path(path: &str) -> String {
    let query = match path {
        "/v1/leases/get" => "?key=k",
        "/v1/leases/stats" => "?since_ms=3600000",
        "/v1/queues/get" => "?queue=q",
        "/v1/schedules/get" => "?schedule=s",
        _ => "",
    };
    format!("{}{query}", path.replace("{job_id}", JOB))
}

/// A token for one namespace may not do it, whatever its scope: the store as a whole is not one namespace's.
const EVERYWHERE: [&str; 4] = ["advance_store", "reopen_store", "get_quota", "set_quota"];

#[test]
fn the_document_says_which_scopes_are_needed() {
    for spec in ALL {
        for scope in Scope::ALL.into_iter().filter(|scope| *scope != Scope::Admin) {
            assert_eq!(spec.scopes.contains(&scope), allowed(spec.name, scope), "{} by {scope}", spec.name);
        }
    }
}

/// A stream lives for long, and what it tells is decided anew each time.
#[test]
fn a_stream_ends_when_its_token_is_revoked() {
    let fixture = SecurityFixture::new();
    let (reader, writer) =
        (fixture.token(Some("team"), &[Scope::LeaseRead]), fixture.token(Some("team"), &[Scope::LeaseWrite]));
    let mut stream = fixture.connect();
    send(&mut stream, &reader.headers(), "GET", "/v1/events/stream", None);
    let mut lines = std::io::BufReader::new(stream).lines().map(Result::unwrap);
    fixture.acquire(&writer, "before", 1, 30_000);
    assert!(lines.any(|line| line.contains("before")), "events come while its token is good");

    fixture.revoke(&reader);
    eventually("the server knows", || fixture.ask(&reader, "GET", "/v1/leases", None).status == 401);
    fixture.acquire(&writer, "after", 2, 30_000);
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("was revoked")), "{rest:?}");
    assert!(!rest.iter().any(|line| line.contains("after")), "too much was sent: {rest:?}");
}

/// Nor is anything given to one who stands in line when its token is revoked. That each was let in, and waits, is seen before
/// the revocation: 401 would mean that it came too late.
#[test]
fn one_who_waits_is_sent_away_when_its_token_is_revoked() {
    let fixture = SecurityFixture::new();
    let scopes = [Scope::LeaseRead, Scope::LeaseWrite, Scope::JobEnqueue, Scope::JobWork];
    let (waiter, holder) = (fixture.token(Some("team"), &scopes), fixture.token(Some("team"), &scopes));
    let operator = fixture.operator();
    let fence = fixture.acquire(&holder, "k", 1, 30_000);
    let job = json!({ "jobs": [{ "queue": "other", "kind": "k" }] });
    let enqueued = fixture.post(&holder, "/v1/jobs/enqueue-batch", job);
    let job = enqueued.json["results"][0]["ok"]["job_id"].as_str().unwrap().to_owned();
    let status = fixture.ask(&holder, "GET", "/v1/store/status", None);
    let events = status.json["newest_event_seq"].as_u64().unwrap();
    let waiting: Vec<_> = [
        ("POST", "/v1/leases/acquire".to_owned(), Some(waits(acquire("k", 2, 30_000)))),
        ("POST", "/v1/jobs/claim".to_owned(), Some(waits(sample("claim_jobs")))),
        ("GET", format!("/v1/jobs/{job}?wait_ms=60000"), None),
        ("GET", format!("/v1/events?cursor={events}&wait_ms=60000"), None),
    ]
    .into_iter()
    .map(|(method, path, body)| {
        let mut stream = fixture.connect();
        send(&mut stream, &waiter.headers(), method, &path, body.as_ref());
        (path, stream)
    })
    .collect();
    eventually("all of them wait", || {
        fixture.shows(&operator, "fencehold_requests_waiting", waiting.len() as f64)
            && fixture.shows(&operator, "fencehold_lease_waiters", 1.0)
    });
    fixture.revoke(&waiter);
    for (path, stream) in waiting {
        let said = hear(stream);
        assert_eq!((said.status, said.kind()), (403, "forbidden"), "{path}: {said:?}");
        assert!(said.body.contains("was revoked"), "{path}: {said:?}");
    }
    eventually("no waiter stands in line", || fixture.shows(&operator, "fencehold_lease_waiters", 0.0));
    fixture.post(&holder, "/v1/leases/release-batch", json!({ "holds": [held("k", 1, fence)] }));
    let view = fixture.ask(&holder, "GET", "/v1/leases/get?key=k", None);
    assert!(view.json["holder"].is_null(), "it was granted to one who was sent away: {view:?}");
}

#[test]
fn without_a_token_nothing_is_said_but_that_one_is_needed() {
    let fixture = SecurityFixture::new();
    for spec in ALL {
        let (method, body) = match spec.method {
            Method::Get => ("GET", None),
            Method::Post => ("POST", Some(sample(spec.name))),
        };
        for headers in [
            "",
            "authorization: Bearer \r\n",
            "authorization: Basic eDp5\r\n",
            "authorization: Bearer fencehold_000000000000_00\r\n",
        ] {
            let said = fixture.ask_with(headers, method, &path(spec.path), body.as_ref());
            assert_eq!((said.status, said.kind()), (401, "unauthorized"), "{}: {said:?}", spec.name);
            assert!(said.head.contains("www-authenticate: bearer"), "{said:?}");
        }
    }
    for path in ["/metrics", "/v1/events/stream", "/v1/holds/stream"] {
        assert_eq!(fixture.ask_with("", "GET", path, None).status, 401, "{path}");
    }
    for path in ["/livez", "/readyz", "/v1/openapi.json"] {
        assert_eq!(fixture.ask_with("", "GET", path, None).status, 200, "{path}");
    }
}

#[test]
fn a_scope_opens_what_it_is_for_and_nothing_else() {
    let fixture = SecurityFixture::new();
    for scope in Scope::ALL {
        let token = fixture.token(Some("team"), &[scope]);
        for spec in ALL {
            let said = match spec.method {
                Method::Get => fixture.ask(&token, "GET", &path(spec.path), None),
                Method::Post => fixture.post(&token, spec.path, sample(spec.name)),
            };
            // The store as a whole is not one namespace's, whatever its token may do there; and a schedule enqueues, which
            // takes another scope beside its own.
            let expected = allowed(spec.name, scope)
                && !EVERYWHERE.contains(&spec.name)
                && (spec.name != "set_schedule" || scope == Scope::Admin);
            assert_eq!(said.status != 403, expected, "{} with {scope}: {said:?}", spec.name);
            assert!(said.status < 500, "{} with {scope}: {said:?}", spec.name);
            if said.status == 403 {
                assert_eq!(said.kind(), "forbidden");
            }
        }
        let metrics = fixture.ask(&token, "GET", "/metrics", None);
        assert_eq!(metrics.status, 403, "queues of all namespaces stand there");
    }
}

#[test]
fn what_concerns_the_whole_store_needs_admin_for_all_namespaces() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let everywhere = fixture.token(None, &[Scope::LeaseWrite, Scope::LeaseRead]);
    let said = fixture.post(&everywhere, "/v1/store/advance", sample("advance_store"));
    assert_eq!(said.status, 403, "{said:?}");
    fixture.acquire(&everywhere, "k", 9, 30_000);
    let held = |token| fixture.ask(token, "GET", "/v1/store/status", None).json["held_count"].as_u64();
    // How much others do is the operator's business.
    assert_eq!((held(&operator), held(&everywhere)), (Some(1), Some(0)));
    assert_eq!(fixture.post(&operator, "/v1/store/advance", sample("advance_store")).status, 200);
}

#[test]
fn a_token_that_is_wrong_in_its_secret_is_as_unknown_as_any() {
    let fixture = SecurityFixture::new();
    let token = fixture.admin("team");
    let right = token.bearer.reveal();
    let forged = format!("{}{}", &right[..right.len() - 1], if right.ends_with('0') { '1' } else { '0' });
    let other = right.replace(&token.bearer.id.to_string(), "ffffffffffff");
    let ask = |text: &str| {
        fixture.ask_with(&format!("authorization: Bearer {text}\r\n"), "GET", "/v1/leases", None)
    };
    let (forged, other) = (ask(&forged), ask(&other));
    assert_eq!((forged.status, other.status), (401, 401));
    assert_eq!(forged.body, other.body, "whether an id exists does not show");
    assert_eq!(ask(&right).status, 200);
}

#[test]
fn an_expired_token_is_refused_from_its_moment_on_and_told_so() {
    let fixture = SecurityFixture::new();
    let end = fixture.clock_wall_ms() + 60_000;
    let token = fixture.token_until(Some("team"), &[Scope::Admin], Some(end));
    fixture.clock.advance_ms(59_999);
    assert_eq!(fixture.ask(&token, "GET", "/v1/leases", None).status, 200);
    fixture.clock.advance_ms(1);
    let said = fixture.ask(&token, "GET", "/v1/leases", None);
    assert_eq!(said.status, 401);
    assert!(said.json["detail"].as_str().unwrap().contains("has expired"), "{said:?}");
    assert!(!said.body.contains(&token.bearer.reveal()[30..]), "a secret came back");
}

#[test]
fn a_revoked_token_is_refused_within_a_second() {
    let fixture = SecurityFixture::new();
    let token = fixture.admin("team");
    fixture.revoke(&token);
    let began = std::time::Instant::now();
    eventually("the token is refused", || fixture.ask(&token, "GET", "/v1/leases", None).status == 401);
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
    let said = fixture.ask(&token, "GET", "/v1/leases", None);
    assert!(said.json["detail"].as_str().unwrap().contains("was revoked"), "{said:?}");
}

#[test]
fn when_the_book_is_gone_nobody_is_let_in() {
    let fixture = SecurityFixture::new();
    let token = fixture.admin("team");
    let path = fixture.token_db().path().to_owned();
    std::fs::remove_file(path).unwrap();
    eventually("every caller is refused", || fixture.ask(&token, "GET", "/v1/leases", None).status == 503);
}

#[test]
fn force_is_in_the_audit_with_who_from_where_what_and_why_and_so_is_who_was_denied() {
    let fixture = SecurityFixture::new();
    let token = fixture.token(Some("team"), &[Scope::LeaseWrite, Scope::LeaseRevoke]);
    fixture.acquire(&token, "deploy", 1, 30_000);
    let revoke = json!({ "key": "deploy", "by": "alice", "reason": "wrong branch" });
    assert_eq!(fixture.post(&token, "/v1/leases/revoke", revoke.clone()).status, 200);
    assert_eq!(fixture.post(&token, "/v1/leases/revoke", revoke).status, 409, "it is not held any more");
    assert_eq!(fixture.post(&token, "/v1/queues/pause", sample("pause_queue")).status, 403);
    let of_run = json!({ "type": "task_prefix", "task_prefix": "run-42" });
    let lease = json!({ "key": "gpu/0", "hold_id": "0".repeat(32), "owner": "ci", "task": "run-42/a", "ttl_ms": 30_000 });
    assert_eq!(fixture.post(&token, "/v1/leases/acquire", lease).status, 200);
    let revoke = json!({ "selector": of_run, "by": "alice", "reason": "run was cancelled" });
    assert_eq!(fixture.post(&token, "/v1/leases/revoke-batch", revoke).status, 200);
    let rows = || fixture.token_db().audit(&AuditFilter::default()).unwrap().entries;
    eventually("all stands in the audit", || {
        rows().len() >= 5 && rows().iter().all(|row| row.outcome != "pending")
    });
    let told: Vec<String> = rows()
        .iter()
        .map(|row| format!("{} {} {} {:?} {}", row.action, row.target, row.address, row.reason, row.outcome))
        .collect();
    assert_eq!(told[1], "revoke_lease key deploy 127.0.0.1 Some(\"wrong branch (by alice)\") done");
    assert_eq!(told[2], "revoke_lease key deploy 127.0.0.1 Some(\"wrong branch (by alice)\") failed");
    assert!(told[3].starts_with("pause_queue ") && told[3].ends_with(" denied"), "{told:?}");
    let of_many = "revoke_lease_batch task run-42 and those below it 127.0.0.1";
    assert_eq!(told[4], format!("{of_many} Some(\"run was cancelled (by alice)\") done"));
    assert!(rows()[1].actor.contains(&token.bearer.id.to_string()) && rows()[1].namespace == "team");
}

/// Acts of force, each done by a caller that may; and the same by one that may not. The audit has each under the name of
/// the operation that was asked for.
#[test]
fn every_act_of_force_is_in_the_audit_whether_it_was_done_or_denied() {
    let acts: Vec<&str> =
        "revoke_lease revoke_lease_batch cancel_job cancel_job_batch retry_job retry_job_batch \
        delete_job delete_job_batch complete_job complete_job_batch fail_job fail_job_batch pause_queue resume_queue drain_queue delete_queue set_schedule \
        delete_schedule resolve_effect advance_store reopen_store set_quota create_access_token \
        revoke_access_token"
            .split_whitespace()
            .collect();
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    let reader = fixture.token(Some("team"), &[Scope::LeaseRead]);
    let seen = |token: &str, act: &str| {
        let rows = fixture.token_db().audit(&AuditFilter::default()).unwrap().entries;
        let row = rows.into_iter().find(|row| row.actor.contains(token) && row.action == act);
        row.map(|row| row.outcome)
    };
    for &act in &acts {
        let path = ALL.iter().find(|spec| spec.name == act).unwrap().path;
        fixture.post(&operator, path, sample(act));
        assert_eq!(fixture.post(&reader, path, sample(act)).status, 403, "{act}");
        let (did, tried) = (operator.bearer.id.to_string(), reader.bearer.id.to_string());
        eventually(&format!("{act} in the audit"), || {
            seen(&did, act).is_some_and(|outcome| outcome == "done" || outcome == "failed")
                && seen(&tried, act).is_some_and(|outcome| outcome == "denied")
        });
    }
    // What else changes something is a holder's or an owner's own business: nothing is forced on anybody.
    let own: Vec<&str> =
        "acquire_lease renew_lease renew_lease_batch release_lease release_lease_batch report_blocked_write \
        enqueue_job enqueue_job_batch claim_jobs renew_attempt renew_attempt_batch report_attempt \
        report_attempt_batch write_effect write_effect_batch begin_operation perform_batch"
            .split_whitespace()
            .collect();
    for spec in ALL.iter().filter(|spec| spec.method == Method::Post) {
        let forced = acts.contains(&spec.name);
        assert!(forced != own.contains(&spec.name), "{} is neither, or both", spec.name);
    }
}

/// A job in the queue `q`, claimed by this token.
fn claimed(fixture: &SecurityFixture, worker: &TestToken, producer: &TestToken) -> Value {
    let job = json!({ "jobs": [{ "queue": "q", "kind": "k" }] });
    assert_eq!(fixture.post(producer, "/v1/jobs/enqueue-batch", job).status, 200);
    let claimed = fixture.post(worker, "/v1/jobs/claim", sample("claim_jobs"));
    json!({ "job_id": claimed.json["jobs"][0]["id"], "hold_id": hold(2), "token": claimed.json["jobs"][0]["token"] })
}

/// What a job or a person has the store enqueue later is enqueued by them.
#[test]
fn whatever_makes_a_job_needs_the_right_to_enqueue() {
    let fixture = SecurityFixture::new();
    let team = |scopes: &[Scope]| fixture.token(Some("team"), scopes);
    let (worker, producer) = (team(&[Scope::JobWork]), team(&[Scope::JobEnqueue]));
    let attempt = claimed(&fixture, &worker, &producer);
    let record = |compensation: Option<&Value>| {
        let mut entry = json!({ "type": "record", "effect": "e", "value": 1 });
        if let Some(compensation) = compensation {
            entry["compensation"] = compensation.clone();
        }
        let mut record = attempt.clone();
        record["entry"] = entry;
        record
    };
    let compensation = json!({ "kind": "rm", "queue": "payroll" });
    let both = team(&[Scope::JobWork, Scope::JobEnqueue]);
    for many in [false, true] {
        let path = if many { "/v1/effects/write-batch" } else { "/v1/effects/write" };
        let write = |worker: &TestToken, compensation: Option<&Value>| {
            let entry = record(compensation);
            fixture.post(worker, path, if many { json!({ "entries": [entry] }) } else { entry })
        };
        let said = write(&worker, Some(&compensation));
        assert_eq!((said.status, said.kind()), (403, "forbidden"), "a compensation was let in: {said:?}");
        assert!(said.body.contains("job:enqueue"), "{said:?}");
        assert_eq!(write(&worker, None).status, 200);
        assert_eq!(write(&both, Some(&compensation)).status, 200);
    }

    let schedule = sample("set_schedule");
    let said = fixture.post(&team(&[Scope::JobAdmin]), "/v1/schedules/set", schedule.clone());
    assert_eq!(said.status, 403, "a schedule was let in: {said:?}");
    assert!(said.body.contains("job:enqueue"), "{said:?}");
    let both = team(&[Scope::JobAdmin, Scope::JobEnqueue]);
    assert_eq!(fixture.post(&both, "/v1/schedules/set", schedule).status, 200);
}

#[test]
fn metrics_and_payloads_have_scopes_of_their_own() {
    let fixture = SecurityFixture::new();
    let metrics = fixture.token(None, &[Scope::MetricsRead]);
    assert_eq!(fixture.ask(&metrics, "GET", "/metrics", None).status, 200);
    assert_eq!(fixture.ask(&metrics, "GET", "/v1/leases", None).status, 403);
    let producer = fixture.token(Some("team"), &[Scope::JobEnqueue, Scope::JobAdmin]);
    let job = json!({ "jobs": [{ "queue": "q", "kind": "k", "payload": { "iban": "DE89" } }] });
    let enqueued = fixture.post(&producer, "/v1/jobs/enqueue-batch", job);
    let path = format!("/v1/jobs/{}", enqueued.json["results"][0]["ok"]["job_id"].as_str().unwrap());
    let schedule = json!({ "name": "s", "cron": "0 0 * * *", "kind": "k", "by": "tester", "payload": { "iban": "DE89" } });
    assert_eq!(fixture.post(&producer, "/v1/schedules/set", schedule).status, 200);
    let viewer = fixture.token(Some("team"), &[Scope::JobRead]);
    let trusted = fixture.token(Some("team"), &[Scope::JobRead, Scope::JobPayload]);
    for path in [path.as_str(), "/v1/schedules"] {
        let (seen, whole) =
            (fixture.ask(&viewer, "GET", path, None), fixture.ask(&trusted, "GET", path, None));
        assert_eq!((seen.status, whole.status), (200, 200), "{path}");
        assert!(!seen.body.contains("DE89"), "a payload was shown: {seen:?}");
        assert!(seen.body.contains("job:payload") && whole.body.contains("DE89"), "{seen:?} {whole:?}");
    }
    let search = fixture.ask(&viewer, "GET", "/v1/jobs?payload_contains=DE89", None);
    assert_eq!(search.status, 403, "a search tells what payloads hold: {search:?}");
    assert_eq!(fixture.ask(&viewer, "GET", "/v1/jobs", None).status, 200);
}

#[test]
fn what_the_rules_refuse_stands_in_the_audit_as_failed() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    for (act, status) in [
        ("revoke_lease", 409),
        ("revoke_lease_batch", 200),
        ("cancel_job", 404),
        ("cancel_job_batch", 200),
        ("retry_job", 404),
        ("retry_job_batch", 200),
        ("delete_job", 404),
        ("delete_job_batch", 200),
        ("complete_job", 404),
        ("complete_job_batch", 200),
        ("fail_job", 404),
        ("fail_job_batch", 200),
        ("delete_queue", 404),
        ("delete_schedule", 404),
        ("resolve_effect", 404),
    ] {
        let path = ALL.iter().find(|spec| spec.name == act).unwrap().path;
        assert_eq!(fixture.post(&operator, path, sample(act)).status, status, "{act}");
        let row = || {
            let rows = fixture.token_db().audit(&AuditFilter::default()).unwrap().entries;
            rows.into_iter().find(|row| row.action == act && row.outcome != "pending")
        };
        eventually(act, || row().is_some());
        assert_eq!(row().unwrap().outcome, "failed", "there was nothing to do it to: {act}");
    }
}

#[test]
fn tokens_are_made_listed_and_revoked_through_the_server() {
    let fixture = SecurityFixture::new();
    let (operator, team, other) = (fixture.operator(), fixture.admin("team"), fixture.admin("other"));
    let secret = Bearer::from_random([77; 38]);
    let mut request = sample("create_access_token");
    (request["id"], request["secret_sha256"]) = (secret.id.to_string().into(), secret.hash().to_hex().into());
    let refused = fixture.post(&other, "/v1/access-tokens/create", request.clone());
    assert_eq!(refused.status, 403, "for another namespace");
    let mut everywhere = request.clone();
    everywhere["namespace"] = Value::Null;
    assert_eq!(fixture.post(&team, "/v1/access-tokens/create", everywhere).status, 403, "for all namespaces");
    for sending in 0..2 {
        let made = fixture.post(&team, "/v1/access-tokens/create", request.clone());
        assert_eq!(made.status, 200, "sending {sending}: {made:?}");
    }
    // In force with the answer, not some time later.
    let headers = format!("authorization: Bearer {}\r\n", secret.reveal());
    assert_eq!(fixture.ask_with(&headers, "GET", "/v1/leases", None).status, 200);
    let mut taken = request.clone();
    taken["secret_sha256"] = "cd".repeat(32).into();
    assert_eq!(fixture.post(&team, "/v1/access-tokens/create", taken).status, 400, "an id is one token's");
    let count = |token| {
        let listed = fixture.ask(token, "GET", "/v1/access-tokens", None);
        listed.json["access_tokens"].as_array().unwrap().len()
    };
    assert_eq!((count(&operator), count(&team), count(&other)), (4, 2, 1));
    let audit = fixture.ask(&other, "GET", "/v1/audit", None);
    assert!(audit.status == 200 && !audit.body.contains(&secret.id.to_string()), "{audit:?}");
    let revoke = json!({ "access_token_id": secret.id.to_string(), "reason": "a test" });
    let unknown = fixture.post(&other, "/v1/access-tokens/revoke", revoke.clone());
    assert_eq!(unknown.kind(), "access-token-not-found");
    assert_eq!(fixture.post(&team, "/v1/access-tokens/revoke", revoke).json["revoked"], true);
    assert_eq!(fixture.ask_with(&headers, "GET", "/v1/leases", None).status, 401);
}
