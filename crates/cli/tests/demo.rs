//! `fencehold demo`: what its event log says really happened, and that nothing is left of it, however it ends.
#![cfg(all(feature = "file", feature = "server"))]
#![allow(clippy::disallowed_methods, reason = "real processes live in real time")]

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fencehold_test_servers::chromium::{Chromium, in_browser};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::support::{RunningProcess, TestDirectory, children, eventually, found, process, runs, until};

/// A demo that has said where it serves.
struct RunningDemo {
    running: RunningProcess,
    url: String,
    directory: PathBuf,
}

impl RunningDemo {
    fn start(dir: &TestDirectory, options: &str) -> Self {
        let mut command = dir.command(&format!("demo -q -o jsonl --listen 127.0.0.1:0 {options}"));
        // It makes its directory in there.
        let mut running = RunningProcess::start(command.env("TMPDIR", dir.path("")));
        let started = running.json_line();
        let text = |name: &str| started[name].as_str().unwrap().to_owned();
        RunningDemo { running, url: text("url"), directory: text("directory").into() }
    }

    /// The processes of the fleet, each of which has the demo's directory for a home.
    fn processes(&self) -> Vec<i32> {
        let home = [b"HOME=", self.directory.as_os_str().as_bytes()].concat();
        let has_home = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == home)
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(has_home).collect()
    }

    /// The process that has started them.
    fn fleet(&self) -> i32 {
        *children(self.running.pid(), "exe").first().unwrap()
    }

    fn assert_nothing_is_left(&self, fleet: i32) {
        eventually("no process is left", || self.processes().is_empty() && !runs(fleet));
        eventually("no directory is left", || !self.directory.exists());
    }
}

fn of_type<'a>(events: &'a [Value], name: &str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["type"] == name)
}

/// Whether an attempt that ended like this was followed by another one at the same job, under a larger token.
fn was_tried_again(events: &[Value], outcome: &str, owner_prefix: &str) -> bool {
    of_type(events, "job_attempt_ended")
        .filter(|event| {
            event["outcome"] == outcome && event["owner"].as_str().unwrap().starts_with(owner_prefix)
        })
        .any(|end| {
            of_type(events, "job_claimed")
                .any(|claim| claim["key"] == end["key"] && claim["token"].as_u64() > end["token"].as_u64())
        })
}

/// Whether a holder whose lease had run out was refused while another one had the key.
fn a_stale_holder_was_refused(events: &[Value]) -> bool {
    of_type(events, "stale_write_blocked")
        .filter(|event| event["key"] == "reports/daily")
        .any(|refused| {
            let is_its =
                |event: &&Value| event["key"] == refused["key"] && event["token"] == refused["token"];
            let next = &refused["current_token"];
            of_type(events, "lease_ended").any(|event| is_its(&event) && event["outcome"] == "expired")
                && of_type(events, "lease_acquired")
                    .any(|event| event["token"] == *next && event["key"] == refused["key"])
        })
}

fn holders<'a>(events: &'a [Value], key: &str) -> Vec<&'a str> {
    let acquired = of_type(events, "lease_acquired").filter(|event| event["key"] == key);
    let mut owners: Vec<&str> = acquired.map(|event| event["owner"].as_str().unwrap()).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

#[test]
fn a_demo_has_a_crash_a_stall_a_retry_contention_and_an_undo_and_an_interrupt_leaves_nothing() {
    let dir = TestDirectory::new();
    let mut demo = RunningDemo::start(&dir, "");
    let seen = |words: &str| dir.succeeds(&format!("{words} --store {}", demo.url));
    until("everything that the demo shows", || {
        let events = seen("event ls -o jsonl").json_lines();
        let all = was_tried_again(&events, "crashed", "mailer-")
            && was_tried_again(&events, "failed", "mailer-")
            && a_stale_holder_was_refused(&events)
            && holders(&events, "gpu/0").len() > 1
            && of_type(&events, "effect_compensation_ended").any(|event| event["compensated"] == true);
        all.then_some(())
    });
    let contended = seen("lease ls --contended -o json").json();
    let gpu = found(&contended["keys"], "key", "gpu/0");
    assert!(gpu["refused_count"].as_u64() > Some(0), "{gpu}");
    let fleet = demo.fleet();
    assert!(demo.processes().len() > 8, "the server and its fleet: {:?}", demo.processes());
    demo.running.send(Signal::INT);
    assert_eq!(demo.running.finish().code, 0);
    assert_nothing_in(&dir, &demo.directory);
    demo.assert_nothing_is_left(fleet);
}

/// The cells of the front page that say who crashed last, once another worker has taken over.
fn last_crash(browser: &Chromium) -> Vec<String> {
    let mut cells = Value::Null;
    browser.until("a worker that crashed, and the one that took over", || {
        cells = browser.script(
            "const row = [...document.querySelectorAll('.lost tbody tr')].find(row => row.innerText.includes('crashed'));
             return row && row.querySelectorAll('a.owner').length == 2 ? [...row.cells].map(cell => cell.innerText.trim()) : null",
        );
        cells.is_array()
    });
    serde_json::from_value(cells).unwrap()
}

/// Follows a link in the row of what crashed under this token. The page may change at any moment, so it is found and followed at once.
fn follow_from_crash(browser: &Chromium, token: &str, link: &str) {
    let script = format!(
        "const is_its = row => row.innerText.includes('crashed') && [...row.cells].some(cell => cell.innerText.trim() == '{token}');
         const row = [...document.querySelectorAll('main table.stacked tbody tr')].find(is_its);
         const link = row && row.querySelector('{link}'); if (link) link.click(); return Boolean(link)"
    );
    browser.until(&format!("{link} where token {token} crashed"), || browser.script(&script) == true);
}

#[test]
fn in_a_browser_a_demo_shows_every_page_and_who_crashed_last_what_it_held_and_who_took_over() {
    let dir = TestDirectory::new();
    let demo = RunningDemo::start(&dir, "");
    in_browser("demo", |browser| {
        browser.open(&demo.url);
        browser.script("window.isTheSamePage = true");
        // When, who, what, its token, what happened, who took over, its token. It happens while the page is open.
        let crash = last_crash(browser);
        assert_eq!(browser.script("return window.isTheSamePage"), true, "the page was loaded again");
        browser.picture("demo-overview");
        let [_, crashed, _, token, _, next, next_token] = crash.as_slice() else { panic!("{crash:?}") };
        let number = |token: &str| token.parse::<u64>().unwrap();
        assert!(number(next_token) > number(token), "{crash:?}");
        follow_from_crash(browser, token, "a.owner");
        browser.reads(&format!("Worker {crashed}"));
        follow_from_crash(browser, token, "a[href*=job]");
        browser.reads("Attempts");
        browser.picture("demo-job");
        let url = browser.url();
        let (_, job) = url.split_once("/job?id=").unwrap();
        // What the pages say is what happened.
        let events = dir.succeeds(&format!("event ls -o jsonl --store {}", demo.url)).json_lines();
        let is_its = |event: &&Value| event["key"].as_str().unwrap().ends_with(job);
        let end = of_type(&events, "job_attempt_ended")
            .find(|event| is_its(event) && event["outcome"] == "crashed");
        let end = end.unwrap_or_else(|| panic!("{job} crashed: {events:?}"));
        assert_eq!(
            (end["owner"].as_str(), end["token"].as_u64()),
            (Some(crashed.as_str()), Some(number(token)))
        );
        let claim = of_type(&events, "job_claimed")
            .find(|event| is_its(event) && event["token"] == number(next_token));
        assert_eq!(claim.unwrap()["owner"].as_str(), Some(next.as_str()));
        for page in [
            "leases",
            "queues",
            "jobs",
            "workers",
            "schedules",
            "effects",
            "audit",
            "lease?key=reports%2Fdaily",
        ] {
            browser.open(&format!("{}/{page}", demo.url));
            browser.reads("Overview");
            let name: String = page.chars().take_while(char::is_ascii_alphabetic).collect();
            browser.picture(&format!("demo-{name}"));
        }
        browser.was_clean(&demo.url, &[]);
    });
}

/// Once the demo has ended, without a wait.
fn assert_nothing_in(dir: &TestDirectory, directory: &Path) {
    assert!(!directory.exists(), "{} is left", directory.display());
    let names = fs::read_dir(dir.path("")).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("fencehold-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn nothing_is_left_however_a_demo_ends() {
    type End<'a> = &'a (dyn Fn(&mut RunningDemo) + Sync);
    let dir = TestDirectory::new();
    let by_itself = |demo: &mut RunningDemo| assert_eq!(demo.running.finish().code, 0);
    let terminated = |demo: &mut RunningDemo| {
        demo.running.send(Signal::TERM);
        assert_eq!(demo.running.finish().code, 0);
    };
    let killed = |demo: &mut RunningDemo| demo.running.send(Signal::KILL);
    let fleet_killed = |demo: &mut RunningDemo| {
        kill_process(process(demo.fleet()), Signal::KILL).unwrap();
        assert_ne!(demo.running.finish().code, 0);
    };
    let ends: [(&str, End<'_>); 4] =
        [("--seconds 2", &by_itself), ("", &terminated), ("", &killed), ("", &fleet_killed)];
    std::thread::scope(|scope| {
        for (options, end) in ends {
            let dir = &dir;
            scope.spawn(move || {
                let mut demo = RunningDemo::start(dir, options);
                let fleet = demo.fleet();
                if options.is_empty() {
                    eventually("its fleet", || demo.processes().len() > 8);
                }
                end(&mut demo);
                demo.assert_nothing_is_left(fleet);
            });
        }
    });
    assert_nothing_in(&dir, &dir.path("fencehold-demo"));
}

#[test]
fn a_demo_takes_no_store_and_says_why_its_server_does_not_start() {
    let dir = TestDirectory::new();
    dir.fails("demo --store memory:", 2, &["the demo makes a store of its own"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut command = dir.command(&format!("demo --listen {address}"));
    let mut running = RunningProcess::start(command.env("TMPDIR", dir.path("")));
    let said = running.finish();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains(&address.to_string()), "{said:?}");
    assert_nothing_in(&dir, &dir.path("fencehold-demo"));
}
