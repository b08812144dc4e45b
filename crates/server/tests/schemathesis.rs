//! Whatever is asked, the answer is one that the document promises: 2 000 requests made up from the document itself.
#![allow(
    clippy::disallowed_methods,
    reason = "the server's time runs fast, in steps of real time; nothing is ordered by it"
)]

use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::clocked::ClockedServer;

/// At least so many requests must have been made.
const REQUESTS: u64 = 2_000;
/// How many are made up for each operation, beside those that cover its document: a number to look for longer.
const EXAMPLES: &str = "FENCEHOLD_REQUEST_EXAMPLES";
/// What is looked for: no failure of the server, nothing that the document does not say, nothing refused that it allows, and
/// nothing accepted that it forbids; and the few operations of which that cannot be asked.
const SETTINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemathesis.toml");
/// What is left out of requests, by name.
const HOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemathesis_hooks.py");

/// Runs against a server whose time flies, so that a request to wait for an hour does not take one. Only the stream of events
/// is left out, which has no end.
#[test]
fn whatever_is_asked_the_answer_is_one_that_the_document_promises() {
    let program = fencehold_test_servers::installed("python/bin/schemathesis");
    let examples = std::env::var(EXAMPLES).unwrap_or_else(|_| "20".to_owned());
    let mut server = ClockedServer::start("memory:", None);
    let folder = tempfile::tempdir().unwrap();
    let document = format!("{}/v1/openapi.json", server.url);
    let (done, ended) = channel::<()>();
    let clock = std::thread::spawn(move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_millis(20)) {
            server.order("pass 3600000");
        }
        server
    });
    let output = Command::new(program)
        .current_dir(folder.path())
        .args(["--config-file", SETTINGS, "run", &document, "--exclude-operation-id", "watch_events"])
        .args(["--phases", "coverage,fuzzing", "--max-examples", &examples, "--generation-deterministic"])
        .args(["--continue-on-failure", "--suppress-health-check", "all", "--warnings", "off", "--no-color"])
        .env("NO_PROXY", "*")
        .env("SCHEMATHESIS_HOOKS", HOOKS)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    drop(done);
    let mut server = clock.join().expect("a server that is there to the end");
    server.order("pass 1");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let generated = said
        .lines()
        .find_map(|line| line.trim().split_once(" generated,"))
        .and_then(|(count, _)| count.replace(',', "").parse::<u64>().ok());
    assert!(generated.is_some_and(|count| count >= REQUESTS), "too few requests: {said}");
}
