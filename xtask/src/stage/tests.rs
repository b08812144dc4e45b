//! Unit and integration tests, two programs of tests at a time.
//!
//! Many of them wait for something most of the time (a cluster, a chaos that takes its twenty seconds): one after the other
//! they would leave the machine idle. Workspace and features are the same as for doc tests and examples, so that one build of
//! the dependencies serves all of them; `--tests` leaves out the doc tests, which are a stage of their own.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::process;

/// How many run at a time.
const LANES: usize = 2;
/// Programs that need many seconds, longest first: they start first, so that nothing long is left alone at the end. Of
/// each, the modules that do, which are left out of what every commit should pass; none: the whole program is.
const LONG: [(&str, &[&str]); 8] = [
    (
        "server",
        &[
            "conformance::",
            "dashboard::chromium::",
            "generated_clients::",
            "metrics::the_alert_rules",
            "schemathesis::",
        ],
    ),
    ("postgres", &[]),
    (
        "cli",
        &[
            "far_stores::",
            "faults::",
            "postgres::",
            "race::every_race",
            "race::races_leave",
            "race::races_that",
            "serve::",
        ],
    ),
    ("client", &["chaos::", "fence_object::", "fence_postgres::", "job_kills::", "job_postgres::"]),
    ("object", &[]),
    ("file", &["same_second::"]),
    ("proof", &["sim::"]),
    ("etcd", &[]),
];

/// A test of such a program that takes minutes of one processor: it is run as a program of its own, so that it does not come last and alone.
const APART: (&str, &[&str]) = ("server", &["schemathesis::"]);

/// One program of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suite {
    executable: PathBuf,
    /// Where its package lies: it runs there, as under cargo.
    package: PathBuf,
    /// Modules that are left out.
    skips: &'static [&'static str],
    /// Modules that alone are run; none: the whole program is.
    only: &'static [&'static str],
}

pub(crate) fn run() -> Result<(), String> {
    run_all(set_apart(build()?))
}

/// With the test that takes long on its own, after the programs that take longer.
fn set_apart(mut suites: Vec<Suite>) -> Vec<Suite> {
    const AFTER: &str = "cli";
    let (program, modules) = APART;
    if let Some(suite) = suites.iter_mut().find(|suite| suite.name() == program) {
        let apart = Suite { only: modules, ..suite.clone() };
        suite.skips = modules;
        let place = suites
            .iter()
            .position(|suite| suite.name() == AFTER)
            .map_or(suites.len(), |cli| cli + 1);
        suites.insert(place, apart);
    }
    suites
}

/// Those that are soon over.
pub(crate) fn run_quick() -> Result<(), String> {
    let mut suites = build()?;
    for suite in &mut suites {
        suite.skips = long_modules(&suite.name()).unwrap_or_default();
    }
    suites.retain(|suite| !suite.skips.is_empty() || long_modules(&suite.name()).is_none());
    run_all(suites)
}

/// The long modules of a program; `None`: nothing in it takes long.
fn long_modules(program: &str) -> Option<&'static [&'static str]> {
    LONG.iter().find(|(name, _)| *name == program).map(|(_, modules)| *modules)
}

fn run_all(suites: Vec<Suite>) -> Result<(), String> {
    let queue = Mutex::new(VecDeque::from(suites));
    let failed = Mutex::new(Vec::new());
    let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let lane = || {
        while let Some(suite) = take() {
            if let Err(failures) = suite.run() {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(failures);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(format!("these tests failed:\n{}", failed.concat())) }
}

/// Builds all of them, and says where they are.
fn build() -> Result<Vec<Suite>, String> {
    let words = "test --workspace --all-features --tests --no-run";
    // Once for people, who see what is wrong; and once more, when there is nothing left to do, for the list.
    process::run(&mut process::linted_cargo(words)?)?;
    let listed = process::linted_cargo(words)?
        .args(["--message-format", "json"])
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    let mut suites: Vec<Suite> = String::from_utf8_lossy(&listed.stdout).lines().filter_map(suite).collect();
    if suites.is_empty() {
        return Err("cargo names no tests".to_owned());
    }
    suites.sort_by_key(|suite| {
        let name = suite.name();
        LONG.iter().position(|(long, _)| *long == name).unwrap_or(LONG.len())
    });
    Ok(suites)
}

/// What one line of cargo's list says, if it is about a program of tests.
fn suite(line: &str) -> Option<Suite> {
    let text = |field: &str| {
        let (_, rest) = line.split_once(&format!("\"{field}\":\""))?;
        rest.split_once('"').map(|(text, _)| PathBuf::from(text))
    };
    let (_, profile) = line.split_once("\"profile\":{")?;
    if !profile.split_once('}')?.0.contains("\"test\":true") {
        return None;
    }
    let package = text("manifest_path")?.parent().map(Path::to_owned)?;
    Some(Suite { executable: text("executable")?, package, skips: &[], only: &[] })
}

impl Suite {
    /// As its author calls it: without what cargo appends.
    fn name(&self) -> String {
        let file = self.executable.file_name().unwrap_or_default().to_string_lossy().into_owned();
        file.rsplit_once('-').map_or(file.clone(), |(name, _)| name.to_owned())
    }

    /// Runs it, and shows a line if it passes, else all it says but for the tests that passed. The error says the same in
    /// short: logs are read from their end.
    fn run(&self) -> Result<(), String> {
        let started = Instant::now();
        // A shell that starts something in the background has it ignore SIGINT, which tests send to their programs.
        let output = Command::new("env")
            .arg("--default-signal")
            .arg(&self.executable)
            .args(self.only)
            .args(self.skips.iter().flat_map(|module| ["--skip", module]))
            .current_dir(&self.package)
            .env("CARGO_MANIFEST_DIR", &self.package)
            .env("RUST_TEST_THREADS", threads().to_string())
            .stdin(Stdio::null())
            .output();
        let mut name = self.name();
        for module in self.only {
            name = format!("{name} {module}");
        }
        let seconds = started.elapsed().as_secs();
        let output = output.map_err(|error| format!("{name} cannot be started: {error}\n"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            let passed = said
                .lines()
                .find_map(|line| line.strip_prefix("test result: ok. ")?.split(';').next());
            println!("{name}: {}, {seconds} s", passed.unwrap_or("ended without a result"));
            return Ok(());
        }
        let noted = String::from_utf8_lossy(&output.stderr);
        let told: Vec<&str> = said.lines().filter(|line| !line.ends_with(" ... ok")).collect();
        println!("\n--- {name}: {}, {seconds} s\n{noted}{}\n", output.status, told.join("\n"));
        Err(failures(&name, &output.status.to_string(), &said))
    }
}

/// How many tests of a program run at a time: as many as its caller wants, or three for every two cores, for many of them wait.
fn threads() -> usize {
    let wanted = std::env::var("RUST_TEST_THREADS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, |cores| cores.get() * 3 / 2))
}

/// Of what a failed program said, each test that failed with the first lines of its panic.
fn failures(program: &str, status: &str, said: &str) -> String {
    const LINES: usize = 12;
    let mut lines = vec![format!("{program} ({status})\n")];
    let reports = said.split("\n---- ").skip(1);
    for report in reports {
        let (test, report) = report.split_once(" stdout ----\n").unwrap_or((report, ""));
        let starts = |line: &str| line.starts_with("thread '") || line.starts_with("Error: ");
        let why = report.lines().skip_while(|line| !starts(line));
        lines.push(format!("  {test}\n"));
        let why = why.take(LINES).take_while(|line| !line.is_empty());
        lines.extend(why.map(|line| format!("    {line}\n")));
    }
    lines.concat()
}

#[cfg(test)]
mod listing {
    use super::*;

    #[test]
    fn a_program_of_tests_is_found_in_what_cargo_says() {
        let line = r#"{"reason":"compiler-artifact","package_id":"x","manifest_path":"/w/crates/a/Cargo.toml","target":{"name":"b","test":true},"profile":{"opt_level":"0","test":true},"features":[],"executable":"/t/deps/b-0123","fresh":true}"#;
        let found = suite(line).unwrap();
        assert_eq!(
            (&*found.executable, &*found.package),
            (Path::new("/t/deps/b-0123"), Path::new("/w/crates/a"))
        );
        assert_eq!(found.name(), "b");
    }

    #[test]
    fn what_is_no_program_of_tests_is_passed_over() {
        let line = r#"{"manifest_path":"/w/Cargo.toml","target":{"test":true},"profile":{"test":false},"executable":"/t/a","fresh":true}"#;
        assert_eq!(suite(line), None);
        let line = r#"{"manifest_path":"/w/Cargo.toml","target":{"test":true},"profile":{"test":true},"executable":null,"fresh":true}"#;
        assert_eq!(suite(line), None);
    }

    #[test]
    fn what_is_run_apart_is_run_once() {
        let program = |name: &str| Suite {
            executable: format!("/t/{name}-1").into(),
            package: "/w".into(),
            skips: &[],
            only: &[],
        };
        let suites = set_apart(vec![program("server"), program("cli"), program("file")]);
        let planned: Vec<_> = suites.iter().map(|suite| (suite.name(), suite.only, suite.skips)).collect();
        let [none, apart]: [&[&str]; 2] = [&[], &["schemathesis::"]];
        let expected = [
            ("server".to_owned(), none, apart),
            ("cli".to_owned(), none, none),
            ("server".to_owned(), apart, none),
            ("file".to_owned(), none, none),
        ];
        assert_eq!(planned, expected);
        assert_eq!(set_apart(vec![program("cli")]).len(), 1);
    }

    #[test]
    fn of_a_failed_program_each_failed_test_is_named_with_its_panic() {
        let said = "\
running 3 tests
test a::holds ... ok
test a::breaks ... FAILED

failures:

---- a::breaks stdout ----
starting a server

thread 'a::breaks' (77) panicked at a.rs:1:5:
left is not right
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

---- b::breaks stdout ----
Error: refused


failures:
    a::breaks
    b::breaks
";
        let expected = "\
server (exit status: 101)
  a::breaks
    thread 'a::breaks' (77) panicked at a.rs:1:5:
    left is not right
    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
  b::breaks
    Error: refused
";
        assert_eq!(failures("server", "exit status: 101", said), expected);
    }

    #[test]
    fn a_program_that_was_killed_is_named_with_its_status() {
        assert_eq!(
            failures("cli", "signal: 9 (SIGKILL)", "running 2 tests\n"),
            "cli (signal: 9 (SIGKILL))\n"
        );
    }
}
