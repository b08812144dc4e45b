//! A batch is no way around anything: each of its operations is answered, refused, limited, counted and audited as if it had come
//! alone. And what is said of batches themselves.

use std::time::Duration;

use fencehold_contract::clock::ManualClock;
use fencehold_contract::http::{ALL, OperationSpec};
use fencehold_server::ServerOptions;
use fencehold_server::access::Scope;
use fencehold_server::audit::AuditFilter;
use serde_json::{Value, json};

use super::fixture::{SecurityFixture, TestToken, acquire, eventually, hear, held, send, waits};
use super::gated_store::{GatedStore, HeldCall};
use super::rights::sample;

const PATH: &str = "/v1/batch";

fn operation(name: &str, request: Value) -> Value {
    json!({ "type": name, "request": request })
}

fn batch(operations: impl IntoIterator<Item = Value>) -> Value {
    json!({ "operations": operations.into_iter().collect::<Vec<_>>() })
}

fn batched() -> impl Iterator<Item = &'static OperationSpec> {
    ALL.iter().filter(|spec| spec.batched)
}

impl SecurityFixture {
    /// What came of each operation of a batch.
    fn batch(&self, token: &TestToken, operations: impl IntoIterator<Item = Value>) -> Vec<Value> {
        let said = self.post(token, PATH, batch(operations));
        assert_eq!(said.status, 200, "{said:?}");
        said.json["results"].as_array().unwrap().clone()
    }
}

/// The kind of the error of an operation; empty: it has none.
fn kind(result: &Value) -> &str {
    let kind = result["error"]["type"].as_str().unwrap_or_default();
    kind.trim_start_matches("urn:fencehold:")
}

fn kinds(results: &[Value]) -> Vec<&str> {
    results.iter().map(kind).collect()
}

fn enqueue(queue: &str) -> Value {
    operation("enqueue_job", json!({ "queue": queue, "kind": "k" }))
}

#[test]
fn each_operation_is_answered_on_its_own_and_in_order() {
    let fixture = SecurityFixture::new();
    let token = fixture.admin("team");
    fixture.acquire(&token, "held", 9, 30_000);
    let results = fixture.batch(
        &token,
        [
            operation("acquire_lease", acquire("a", 1, 30_000)),
            operation("acquire_lease", acquire("held", 1, 30_000)),
            operation("release_lease", json!({ "key": "a" })),
            operation("enqueue_job_batch", json!({ "jobs": [{ "kind": "k" }, { "kind": "k" }] })),
            operation("acquire_lease", waits(acquire("b", 1, 30_000))),
        ],
    );
    assert_eq!(kinds(&results), ["", "held", "bad-input", "", "bad-input"], "{results:?}");
    let names = ["acquire_lease", "acquire_lease", "release_lease", "enqueue_job_batch", "acquire_lease"];
    assert!(results.iter().zip(names).all(|(result, name)| result["type"] == name), "{results:?}");
    assert_eq!((&results[0]["ok"]["token"], &results[1]["error"]["owner"]), (&json!(1), &json!("tester")));
    assert_eq!(results[3]["ok"]["results"].as_array().unwrap().len(), 2);
    assert_eq!(results[4]["error"]["field"], "wait_ms", "it would hold up the others: {results:?}");
    let free = fixture.ask(&token, "GET", "/v1/leases/get?key=b", None);
    assert_eq!(free.json["token"], 0, "nothing was done: {free:?}");
}

#[test]
fn what_is_no_batch_is_refused_as_a_whole() {
    let fixture = SecurityFixture::new();
    let token = fixture.admin("team");
    let release = || operation("release_lease", held("k", 1, 1));
    let refused = |body: &Value, headers: &str| {
        let said = fixture.ask_with(&format!("{}{headers}", token.headers()), "POST", PATH, Some(body));
        assert_eq!((said.status, said.kind()), (400, "bad-input"), "{body}: {said:?}");
        said.json["detail"].as_str().unwrap().to_owned()
    };
    refused(&batch([]), "");
    refused(&batch((0..257).map(|_| release())), "");
    for alone in ["renew_lease", "renew_lease_batch", "list_jobs", "revoke_lease", "perform_batch", "no_such"]
    {
        let said = refused(&batch([release(), operation(alone, json!({}))]), "");
        assert!(said.contains(alone), "{said}");
    }
    let mut strange = release();
    strange["timeout_ms"] = json!(5);
    refused(&batch([strange]), "");
    let said = refused(&batch([enqueue("q")]), "idempotency-key: once\r\n");
    assert!(said.contains("Idempotency-Key"), "each of them would make the same job: {said}");
}

/// The first acquisition does not go on before it is let in. What comes later in its line must not pass it; what has another
/// key must.
#[test]
fn operations_on_the_same_key_keep_their_order() {
    let clock = ManualClock::new();
    let store = GatedStore::new(&clock, "team", HeldCall::Acquisitions);
    let mut options = ServerOptions::default();
    // However busy the machine is: none of them is slow.
    options.batch_grace = Duration::from_secs(60);
    let fixture = SecurityFixture::over(options, store.clone(), clock);
    let token = fixture.admin("team");
    store.let_in.add_permits(4);
    let mut any_of = acquire("", 5, 30_000);
    any_of.as_object_mut().unwrap().remove("key");
    any_of["any_of"] = json!(["b", "a"]);
    let results = fixture.batch(
        &token,
        [
            operation("acquire_lease", acquire("a", 1, 30_000)),
            operation("release_lease", held("a", 1, 1)),
            operation("acquire_lease", acquire("a", 2, 30_000)),
            operation("acquire_lease", acquire("b", 3, 30_000)),
            // Waits for both: neither is free.
            operation("acquire_lease", any_of),
            operation("release_lease", held("a", 2, 2)),
            operation("release_lease_batch", json!({ "holds": [held("b", 3, 1)] })),
        ],
    );
    assert_eq!(kinds(&results), ["", "", "", "", "held", "", ""], "{results:?}");
    assert_eq!(results[6]["ok"]["results"][0]["ok"]["token"], 1, "{results:?}");
}

/// One that is held up is not waited for, and goes on: asked for again, it is found. What is behind it was not begun.
#[test]
fn a_slow_operation_does_not_hold_up_the_others_of_its_batch() {
    let clock = ManualClock::new();
    let store = GatedStore::new(&clock, "team", HeldCall::Acquisitions);
    let fixture = SecurityFixture::over(ServerOptions::default(), store.clone(), clock);
    let token = fixture.admin("team");
    let results = fixture.batch(
        &token,
        [
            operation("acquire_lease", acquire("a", 1, 30_000)),
            operation("release_lease", held("a", 1, 1)),
            enqueue("q"),
        ],
    );
    assert_eq!(kinds(&results), ["outcome-unknown", "outcome-unknown", ""], "{results:?}");
    store.let_in.add_permits(2);
    let mut again = acquire("a", 1, 30_000);
    again["hold_id_age_ms"] = json!(1_000);
    let said = fixture.post(&token, "/v1/leases/acquire", again);
    assert_eq!((said.status, &said.json["token"]), (200, &json!(1)), "{said:?}");
}

#[test]
fn every_operation_needs_in_a_batch_what_it_needs_alone() {
    let fixture = SecurityFixture::new();
    let mut callers: Vec<(String, TestToken)> = Vec::new();
    for scope in Scope::ALL {
        callers.push((scope.to_string(), fixture.token(Some("team"), &[scope])));
    }
    let mut other = fixture.admin("other");
    other.in_namespace("team");
    callers.push(("admin of another namespace".to_owned(), other));
    for (who, token) in &callers {
        let results = fixture.batch(token, batched().map(|spec| operation(spec.name, sample(spec.name))));
        for (spec, result) in batched().zip(&results) {
            let alone = fixture.post(token, spec.path, sample(spec.name));
            let denied = alone.status == 403;
            assert_eq!(kind(result) == "forbidden", denied, "{} by {who}: {result} {alone:?}", spec.name);
            assert_eq!(denied, result["error"]["detail"] == alone.json["detail"] && denied, "{result}");
        }
    }
    let stranger = fixture.ask_with("", "POST", PATH, Some(&batch([enqueue("q")])));
    assert_eq!(stranger.status, 401, "{stranger:?}");
}

#[test]
fn who_was_denied_in_a_batch_is_in_the_audit_under_the_operation_itself() {
    let fixture = SecurityFixture::new();
    let reader = fixture.token(Some("team"), &[Scope::LeaseRead]);
    fixture.batch(&reader, batched().map(|spec| operation(spec.name, sample(spec.name))));
    for spec in batched() {
        eventually(&format!("{} in the audit", spec.name), || {
            let rows = fixture.token_db().audit(&AuditFilter::default()).unwrap().entries;
            rows.iter().any(|row| row.action == spec.name && row.outcome == "denied")
        });
    }
}

#[test]
fn each_operation_counts_against_the_pace_of_its_caller() {
    let fixture = SecurityFixture::limited(|limits| limits.requests_per_second = 5);
    let (loud, operator) = (fixture.admin("a"), fixture.operator());
    fixture.clock.advance_ms(10_000);
    let results = fixture.batch(&loud, (0..20).map(|_| enqueue("q")));
    let (done, over) = results.split_at(10);
    assert!(done.iter().all(|result| kind(result).is_empty()), "two seconds' worth at once: {done:?}");
    assert!(over.iter().all(|result| kind(result) == "rate-limited"), "{over:?}");
    assert_eq!(over[0]["error"]["retry_after_ms"], 200);
    let said = fixture.post(&loud, PATH, batch([enqueue("q")]));
    assert_eq!((said.status, said.kind()), (429, "rate-limited"), "nothing of it is even read: {said:?}");
    let counted = "fencehold_limit_refused_total{limit=\"requests_per_second\"}";
    assert!(fixture.shows(&operator, counted, 11.0), "{}", fixture.metric(&operator, counted));
}

#[test]
fn a_batch_is_held_to_the_quota_of_its_namespace() {
    let fixture = SecurityFixture::new();
    let (token, operator) = (fixture.admin("team"), fixture.operator());
    let quota = json!({ "quota": { "max_jobs": 2 }, "by": "tester" });
    let headers = format!("{}fencehold-namespace: team\r\n", operator.headers());
    assert_eq!(fixture.ask_with(&headers, "POST", "/v1/quota/set", Some(&quota)).status, 200);
    let results = fixture.batch(&token, (0..4).map(|_| enqueue("q")));
    let refused = results.iter().filter(|result| kind(result) == "limit-reached").count();
    assert_eq!(refused, 2, "{results:?}");
}

/// Room in the store is for operations, not for requests.
#[test]
fn each_operation_takes_room_of_its_own_on_its_way_to_the_store() {
    let clock = ManualClock::new();
    let store = GatedStore::new(&clock, "team", HeldCall::Acquisitions);
    let mut options = ServerOptions::default();
    (options.limits.fair_queue_permits, options.limits.fair_queue_waiters) = (2, 1);
    let fixture = SecurityFixture::over(options, store.clone(), clock);
    let (token, operator) = (fixture.admin("team"), fixture.operator());
    let mut under_way = fixture.connect();
    let keys = ["a", "b", "c", "d"];
    let operations = keys.map(|key| operation("acquire_lease", acquire(key, 1, 30_000)));
    send(&mut under_way, &token.headers(), "POST", PATH, Some(&batch(operations)));
    let said = hear(under_way);
    assert_eq!(said.status, 200, "{said:?}");
    let results = said.json["results"].as_array().unwrap().clone();
    // Two have the room, one waits for it, and there is no place in line for the last.
    assert_eq!(results.iter().filter(|result| kind(result) == "unavailable").count(), 1, "{results:?}");
    let shed = "fencehold_limit_refused_total{limit=\"concurrent_requests\"}";
    assert!(fixture.shows(&operator, shed, 1.0), "{}", fixture.metric(&operator, shed));
}

#[test]
fn each_operation_is_counted_by_its_kind() {
    let fixture = SecurityFixture::new();
    let (token, operator) = (fixture.admin("team"), fixture.operator());
    fixture.batch(
        &token,
        [
            operation("acquire_lease", acquire("k", 1, 30_000)),
            operation("acquire_lease", acquire("k", 2, 30_000)),
            operation("release_lease", held("k", 1, 1)),
            enqueue("q"),
            enqueue("q"),
        ],
    );
    for (what, outcome, count) in
        [("acquire", "ok", 1.0), ("acquire", "refused", 1.0), ("release", "ok", 1.0), ("enqueue", "ok", 2.0)]
    {
        let name = format!("fencehold_requests_total{{operation=\"{what}\",outcome=\"{outcome}\"}}");
        assert!(fixture.shows(&operator, &name, count), "{name}: {}", fixture.metric(&operator, &name));
    }
}
