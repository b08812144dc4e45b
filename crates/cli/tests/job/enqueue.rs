//! Putting jobs in: good ones, bad ones among them, the same one twice.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{CommandOutput, RunningProcess, TestDirectory};

fn with_stdin(dir: &TestDirectory, words: &str, text: &[u8]) -> CommandOutput {
    use std::io::Write;
    let mut command = dir.command(words);
    let mut running = RunningProcess::start(command.stdin(Stdio::piped()));
    running.child.stdin.take().unwrap().write_all(text).unwrap();
    running.finish()
}

#[test]
fn a_bad_line_costs_the_good_ones_nothing_and_is_named_by_its_number() {
    let dir = TestDirectory::new();
    let mut text = b"{\"n\":1}\nnot json\n\n2\n\"".to_vec();
    text.extend(vec![b'x'; 1 << 20]);
    text.extend(b"\"\n\xff\n[3]");
    let words = "job enqueue --queue q --kind k --jsonl -";
    let said = with_stdin(&dir, words, &text).ended(1).says(&[
        "line 2: the payload is not JSON",
        "line 5: the payload has 1048578 bytes; the limit is 1048576",
        "line 6: the payload is not UTF-8",
        "3 of 6 lines were refused",
    ]);
    assert_eq!(said.out.lines().count(), 3, "{said:?}");
    let payloads: Vec<Value> = said.out.lines().map(|id| dir.job(id)["payload"].clone()).collect();
    assert_eq!(payloads, [json!({"n": 1}), json!(2), json!([3])], "in the order of their lines");

    let lines = with_stdin(&dir, &format!("{words} -o jsonl"), b"1\n\n2\n").json_lines();
    assert!(lines.iter().all(|result| result["ok"]["job_id"].is_string()), "{lines:?}");
    assert_eq!(lines.len(), 2, "{lines:?}");
    let mixed = with_stdin(&dir, &format!("{words} -o json"), b"1\nx\n2\n");
    let results = mixed.json()["results"].as_array().unwrap().clone();
    let refused: Vec<bool> = results.iter().map(|result| result["error"].is_object()).collect();
    assert_eq!((mixed.code, refused), (1, vec![false, true, false]), "in the order of the lines: {mixed:?}");
}

#[test]
fn many_lines_go_through_in_batches() {
    let dir = TestDirectory::new();
    let lines: Vec<String> = (0..2_500).map(|nth| nth.to_string()).collect();
    std::fs::write(dir.path("jobs.jsonl"), lines.join("\n")).unwrap();
    let said = dir.fencehold("job enqueue --queue q --kind k --jsonl jobs.jsonl");
    assert_eq!((said.code, said.out.lines().count()), (0, 2_500), "{}", said.err);
    assert!(said.err.is_empty(), "no bar without a terminal: {said:?}");
    assert_eq!(dir.json("job count")["queued"], 2_500);
}

#[test]
fn the_same_unique_key_is_the_same_job_and_another_payload_names_the_first() {
    let dir = TestDirectory::new();
    let first = dir.enqueue("1", "--unique-key invoice-42");
    let again = dir.json("job enqueue --queue q --kind k --payload 1 --unique-key invoice-42");
    assert_eq!(again, json!({"job_id": first, "existed": true}));
    let says = format!("the unique key is taken by job {first}, which has another payload");
    dir.fails("job enqueue --queue q --kind k --payload 2 --unique-key invoice-42", 2, &[&says]);
}

#[test]
fn bad_input_is_refused_with_what_is_wrong_and_makes_no_store() {
    let dir = TestDirectory::new();
    let long = "x".repeat(300);
    for (options, says) in [
        ("--payload {", "--payload <JSON>: the payload is not JSON"),
        ("--payload 1 --delay -5s", "a duration cannot be negative"),
        ("--payload 1 --run-at 10000-01-01T00:00:00Z", "after the year 9999"),
        ("--payload 1 --run-at tomorrow", "not a moment"),
        ("--payload 1 --max-failures 0", " is 0; it takes 1 to 10000"),
        ("--payload 1 --max-crashes 0", "max_crashes is 0"),
        ("--payload 1 --attempt-timeout 0s", "attempt_timeout_ms"),
        ("--payload 1 --retry sometimes", "retry"),
        ("--payload 1 --label plain", "a label is written NAME=VALUE"),
        ("--payload 1 --unique-key ''", "unique key must not be empty"),
        ("--payload 1 --jsonl -", "cannot be used with"),
        ("", "--payload"),
    ] {
        dir.fails(&format!("job enqueue --queue q --kind k {options}"), 2, &[says]);
    }
    for (words, code, says) in [
        (&*format!("job enqueue --queue {long} --kind k --payload 1"), 2, "the limit is 128"),
        ("job enqueue --queue fencehold/x --kind k --payload 1", 2, "reserved"),
        ("job claim --queue q=0", 2, "a weight is a whole number from 1"),
        ("job claim --queue q --ttl 1ms", 2, "ttl is 1 ms"),
        ("job get 7", 2, "is not 32 hexadecimal digits"),
        ("job ls --state odd", 2, "is not one of queued"),
        ("job cancel", 2, "no jobs are named"),
        ("schedule set s --cron '0 25 * * *' --queue q --kind k", 2, "hour \"25\""),
        ("schedule set s --cron '0 0 * *' --queue q --kind k", 2, "has 4 fields; it takes five"),
        ("schedule next --cron '0 0 * * *' --time-zone Europe/Berln", 2, "did you mean Europe/Berlin?"),
        ("work --queue q --concurrency 0 -- true", 2, "--concurrency"),
        ("work --queue q -- no-such-command", 127, "no-such-command was not found"),
        ("work --queue q --grace 1h -- true", 2, "too long for a ttl"),
    ] {
        dir.fails(words, code, &[says]);
    }
    assert!(!dir.path("leases").exists(), "nothing was made for any of them");
}
