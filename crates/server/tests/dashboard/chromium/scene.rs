//! A store with a past: holds that ended well and badly, takeovers, lines, jobs that failed, crashed, wait and are in doubt. It is
//! arranged over the API, on a clock that is moved by hand, so every picture of it is the same.

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::security::fixture::{SecurityFixture, TestToken, acquire, eventually, held, hold};

pub(super) struct Scene<'f> {
    pub(super) fixture: &'f SecurityFixture,
    pub(super) operator: TestToken,
    /// The job whose worker crashed last.
    pub(super) crashed_job: String,
    /// A job that failed.
    pub(super) failed_job: String,
    /// Those that stand in line.
    waiters: Vec<TcpStream>,
}

impl<'f> Scene<'f> {
    pub(super) fn arrange(fixture: &'f SecurityFixture) -> Scene<'f> {
        let operator = fixture.operator();
        let mut scene = Scene {
            fixture,
            operator,
            crashed_job: String::new(),
            failed_job: String::new(),
            waiters: Vec::new(),
        };
        scene.leases();
        scene.jobs();
        scene
    }

    /// Something that the server must do.
    pub(super) fn post(&self, path: &str, body: Value) -> Value {
        let said = self.fixture.post(&self.operator, path, body);
        assert_eq!(said.status, 200, "{path}: {said:?}");
        said.json
    }

    fn pass(&self, ms: u64) {
        self.fixture.clock.advance_ms(ms);
    }

    pub(super) fn acquire(&self, key: &str, owner: &str, number: u8, ttl_ms: u64) -> u64 {
        let granted = self.post("/v1/leases/acquire", request(key, owner, number, ttl_ms));
        granted["token"].as_u64().unwrap()
    }

    fn waits(&mut self, key: &str, owner: &str, number: u8) {
        let mut stream = self.fixture.connect();
        let body = crate::security::fixture::waits(request(key, owner, number, 60_000));
        crate::security::fixture::send(
            &mut stream,
            &self.operator.headers(),
            "POST",
            "/v1/leases/acquire",
            Some(&body),
        );
        self.waiters.push(stream);
        let path = format!("/v1/leases/get?key={}", key.replace('/', "%2F"));
        let in_line = || self.fixture.ask(&self.operator, "GET", &path, None).json["waiter_count"].as_u64();
        let expected = self.waiters.len() as u64;
        eventually("it stands in line", || in_line().is_some_and(|count| count > 0 && count <= expected));
    }

    fn leases(&mut self) {
        let first = self.acquire("reports/daily", "reports-1", 1, 30_000);
        self.pass(18_000);
        self.post("/v1/leases/release", held("reports/daily", 1, first));
        self.pass(4_000);
        let second = self.acquire("reports/daily", "reports-2", 2, 10_000);
        self.pass(6_000);
        // It stalls: its hold runs out, and the next one gets the key.
        self.pass(8_000);
        let key = "reports/daily";
        eventually("the hold has run out", || {
            self.fixture
                .post(&self.operator, "/v1/leases/acquire", request(key, "reports-1", 3, 60_000))
                .status
                == 200
        });
        self.pass(2_000);
        let stale = json!({ "key": key, "token": second, "action": "write" });
        self.post("/v1/leases/report-blocked-write", stale);
        self.acquire("deploy/production", "ci-runner-4", 10, 120_000);
        self.pass(5_000);
        for nth in 0..3_u8 {
            let refused = request("deploy/production", "ci-runner-7", 11 + nth, 60_000);
            assert_eq!(self.fixture.post(&self.operator, "/v1/leases/acquire", refused).status, 409);
        }
        self.waits("deploy/production", "ci-runner-9", 20);
        for (nth, (key, owner)) in [
            ("gpu/0", "trainer-3"),
            ("gpu/1", "trainer-3"),
            ("gpu/2", "trainer-8"),
            ("leader/scheduler", "node-b"),
        ]
        .into_iter()
        .enumerate()
        {
            self.acquire(key, owner, 30 + u8::try_from(nth).unwrap(), 120_000);
            self.pass(1_500);
        }
        self.acquire("migrations/users", "ada", 40, 120_000);
        self.pass(9_000);
        let by_force =
            json!({ "key": "migrations/users", "by": "grace", "reason": "wrong branch was deployed" });
        self.post("/v1/leases/revoke", by_force);
    }

    fn enqueue(&self, queue: &str, kind: &str, options: &Value) -> String {
        let job = json!({
            "queue": queue, "kind": kind, "payload": { "to": "ada@example.org", "template": 7 }, "options": options, "labels": { "customer": "7" },
        });
        self.post("/v1/jobs/enqueue", job)["job_id"].as_str().unwrap().to_owned()
    }

    /// Claims a job, letting time pass until one is ready: the job, as an attempt.
    fn claim(&self, queue: &str, owner: &str, number: u8, ttl_ms: u64) -> Value {
        let body = json!({ "queues": [{ "queue": queue }], "limit": 1, "hold_id": hold(number), "owner": owner, "ttl_ms": ttl_ms });
        let mut claimed = Value::Null;
        eventually("a job is ready", || {
            claimed = self.post("/v1/jobs/claim", body.clone())["jobs"][0].take();
            if claimed.is_null() {
                self.pass(250);
            }
            !claimed.is_null()
        });
        json!({ "job_id": claimed["id"], "hold_id": hold(number), "token": claimed["token"] })
    }

    fn report(&self, attempt: &Value, report: Value) {
        let mut body = attempt.clone();
        body["report"] = report;
        self.post("/v1/jobs/report", body);
    }

    fn jobs(&mut self) {
        let once = json!({ "max_failures": 1 });
        for (nth, says) in ["the mail server said no", "connection reset by peer"].into_iter().enumerate() {
            self.failed_job = self.enqueue("emails", "welcome", &once);
            let attempt = self.claim("emails", "mailer-1", 50 + u8::try_from(nth).unwrap(), 30_000);
            self.pass(700);
            self.report(&attempt, json!({ "type": "fail", "error": says, "permanent": true }));
        }
        for nth in 0..3_u8 {
            self.enqueue("emails", "receipt", &json!({}));
            let attempt = self.claim("emails", "mailer-2", 60 + nth, 30_000);
            self.pass(400);
            self.report(&attempt, json!({ "type": "complete", "result": { "sent": true } }));
        }
        for _ in 0..4 {
            self.enqueue("emails", "welcome", &json!({}));
        }
        for _ in 0..12 {
            self.enqueue("reports", "monthly", &json!({}));
        }
        self.post("/v1/queues/pause", json!({ "queue": "reports", "by": "grace" }));
        // One whose effect may or may not have happened.
        self.enqueue("payments", "refund", &json!({ "max_crashes": 1 }));
        let attempt = self.claim("payments", "payer-1", 70, 5_000);
        let mut begin = attempt.clone();
        begin["entry"] = json!({ "type": "begin", "effect": "bank-transfer" });
        self.post("/v1/effects/write", begin);
        self.pass(6_000);
        // One whose worker crashed, and another went on.
        self.crashed_job = self.enqueue("billing", "invoice", &json!({}));
        self.claim("billing", "biller-1", 80, 5_000);
        self.pass(6_000);
        self.claim("billing", "biller-2", 81, 60_000);
        self.pass(3_000);
        let schedule = json!({ "name": "nightly", "cron": "0 6 * * *", "queue": "reports", "kind": "daily", "by": "ada" });
        self.post("/v1/schedules/set", schedule);
    }
}

fn request(key: &str, owner: &str, number: u8, ttl_ms: u64) -> Value {
    let mut request = acquire(key, number, ttl_ms);
    request["owner"] = json!(owner);
    request["task"] = json!("run-42");
    request
}
