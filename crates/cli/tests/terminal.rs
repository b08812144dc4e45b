//! On a terminal: the command has it while it runs, and the next program has it afterwards.
#![cfg(feature = "file")]

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;

use crate::support::terminal::TestTerminal;
use crate::support::{TestDirectory, every_verb};

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
    assert_eq!(dir.fencehold("run --key k -- true").code, 0);
    let script = "TERM=xterm NO_COLOR= fencehold event ls; echo one; TERM=xterm fencehold event ls; echo two";
    let mut terminal = TestTerminal::new(&dir, &["sh", "-c", script]);
    let coloured = terminal.expect("one");
    assert!(coloured.contains("released") && coloured.contains('\u{1b}'), "{coloured:?}");
    let plain = terminal.expect("two");
    assert!(plain.contains("released") && !plain.contains('\u{1b}'), "{plain:?}");
}

/// Longer than it takes a bar to appear.
const BENCH: &str = "bench lease --clients 1 --duration 500ms";
/// What takes a line away that was drawn.
const ERASE: &str = "\r\u{1b}[K";

#[test]
fn what_takes_long_draws_a_bar_on_a_terminal_and_takes_it_away() {
    let dir = TestDirectory::new();
    let mut terminal =
        TestTerminal::new(&dir, &["sh", "-c", &format!("TERM=xterm fencehold {BENCH}; echo end-of-it")]);
    let screen = terminal.expect("end-of-it");
    let drawn: Vec<&str> = screen.split(ERASE).collect();
    assert!(drawn.iter().any(|line| line.starts_with("[#") && line.contains("measuring (")), "{screen:?}");
    assert!(
        drawn.last().is_some_and(|rest| !rest.contains("measuring")),
        "it is gone at the end: {screen:?}"
    );

    // Also while nothing comes: a pipe without a line.
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path("lines"), rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap();
    let enqueue = "TERM=xterm fencehold job enqueue --queue q --kind k --jsonl lines; echo end-of-it";
    let mut terminal = TestTerminal::new(&dir, &["sh", "-c", enqueue]);
    let mut lines = OpenOptions::new().write(true).open(dir.path("lines")).unwrap();
    terminal.expect("enqueued 0 jobs");
    lines.write_all(b"1\n").unwrap();
    drop(lines);
    terminal.expect("end-of-it");
}

#[test]
fn no_bar_is_drawn_with_quiet_nor_where_there_is_no_terminal() {
    let dir = TestDirectory::new();
    let quiet = format!("TERM=xterm fencehold -q {BENCH}; TERM=dumb fencehold {BENCH}; echo end-of-it");
    let mut terminal = TestTerminal::new(&dir, &["sh", "-c", &quiet]);
    let screen = terminal.expect("end-of-it");
    assert!(!screen.contains(ERASE) && !screen.contains("measuring ("), "{screen:?}");
    let said = dir.succeeds(BENCH);
    assert!(!said.err.contains(['\r', '\u{1b}']) && !said.err.contains("measuring ("), "{said:?}");
    assert_eq!(dir.succeeds(&format!("-q {BENCH}")).err, "");
}

/// What prints for programs, which break lines themselves.
const FOR_PROGRAMS: [&str; 2] = ["completions", "man"];

/// Verbs that go on until a key stops them, and what is to be seen by then.
const ENDLESS: [(&str, &str, &str); 4] = [
    ("demo", "--listen 127.0.0.1:0", "Ctrl-C ends it"),
    ("serve", "--listen 127.0.0.1:0", "serving "),
    ("event watch", "", "reports/"),
    ("lease watch", "", "reports/"),
];

/// What is shown of every verb that clap knows, with names that fit into no column.
#[expect(clippy::too_many_lines, reason = "it is a list: one row a verb")]
fn shown(long: &str, key: &str, id: &str, queue: &str) -> Vec<(&'static str, String)> {
    let owner = format!("--owner={long}");
    let mine = format!("k/{long}");
    let hold = format!("eval \"$(fh lease acquire {mine} -o env)\"");
    let claim = format!("eval \"$(fh job claim --queue {queue} {owner} -o env)\"");
    let kind = &long[..60];
    let label = format!("--label {}=x", &long[..40]);
    let enqueue = format!("fh job enqueue --queue {queue} --kind {kind} {label} --payload");
    let schedule =
        format!("--time-zone America/Argentina/ComodRivadavia --queue {queue} --kind {kind} {label}");
    vec![
        ("serve", "fh serve --listen 0.0.0.0:0".to_owned()),
        ("run", format!("fh run --key {key} -- true")),
        ("lease acquire", format!("fh lease acquire {key}; fh lease acquire other/{long} {owner}")),
        (
            "lease renew",
            format!("{hold}; fh lease renew {mine}; fh lease renew {key}; fh lease release {mine}"),
        ),
        ("lease release", format!("{hold}; fh lease release {mine}")),
        ("lease revoke", format!("fh lease revoke other/{long} --reason {long} --by {long}")),
        (
            "lease ls",
            format!(
                "fh lease ls; fh lease ls --include-free; fh lease acquire other/{long} {owner}; fh lease ls --contended"
            ),
        ),
        ("lease stats", "fh lease stats; fh lease stats --since 24h".to_owned()),
        ("lease get", format!("fh lease get {key}; fh lease get other/{long}; fh lease get never/{long}")),
        (
            "explain",
            format!("fh explain {key}; fh explain other/{long}; fh explain never/{long}; fh explain {id}"),
        ),
        (
            "job enqueue",
            format!("{enqueue} 1; {enqueue} {long}; for n in 1 2 3 4 5 6 7 8; do {enqueue} $n; done"),
        ),
        ("job claim", format!("fh job claim --queue {queue}; fh job claim --queue x{queue}")),
        ("job renew", format!("{claim}; fh job renew; fh job renew {id}")),
        (
            "job checkpoint",
            format!(
                "{claim}; fh job checkpoint --text x; fh job checkpoint --file {long}; fh job get $FENCEHOLD_JOB_ID"
            ),
        ),
        (
            "job progress",
            format!("fh job progress --note {kind}; fh job get $FENCEHOLD_JOB_ID; fh job release"),
        ),
        ("job complete", format!("{claim}; fh job complete; fh job complete")),
        ("job fail", format!("{claim}; fh job fail --error {long}")),
        ("job snooze", format!("{claim}; fh job snooze --delay 1d")),
        ("job release", format!("{claim}; fh job release")),
        (
            "job wait",
            format!("{claim}; fh job fail --permanent --error {long}; fh job wait $FENCEHOLD_JOB_ID"),
        ),
        ("job get", format!("fh job get {id}; fh job get $FENCEHOLD_JOB_ID; fh explain $FENCEHOLD_JOB_ID")),
        ("job ls", "fh job ls; fh job ls --state nonsense".to_owned()),
        ("job count", "fh job count".to_owned()),
        (
            "job cancel",
            format!("fh job cancel {id} --reason {long} --by {long}; fh job cancel --all --dry-run"),
        ),
        ("job retry", format!("fh job retry {id}; fh job retry --queue {queue} --state failed")),
        ("job rm", format!("fh job rm {id} {id}; fh job rm --queue {queue}")),
        (
            "work",
            format!(
                "{enqueue} 1; fh work --queue {queue} --until-empty -- false; fh work --queue q -- ./{long}"
            ),
        ),
        ("queue pause", format!("fh queue pause {queue} --by {long}")),
        ("queue drain", format!("fh queue drain {queue}; {enqueue} 1")),
        ("queue resume", format!("fh queue resume {queue}")),
        ("queue ls", "fh queue ls".to_owned()),
        ("queue get", format!("fh queue get {queue}")),
        ("queue rm", format!("fh queue rm {queue}; fh queue rm x{queue}")),
        ("schedule set", format!("fh schedule set s-{kind} --cron '30 2 * * *' {schedule}")),
        ("schedule ls", "fh schedule ls".to_owned()),
        ("schedule get", format!("fh schedule get s-{kind}; fh schedule get x-{kind}")),
        ("schedule next", format!("fh schedule next s-{kind}; fh schedule next --cron '0 0 30 2 *'")),
        ("schedule rm", format!("fh schedule rm s-{kind}; fh schedule rm s-{kind}")),
        ("effect ls", "fh effect ls".to_owned()),
        ("effect resolve", format!("fh effect resolve {id} {kind} --did-not-happen --by {long}")),
        ("event ls", "fh event ls; fh event ls --event-log log; fh event ls --event-log no-log".to_owned()),
        ("store status", "fh store status".to_owned()),
        ("store create", format!("fh store create --store file:{long}")),
        ("store migrate", "fh store migrate".to_owned()),
        ("store probe", "fh store probe".to_owned()),
        ("store backup", format!("fh store backup {long}.backup; fh store backup {long}.backup")),
        ("store check", format!("fh store check; fh store check {long}.backup; fh store check no-{long}")),
        ("store restore", format!("fh store restore {long}.backup --by {long} --store file:restored")),
        (
            "store advance",
            format!("fh store advance --by {long}; fh store advance --by {long} --yes --store file:restored"),
        ),
        ("quota set", format!("fh quota set --max-keys 1000 --max-ttl 1d --by {long}")),
        ("quota get", "fh quota get".to_owned()),
        ("access-token create", format!("fh access-token create {kind} --role operator")),
        ("access-token ls", "fh access-token ls".to_owned()),
        ("access-token revoke", format!("fh access-token revoke 4f1d2c3b5a69 --reason {long}")),
        ("audit ls", "fh audit ls".to_owned()),
        ("config check", format!("fh config check --access-file {long}")),
        ("doctor", format!("fh doctor; fh doctor --store file:{long}/nowhere")),
        (
            "advise",
            format!("fh advise {long}; fh run --key k -- true; fh advise k; fh advise --queue {long}"),
        ),
        ("plan", "fh plan --leases 100G --jobs 100M/s --queued 100G --store http".to_owned()),
        ("bench lease", "fh bench lease --duration 100ms --clients 2".to_owned()),
        ("bench job", "fh bench job --duration 100ms --clients 2 --batch-size 2".to_owned()),
        ("race ls", "fh race ls".to_owned()),
        (
            "race run",
            "fh race run R06; fh race run R06-job --naive; fh race run R05; fh race run R0".to_owned(),
        ),
        ("top", "fh top </dev/null; fh top -o json; fh top --every 1ms; fh top -v".to_owned()),
        ("version", "fh version".to_owned()),
        ("help", "fh help; fh help nonsense".to_owned()),
    ]
}

fn assert_fits(verb: &str, screen: &str) {
    assert!(screen.trim() != "end-of-it", "{verb} shows something");
    for line in screen.lines().map(str::trim_end) {
        // What was drawn before is gone.
        let line = line.rsplit(ERASE).next().unwrap_or_default();
        // JSON and an access token are to be copied, and stay whole.
        let is_copied = line.starts_with('{') || line.starts_with("fencehold_");
        assert!(is_copied || line.chars().count() <= 80, "{verb}: {line}");
    }
}

/// A terminal that does not say how wide it is has 80 columns.
#[test]
fn nothing_is_wider_than_the_terminal() {
    let dir = TestDirectory::new();
    let long = "a-name-that-is-far-too-long-for-a-column-of-a-table-on-a-terminal".repeat(2);
    let key = format!("reports/{long}");
    let owner = format!("--owner={long}");
    dir.succeeds(&format!("lease acquire {key} {owner} --ttl 1h --task t"));
    let id = dir.enqueue("1", &format!("--label {}=x --delay 1d", &long[..40]));

    std::fs::create_dir(dir.path("log")).unwrap();
    let at = r#""at":"2026-11-18T09:00:00.000Z""#;
    let lines = [
        format!(
            r#"{{"namespace":"default","seq":7,{at},"key":"{key}","type":"lease_acquired","token":1,"owner":"{long}","ttl_ms":7}}"#
        ),
        format!(
            r#"{{"type":"audit","seq":7,{at},"actor":"{long}","address":"::1","namespace":"*","action":"revoke_lease","target":"{key}","reason":"{long}","outcome":"done"}}"#
        ),
        format!(
            r#"{{"type":"gap","stream":"events","namespace":"default","seq":7,"after":1,{at},"message":"{long}"}}"#
        ),
    ];
    std::fs::write(dir.path("log/events-0000000001.jsonl"), lines.join("\n") + "\n").unwrap();

    let verbs = every_verb(&dir);
    let mut shown = shown(&long, &key, &id, &long[..100]);
    let covered = shown.iter().map(|(verb, _)| *verb).chain(FOR_PROGRAMS);
    let covered: BTreeSet<&str> = covered.chain(ENDLESS.map(|(verb, ..)| verb)).collect();
    let known = verbs.iter().filter(|verb| !verb.is_group).map(|verb| verb.name.as_str());
    assert_eq!(covered, known.collect(), "every verb is shown here, and what is shown is a verb");
    shown.extend(verbs.iter().map(|verb| ("help", format!("fh help {}", verb.name))));

    let script: Vec<String> = shown.iter().map(|(_, script)| format!("{script}; echo end-of-it")).collect();
    let script = format!("fh() {{ fencehold \"$@\"; }}\n{}", script.join("\n"));
    let mut terminal = TestTerminal::new(&dir, &["sh", "-c", &script]);
    for (verb, _) in &shown {
        assert_fits(verb, &terminal.expect("end-of-it"));
    }
    for (verb, options, seen) in ENDLESS {
        // The key that interrupts drops what the terminal has not shown yet, and shows itself; here it does neither.
        let script =
            format!("stty -echo noflsh; trap : INT; fencehold {verb} {options}; echo; echo end-of-it");
        let mut terminal = TestTerminal::new(&dir, &["sh", "-c", &script]);
        let screen = std::thread::scope(|scope| {
            let screen = scope.spawn(|| terminal.expect(seen));
            // One that watches shows what happens after it has begun, so something happens until it does.
            for _ in (0..300).take_while(|_| !screen.is_finished()) {
                dir.fencehold(&format!("run --key reports/again-{long} -- true"));
            }
            screen.join().unwrap()
        });
        terminal.press("\u{3}");
        assert_fits(verb, &(screen + &terminal.expect("end-of-it")));
    }
}
