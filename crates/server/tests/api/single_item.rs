//! Operations about one thing: a success is 200, and a refusal is an answer of its own, with its status, its kind and the name
//! of what it is about, so that `curl -f` sees it.

use serde_json::{Value, json};

use super::local_server::{HOLD, LocalServer, OTHER, assert_has};

const NOBODYS: &str = "00000000-0000-7000-8000-000000000000";

impl LocalServer {
    /// What succeeds.
    async fn done(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(&format!("/v1/{path}"), body).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// What is refused, with this status and kind as in `409 lost`, and names what it is about.
    async fn refused(&self, path: &str, body: &Value, expected: &str, about: (&str, &str)) -> Value {
        let (got, problem) = self.post(&format!("/v1/{path}"), body).await;
        let kind = problem["type"]
            .as_str()
            .unwrap_or_default()
            .trim_start_matches("urn:fencehold:");
        assert_eq!(format!("{got} {kind}"), expected, "{path}: {problem}");
        assert_eq!(problem["status"], got, "{problem}");
        assert_eq!(problem[about.0], about.1, "{path}: {problem}");
        assert!(!problem.to_string().contains(HOLD), "{problem}");
        problem
    }

    /// A job in the queue `q`, and its id.
    async fn enqueued(&self) -> String {
        let enqueued = self.done("jobs/enqueue", &json!({ "queue": "q", "kind": "k" })).await;
        enqueued["job_id"].as_str().unwrap().to_owned()
    }

    /// An attempt of a job in the queue `q`.
    async fn attempt(&self, hold: &str) -> Value {
        let id = self.enqueued().await;
        let claim =
            json!({ "queues": [{ "queue": "q" }], "hold_id": hold, "owner": "ada", "ttl_ms": 30_000 });
        let claimed = self.done("jobs/claim", &claim).await;
        assert_eq!(claimed["jobs"][0]["id"], id.as_str(), "{claimed}");
        json!({ "job_id": id, "hold_id": hold, "token": claimed["jobs"][0]["token"] })
    }
}

/// The same with other members.
fn with(value: &Value, members: &[(&str, Value)]) -> Value {
    let mut value = value.clone();
    for (name, member) in members {
        value[*name] = member.clone();
    }
    value
}

#[tokio::test]
async fn one_lease_is_renewed_released_and_revoked() {
    let server = LocalServer::open().await;
    let token = server.take("k").await.token.get();
    let hold = json!({ "key": "k", "hold_id": HOLD, "token": token });
    let about = ("key", "k");

    let renewed = server.done("leases/renew", &hold).await;
    assert_eq!(renewed, json!({ "token": token, "remaining_ms": 30_000, "waited_ms": 0 }));
    for path in ["leases/renew", "leases/release"] {
        let forged = with(&hold, &[("hold_id", json!(OTHER))]);
        server.refused(path, &forged, "409 wrong-hold-id", about).await;
        let ahead = with(&hold, &[("token", json!(token + 5))]);
        let problem = server.refused(path, &ahead, "409 store-rewound", about).await;
        assert_eq!(problem["current_token"], token, "{problem}");
        // A batch is no single one.
        let batch = json!({ "holds": [hold] });
        server.refused(path, &batch, "400 bad-input", ("field", "body")).await;
    }
    let released = server.done("leases/release", &hold).await;
    assert_eq!(released, json!({ "key": "k", "token": token }));
    let problem = server.refused("leases/renew", &hold, "409 lost", about).await;
    assert_has(&problem, &json!({ "outcome": "released", "token": token, "current_token": token }));

    let revoke = json!({ "key": "k", "by": "alice", "reason": "wrong branch" });
    server.refused("leases/revoke", &revoke, "409 not-held", about).await;
    let acquire = json!({ "key": "k", "hold_id": OTHER, "owner": "bob", "task": "run-42", "ttl_ms": 30_000 });
    let token = server.done("leases/acquire", &acquire).await["token"].as_u64().unwrap();
    let of_another = with(&revoke, &[("only_token", json!(token - 1))]);
    server.refused("leases/revoke", &of_another, "409 lost", about).await;
    let of_this = with(&revoke, &[("only_token", json!(token))]);
    let revoked = server.done("leases/revoke", &of_this).await;
    assert_eq!(revoked["consumed_token"].as_u64().unwrap(), token + 1, "{revoked}");
    assert_has(&revoked, &json!({ "key": "k", "owner": "bob", "task": "run-42" }));
    let hold = json!({ "key": "k", "hold_id": OTHER, "token": token });
    for path in ["leases/renew", "leases/release"] {
        let problem = server.refused(path, &hold, "409 lost", about).await;
        assert_has(&problem, &json!({ "outcome": "revoked", "by": "alice", "reason": "wrong branch" }));
        assert_eq!(problem["current_token"], token + 1, "{problem}");
    }
}

#[tokio::test]
async fn one_job_is_enqueued_and_a_conflict_is_a_refusal() {
    let server = LocalServer::open().await;
    let job =
        json!({ "queue": "q", "kind": "k", "payload": 1, "unique_key": "u", "unique_window_ms": 60_000 });
    let first = server.done("jobs/enqueue", &job).await;
    assert_eq!(first["existed"], false, "{first}");
    let again = server.done("jobs/enqueue", &job).await;
    assert_eq!((&again["existed"], &again["job_id"]), (&json!(true), &first["job_id"]), "{again}");
    let first = first["job_id"].as_str().unwrap();
    let other = with(&job, &[("payload", json!(2))]);
    let problem = server.refused("jobs/enqueue", &other, "409 conflict", ("job_id", first)).await;
    assert_has(&problem, &json!({ "field": "unique_key", "differs": "payload", "queue": "q" }));
    let same = json!({ "id": first, "queue": "q", "kind": "other" });
    let problem = server.refused("jobs/enqueue", &same, "409 conflict", ("job_id", first)).await;
    assert_eq!((&problem["field"], &problem["differs"]), (&json!("id"), &json!("kind")), "{problem}");

    let bad = with(&job, &[("payload", json!("x".repeat(2_000_000)))]);
    server.refused("jobs/enqueue", &bad, "400 bad-input", ("queue", "q")).await;
    server.done("queues/drain", &json!({ "queue": "q", "by": "ada" })).await;
    let job = json!({ "queue": "q", "kind": "k" });
    server.refused("jobs/enqueue", &job, "409 queue-draining", ("queue", "q")).await;
    let quota = json!({ "quota": { "max_jobs": 1 }, "by": "ada" });
    server.done("quota/set", &quota).await;
    let job = json!({ "queue": "other", "kind": "k" });
    let problem = server
        .refused("jobs/enqueue", &job, "429 limit-reached", ("queue", "other"))
        .await;
    assert_eq!((&problem["quota"], &problem["limit"]), (&json!("max_jobs"), &json!(1)), "{problem}");
}

#[tokio::test]
async fn the_same_idempotency_key_makes_the_same_job() {
    let server = LocalServer::open().await;
    let enqueue = async |payload: u64| {
        let headers = "content-type: application/json\r\nidempotency-key: order-7\r\n";
        let body = json!({ "kind": "a", "payload": payload }).to_string();
        server.ask("POST", "/v1/jobs/enqueue", headers, &body).await
    };
    let (first, again, other) = (enqueue(1).await, enqueue(1).await, enqueue(2).await);
    assert_eq!((first.0, &first.1["existed"]), (200, &json!(false)), "{first:?}");
    assert_eq!((again.0, &again.1["existed"]), (200, &json!(true)), "{again:?}");
    assert_eq!((other.0, &other.1["type"]), (409, &json!("urn:fencehold:conflict")), "{other:?}");
    assert_eq!((&again.1["job_id"], &other.1["job_id"]), (&first.1["job_id"], &first.1["job_id"]));
}

/// What every operation of an attempt refuses.
async fn refuses_strangers(server: &LocalServer, path: &str, request: &Value) {
    let id = request["job_id"].as_str().unwrap();
    let token = request["token"].as_u64().unwrap();
    let forged = with(request, &[("hold_id", json!(OTHER))]);
    server.refused(path, &forged, "409 wrong-hold-id", ("job_id", id)).await;
    let ahead = with(request, &[("token", json!(token + 100))]);
    server.refused(path, &ahead, "409 store-rewound", ("job_id", id)).await;
    let nobodys = with(request, &[("job_id", json!(NOBODYS))]);
    server.refused(path, &nobodys, "404 job-not-found", ("job_id", NOBODYS)).await;
    let more = with(request, &[("force", json!(true))]);
    server.refused(path, &more, "400 bad-input", ("field", "body")).await;
}

/// What every operation of an attempt says once the job has finished.
async fn says_that_it_has_finished(server: &LocalServer, path: &str, request: &Value) {
    let id = request["job_id"].as_str().unwrap();
    let problem = server.refused(path, request, "409 lost", ("job_id", id)).await;
    assert!(problem["state"] == "completed" || problem["outcome"] == "completed", "{problem}");
}

#[tokio::test]
async fn one_attempt_is_renewed_and_reported() {
    let server = LocalServer::open().await;
    let attempt = server.attempt(HOLD).await;
    let token = &attempt["token"];
    let renewed = server.done("jobs/renew", &attempt).await;
    let expected =
        json!({ "token": token, "remaining_ms": 30_000, "cancel_requested": false, "waited_ms": 0 });
    assert_eq!(renewed, expected);
    refuses_strangers(&server, "jobs/renew", &attempt).await;

    let report = |report: Value| with(&attempt, &[("report", report)]);
    let progress = report(json!({ "type": "progress", "progress": { "percent": 50 } }));
    refuses_strangers(&server, "jobs/report", &progress).await;
    let reported = server.done("jobs/report", &progress).await;
    assert_eq!(reported, json!({ "state": "running", "late": false }));
    let complete = report(json!({ "type": "complete", "result": 7 }));
    for _ in 0..2 {
        let reported = server.done("jobs/report", &complete).await;
        assert_eq!(reported["state"], "completed", "the same report again is no other: {reported}");
    }
    let id = attempt["job_id"].as_str().unwrap();
    let other = report(json!({ "type": "complete", "result": 8 }));
    let problem = server.refused("jobs/report", &other, "409 conflict", ("job_id", id)).await;
    assert_eq!((&problem["field"], &problem["differs"]), (&json!("result"), &json!("result")), "{problem}");
    says_that_it_has_finished(&server, "jobs/renew", &attempt).await;
    says_that_it_has_finished(&server, "jobs/report", &report(json!({ "type": "release" }))).await;
}

#[tokio::test]
async fn one_effect_is_written() {
    let server = LocalServer::open().await;
    let attempt = server.attempt(HOLD).await;
    let entry = |entry: Value| with(&attempt, &[("entry", entry)]);
    let begin = entry(json!({ "type": "begin", "effect": "mail" }));
    assert_eq!(server.done("effects/write", &begin).await, json!({ "type": "proceed" }));
    refuses_strangers(&server, "effects/write", &begin).await;
    let withdraw = entry(json!({ "type": "withdraw", "effect": "mail" }));
    assert_eq!(server.done("effects/write", &withdraw).await, json!({ "type": "withdrawn" }));
    let record = entry(json!({ "type": "record", "effect": "mail", "value": { "id": 7 } }));
    let written = server.done("effects/write", &record).await;
    assert_eq!(written["type"], "recorded", "{written}");
    let effect = json!({ "name": "mail", "state": "done", "value": { "id": 7 } });
    assert_has(&written["recorded_effect"], &effect);
    let complete = with(&attempt, &[("report", json!({ "type": "complete" }))]);
    server.done("jobs/report", &complete).await;
    let later = entry(json!({ "type": "begin", "effect": "another" }));
    says_that_it_has_finished(&server, "effects/write", &later).await;
}

#[tokio::test]
async fn one_job_is_cancelled_retried_and_deleted() {
    let server = LocalServer::open().await;
    let queued = server.enqueued().await;
    let about = ("job_id", queued.as_str());
    let job = json!({ "job_id": queued, "by": "ada" });
    for path in ["jobs/cancel", "jobs/retry", "jobs/delete"] {
        let nobodys = with(&job, &[("job_id", json!(NOBODYS))]);
        server.refused(path, &nobodys, "404 job-not-found", ("job_id", NOBODYS)).await;
    }
    for _ in 0..2 {
        let cancel = with(&job, &[("reason", json!("not needed"))]);
        let cancelled = server.done("jobs/cancel", &cancel).await;
        assert_eq!(cancelled, json!({ "job_id": queued, "state": "cancelled" }));
    }
    let retried = server.done("jobs/retry", &job).await;
    assert_eq!(retried, json!({ "job_id": queued, "state": "queued" }));
    let deleted = server.done("jobs/delete", &job).await;
    assert_eq!(deleted["job_id"], queued, "{deleted}");
    server.refused("jobs/delete", &job, "404 job-not-found", about).await;

    let attempt = server.attempt(HOLD).await;
    let running = attempt["job_id"].as_str().unwrap();
    let about = ("job_id", running);
    let job = json!({ "job_id": running, "by": "ada" });
    let problem = server.refused("jobs/delete", &job, "409 job-running", about).await;
    assert_eq!((&problem["owner"], &problem["remaining_ms"]), (&json!("ada"), &json!(30_000)), "{problem}");
    let problem = server.refused("jobs/retry", &job, "409 wrong-state", about).await;
    assert_eq!(problem["state"], "running", "{problem}");
    assert_eq!(server.done("jobs/cancel", &job).await["state"], "running", "its holder is asked to stop");
    assert_eq!(server.done("jobs/renew", &attempt).await["cancel_requested"], true);
    server.done("jobs/delete", &with(&job, &[("force", json!(true))])).await;
    server.refused("jobs/renew", &attempt, "404 job-not-found", about).await;

    let attempt = server.attempt(OTHER).await;
    let complete = with(&attempt, &[("report", json!({ "type": "complete" }))]);
    server.done("jobs/report", &complete).await;
    let completed = attempt["job_id"].as_str().unwrap();
    for path in ["jobs/cancel", "jobs/retry"] {
        let job = json!({ "job_id": completed, "by": "ada" });
        let problem = server.refused(path, &job, "409 wrong-state", ("job_id", completed)).await;
        assert_eq!(problem["state"], "completed", "{problem}");
    }
}
