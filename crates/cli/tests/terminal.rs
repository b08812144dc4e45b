//! On a terminal: the command has it while it runs, and the next program has it afterwards.
#![cfg(feature = "file")]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{RunningProcess, TestDirectory};

/// A terminal with a shell on it, in a session of its own.
struct TestTerminal {
    keys: File,
    seen: String,
    _shell: RunningProcess,
}

impl TestTerminal {
    fn new(dir: &TestDirectory, shell: &[&str]) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let screen = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).args(shell).current_dir(dir.path(""));
        command
            .env("FENCEHOLD_STORE", dir.store())
            .env("PS1", "ready> ")
            .env("NO_COLOR", "1");
        command
            .stdin(screen.try_clone().unwrap())
            .stdout(screen.try_clone().unwrap())
            .stderr(screen)
            .env("PATH", path_with_fencehold());
        let child = command.spawn().unwrap();
        TestTerminal { keys: File::from(keys), seen: String::new(), _shell: RunningProcess::adopt(child) }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads the screen until this is on it, and forgets what came before.
    fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let end = at + text.len();
                return self.seen.drain(..end).collect();
            }
            let limit = Timespec::try_from(Duration::from_secs(30)).unwrap();
            let ready = poll(&mut [PollFd::new(&self.keys, PollFlags::IN)], Some(&limit)).unwrap();
            assert_ne!(ready, 0, "{text:?} never came: {:?}", self.seen);
            let mut bytes = [0; 1024];
            let count = self.keys.read(&mut bytes).unwrap_or(0);
            assert_ne!(count, 0, "{text:?} never came: {:?}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }
}

fn path_with_fencehold() -> std::ffi::OsString {
    let ours = std::path::Path::new(env!("CARGO_BIN_EXE_fencehold"))
        .parent()
        .unwrap()
        .to_path_buf();
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(ours).chain(std::env::split_paths(&others))).unwrap()
}

#[test]
fn the_command_is_in_the_foreground_and_the_shell_is_there_again_afterwards() {
    let dir = TestDirectory::new();
    // Its group, and the group that the terminal listens to.
    let groups = r#"read -r all </proc/$$/stat; set -- $all; test $5 = $8 && read word && echo "the command read $word""#;
    let script = r#"fencehold run --key k -- sh -c "$GROUPS_SCRIPT"; read word; echo "the shell read $word""#;
    let script = format!("GROUPS_SCRIPT='{groups}'; {script}");
    let mut terminal = TestTerminal::new(&dir, &["sh", "-c", &script]);
    terminal.press("one\n");
    terminal.expect("the command read one");
    terminal.press("two\n");
    terminal.expect("the shell read two");
}

#[test]
fn a_key_that_interrupts_reaches_the_command_once() {
    let dir = TestDirectory::new();
    let script = r#"fencehold run --key k -- bash -c 'n=0; trap "n=\$((n+1))" INT; echo up; until test $n -gt 0; do sleep 0.01; done; sleep 0.1; echo interrupted $n times'"#;
    let mut terminal = TestTerminal::new(&dir, &["bash", "-c", script]);
    terminal.expect("up");
    terminal.press("\u{3}");
    terminal.expect("interrupted 1 times");
}

#[test]
fn a_command_that_is_stopped_by_a_key_goes_on_in_the_foreground() {
    let dir = TestDirectory::new();
    let mut terminal = TestTerminal::new(&dir, &["bash", "--norc", "--noprofile", "-i"]);
    terminal.expect("ready> ");
    terminal.press("fencehold run --key k -- sh -c 'echo u\"\"p; read word; echo \"read $word\"; exit 7'; echo code=$?\n");
    terminal.expect("up");
    terminal.press("\u{1a}");
    terminal.expect("fencehold: stopped: the lease is not renewed meanwhile");
    terminal.expect("ready> ");
    terminal.press("fg\n");
    terminal.press("again\n");
    terminal.expect("read again");
    terminal.expect("ready> ");
}

#[test]
fn a_command_beside_a_pager_gets_the_terminal_when_it_reads() {
    let dir = TestDirectory::new();
    let script = r#"fencehold run --key k -- sh -c 'read word; echo "read $word"' | cat"#;
    let mut terminal = TestTerminal::new(&dir, &["bash", "-c", script]);
    terminal.press("one\n");
    terminal.expect("read one");
}

#[test]
fn colours_are_for_a_terminal_and_not_for_those_who_want_none() {
    let dir = TestDirectory::new();
    assert_eq!(dir.fencehold(&["run", "--key", "k", "--", "true"]).code, 0);
    let script = "TERM=xterm NO_COLOR= fencehold event ls; echo one; TERM=xterm fencehold event ls; echo two";
    let mut terminal = TestTerminal::new(&dir, &["sh", "-c", script]);
    let coloured = terminal.expect("one");
    assert!(coloured.contains("released") && coloured.contains('\u{1b}'), "{coloured:?}");
    let plain = terminal.expect("two");
    assert!(plain.contains("released") && !plain.contains('\u{1b}'), "{plain:?}");
}

/// A terminal that does not say how wide it is has 80 columns.
#[test]
fn nothing_is_wider_than_the_terminal() {
    let dir = TestDirectory::new();
    let long = "a-name-that-is-far-too-long-for-a-column-of-a-table-on-a-terminal".repeat(2);
    let key = format!("reports/{long}");
    let owner = format!("--owner={long}");
    assert_eq!(
        dir.fencehold(&["lease", "acquire", &key, &owner, "--ttl", "1h", "--task", "t"])
            .code,
        0
    );
    let id = dir.enqueue("1", &["--label", &format!("{}=x", &long[..40]), "--delay", "1d"]);
    let words = ["schedule", "set", "s", "--cron", "30 2 * * *", "--queue", &long[..60], "--kind", "k"];
    assert_eq!(dir.fencehold(&words).code, 0);
    assert_eq!(dir.fencehold(&["access-token", "create", "ops", "--role", "operator"]).code, 0);
    let shown = [
        "lease ls",
        &format!("lease get {key}"),
        &format!("explain {key}"),
        &format!("lease acquire {key}"),
        "job ls",
        "job ls --state nonsense",
        &format!("job get {id}"),
        &format!("explain {id}"),
        "queue ls",
        "queue get q",
        "schedule ls",
        "schedule get s",
        "event ls",
        "store status",
        "quota get",
        "access-token ls",
        "audit ls",
        "doctor",
        "config check",
        "race ls",
        "help job enqueue",
        "store advance --by me",
    ];
    let script: Vec<String> =
        shown.iter().map(|words| format!("fencehold {words}; echo end-of-it")).collect();
    let script = script.join("\n");
    let mut terminal = TestTerminal::new(&dir, &["sh", "-c", &script]);
    for words in shown {
        let screen = terminal.expect("end-of-it");
        for line in screen.lines() {
            assert!(line.trim_end().chars().count() <= 80, "{words}: {line}");
        }
    }
}
