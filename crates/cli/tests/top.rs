//! `fencehold top` on a real terminal: what is on its screen, what its keys do to a real store, and that the terminal is given back.
#![cfg(all(feature = "file", feature = "server"))]
#![allow(clippy::disallowed_methods, reason = "real processes live in real time")]

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use rustix::termios::Termios;
use serde_json::json;

use crate::support::terminal::TestTerminal;
use crate::support::{TestDirectory, assert_has, process, said, serve, serve_with, until};

/// How long anything may take before the test has failed.
const LIMIT: Duration = Duration::from_secs(60);

/// The mode in which the cursor is seen, as it is at first.
const CURSOR: &str = "?25";
const SECOND_SCREEN: &str = "?1049";

/// What is on a screen, as a terminal understands what is written.
struct Display {
    columns: usize,
    rows: Vec<Vec<char>>,
    place: (usize, usize),
    pending: Vec<u8>,
    /// The modes that were switched on and not off.
    modes: Vec<String>,
}

impl Display {
    fn new(columns: usize, rows: usize) -> Self {
        let rows = vec![vec![' '; columns]; rows];
        Display { columns, rows, place: (0, 0), pending: Vec::new(), modes: vec![CURSOR.to_owned()] }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let end = match std::str::from_utf8(&self.pending) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8(self.pending[..end].to_vec()).unwrap();
        let mut rest = text.as_str();
        while let Some(c) = rest.chars().next() {
            if let Some(sequence) = rest.strip_prefix("\u{1b}[") {
                let Some(last) = sequence.find(|c: char| c.is_ascii_alphabetic()) else { break };
                self.obey(&sequence[..last], &sequence[last..=last]);
                rest = &sequence[last + 1..];
                continue;
            }
            if c == '\u{1b}' && rest.len() < 2 {
                break;
            }
            rest = &rest[c.len_utf8()..];
            self.put(c);
        }
        let read = end - rest.len();
        self.pending.drain(..read);
    }

    fn obey(&mut self, parameters: &str, last: &str) {
        let number = |nth: usize| -> usize {
            parameters.split(';').nth(nth).and_then(|text| text.parse().ok()).unwrap_or(1)
        };
        match last {
            "H" => self.place = (number(1) - 1, number(0) - 1),
            "J" => self.rows.iter_mut().for_each(|row| row.fill(' ')),
            "h" if self.modes.iter().any(|mode| mode == parameters) => {}
            "h" => self.modes.push(parameters.to_owned()),
            "l" => {
                self.modes.retain(|mode| mode != parameters);
                if parameters == SECOND_SCREEN {
                    // What was on the first one before does not matter.
                    self.rows.iter_mut().for_each(|row| row.fill(' '));
                    self.place = (0, 0);
                }
            }
            "m" => {}
            other => panic!("an unknown sequence: {parameters}{other}"),
        }
    }

    fn put(&mut self, c: char) {
        match c {
            '\r' => self.place.0 = 0,
            '\n' => self.place.1 += 1,
            c => {
                // Lines of a shell go on in the next one; what is drawn has its place.
                let is_drawn = self.modes.iter().any(|mode| mode == SECOND_SCREEN);
                if self.place.0 == self.columns && !is_drawn {
                    self.place = (0, self.place.1 + 1);
                }
                let (x, y) = self.place;
                assert!(x < self.columns, "{c:?} is written beyond the last column");
                if let Some(row) = self.rows.get_mut(y) {
                    row[x] = c;
                }
                self.place.0 += 1;
            }
        }
    }

    fn text(&self) -> String {
        let lines = self.rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Top on a terminal.
struct Top {
    terminal: TestTerminal,
    display: Display,
    before: Vec<String>,
}

/// What of a terminal's modes can be compared.
fn modes(modes: &Termios) -> Vec<String> {
    vec![
        format!("{:?}", modes.input_modes),
        format!("{:?}", modes.output_modes),
        format!("{:?}", modes.local_modes),
        format!("{:?}", modes.special_codes),
    ]
}

impl Top {
    fn start(dir: &TestDirectory, options: &str) -> Self {
        Top::start_after("true", dir, options)
    }

    /// Starts it, after something else, in a shell that says afterwards how it ended.
    fn start_after(before: &str, dir: &TestDirectory, options: &str) -> Self {
        let every = if options.contains("--every") { "" } else { "--every 100ms" };
        let top = format!("echo $$ >pid; exec fencehold top {every} {options}");
        let script = format!("read line; {before}; TERM=xterm sh -c '{top}'; echo ended=$?");
        let mut terminal = TestTerminal::new(dir, &["sh", "-c", &script]);
        terminal.resize(80, 24);
        let before = modes(&terminal.modes());
        terminal.press("\n");
        Top { terminal, display: Display::new(80, 24), before }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.press(keys);
    }

    /// Reads until the screen is so.
    fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let text = self.display.text();
            if is_so(&text) {
                return text;
            }
            // It is drawn again and again, as time goes by.
            assert!(began.elapsed() < LIMIT, "{what} never came:\n{text}");
            let bytes = self.terminal.read();
            let bytes = bytes.unwrap_or_else(|| panic!("{what} never came:\n{text}"));
            self.display.feed(&bytes);
        }
    }

    fn shows(&mut self, what: &str) -> String {
        self.until(what, |text| text.contains(what))
    }

    /// It has ended with this exit code, and the terminal is as it was.
    fn ended(mut self, code: i32) {
        let said = format!("ended={code}");
        self.shows(&said);
        assert_eq!(self.display.modes, [CURSOR], "each mode is as before");
        assert_eq!(modes(&self.terminal.modes()), self.before);
    }

    fn is_drawing(&self) {
        for mode in [SECOND_SCREEN, "?2004"] {
            assert!(self.display.modes.iter().any(|on| on == mode), "{:?}", self.display.modes);
        }
        assert_ne!(modes(&self.terminal.modes()), self.before, "keys come at once, and are not echoed");
    }
}

/// A store in which two leases are held.
fn two_leases() -> TestDirectory {
    let dir = TestDirectory::new();
    dir.succeeds("lease acquire deploy/api --owner bob --ttl 1h");
    dir.succeeds("lease acquire reports/daily --owner ada --task nightly --ttl 1h");
    dir
}

#[test]
fn a_lease_is_looked_at_and_revoked_and_the_terminal_is_given_back() {
    let dir = two_leases();
    let mut top = Top::start(&dir, "");
    let screen = top.shows("reports/daily");
    assert!(screen.contains("2 held, 0 in line") && screen.contains("bob"), "{screen}");
    top.is_drawing();
    top.press("j");
    top.shows("reports/daily is held by ada for task nightly");
    top.press("\r");
    top.shows("held by ada under token 1 for task nightly");
    top.press("x");
    top.shows("Reason:");
    top.press("host is gone\r");
    top.shows("reports/daily: token 1 was revoked");
    top.shows(": host is gone");
    // Another acquires it meanwhile: what is shown follows.
    dir.succeeds("lease acquire reports/daily --owner eve --ttl 1h");
    top.shows("held by eve under token 3");
    top.press("\u{1b}");
    top.shows("2 held");
    top.press("q");
    top.ended(0);
    let lease = dir.lease("reports/daily");
    assert_has(&lease["endings"][0], &json!({ "token": 1, "outcome": "revoked", "reason": "host is gone" }));
}

#[test]
fn a_revocation_of_what_is_no_longer_held_does_not_hit_the_next_holder() {
    let dir = two_leases();
    let mut top = Top::start(&dir, "--every 1h");
    top.shows("reports/daily");
    top.press("jx");
    top.shows("ends the hold of ada under token 1, and no later one");
    // What is on the screen is not looked at again before it is confirmed.
    dir.succeeds("lease revoke reports/daily --reason other");
    dir.succeeds("lease acquire reports/daily --owner eve --ttl 1h");
    top.press("gone\r");
    top.shows("the lease under token 1 is over");
    top.press("q");
    top.ended(0);
    assert_eq!(dir.lease("reports/daily")["holder"]["owner"], "eve");
}

#[test]
fn what_is_pasted_revokes_nothing() {
    let dir = two_leases();
    let mut top = Top::start(&dir, "");
    top.shows("reports/daily");
    top.press("\u{1b}[200~x\rgone\rq\u{1b}[201~");
    top.press("x");
    top.shows("Reason:");
    top.press("\u{1b}[200~gone\rq\u{1b}[201~");
    top.shows("Reason: gone q");
    top.press("\u{1b}");
    top.shows("nothing was done");
    top.press("q");
    top.ended(0);
    assert_eq!(dir.json("lease ls")["leases"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_keys_are_shown_and_every_list_is_drawn_at_any_size() {
    let dir = two_leases();
    dir.enqueue("1", "");
    let mut top = Top::start(&dir, "");
    top.shows("reports/daily");
    top.press("?");
    top.shows("any key closes this");
    top.press("z2");
    top.shows("1 queue");
    top.press("s\r");
    top.shows("queue q is paused");
    top.press("3");
    top.shows("1 job: those that need a person");
    top.press("x");
    top.shows("Reason (optional)");
    top.press("\r");
    top.shows("is cancelled");
    top.press("4");
    top.shows("2 owners");
    top.press("5");
    top.shows("queue paused");
    top.press("/acquired\r");
    top.shows("the last 2 events, newest first · filter: acquired");
    top.terminal.resize(40, 10);
    top.shows("too small");
    top.terminal.resize(80, 24);
    top.shows("the last 2 events");
    top.press("\u{3}");
    top.ended(0);
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_given_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let dir = two_leases();
        let mut top = Top::start(&dir, "");
        top.shows("reports/daily");
        top.is_drawing();
        let pid = until("its pid", || dir.lines("pid").first()?.parse().ok());
        kill_process(process(pid), signal).unwrap();
        top.ended(code);
    }
}

#[test]
fn an_access_token_with_too_few_scopes_sees_what_it_may_and_is_refused_the_rest() {
    let dir = two_leases();
    let token = dir.succeeds("access-token create reader --scope lease:read").out;
    let (_server, address) = serve(&dir, "127.0.0.1:0");
    let options = format!("--store http://{address}");
    let mut top = Top::start(&dir, &options);
    top.shows("a token is needed");
    top.ended(78);
    let token = format!("export FENCEHOLD_ACCESS_TOKEN={}", token.trim());
    let mut top = Top::start_after(&token, &dir, &options);
    top.shows("reports/daily");
    top.press("x");
    top.shows("Reason:");
    top.press("mine\r");
    top.shows("lease:revoke");
    top.press("2");
    let refused = top.shows("nothing to see");
    assert!(refused.contains("does not allow it"), "{refused}");
    top.press("1");
    top.shows("2 held");
    top.press("q");
    top.ended(0);
    assert_eq!(dir.lease("deploy/api")["holder"]["owner"], "bob");
}

#[test]
fn a_server_that_is_gone_leaves_the_last_picture_and_its_return_is_noticed() {
    let dir = two_leases();
    let (mut server, address) = serve(&dir, "127.0.0.1:0");
    let mut top = Top::start(&dir, &format!("--store http://{address} --timeout 100ms"));
    top.shows("reports/daily");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let old = top.shows("OLD: as of");
    assert!(old.contains("reports/daily") && old.contains("is unavailable"), "{old}");
    let (_server, _) = serve_with(dir.command(&format!("serve --listen {address} --store {}", dir.store())));
    top.until("a fresh picture", |text| text.contains("reports/daily") && !text.contains("OLD"));
    top.press("q");
    top.ended(0);
}

#[test]
fn without_a_terminal_or_with_a_format_it_is_bad_usage() {
    let dir = two_leases();
    dir.fails("top", 2, &["top needs a terminal", "lease ls"]);
    dir.fails("top -o json", 2, &["bad-input", "event watch -o jsonl"]);
    dir.fails("top --every 5ms", 2, &["--every", "at least 100ms"]);
    dir.fails("top --store file:nowhere", 2, &["top needs a terminal"]);
    let piped = said(dir.command("top").env("TERM", "dumb")).ended(2);
    assert_eq!(piped.out, "");
    // A store that is not there is an error before anything is drawn.
    let mut terminal = TestTerminal::new(
        &dir,
        &["sh", "-c", "TERM=xterm fencehold top --store file:nowhere; echo ended=$?"],
    );
    let seen = terminal.expect("ended=");
    assert!(seen.contains("there is no store in") && !seen.contains("\u{1b}[?1049h"), "{seen:?}");
    let mut terminal = TestTerminal::new(
        &dir,
        &["sh", "-c", "TERM=dumb fencehold top; TERM=xterm fencehold top -v; echo ended=$?"],
    );
    let seen = terminal.expect("ended=");
    assert!(seen.contains("top needs a terminal") && seen.contains("-v would log over"), "{seen:?}");
}
