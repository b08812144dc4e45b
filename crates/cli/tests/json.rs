//! `-o json` is the JSON of the HTTP operation, and an error is the problem that HTTP sends.
#![cfg(all(feature = "file", feature = "server"))]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{CommandOutput, TestDirectory, said, serve};

/// What a server says to a request, whatever its status.
fn ask(address: &str, request: &str, body: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("host: {address}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
    write!(stream, "{request} HTTP/1.0\r\n{head}\r\n\r\n{body}").unwrap();
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

#[test]
fn what_is_shown_is_what_the_server_sends() {
    let dir = TestDirectory::new();
    let job = dir.enqueue(r#"{"to":"ada"}"#, &["--label", "colour=red", "--unique-key", "u"]);
    assert_eq!(
        dir.fencehold(&["run", "--key", "reports/daily", "--task", "t", "--", "true"])
            .code,
        0
    );
    let words = ["schedule", "set", "nightly", "--cron", "30 2 * * *", "--queue", "q", "--kind", "k"];
    assert_eq!(dir.fencehold(&words).code, 0);
    let (_server, address) = serve(&dir, "127.0.0.1:0");
    let get_job = format!("/v1/jobs/{job}");
    for (words, path) in [
        (&["lease", "ls", "--include-free"] as &[&str], "/v1/leases?include_free=true"),
        (&["lease", "get", "reports/daily"], "/v1/leases/get?key=reports/daily"),
        (&["lease", "get", "never/held"], "/v1/leases/get?key=never/held"),
        (&["job", "ls"], "/v1/jobs"),
        (&["job", "get", &job], &get_job),
        (&["queue", "ls"], "/v1/queues"),
        (&["queue", "get", "q"], "/v1/queues/get?queue=q"),
        (&["schedule", "ls"], "/v1/schedules"),
        (&["schedule", "get", "nightly"], "/v1/schedules/get?schedule=nightly"),
        (&["event", "ls"], "/v1/events"),
        (&["effect", "ls"], "/v1/effects"),
        (&["quota", "get"], "/v1/quota"),
    ] {
        let shown = dir.fencehold(&[words, &["-o", "json"]].concat());
        assert_eq!(shown.code, 0, "{words:?}: {shown:?}");
        assert_eq!(shown.json(), ask(&address, &format!("GET {path}"), ""), "{words:?}");
    }
}

#[test]
fn one_element_of_a_list_stands_in_each_line() {
    let dir = TestDirectory::new();
    let ids = [dir.enqueue("1", &[]), dir.enqueue("2", &[])];
    let lines = dir.fencehold(&["job", "ls", "-o", "jsonl"]);
    let listed: Vec<Value> = lines.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listed.iter().map(|job| job["id"].as_str().unwrap()).collect::<Vec<_>>(), ids);
    let page = dir.fencehold(&["job", "ls", "-o", "json"]).json();
    assert_eq!(page, json!({ "jobs": listed }), "and the page has no next one");
}

#[test]
fn an_error_is_the_problem_that_the_server_sends() {
    let dir = TestDirectory::new();
    assert_eq!(dir.fencehold(&["lease", "acquire", "k", "--owner", "ada", "--ttl", "1h"]).code, 0);
    let held = dir.fencehold(&["lease", "acquire", "k", "-o", "json"]);
    let (_server, address) = serve(&dir, "127.0.0.1:0");
    let hold_id = "0".repeat(32);
    let body = json!({ "key": "k", "hold_id": hold_id, "owner": "bob", "ttl_ms": 1_000 });
    let mut sent = ask(&address, "POST /v1/leases/acquire", &body.to_string());
    let mut shown = problem(&held);
    assert_eq!((held.code, &shown["type"]), (75, &json!("urn:fencehold:held")), "{held:?}");
    // How long it is held moves with time.
    for problem in [&mut sent, &mut shown] {
        assert!(problem["remaining_ms"].is_u64(), "{problem}");
        problem
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name != "remaining_ms" && name != "detail");
    }
    assert_eq!(shown, sent);

    let none = "00000000-0000-0000-0000-000000000000";
    for (words, code, kind) in [
        (&["job", "get", none] as &[&str], 1, "job-not-found"),
        (&["schedule", "get", "s"], 1, "schedule-not-found"),
        (&["queue", "rm", "q"], 1, "queue-not-found"),
        (&["job", "claim", "--queue", "q"], 75, "wait-timed-out"),
        (&["--store", "file:nowhere", "lease", "ls"], 74, "no-store"),
        (&["lease", "acquire", "k", "--ttl", "1ms"], 2, "bad-input"),
        (&["lease", "acquire", "k", "--nonsense"], 2, "bad-input"),
        (&["--store", "http://127.0.0.1:1", "--timeout", "1ms", "lease", "ls"], 69, "unavailable"),
    ] {
        for format in ["json", "jsonl"] {
            let refused = dir.fencehold(&[words, &["-o", format]].concat());
            let problem = problem(&refused);
            assert_eq!(refused.code, code, "{words:?}: {refused:?}");
            assert_eq!(problem["type"], format!("urn:fencehold:{kind}"), "{words:?}: {refused:?}");
            assert!(problem["detail"].is_string() && problem["title"].is_string(), "{problem}");
        }
    }
    let bad = said(dir.command(["lease", "ls", "-o", "json"]).env("FENCEHOLD_TIMEOUT", "soon"));
    assert_eq!((bad.code, &problem(&bad)["type"]), (2, &json!("urn:fencehold:bad-input")), "{bad:?}");
}
