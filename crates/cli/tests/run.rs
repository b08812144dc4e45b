//! `fencehold run`: the command's environment, its exit code, its signals, and what it leaves behind.
#![cfg(feature = "file")]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::{RunningProcess, TestDirectory, children, eventually, runs, said};

/// Runs a command under a lease that says that it is there, and ends when its stdin does.
fn holding(dir: &TestDirectory, options: &str) -> RunningProcess {
    let words = format!("run --key k {options} -- sh -c 'echo up; read line'");
    let mut running = RunningProcess::start(dir.command(&words).stdin(Stdio::piped()));
    assert_eq!(running.line(), "up");
    running
}

/// Starts a script under a lease, and waits until it has said that it is up.
fn up(dir: &TestDirectory, options: &str, script: &str) -> RunningProcess {
    let mut command = dir.command(&format!("run --key k {options} -- bash -c"));
    let mut running = RunningProcess::start(command.arg(script));
    assert_eq!(running.line(), "up");
    running
}

#[test]
fn tokens_grow_with_every_run() {
    let dir = TestDirectory::new();
    for token in 1..4 {
        let said = dir.fencehold("run --key demo -- sh -c 'echo token $FENCEHOLD_TOKEN'");
        assert_eq!((said.code, said.out), (0, format!("token {token}\n")));
    }
}

#[test]
fn the_command_finds_its_own_lease_in_its_environment_and_no_other() {
    let dir = TestDirectory::new();
    let script = "echo $FENCEHOLD_KEY/$FENCEHOLD_TOKEN/${FENCEHOLD_TASK-none}/${FENCEHOLD_HOLD_ID-none}";
    let outer = [("FENCEHOLD_TASK", "outer"), ("FENCEHOLD_HOLD_ID", "00"), ("FENCEHOLD_TOKEN", "99")];
    for (options, expected) in [("", "a b/1/none/none\n"), ("--task run-42", "a b/2/run-42/none\n")] {
        let words = format!("run --key 'a b' {options} -- sh -c '{script}'");
        assert_eq!(said(dir.command(&words).envs(outer)).out, expected);
    }
}

#[test]
fn the_exit_code_is_the_commands_own() {
    let dir = TestDirectory::new();
    std::fs::write(dir.path("no-program"), "text").unwrap();
    std::fs::set_permissions(dir.path("no-program"), std::fs::Permissions::from_mode(0o644)).unwrap();
    for (command, code) in [
        ("true", 0),
        ("sh -c 'exit 7'", 7),
        ("sh -c 'exit 255'", 255),
        ("sh -c 'kill -TERM $$'", 143),
        ("sh -c 'kill -KILL $$'", 137),
        ("./no-such-program", 127),
        ("no-such-program", 127),
        ("''", 127),
        ("./no-program", 126),
        ("/", 126),
    ] {
        let said = dir.fencehold(&format!("run --key k -- {command}")).ended(code);
        let ours = matches!(code, 126 | 127);
        assert_eq!(said.err.starts_with("fencehold: "), ours, "{said:?}");
        assert!(dir.lease("k")["holder"].is_null(), "given back after {command}");
    }
}

#[test]
fn stdin_and_what_else_the_shell_opened_go_to_the_command() {
    let dir = TestDirectory::new();
    let binary = env!("CARGO_BIN_EXE_fencehold");
    let script = format!("echo hello | {binary} run --key k -- sh -c 'cat; echo side >&7' 7>side");
    let said = said(&mut dir.shell(&script));
    assert_eq!((said.code, said.out.as_str()), (0, "hello\n"), "{said:?}");
    assert_eq!(dir.lines("side"), ["side"]);
}

#[test]
fn the_command_finds_no_descriptor_of_ours() {
    let dir = TestDirectory::new();
    let script = "ls /proc/$$/fd";
    let alone = said(Command::new("sh").args(["-c", script]).stdin(Stdio::null()));
    let under_a_lease = dir.fencehold(&["run", "--key", "k", "--", "sh", "-c", script]);
    assert_eq!(under_a_lease.out, alone.out);
}

#[test]
fn who_comes_second_is_told_who_holds_it() {
    let dir = TestDirectory::new();
    let mut first = holding(&dir, "--task run-42 --owner ada");
    for options in ["", "--wait 50ms"] {
        let words = format!("run --key k {options} -- touch ran");
        let second = dir.fails(&words, 75, &["k is held by ada", "run-42", "token 1"]);
        assert_eq!(second.out, "");
    }
    assert!(!dir.path("ran").exists());
    assert_eq!(first.finish().code, 1, "what `read` gives at the end of its input");
}

#[test]
fn who_waits_gets_its_turn() {
    let dir = TestDirectory::new();
    let mut first = holding(&dir, "");
    let mut second = dir.start("run --key k --wait 60s -- sh -c 'echo $FENCEHOLD_TOKEN'");
    eventually("the second stands in line", || dir.lease("k")["waiter_count"] == 1);
    first.say("go");
    assert_eq!(first.finish().code, 0);
    let said = second.finish();
    assert_eq!((said.code, said.out.as_str()), (0, "2\n"), "{said:?}");
}

#[test]
fn who_is_interrupted_in_line_leaves_it() {
    let dir = TestDirectory::new();
    let mut first = holding(&dir, "");
    let mut second = dir.start("run --key k --wait 60s -- touch ran");
    eventually("the second stands in line", || dir.lease("k")["waiter_count"] == 1);
    second.send(Signal::INT);
    assert_eq!(second.finish().code, 130);
    eventually("no waiter stands in line", || dir.lease("k")["waiter_count"] == 0);
    first.say("go");
    assert_eq!(first.finish().code, 0);
    assert!(!dir.path("ran").exists());
}

#[test]
fn signals_are_passed_on() {
    let dir = TestDirectory::new();
    // A shell runs its traps between two commands.
    let script =
        "for s in TERM INT HUP QUIT USR1 USR2; do trap \"echo $s; got=\\$((got+1))\" $s; done; got=0; echo up
                  while test $got -lt 6; do sleep 0.01; done; exit 9";
    let mut running = up(&dir, "", script);
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        running.send(signal);
        assert_eq!(running.line(), name);
    }
    assert_eq!(running.finish().code, 9);
}

#[test]
fn signals_are_blocked_and_ignored_as_without_a_lease() {
    let dir = TestDirectory::new();
    let binary = env!("CARGO_BIN_EXE_fencehold");
    // As `nohup` does it.
    let ignores = |command: &str| {
        let script = format!("trap '' HUP USR1; exec {command} grep -E 'Sig(Blk|Ign)' /proc/self/status");
        said(&mut dir.shell(&script)).out
    };
    assert_eq!(ignores(&format!("{binary} run --key k --")), ignores(""));
}

#[test]
fn what_the_command_leaves_behind_is_ended_before_the_lease_is_given_back() {
    let dir = TestDirectory::new();
    // The one left behind does not heed TERM. It notes down every change that it sees while it lives.
    let script = "(trap '' TERM; echo $BASHPID >left; while :; do sleep 0.01; done) & \
                  until test -s left; do sleep 0.01; done; exit 5";
    let mut first = dir.start(&["run", "--key", "k", "--ttl", "8s", "--", "bash", "-c", script]);
    eventually("it has left something behind", || !dir.lines("left").is_empty());
    let left: i32 = dir.lines("left")[0].parse().unwrap();
    let check = format!(
        "if kill -0 {left} 2>/dev/null && ! grep -q '^State:.Z' /proc/{left}/status; then exit 3; fi"
    );
    // What was left behind ran beside the next holder.
    dir.succeeds(&["run", "--key", "k", "--wait", "60s", "--", "sh", "-c", &check]);
    first.finish().ended(5);
    assert!(!runs(left));
}

#[test]
fn what_is_left_behind_and_heeds_term_does_not_cost_the_grace() {
    let dir = TestDirectory::new();
    let script = "(trap 'echo ended >left; exit' TERM; echo up >left; while :; do sleep 0.01; done) & \
                  until test -s left; do sleep 0.01; done";
    dir.succeeds(&["run", "--key", "k", "--ttl", "1h", "--grace", "20m", "--", "bash", "-c", script]);
    assert_eq!(dir.lines("left"), ["ended"]);
}

#[test]
fn a_revoked_lease_ends_the_command_at_once_and_says_by_whom_and_why() {
    let dir = TestDirectory::new();
    // A command that does not heed TERM gets a second, however long its grace.
    let script = "trap '' TERM; echo up; while :; do sleep 0.01; done";
    let mut running = up(&dir, "--ttl 9s --grace 3600ms", script);
    dir.succeeds("lease revoke k --reason 'host is gone' --by alice");
    let said = running
        .finish()
        .ended(76)
        .says(&["the lease on k under token 1 was lost", "revoked"]);
    said.says(&["alice", "host is gone", "code 137"]);
}

#[test]
fn a_command_that_is_too_old_is_asked_to_end_in_time() {
    let dir = TestDirectory::new();
    let script = "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.01; done";
    let mut running = up(&dir, "--ttl 4s --max-age 4s --grace 1600ms", script);
    let said = running.finish().ended(76).says(&["code 3"]);
    assert_eq!(said.out, "asked\n", "{said:?}");
}

#[test]
fn a_contender_of_higher_rank_gets_its_turn_and_the_holder_is_told_for_whom() {
    let dir = TestDirectory::new();
    let script = "trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done";
    let mut low = up(&dir, "--ttl 6s", script);
    let options = "--owner urgent --priority 5 --preempt-within 3s --wait 60s";
    let mut high = dir.start(&format!("run --key k {options} -- sh -c 'echo $FENCEHOLD_TOKEN'"));
    low.finish().ended(76).says(&["urgent asks for k", "code 3"]);
    let said = high.finish();
    assert_eq!((said.code, said.out.as_str()), (0, "2\n"), "{said:?}");
}

#[test]
fn a_grace_that_would_come_before_the_renewal_is_refused() {
    let dir = TestDirectory::new();
    dir.fails("run --key k --ttl 30s --grace 13s -- touch ran", 2, &["--grace", "the limit is 12s"]);
    assert!(!dir.path("ran").exists());
}

#[test]
fn a_lease_is_renewed_for_as_long_as_the_command_runs() {
    let dir = TestDirectory::new();
    let mut running = holding(&dir, "--ttl 9s");
    // Seen from outside: it has lasted for longer than its ttl, and has not changed hands.
    eventually("more than a ttl has passed", || {
        let lease = dir.lease("k");
        assert_eq!(lease["token"], 1);
        lease["holder"]["age_ms"].as_u64().unwrap() > 11_000
    });
    running.say("go");
    running.finish().ended(0);
}

#[test]
fn nothing_is_left_of_a_run_that_is_over() {
    let dir = TestDirectory::new();
    let mut running = holding(&dir, "");
    let watchdogs = children(running.pid(), "fh-watchdog");
    assert_eq!(watchdogs.len(), 1);
    running.say("go");
    assert_eq!(running.finish().code, 0);
    assert!(!runs(watchdogs[0]), "the watchdog goes first");
}
