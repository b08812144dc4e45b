//! One example of the request and of the response of every operation, for the document and for tests.

use fencehold_contract::http::{HttpOperation, Method, OperationSpec, Visitor, every};
use serde_json::{Value, json};

/// An example of an operation.
pub(crate) struct Example {
    /// The body of its request; of what is asked in the query there is none.
    pub(crate) request: Option<Value>,
    /// The body of its response.
    pub(crate) response: Value,
}

const JOB: &str = "01935f6e-7b00-7000-8000-000000000007";
const UNDO: &str = "01935f6e-7b00-7000-8000-000000000008";
const HOLD: &str = "000102030405060708090a0b0c0d0e0f";
const OWNER: &str = "web-1/4711";

/// The example of the operation with this name.
#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn of(operation: &str) -> Example {
    let lease = json!({ "key": "reports/daily", "hold_id": HOLD, "token": 33 });
    let attempt = json!({ "job_id": JOB, "hold_id": HOLD, "token": 34 });
    let with = |mut value: Value, field: &str, what: Value| {
        value[field] = what;
        value
    };
    let renewed = json!({ "token": 33, "remaining_ms": 30_000 });
    let attempt_renewed = json!({ "token": 34, "remaining_ms": 30_000, "cancel_requested": false });
    let released = json!({ "key": "reports/daily", "token": 33 });
    let revoked = json!({ "key": "reports/daily", "token": 33, "consumed_token": 34, "owner": OWNER });
    let results = |ok: &Value| json!({ "results": [{ "ok": ok }] });
    let completed = json!({ "type": "complete", "result": { "sent": true } });
    let reported = json!({ "state": "completed", "late": false });
    let recorded = json!({ "type": "record", "effect": "charge", "value": { "charge": "ch_7" } });
    let effect = json!({
        "name": "charge", "position": 0, "token": 34, "written_at": "2026-11-15T09:20:00.125Z", "state": "done",
        "value": { "charge": "ch_7" },
    });
    let by = json!({ "by": "alice" });
    let job_by = json!({ "job_id": JOB, "by": "alice" });
    let failed = json!({ "selector": { "type": "filter", "states": ["failed"] }, "by": "alice" });
    let changed = |state: &str| json!({ "job_id": JOB, "state": state });
    let new_job = json!({ "queue": "emails", "kind": "send", "payload": { "to": "a@example.org" } });
    let enqueued = json!({ "job_id": JOB, "existed": false });
    let options = json!({
        "priority": 0, "max_failures": 20, "max_crashes": 3,
        "retry": { "backoff": "exponential", "base_delay_ms": 1_000, "max_delay_ms": 3_600_000, "jitter_percent": 20 },
    });
    let claimed = json!({
        "id": JOB, "queue": "emails", "kind": "send", "payload": { "to": "a@example.org" }, "token": 34, "attempt": 1,
        "remaining_ms": 30_000, "failure_count": 0, "crash_count": 0,
    });
    let job = json!({
        "id": JOB, "queue": "emails", "kind": "send", "state": "completed", "token": 34, "options": options,
        "attempt_count": 1, "failure_count": 0, "crash_count": 0, "enqueued_at": "2026-11-15T09:19:00.000Z",
        "state_changed_at": "2026-11-15T09:20:00.000Z", "compensation_state": "none",
    });
    let counts = json!({
        "queued": 2, "scheduled": 0, "running": 1, "completed": 7, "failed": 0, "cancelled": 0, "quarantined": 0,
        "in_doubt": 0,
    });
    let queue = |mode: &str| json!({ "name": "emails", "mode": mode, "job_counts": counts, "waiting_claim_count": 1 });
    let queue_by = json!({ "queue": "emails", "by": "alice" });
    let spec = json!({ "name": "nightly", "cron": "0 3 * * *", "kind": "report", "by": "alice" });
    let schedule = json!({
        "name": "nightly", "cron": "0 3 * * *", "time_zone": "UTC", "queue": "default", "kind": "report",
        "payload": null, "options": options, "by": "alice", "next_run_at": "2026-11-16T03:00:00.000Z",
    });
    let lease_view = json!({
        "key": "reports/daily", "token": 33, "waiter_count": 0, "endings": [],
        "holder": {
            "owner": OWNER, "ttl_ms": 30_000, "priority": 0, "age_ms": 4_000,
            "acquired_at": "2026-11-15T09:20:00.000Z", "remaining_ms": 26_000,
        },
    });
    let quota = json!({
        "quota": {
            "max_queues": 10_000, "max_keys": 1_000_000, "max_jobs": 1_000_000, "max_bytes": 1_000_000_000,
            "max_schedules": 10_000, "max_ttl_ms": 86_400_000,
        },
        "usage": { "queue_count": 1, "key_count": 3, "job_count": 3, "payload_bytes": 90, "schedule_count": 1 },
    });
    let access_token = json!({
        "id": "aabbccddeeff", "name": "worker-7", "namespace": "default", "scopes": ["job:work"],
        "created_at": "2026-11-15T09:20:00.000Z", "created_by": "alice",
    });
    let get = |response: Value| Example { request: None, response };
    let post = |request: Value, response: Value| Example { request: Some(request), response };
    match operation {
        "perform_batch" => post(
            json!({ "operations": [
                { "type": "release_lease", "request": lease }, { "type": "enqueue_job", "request": new_job },
            ] }),
            json!({ "results": [
                { "type": "release_lease", "ok": released }, { "type": "enqueue_job", "ok": enqueued },
            ] }),
        ),
        "acquire_lease" => post(
            json!({ "key": "reports/daily", "hold_id": HOLD, "owner": OWNER, "ttl_ms": 30_000, "wait_ms": 5_000 }),
            json!({ "key": "reports/daily", "token": 33, "remaining_ms": 30_000, "resumed": false, "waited_ms": 0 }),
        ),
        "renew_lease" => post(lease, with(renewed, "waited_ms", 0.into())),
        "renew_lease_batch" => {
            post(json!({ "holds": [lease] }), with(results(&renewed), "waited_ms", 0.into()))
        }
        "release_lease" => post(lease, released),
        "release_lease_batch" => post(json!({ "holds": [lease] }), results(&released)),
        "revoke_lease" => {
            post(json!({ "key": "reports/daily", "by": "alice", "reason": "its host hangs" }), revoked)
        }
        "revoke_lease_batch" => post(
            json!({ "selector": { "type": "owner", "owner": OWNER }, "by": "alice", "reason": "its host hangs" }),
            results(&revoked),
        ),
        "get_lease" => get(lease_view),
        "list_leases" => get(json!({ "leases": [lease_view], "next_cursor": "7" })),
        "report_blocked_write" => post(
            json!({ "key": "reports/daily", "token": 33, "action": "write" }),
            json!({ "recorded": true }),
        ),
        "get_lease_stats" => get(json!({
            "begins_at": "2026-11-15T08:20:00.000Z", "complete": true, "released_count": 118, "expired_count": 2,
            "revoked_count": 1, "aged_out_count": 0, "yielded_count": 3, "abandoned_count": 0, "advanced_count": 0,
        })),
        "list_contention" => get(json!({
            "keys": [{
                "key": "reports/daily", "begins_at": "2026-11-15T08:20:00.000Z", "refused_count": 12,
                "last_refused": { "owner": OWNER, "refused_at": "2026-11-15T09:20:00.000Z" }, "max_waiter_count": 3,
            }],
        })),
        "list_events" => get(json!({
            "events": [{
                "seq": 7, "at": "2026-11-15T09:20:00.000Z", "key": "reports/daily", "type": "lease_acquired",
                "token": 33, "owner": OWNER, "ttl_ms": 30_000,
            }],
            "next_cursor": "7",
        })),
        "get_store_capabilities" => get(json!({
            "store": "file:", "supports_fair_waiting": true, "supports_waiting": true, "supports_preemption": true,
            "supports_jobs": true, "durable": true, "min_ttl_ms": 100,
        })),
        "get_store_status" => get(json!({
            "store": "file:", "owner_pid": 4711, "epoch": 3, "key_count": 3, "held_count": 1, "waiter_count": 0,
            "job_count": 3, "newest_event_seq": 7, "unreadable_row_count": 0,
        })),
        "advance_store" => post(by, json!({ "key_count": 3, "ended_count": 1, "closed_for_ms": 86_400_000 })),
        "reopen_store" => post(by, json!({})),
        "get_quota" => get(quota),
        "set_quota" => post(json!({ "quota": { "max_jobs": 1_000_000 }, "by": "alice" }), quota),
        "enqueue_job" => post(new_job, enqueued),
        "enqueue_job_batch" => post(json!({ "jobs": [new_job] }), results(&enqueued)),
        "claim_jobs" => post(
            json!({ "queues": [{ "queue": "emails", "weight": 1 }], "hold_id": HOLD, "owner": OWNER, "ttl_ms": 30_000 }),
            json!({ "jobs": [claimed], "waited_ms": 0, "resumed": false }),
        ),
        "renew_attempt" => post(attempt, with(attempt_renewed, "waited_ms", 0.into())),
        "renew_attempt_batch" => {
            post(json!({ "attempts": [attempt] }), with(results(&attempt_renewed), "waited_ms", 0.into()))
        }
        "report_attempt" => post(with(attempt, "report", completed), reported),
        "report_attempt_batch" => {
            post(json!({ "reports": [with(attempt, "report", completed)] }), results(&reported))
        }
        "cancel_job" => post(job_by, changed("cancelled")),
        "cancel_job_batch" => post(failed, results(&changed("cancelled"))),
        "retry_job" => post(job_by, changed("queued")),
        "retry_job_batch" => post(failed, results(&changed("queued"))),
        "delete_job" => post(job_by, changed("completed")),
        "delete_job_batch" => post(failed, results(&changed("failed"))),
        "complete_job" => {
            let result =
                with(with(job_by, "reason", json!("seen in the outbox")), "result", json!({ "sent": true }));
            post(result, changed("completed"))
        }
        "complete_job_batch" => {
            post(with(failed, "reason", json!("seen in the outbox")), results(&changed("completed")))
        }
        "fail_job" => post(with(job_by, "reason", json!("the customer has left")), changed("failed")),
        "fail_job_batch" => {
            post(with(failed, "reason", json!("the customer has left")), results(&changed("failed")))
        }
        "get_job" => {
            let mut detail = job;
            detail["payload"] = json!({ "to": "a@example.org" });
            detail["result"] = json!({ "sent": true });
            detail["attempts"] = json!([{
                "token": 34, "owner": OWNER, "started_at": "2026-11-15T09:19:30.000Z",
                "ended_at": "2026-11-15T09:20:00.000Z", "outcome": "completed",
            }]);
            detail["effects"] = json!([effect]);
            get(detail)
        }
        "list_jobs" => get(json!({ "jobs": [job] })),
        "list_queues" => get(json!({ "queues": [queue("open")] })),
        "get_queue" => get(queue("open")),
        "pause_queue" => post(queue_by, queue("paused")),
        "resume_queue" => post(queue_by, queue("open")),
        "drain_queue" => post(queue_by, queue("draining")),
        "delete_queue" => post(queue_by, json!({})),
        "list_schedules" => get(json!({ "schedules": [schedule] })),
        "get_schedule" => get(schedule),
        "set_schedule" => post(spec, schedule),
        "delete_schedule" => post(json!({ "schedule": "nightly", "by": "alice" }), json!({})),
        "list_effects" => get(json!({ "effects": [{
            "finding": "compensation_failed", "job_id": JOB, "queue": "emails", "kind": "send", "job_state": "failed",
            "effect": "charge", "effect_state": "compensation_failed", "token": 34,
            "written_at": "2026-11-15T09:20:00.125Z", "compensation_job_id": UNDO,
        }] })),
        "resolve_effect" => post(
            json!({
                "job_id": JOB, "effect": "charge", "by": "alice",
                "resolution": { "type": "happened", "value": { "charge": "ch_7" } },
            }),
            json!({}),
        ),
        "write_effect" => {
            post(with(attempt, "entry", recorded), json!({ "type": "recorded", "recorded_effect": effect }))
        }
        "write_effect_batch" => post(
            json!({ "entries": [with(attempt, "entry", recorded)] }),
            results(&json!({ "type": "recorded", "recorded_effect": effect })),
        ),
        "begin_operation" => post(
            json!({
                "idempotency_key": "order-7", "idempotency_window_ms": 86_400_000, "payload": { "amount": 7 },
                "hold_id": HOLD, "owner": OWNER, "ttl_ms": 30_000,
            }),
            json!({
                "operation": { "type": "completed", "job_id": JOB, "result": { "charge": "ch_7" } }, "waited_ms": 0,
                "resumed": false,
            }),
        ),
        "create_access_token" => post(
            json!({
                "id": "aabbccddeeff", "secret_sha256": "ab".repeat(32), "name": "worker-7", "namespace": "default",
                "scopes": ["job:work"],
            }),
            access_token,
        ),
        "list_access_tokens" => get(json!({ "access_tokens": [access_token] })),
        "revoke_access_token" => {
            post(json!({ "access_token_id": "aabbccddeeff" }), json!({ "revoked": true }))
        }
        "list_audit_entries" => get(json!({
            "entries": [{
                "seq": 7, "at": "2026-11-15T09:20:00.000Z", "actor": "alice", "address": "127.0.0.1",
                "namespace": "default", "action": "revoke_lease", "target": "key reports/daily",
                "reason": "its host hangs", "outcome": "done",
            }],
            "next_cursor": "7",
        })),
        _ => Example { request: None, response: Value::Null },
    }
}

struct ExampleCheck;

impl Visitor for ExampleCheck {
    fn visit<O: HttpOperation>(&mut self) {
        let OperationSpec { name, method, .. } = O::SPEC;
        let Example { request, response } = of(name);
        assert_eq!(request.is_some(), method == Method::Post, "{name}");
        if let Some(request) = request {
            let read: O::Request = serde_json::from_value(request.clone())
                .unwrap_or_else(|error| panic!("request of {name}: {error}"));
            let written = serde_json::to_value(read).unwrap();
            for (field, value) in request.as_object().unwrap() {
                assert_eq!(written[field], *value, "{name}: {field}");
            }
            let mut strange = request;
            strange["strange"] = 1.into();
            let read: Result<O::Request, _> = serde_json::from_value(strange);
            assert!(read.is_err(), "{name} takes a field that is not known");
        }
        let read: O::Response = serde_json::from_value(response.clone())
            .unwrap_or_else(|error| panic!("response of {name}: {error}"));
        assert_eq!(serde_json::to_value(read).unwrap(), response, "response of {name}");
        let mut newer = response;
        newer["newer"] = 1.into();
        let read: Result<O::Response, _> = serde_json::from_value(newer);
        assert!(read.is_ok(), "{name} refuses a newer response");
    }
}

#[test]
fn every_operation_has_an_example_that_reads_as_what_it_is() {
    every(&mut ExampleCheck);
}
