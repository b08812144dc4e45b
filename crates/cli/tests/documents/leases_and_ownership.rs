//! *Leases and Ownership*, a page on a task queue behind a server: a task in progress belongs to one worker while its lease lasts,
//! a reaper returns the tasks of silent workers to the queue, a late worker learns that it is not the owner any more, and
//! a restart of the server changes nothing for those who hold a task.
//!
//! | their word | ours | over HTTP |
//! |---|---|---|
//! | task, `PENDING`, `IN_PROGRESS` | job, `queued`, `running` | `GET /v1/jobs/ID` |
//! | `Claim` | claim | `POST /v1/jobs/claim` |
//! | `Heartbeat`, `Extend` | renew | `POST /v1/jobs/renew` |
//! | `Abandon` | release: counts as nothing | `POST /v1/jobs/report`, `release` |
//! | `Nack` | fail, with a delay; or snooze | `POST /v1/jobs/report`, `fail` |
//! | `Submit` | complete | `POST /v1/jobs/report`, `complete` |
//! | reaper, sweep, requeue; `Attempts` | sweep; the attempt ends as `crashed` | `GET /v1/events` |
//! | `workerID` | hold id and token; the owner is a name for people | in every request |
//! | not-owner | `lost`, 409 | `urn:fencehold:lost` |
//! | an empty worker id skips the check | never: no report without a hold id | 400 |
//! | `LeaseUntil`, recovery on open | the deadline, kept with the claim | `runner.remaining_ms` |
//! | heartbeat against the reaper's list | race R03-job | `fencehold race run R03-job` |
//! | the reaper's list against the next owner | race R05 | `fencehold race run R05` |
//! | result rendezvous | wait for the end | `GET /v1/jobs/ID?wait_ms=20000` |
//! | tenant | namespace | header `fencehold-namespace` |
#![cfg(all(feature = "file", feature = "race", feature = "server"))]

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::{Trace, http};
use crate::support::{RunningProcess, TestDirectory, assert_has, serve};

/// A server and its address.
struct Queue {
    running: RunningProcess,
    address: String,
}

/// A task that a worker has claimed.
#[derive(Clone)]
struct ClaimedTask {
    id: String,
    hold_id: String,
    token: u64,
}

impl Queue {
    fn start(dir: &TestDirectory) -> Self {
        let (running, address) = serve(dir, "127.0.0.1:0");
        Queue { running, address }
    }

    #[track_caller]
    fn post(&self, status: u16, path: &str, body: &Value) -> Value {
        let (seen, answer) = http(&self.address, "POST", path, &body.to_string());
        assert_eq!(seen, status, "{path} {body}: {answer}");
        answer
    }

    fn get(&self, path: &str) -> Value {
        let (status, answer) = http(&self.address, "GET", path, "");
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    fn enqueue(&self, payload: &str) -> String {
        let task = self.post(
            200,
            "/jobs/enqueue",
            &json!({ "queue": "tasks", "kind": "build", "payload": payload }),
        );
        task["job_id"].as_str().unwrap().to_owned()
    }

    /// What a claim that waits for so long gets.
    fn try_claim(&self, worker: &str, ttl_ms: u64, wait_ms: u64) -> Option<ClaimedTask> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let hold_id = format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed));
        let ask = json!({
            "queues": [{ "queue": "tasks" }], "limit": 1, "hold_id": hold_id, "owner": worker, "ttl_ms": ttl_ms,
            "wait_ms": wait_ms,
        });
        let answer = self.post(200, "/jobs/claim", &ask);
        let claimed = answer["jobs"].as_array().unwrap().first()?;
        let id = claimed["id"].as_str().unwrap().to_owned();
        Some(ClaimedTask { id, hold_id, token: claimed["token"].as_u64().unwrap() })
    }

    /// A claim that gets a task, once there is one.
    fn claim(&self, worker: &str, ttl_ms: u64) -> ClaimedTask {
        self.try_claim(worker, ttl_ms, 30_000).expect("a task")
    }

    #[track_caller]
    fn heartbeat(&self, status: u16, task: &ClaimedTask) -> Value {
        let body = json!({ "job_id": task.id, "hold_id": task.hold_id, "token": task.token });
        self.post(status, "/jobs/renew", &body)
    }

    #[track_caller]
    fn report(&self, status: u16, task: &ClaimedTask, report: &Value) -> Value {
        let body =
            json!({ "job_id": task.id, "hold_id": task.hold_id, "token": task.token, "report": report });
        self.post(status, "/jobs/report", &body)
    }

    #[track_caller]
    fn submit(&self, status: u16, task: &ClaimedTask, result: &str) -> Value {
        self.report(status, task, &json!({ "type": "complete", "result": result }))
    }
}

#[test]
fn a_task_has_one_owner_through_abandon_nack_a_stall_and_a_restart() {
    let dir = TestDirectory::new();
    let queue = Queue::start(&dir);
    claim_heartbeat_abandon_nack(&queue);
    a_slow_worker_is_not_the_owner_any_more(&queue);
    let queue = a_restart_is_invisible(&dir, queue);
    a_sweep_and_a_heartbeat_at_once(&dir);

    let events = queue.get("/events")["events"].as_array().unwrap().clone();
    let claimed =
        |owner: &str, attempt: u64| json!({ "type": "job_claimed", "owner": owner, "attempt": attempt });
    let ended = |owner: &str, outcome: &str| json!({ "type": "job_attempt_ended", "owner": owner, "outcome": outcome });
    let blocked = |action: &str| json!({ "type": "stale_write_blocked", "action": action });
    Trace::from(events).is(&[
        json!({ "type": "job_enqueued", "state": "queued" }),
        claimed("A", 1),
        ended("A", "released"),
        claimed("B", 2),
        ended("B", "failed"),
        claimed("A", 3),
        ended("A", "crashed"),
        claimed("B", 4),
        blocked("renew"),
        blocked("release"),
        blocked("complete"),
        ended("B", "completed"),
        // The server is killed among these.
        json!({ "type": "job_enqueued", "state": "queued" }),
        claimed("C", 1),
        json!({ "type": "job_enqueued", "state": "queued" }),
        claimed("D", 1),
        ended("D", "crashed"),
        claimed("E", 2),
        blocked("complete"),
        ended("C", "completed"),
        ended("E", "completed"),
    ]);
}

/// The operations of one worker, and what each leaves of the task.
fn claim_heartbeat_abandon_nack(queue: &Queue) {
    let id = queue.enqueue("one");
    let task = || queue.get(&format!("/jobs/{id}"));
    let a = queue.claim("A", 60_000);
    assert!(queue.try_claim("B", 60_000, 0).is_none(), "it belongs to A");
    assert_has(&task(), &json!({ "state": "running", "token": a.token }));
    assert_eq!(task()["runner"]["owner"], "A");
    assert_has(&queue.heartbeat(200, &a), &json!({ "token": a.token, "remaining_ms": 60_000 }));

    queue.report(200, &a, &json!({ "type": "release" }));
    assert_has(&task(), &json!({ "state": "queued", "failure_count": 0, "crash_count": 0 }));
    let b = queue.claim("B", 60_000);
    assert!(b.token > a.token);
    queue.report(200, &b, &json!({ "type": "fail", "error": "not now", "retry_in_ms": 0 }));
    assert_has(&task(), &json!({ "state": "queued", "failure_count": 1, "crash_count": 0 }));
}

/// A stalls for longer than its lease. The sweep returns the task, B claims it, A wakes up.
fn a_slow_worker_is_not_the_owner_any_more(queue: &Queue) {
    let a = queue.claim("A", 300);
    let b = queue.claim("B", 60_000);
    assert_eq!(a.id, b.id);
    let not_owner = json!({ "type": "urn:fencehold:lost", "token": a.token, "current_token": b.token });
    assert_has(&queue.heartbeat(409, &a), &not_owner);
    assert_has(&queue.report(409, &a, &json!({ "type": "release" })), &not_owner);
    assert_has(&queue.submit(409, &a, "of A"), &not_owner);

    // A name proves nothing, and neither does none.
    let guessed = ClaimedTask { hold_id: "f".repeat(32), ..b.clone() };
    assert_has(&queue.submit(409, &guessed, "of B?"), &json!({ "type": "urn:fencehold:wrong-hold-id" }));
    let nameless = json!({ "job_id": b.id, "token": b.token, "report": { "type": "complete" } });
    queue.post(400, "/jobs/report", &nameless);

    queue.heartbeat(200, &b);
    assert_has(&queue.submit(200, &b, "of B"), &json!({ "state": "completed", "late": false }));
    let finished = queue.get(&format!("/jobs/{}?wait_ms=20000", b.id));
    assert_has(
        &finished,
        &json!({ "state": "completed", "result": "of B", "failure_count": 1, "crash_count": 1 }),
    );
}

/// The server is killed while C and D hold a task each. C does not notice; D's lease runs out, as it would have.
fn a_restart_is_invisible(dir: &TestDirectory, mut queue: Queue) -> Queue {
    queue.enqueue("two");
    let c = queue.claim("C", 60_000);
    queue.enqueue("three");
    let d = queue.claim("D", 500);
    let left_ms = |queue: &Queue| {
        queue.get(&format!("/jobs/{}", c.id))["runner"]["remaining_ms"]
            .as_u64()
            .unwrap()
    };
    let before_ms = left_ms(&queue);
    queue.running.child.kill().unwrap();
    queue.running.child.wait().unwrap();
    let queue = Queue::start(dir);
    let after_ms = left_ms(&queue);
    assert!(after_ms <= before_ms, "the deadline stays: {before_ms} ms were left, then {after_ms} ms");

    assert_has(&queue.heartbeat(200, &c), &json!({ "token": c.token }));
    let e = queue.claim("E", 60_000);
    assert!(e.id == d.id && e.token > d.token, "the task of D, under a token of its own");
    assert_has(&queue.submit(409, &d, "of D"), &json!({ "type": "urn:fencehold:lost" }));
    queue.submit(200, &c, "of C");
    queue.submit(200, &e, "of E");
    queue
}

/// A sweep that has a task on its list, which its owner renews or another one claims before the sweep comes to it.
fn a_sweep_and_a_heartbeat_at_once(dir: &TestDirectory) {
    let races = dir.path("races").display().to_string();
    let race = |name: &str| {
        let ran = dir.json(&["race", "run", name, "--store", &format!("file:{races}")]);
        assert_eq!(ran["verdict"], "held", "{ran}");
        let lines = ran["trace"].as_array().unwrap().clone();
        Trace::from(lines)
    };
    race("R03-job").is(&[
        json!({ "event": "job_enqueued" }),
        json!({ "event": "lease_acquired", "token": 1, "owner": "A" }),
        json!({ "event": "execution_started", "token": 1 }),
        json!({ "event": "lease_renewed", "token": 1 }),
    ]);
    race("R05").is(&[
        json!({ "event": "lease_acquired", "token": 1, "owner": "A" }),
        json!({ "event": "lease_expired", "token": 1 }),
        json!({ "event": "lease_acquired", "token": 2, "owner": "B" }),
        json!({ "event": "lease_renewed", "token": 2 }),
    ]);
}
