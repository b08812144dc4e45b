//! The README's first minute works as it is written: its lines are read from the page and run.
#![cfg(feature = "file")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::terminal::TestTerminal;
use crate::support::{
    CommandOutput, RunningProcess, TestDirectory, assert_has, eventually, path_with_fencehold, said,
};

/// The shell lines of a section's first block, without comments and empty lines.
fn lines_of(section: &str) -> Vec<String> {
    lines_of_block(section, 1)
}

fn lines_of_block(section: &str, nth: usize) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = fs::read_to_string(page).unwrap();
    let after = page.split(&format!("\n## {section}\n")).nth(1).expect("the section");
    let within = after.split("\n## ").next().unwrap();
    let block = within.split("```sh\n").nth(nth).expect("a block of shell lines");
    let lines = block.split("\n```").next().unwrap().lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// A room in which the commands of the page are there to be run.
fn furnished() -> TestDirectory {
    let dir = TestDirectory::new();
    let token = "#!/bin/sh\necho token $FENCEHOLD_TOKEN\n";
    for (name, script) in
        [("build-report", token), ("deploy", token), ("send-email", "#!/bin/sh\nexec cat\n")]
    {
        let path = dir.path(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

fn shell(dir: &TestDirectory, script: &str) -> Command {
    let mut shell = dir.shell(script);
    shell.env("PATH", path_with_fencehold()).env("HOME", dir.path(""));
    shell
}

fn runs_well(dir: &TestDirectory, script: &str) -> CommandOutput {
    said(&mut shell(dir, script)).ended(0)
}

/// The line of the page that starts like this.
fn line(lines: &[String], start: &str) -> String {
    let found = lines.iter().find(|line| line.starts_with(start));
    found
        .unwrap_or_else(|| panic!("no line starts with {start}: {lines:#?}"))
        .clone()
}

#[test]
fn a_command_under_a_lease_prints_a_larger_token_each_time() {
    let first = lines_of_block("Two commands", 2).remove(0);
    let words = first.strip_prefix("cargo run --release -- ").expect("without a server");
    let dir = furnished();
    for token in 1..4 {
        assert_eq!(runs_well(&dir, &format!("fencehold {words}")).out, format!("token {token}\n"));
    }
}

#[test]
fn every_line_for_a_shell_works() {
    let lines = lines_of("From a shell");
    let dir = furnished();
    for run in ["fencehold run --key reports/daily", "fencehold run --key deploy"] {
        for token in 1..4 {
            assert_eq!(runs_well(&dir, &line(&lines, run)).out, format!("token {token}\n"));
        }
    }
    runs_well(&dir, &line(&lines, "fencehold lease ls"));
    runs_well(&dir, &line(&lines, "fencehold explain")).prints(&["reports/daily"]);

    let top = format!("TERM=xterm {}", line(&lines, "fencehold top"));
    let mut terminal = TestTerminal::new(&dir, &["sh", "-c", &top]);
    terminal.expect("Workers");
    terminal.press("q");

    // Force needs a holder.
    let mut deploying = dir.start("run --key deploy --ttl 8s -- sh -c 'echo up; exec sleep 600'");
    assert_eq!(deploying.line(), "up");
    runs_well(&dir, &line(&lines, "fencehold lease revoke"));
    deploying.finish().ended(76).says(&["wrong branch"]);

    // Follows until it is ended.
    let mut following =
        RunningProcess::start(&mut shell(&dir, &format!("exec {}", line(&lines, "fencehold event watch"))));
    eventually("the revocation among the events", || following.line().contains("wrong branch"));
    following.child.kill().unwrap();

    // What a script does over several commands, in one shell, as it stands there.
    let script = lines.iter().skip_while(|line| !line.starts_with("eval ")).cloned();
    let script: Vec<_> = script.collect();
    assert_eq!(script.len(), 3, "take, keep, give back: {script:#?}");
    for token in 1..3 {
        let said = runs_well(&dir, &format!("set -e\n{}\necho token $FENCEHOLD_TOKEN", script.join("\n")));
        assert!(said.out.ends_with(&format!("token {token}\n")), "{said:?}");
    }
    assert!(dir.lease("gpu/3")["holder"].is_null());
}

/// A line that no test runs can go stale.
#[test]
fn no_line_for_a_shell_is_left_out() {
    let known = [
        "fencehold run --key reports/daily",
        "fencehold run --key deploy",
        "fencehold lease ls",
        "fencehold explain",
        "fencehold event watch",
        "fencehold top",
        "fencehold lease revoke deploy",
        "eval ",
        "fencehold lease renew",
        "fencehold lease release",
    ];
    let lines = lines_of("From a shell");
    let fits = |(line, start): (&String, &&str)| line.starts_with(*start);
    assert!(lines.len() == known.len() && lines.iter().zip(&known).all(fits), "{lines:#?}");
}

#[test]
fn jobs_are_enqueued_and_worked_off_on_nothing_but_a_fresh_directory() {
    let dir = furnished();
    let script = lines_of("Jobs from a shell").join("\n");
    let said = runs_well(&dir, &format!("set -e\n{script}"));
    assert_eq!(said.out.matches(" completed after ").count(), 3, "a line for each job: {said:?}");
    assert!(said.out.lines().any(|line| line.split_whitespace().eq(["completed", "3"])), "{said:?}");
    assert!(dir.path("jobs").is_dir(), "in the directory that the page names");
    // What the command printed is kept.
    let results = runs_well(
        &dir,
        "export FENCEHOLD_STORE=file:jobs; for id in $(fencehold job ls -o jsonl | cut -d'\"' -f4); do fencehold job wait $id; done",
    );
    assert_eq!(results.out.lines().next(), Some(r#"{"to":"ada@example.org"}"#), "{results:?}");
    assert_eq!(results.out.lines().count(), 3, "{results:?}");
}

/// A server at a free port, once it is ready. Another process could take the port before it does; it then says so and ends.
#[cfg(feature = "server")]
fn serving(dir: &TestDirectory, words: &str) -> (RunningProcess, String) {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut serve = shell(dir, &format!("exec fencehold {words} --listen {address}"));
    let server = RunningProcess::start(&mut serve);
    let ready = format!("curl -sf http://{address}/readyz");
    eventually("a server that is ready", || said(&mut shell(dir, &ready)).code == 0);
    (server, address.to_string())
}

/// The page's own requests, sent by `curl`, to a server at an address of this test's own.
#[test]
#[cfg(feature = "server")]
fn curl_acquires_renews_and_releases_and_a_second_acquirer_is_told_who_holds_it() {
    let dir = furnished();
    let serve = lines_of("Two commands").remove(0);
    let words = serve.strip_prefix("cargo run --release -- ").expect("the first of the two");
    let (mut server, address) = serving(&dir, words.split(" #").next().unwrap());
    let script = lines_of("From anywhere, over HTTP").join("\necho\n");
    let said = runs_well(&dir, &format!("set -e\n{}", script.replace("localhost:7117", &address)));
    let answers: Vec<Value> = said.out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let [acquired, renewed, refused, released] = &answers[..] else { panic!("four answers: {said:?}") };
    let lease = json!({ "key": "reports/daily", "token": 1 });
    assert_has(acquired, &lease);
    assert_eq!(renewed["token"], 1, "{said:?}");
    assert_has(refused, &json!({ "type": "urn:fencehold:held", "owner": "ada", "task": "run-42" }));
    assert!(refused["remaining_ms"].as_u64().is_some_and(|ms| ms > 0), "{said:?}");
    assert_has(released, &lease);
    server.send(rustix::process::Signal::TERM);
    assert_eq!(server.finish().code, 0, "it ends in good order");
}

/// The command line itself, through the server.
#[test]
#[cfg(all(feature = "remote", feature = "server"))]
fn every_verb_goes_through_a_server_that_the_store_url_names() {
    let dir = furnished();
    let (mut server, address) = serving(&dir, "serve");
    let through = |script: &str| {
        said(&mut shell(&dir, &format!("export FENCEHOLD_STORE=http://{address}; set -e; {script}")))
    };
    let ran = through("fencehold run --key k -- sh -c 'echo token $FENCEHOLD_TOKEN'").ended(0);
    assert_eq!(ran.out, "token 1\n");
    let listed = through("fencehold lease ls --include-free -o jsonl; fencehold doctor >&2").ended(0);
    listed.prints(&["\"k\""]);
    let worked = through(
        "fencehold job enqueue --queue q --kind w --payload 7; \
         fencehold work --queue q --until-empty -- ./send-email; fencehold job count",
    );
    worked.ended(0).prints(&[" completed after "]);
    server.child.kill().unwrap();
    // Unavailable.
    through("fencehold lease ls").ended(69);
}
