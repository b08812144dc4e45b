//! `-o json` is the JSON of the HTTP operation, and an error is the problem that HTTP sends.
#![cfg(all(feature = "file", feature = "server"))]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{CommandOutput, RunningProcess, TestDirectory, each, every_verb, found, said, serve};

/// What a server says to a request, whatever its status.
fn ask(address: &str, request: &str, body: &str) -> Value {
    ask_as("", address, request, body)
}

/// The same for the bearer of an access token.
fn ask_as(access_token: &str, address: &str, request: &str, body: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("host: {address}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
    let bearer = match access_token {
        "" => String::new(),
        token => format!("authorization: Bearer {token}\r\n"),
    };
    write!(stream, "{request} HTTP/1.0\r\n{bearer}{head}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// The problem that a command printed instead of data.
fn problem(said: &CommandOutput) -> Value {
    assert_eq!(said.out, "", "{said:?}");
    serde_json::from_str(&said.err).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

/// Verbs that no operation of the server is the same as.
const WITHOUT_OPERATION: &str = "serve, run, work, job count, schedule next, explain, advise, plan, store create, store migrate, \
    store probe, store backup, store restore, store check, config check, demo, doctor, bench lease, bench job, \
    race ls, race run, top, completions, man, help, version";

/// Verbs and requests side by side, on one store. Where both change something, each has its own, named `…-verb` and `…-http`.
struct SideBySide {
    dir: TestDirectory,
    address: String,
    /// The verbs that were compared.
    compared: BTreeSet<String>,
    /// How many hold ids were made.
    holds: u32,
    _server: RunningProcess,
}

impl SideBySide {
    fn new() -> Self {
        let dir = TestDirectory::new();
        let (server, address) = serve(&dir, "127.0.0.1:0");
        SideBySide { dir, address, compared: BTreeSet::new(), holds: 0, _server: server }
    }

    /// One that is used for nothing else.
    fn hold_id(&mut self) -> String {
        self.holds += 1;
        format!("{:032x}", self.holds)
    }

    fn post(&self, path: &str, body: Value) -> Value {
        ask(&self.address, &format!("POST {path}"), &body.to_string())
    }

    fn get(&self, path: &str) -> Value {
        ask(&self.address, &format!("GET {path}"), "")
    }

    /// What a verb prints is what the server sent.
    fn same<'a>(&mut self, words: impl IntoIterator<Item = &'a str>, sent: &Value) -> Value {
        self.same_with(words, &[], &[], sent)
    }

    /// The same with these variables set. A verb adds what only it knows: a hold id, an access token.
    fn same_with<'a>(
        &mut self,
        words: impl IntoIterator<Item = &'a str>,
        variables: &[(&str, &str)],
        added: &[&str],
        sent: &Value,
    ) -> Value {
        let words: Vec<&str> = words.into_iter().collect();
        let mut command = self.dir.command(&words);
        command.args(["-o", "json"]).envs(variables.iter().copied());
        let shown = said(&mut command).ended(0).json();
        let mut compared = shown.clone();
        for name in added {
            let added = compared.as_object_mut().unwrap().remove(*name);
            assert!(added.is_some_and(|value| value.is_string()), "{words:?} adds {name}: {shown}");
        }
        assert_eq!(without_moving(&compared), without_moving(sent), "{words:?}");
        self.is_compared(&words);
        shown
    }

    fn is_compared(&mut self, words: &[&str]) {
        self.compared.insert(words[..words.len().min(2)].join(" "));
    }
}

/// A document without what is another one each time: of an id, a token, a moment or a rest of time, only its kind is left.
fn without_moving(value: &Value) -> Value {
    let moving = ["id", "token", "_at", "remaining_ms", "waited_ms", "_in_ms"];
    let moves = |name: &str| moving.iter().any(|end| name.ends_with(end));
    let kind = |value: &Value| match value {
        Value::String(_) => "a text",
        Value::Number(_) => "a number",
        _ => "something else",
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "last_used_at").map(|(name, value)| {
                let left = if moves(name) { json!(kind(value)) } else { without_moving(value) };
                (name.clone(), left)
            });
            Value::Object(fields.collect())
        }
        Value::Array(elements) => elements.iter().map(without_moving).collect(),
        Value::String(text) => json!(text.replace("-verb", "-http")),
        other => other.clone(),
    }
}

/// Every verb that clap knows is compared with an operation, or stands among those that have none.
#[test]
fn what_is_shown_is_what_the_server_sends() {
    let mut both = SideBySide::new();
    compare_leases(&mut both);
    compare_attempts(&mut both);
    compare_changes_of_jobs(&mut both);
    compare_queues_and_schedules(&mut both);
    compare_effects(&mut both);
    compare_what_only_looks(&mut both);
    compare_watching(&mut both);
    compare_the_store(&mut both);
    compare_access(&mut both);
    let mut all = both.compared.clone();
    all.extend(WITHOUT_OPERATION.split(", ").map(ToOwned::to_owned));
    let listed = both.compared.len() + WITHOUT_OPERATION.split(", ").count();
    assert_eq!(all.len(), listed, "none is in both lists");
    let verbs = every_verb(&both.dir);
    let verbs = verbs.into_iter().filter(|verb| !verb.is_group).map(|verb| verb.name);
    assert_eq!(all, verbs.collect(), "every verb stands in one of them");
}

fn compare_leases(both: &mut SideBySide) {
    let hold_id = both.hold_id();
    let request =
        json!({ "key": "k-http", "hold_id": hold_id, "owner": "o", "task": "t", "ttl_ms": 3_600_000 });
    let sent = both.post("/v1/leases/acquire", request);
    let words = ["lease", "acquire", "k-verb", "--owner", "o", "--task", "t", "--ttl", "1h"];
    let shown = both.same_with(words, &[], &["hold_id"], &sent);
    let variables = [
        ("FENCEHOLD_HOLD_ID", shown["hold_id"].as_str().unwrap()),
        ("FENCEHOLD_TOKEN", &shown["token"].to_string()),
    ];
    let hold = json!({ "key": "k-http", "hold_id": hold_id, "token": sent["token"] });
    let sent = both.post("/v1/leases/renew", hold.clone());
    both.same_with(["lease", "renew", "k-verb"], &variables, &[], &sent);
    let sent = both.post("/v1/leases/release", hold);
    both.same_with(["lease", "release", "k-verb"], &variables, &[], &sent);

    for key in ["r-verb", "r-http"] {
        both.dir.succeeds(&format!("lease acquire {key} --owner o --ttl 1h"));
    }
    let sent = both.post("/v1/leases/revoke", json!({ "key": "r-http", "by": "me", "reason": "why" }));
    both.same(["lease", "revoke", "r-verb", "--by", "me", "--reason", "why"], &sent);
    let sent = both.get("/v1/leases/stats?since_ms=3600000");
    assert_eq!((&sent["released_count"], &sent["revoked_count"]), (&json!(2), &json!(2)), "{sent}");
    both.same(["lease", "stats", "--since", "1h"], &sent);
    compare_contention(both);
}

fn compare_contention(both: &mut SideBySide) {
    both.dir.succeeds("lease acquire c --owner o --ttl 1h");
    for nth in 0..3 {
        both.dir
            .fails(&format!("lease acquire c --owner other-{nth} --task t"), 75, &["c is held by o"]);
    }
    let sent = both.get("/v1/leases/contention?prefix=c");
    assert_eq!(sent["keys"][0]["refused_count"], 3, "{sent}");
    assert_eq!(both.same(["lease", "ls", "--contended", "--prefix", "c"], &sent), sent);
    assert_eq!(both.dir.json("explain c")["contention"], sent["keys"][0]);
    assert_eq!(both.get("/v1/leases/contention?key=k-http")["keys"], json!([]), "it was never refused");
    both.dir.succeeds("lease revoke c --by me --reason why");
}

/// A claim of a new job by each side: what the verb printed, and the attempt as a request names it.
fn claim(both: &mut SideBySide, nth: usize) -> (Value, Value) {
    let [queue_verb, queue_http] = ["verb", "http"].map(|side| format!("q{nth}-{side}"));
    let sent =
        both.post("/v1/jobs/enqueue", json!({ "queue": queue_http, "kind": "k", "payload": { "a": 1 } }));
    let words = ["job", "enqueue", "--queue", &queue_verb, "--kind", "k", "--payload", r#"{"a":1}"#];
    both.same(words, &sent);
    let hold_id = both.hold_id();
    let queues = json!([{ "queue": queue_http }]);
    let request = json!({ "queues": queues, "hold_id": hold_id, "owner": "o", "ttl_ms": 3_600_000 });
    let sent = both.post("/v1/jobs/claim", request)["jobs"][0].clone();
    let words = ["job", "claim", "--queue", &queue_verb, "--owner", "o", "--ttl", "1h"];
    let shown = both.same_with(words, &[], &["hold_id"], &sent);
    (shown, json!({ "job_id": sent["id"], "hold_id": hold_id, "token": sent["token"] }))
}

/// The variables that `job claim -o env` sets.
fn of_claim(shown: &Value) -> [(&'static str, String); 3] {
    let text = |name: &str| shown[name].as_str().unwrap().to_owned();
    [
        ("FENCEHOLD_JOB_ID", text("id")),
        ("FENCEHOLD_HOLD_ID", text("hold_id")),
        ("FENCEHOLD_TOKEN", shown["token"].to_string()),
    ]
}

fn compare_attempts(both: &mut SideBySide) {
    let reports = [
        ("job complete --result 7", json!({ "type": "complete", "result": 7 })),
        (
            "job fail --error e --retry-in 1h",
            json!({ "type": "fail", "error": "e", "retry_in_ms": 3_600_000 }),
        ),
        ("job snooze --delay 1h", json!({ "type": "snooze", "delay_ms": 3_600_000 })),
        ("job release", json!({ "type": "release" })),
        ("job checkpoint --text row", json!({ "type": "checkpoint", "checkpoint": "cm93" })),
        ("job progress --note 7", json!({ "type": "progress", "progress": 7 })),
    ];
    for (nth, (words, report)) in reports.into_iter().enumerate() {
        let (shown, mut attempt) = claim(both, nth);
        let variables = of_claim(&shown);
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        let sent = both.post("/v1/jobs/renew", attempt.clone());
        both.same_with(["job", "renew"], &variables, &[], &sent);
        let is_end = !["checkpoint", "progress"].contains(&report["type"].as_str().unwrap());
        attempt["report"] = report;
        let sent = both.post("/v1/jobs/report", attempt.clone());
        both.same_with(words.split(' '), &variables, &[], &sent);
        if !is_end {
            // How long a job runs moves.
            attempt["report"] = json!({ "type": "release" });
            let sent = both.post("/v1/jobs/report", attempt);
            both.same_with(["job", "release"], &variables, &[], &sent);
        }
        if nth == 0 {
            let id = shown["id"].as_str().unwrap();
            let sent = both.get(&format!("/v1/jobs/{id}"));
            assert_eq!(both.same(["job", "wait", id], &sent), sent);
        }
    }
}

fn compare_changes_of_jobs(both: &mut SideBySide) {
    let ids = [both.dir.enqueue("1", ""), both.dir.enqueue("2", "")];
    for (verb, path) in [("cancel", "cancel"), ("retry", "retry"), ("rm", "delete")] {
        let selector = json!({ "type": "ids", "job_ids": [ids[1]] });
        let sent = both.post(&format!("/v1/jobs/{path}-batch"), json!({ "selector": selector, "by": "me" }));
        both.same(["job", verb, &ids[0], "--by", "me"], &sent);
    }
}

fn compare_queues_and_schedules(both: &mut SideBySide) {
    for (verb, path) in
        [("drain", "drain"), ("pause", "pause"), ("resume", "resume"), ("pause", "pause"), ("rm", "delete")]
    {
        let sent = both.post(&format!("/v1/queues/{path}"), json!({ "queue": "p-http", "by": "me" }));
        both.same(["queue", verb, "p-verb", "--by", "me"], &sent);
    }
    let spec = json!({ "name": "s-http", "cron": "30 2 * * *", "queue": "q", "kind": "k", "by": "me" });
    let sent = both.post("/v1/schedules/set", spec);
    let words =
        ["schedule", "set", "s-verb", "--cron", "30 2 * * *", "--queue", "q", "--kind", "k", "--by", "me"];
    both.same(words, &sent);
    let sent = both.post("/v1/schedules/delete", json!({ "schedule": "s-http", "by": "me" }));
    both.same(["schedule", "rm", "s-verb", "--by", "me"], &sent);
}

fn compare_effects(both: &mut SideBySide) {
    let mut ids = Vec::new();
    for nth in [100, 101] {
        let queue = format!("doubt{nth}");
        let sent = both.post("/v1/jobs/enqueue", json!({ "queue": queue, "kind": "k" }));
        ids.push(sent["job_id"].as_str().unwrap().to_owned());
        // The second attempt finds what the first one began, and cannot know what came of it.
        for _ in 0..2 {
            let hold_id = both.hold_id();
            let request =
                json!({ "queues": [{ "queue": queue }], "hold_id": hold_id, "owner": "o", "ttl_ms": 60_000 });
            let job = both.post("/v1/jobs/claim", request)["jobs"][0].clone();
            let attempt = json!({ "job_id": job["id"], "hold_id": hold_id, "token": job["token"] });
            let mut entry = attempt.clone();
            entry["entry"] = json!({ "type": "begin", "effect": "charge", "in_doubt_policy": "manual" });
            both.post("/v1/effects/write", entry);
            let mut report = attempt;
            report["report"] = json!({ "type": "release" });
            both.post("/v1/jobs/report", report);
        }
    }
    let sent = both.get("/v1/effects");
    assert_eq!(sent["effects"].as_array().map(Vec::len), Some(2), "{sent}");
    assert_eq!(both.same(["effect", "ls"], &sent), sent);
    let resolution = json!({ "type": "happened", "value": 7 });
    let request = json!({ "job_id": ids[1], "effect": "charge", "resolution": resolution, "by": "me" });
    let sent = both.post("/v1/effects/resolve", request);
    both.same(["effect", "resolve", &ids[0], "charge", "--happened", "7", "--by", "me"], &sent);
}

/// These are of the same things, and nothing may differ.
fn compare_what_only_looks(both: &mut SideBySide) {
    let job = both.dir.enqueue(r#"{"to":"ada"}"#, "--label colour=red --unique-key u");
    both.dir.succeeds("run --key reports/daily --task t -- true");
    both.dir.succeeds("schedule set nightly --cron '30 2 * * *' --queue q --kind k");
    let sent = both.post("/v1/quota/set", json!({ "quota": { "max_keys": 1_000 }, "by": "me" }));
    assert_eq!(both.same(["quota", "set", "--max-keys", "1000", "--by", "me"], &sent), sent);
    for (words, path) in [
        ("lease ls --include-free", "/v1/leases?include_free=true"),
        ("lease get reports/daily", "/v1/leases/get?key=reports/daily"),
        ("lease get never/held", "/v1/leases/get?key=never/held"),
        ("job ls", "/v1/jobs"),
        (&format!("job get {job}"), &format!("/v1/jobs/{job}")),
        ("queue ls", "/v1/queues"),
        ("queue get q", "/v1/queues/get?queue=q"),
        ("schedule ls", "/v1/schedules"),
        ("schedule get nightly", "/v1/schedules/get?schedule=nightly"),
        ("event ls", "/v1/events?limit=1000"),
        ("quota get", "/v1/quota"),
        ("store status", "/v1/store/status"),
    ] {
        let mut sent = both.get(path);
        if let Some(leases) = sent.get_mut("leases").and_then(Value::as_array_mut) {
            // A server lists them in no particular order.
            leases.sort_by_key(|lease| lease["key"].to_string());
        }
        let shown = both.same(words.split(' '), &sent);
        // When a job that waits is due moves.
        assert!(shown == sent || words == "job ls", "{words}: {shown} and {sent}");
    }
}

fn compare_watching(both: &mut SideBySide) {
    for words in [["event", "watch"], ["lease", "watch"]] {
        let mut watching = both.dir.start(&[words[0], words[1], "-o", "json"]);
        let seen = std::thread::spawn(move || watching.json_line());
        for _ in (0..300).take_while(|_| !seen.is_finished()) {
            both.dir.fencehold("run --key again -- true");
        }
        let (shown, sent) = (seen.join().unwrap(), both.get("/v1/events?limit=1000"));
        assert_eq!(&shown, found(&sent["events"], "seq", shown["seq"].clone()), "{words:?}");
        both.is_compared(&words);
    }
}

fn compare_the_store(both: &mut SideBySide) {
    // The first one ends what is held.
    both.post("/v1/store/advance", json!({ "by": "me" }));
    let sent = both.post("/v1/store/advance", json!({ "by": "me" }));
    assert!(sent["closed_for_ms"].as_u64() > Some(0), "{sent}");
    let mut shown = both.dir.json("store advance --by me --yes");
    let mut sent = sent;
    // For how long it is closed moves.
    for document in [&mut shown, &mut sent] {
        document["closed_for_ms"] = json!(document["closed_for_ms"].is_u64());
        for namespace in document["namespaces"].as_array_mut().into_iter().flatten() {
            namespace["closed_for_ms"] = json!(namespace["closed_for_ms"].is_u64());
        }
    }
    assert_eq!(shown, sent);
    both.is_compared(&["store", "advance"]);
}

fn compare_access(both: &mut SideBySide) {
    // From the first one on, the server asks for one.
    let store = format!("http://{}", both.address);
    let create = format!("access-token create t-verb --role admin --all-namespaces --store {store}");
    let shown = both.dir.json(&create);
    let access_token = shown["access_token"].as_str().unwrap().to_owned();
    let post = |both: &SideBySide, path: &str, body: Value| {
        ask_as(&access_token, &both.address, &format!("POST {path}"), &body.to_string())
    };
    let created = json!({
        "id": "4f1d2c3b5a69", "secret_sha256": "a".repeat(64), "name": "t-http", "scopes": shown["scopes"],
        "by": shown["created_by"].as_str().unwrap().split(',').next(),
    });
    let sent = post(both, "/v1/access-tokens/create", created);
    let variables = [("FENCEHOLD_ACCESS_TOKEN", access_token.as_str())];
    both.same_with(create.split(' '), &variables, &["access_token"], &sent);
    let get =
        |both: &SideBySide, path: &str| ask_as(&access_token, &both.address, &format!("GET {path}"), "");
    let sent = get(both, "/v1/access-tokens");
    both.same_with(["access-token", "ls", "--include-inactive", "--store", &store], &variables, &[], &sent);
    let sent =
        post(both, "/v1/access-tokens/revoke", json!({ "access_token_id": "4f1d2c3b5a69", "by": "me" }));
    let listed = get(both, "/v1/access-tokens");
    let listed = listed["access_tokens"].as_array().unwrap();
    let last = listed.iter().rfind(|token| token["name"] == "t-verb").unwrap();
    let last = last["id"].as_str().unwrap();
    both.same_with(["access-token", "revoke", last, "--store", &store], &variables, &[], &sent);
    let sent = get(both, "/v1/audit");
    let shown = both.same_with(["audit", "ls", "--store", &store], &variables, &[], &sent);
    assert_eq!(shown, sent);
}

#[test]
fn one_element_of_a_list_stands_in_each_line() {
    let dir = TestDirectory::new();
    let ids = [dir.enqueue("1", ""), dir.enqueue("2", "")];
    let listed = Value::Array(dir.fencehold("job ls -o jsonl").json_lines());
    assert_eq!(each(&listed, "id"), ids);
    assert_eq!(dir.json("job ls"), json!({ "jobs": listed }), "and the page has no next one");
}

#[test]
fn an_error_is_the_problem_that_the_server_sends() {
    let dir = TestDirectory::new();
    assert_eq!(dir.fencehold("lease acquire k --owner ada --ttl 1h").code, 0);
    let held = dir.fencehold("lease acquire k -o json");
    let (_server, address) = serve(&dir, "127.0.0.1:0");
    let hold_id = "0".repeat(32);
    let body = json!({ "key": "k", "hold_id": hold_id, "owner": "bob", "ttl_ms": 1_000 });
    let mut sent = ask(&address, "POST /v1/leases/acquire", &body.to_string());
    let mut shown = problem(&held);
    assert_eq!((held.code, &shown["type"]), (75, &json!("urn:fencehold:held")), "{held:?}");
    // How long it is held moves with time.
    for problem in [&mut sent, &mut shown] {
        assert!(problem["remaining_ms"].is_u64(), "{problem}");
        let fields = problem.as_object_mut().unwrap();
        fields.retain(|name, _| name != "remaining_ms" && name != "detail");
    }
    assert_eq!(shown, sent);

    let none = "00000000-0000-0000-0000-000000000000";
    for (words, code, kind) in [
        (&*format!("job get {none}"), 1, "job-not-found"),
        ("schedule get s", 1, "schedule-not-found"),
        ("queue rm q", 1, "queue-not-found"),
        ("job claim --queue q", 75, "wait-timed-out"),
        ("--store file:nowhere lease ls", 74, "no-store"),
        ("lease acquire k --ttl 1ms", 2, "bad-input"),
        ("lease acquire k --nonsense", 2, "bad-input"),
        ("--store http://127.0.0.1:1 --timeout 1ms lease ls", 69, "unavailable"),
    ] {
        for format in ["json", "jsonl"] {
            let refused = dir.fencehold(&format!("{words} -o {format}")).ended(code);
            let problem = problem(&refused);
            assert_eq!(problem["type"], format!("urn:fencehold:{kind}"), "{refused:?}");
            assert!(problem["detail"].is_string() && problem["title"].is_string(), "{problem}");
        }
    }
    let bad = said(dir.command("lease ls -o json").env("FENCEHOLD_TIMEOUT", "soon"));
    assert_eq!((bad.code, &problem(&bad)["type"]), (2, &json!("urn:fencehold:bad-input")), "{bad:?}");
}
