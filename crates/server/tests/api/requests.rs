//! What is said of requests, good and bad.

use serde_json::json;

use super::local_server::{HOLD, JSON, LocalServer, OTHER, assert_has};

#[tokio::test]
async fn a_second_acquirer_is_told_who_holds_it_for_which_task_and_for_how_long() {
    let server = LocalServer::open().await;
    let request = |hold: &str, owner: &str| json!({ "key": "a/b", "hold_id": hold, "owner": owner, "task": "run-42", "ttl_ms": 30_000 });
    let (status, acquired) = server.post("/v1/leases/acquire", &request(HOLD, "ada")).await;
    assert_eq!((status, &acquired["token"], &acquired["key"]), (200, &json!(1), &json!("a/b")), "{acquired}");
    let (status, problem) = server.post("/v1/leases/acquire", &request(OTHER, "bob")).await;
    assert_eq!(status, 409);
    let held = json!({
        "type": "urn:fencehold:held", "status": 409, "key": "a/b", "owner": "ada", "task": "run-42",
        "remaining_ms": 30_000, "current_token": 1,
    });
    assert_has(&problem, &held);
}

#[tokio::test]
async fn the_same_idempotency_key_makes_the_same_jobs() {
    let server = LocalServer::open().await;
    let enqueue = async |key: &str, namespace: &str, number: u64| {
        let body = json!({ "jobs": [{ "kind": "a", "payload": number }, { "kind": "b" }] });
        let headers = format!("{JSON}idempotency-key: {key}\r\nfencehold-namespace: {namespace}\r\n");
        let body = body.to_string();
        let (status, answer) = server.ask("POST", "/v1/jobs/enqueue-batch", &headers, &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["results"].clone()
    };
    let first = enqueue("order-7", "default", 1).await;
    let again = enqueue("order-7", "default", 1).await;
    for nth in 0..2 {
        assert_eq!(first[nth]["ok"]["existed"], false, "{first}");
        assert_eq!(again[nth]["ok"]["existed"], true, "{again}");
        assert_eq!(first[nth]["ok"]["job_id"], again[nth]["ok"]["job_id"]);
    }
    assert_ne!(first[0]["ok"]["job_id"], first[1]["ok"]["job_id"], "each job its own");
    let other = enqueue("order-7", "default", 2).await;
    assert_eq!(other[0]["error"]["type"], "urn:fencehold:conflict", "{other}");
    assert_eq!(other[1]["ok"]["existed"], true, "{other}");
    let elsewhere = enqueue("order-7", "team-b", 1).await;
    assert_eq!(elsewhere[0]["ok"]["existed"], false, "another namespace is another world: {elsewhere}");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_and_no_secret_is_repeated() {
    let server = LocalServer::open().await;
    let almost = format!("{}zz", &HOLD[..30]);
    let bad_hold = json!({ "holds": [{ "key": "k", "hold_id": almost, "token": 1 }] }).to_string();
    let unknown_field = json!({ "holds": [], "force": true }).to_string();
    for (method, path, headers, body, status, kind) in [
        ("POST", "/v1/leases/renew-batch", JSON, bad_hold.as_str(), 400, "bad-input"),
        ("POST", "/v1/leases/renew-batch", JSON, unknown_field.as_str(), 400, "bad-input"),
        ("POST", "/v1/leases/renew-batch", JSON, "{", 400, "bad-input"),
        ("POST", "/v1/leases/renew-batch", "", "{}", 415, "not-json"),
        ("GET", "/v1/leases?limit=x", "", "", 400, "bad-input"),
        ("GET", "/v1/leases?no_such_field=1", "", "", 400, "bad-input"),
        ("GET", "/v1/leases", "fencehold-namespace: No!\r\n", "", 400, "bad-input"),
        ("GET", "/v1/schedules/get?schedule=nobodys", "", "", 404, "schedule-not-found"),
        ("GET", "/v1/jobs/00000000-0000-7000-8000-000000000000", "", "", 404, "job-not-found"),
        ("GET", "/v1/nowhere", "", "", 404, "path-not-found"),
        ("DELETE", "/v1/leases", "", "", 405, "method-not-allowed"),
        ("GET", "/v1/events?cursor=99", "", "", 400, "bad-input"),
        ("GET", "/v1/events/stream?cursor=x", "", "", 400, "bad-input"),
        ("GET", "/v1/events/stream?cursor=99", "", "", 400, "bad-input"),
        ("GET", "/v1/events/stream", "last-event-id: x\r\n", "", 400, "bad-input"),
    ] {
        let (got, problem) = server.ask(method, path, headers, body).await;
        let said = problem["type"].as_str().unwrap_or_default();
        let kind = format!("urn:fencehold:{kind}");
        assert_eq!((got, said), (status, kind.as_str()), "{method} {path}: {problem}");
        assert!(!problem.to_string().contains(&HOLD[..30]), "{problem}");
    }
}

/// What exists only while it is used is never missing: it is free, or empty.
#[tokio::test]
async fn a_key_or_a_queue_that_nobody_uses_is_free_or_empty() {
    let server = LocalServer::open().await;
    let (status, view) = server.ask("GET", "/v1/leases/get?key=nobody/has/it", "", "").await;
    let free = json!({ "key": "nobody/has/it", "token": 0, "waiter_count": 0, "endings": [] });
    assert_eq!((status, &view), (200, &free));
    let (status, view) = server.ask("GET", "/v1/queues/get?queue=nobodys", "", "").await;
    assert_eq!((status, &view["name"], &view["mode"]), (200, &json!("nobodys"), &json!("open")), "{view}");
    assert!(view["job_counts"].as_object().unwrap().values().all(|count| count == 0), "{view}");
}

#[tokio::test]
async fn keys_of_every_kind_come_through_a_query() {
    let server = LocalServer::open().await;
    for key in ["a//b", "..", "/", "a b+c", "%2F", "ключ/日本", "?x=1&y#z"] {
        server.take(key).await;
        let query = serde_html_form::to_string([("key", key)]).unwrap();
        let (status, view) = server.ask("GET", &format!("/v1/leases/get?{query}"), "", "").await;
        assert_eq!((status, view["key"].as_str()), (200, Some(key)), "{view}");
    }
}
