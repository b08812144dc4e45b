//! R39, the wrapper killed or stopped: whatever happens to `run`, its command is gone before the next holder starts.
#![cfg(feature = "file")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};

use fencehold_contract::clock::{Clock, SystemClock};
use rustix::process::{Signal, getsid, kill_process};

use crate::support::{RunningProcess, TestDirectory, children, eventually, process, runs, until};

const TTL_AND_A_SECOND_MS: u64 = 6_000;

/// A command with a grandchild, neither of which heeds TERM. Each notes down in one file that it lives, again and
/// again; the file's order is the proof.
const STUBBORN: &str = "trap '' TERM; echo $$ >pids; echo start $FENCEHOLD_TOKEN >>log
    beat() { while :; do echo beat $FENCEHOLD_TOKEN >>log; sleep 0.005; done; }
    (trap '' TERM; echo $BASHPID >>pids; beat) & beat";

/// The next holder notes that it has started, and when, and lets the others speak if there still are any.
const NEXT: &str =
    "echo start $FENCEHOLD_TOKEN >>log; read -r uptime idle </proc/uptime; echo $uptime >started
    sleep 0.3; echo end $FENCEHOLD_TOKEN >>log";

fn start_stubborn(dir: &TestDirectory) -> RunningProcess {
    let mut command = dir.command("run --key k --ttl 5s --owner first -- bash -c");
    let running = RunningProcess::start(command.arg(STUBBORN));
    eventually("both beat", || dir.lines("pids").len() == 2 && dir.lines("log").len() > 10);
    running
}

/// Whether a watchdog has been given something to watch: its timer is set.
fn watches(watchdog: i32) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{watchdog}/fdinfo")) else { return false };
    entries.flatten().any(|entry| {
        let info = fs::read_to_string(entry.path()).unwrap_or_default();
        info.lines()
            .any(|line| line.starts_with("it_value: (") && line != "it_value: (0, 0)")
    })
}

fn pids(dir: &TestDirectory) -> Vec<i32> {
    dir.lines("pids").iter().map(|pid| pid.parse().unwrap()).collect()
}

fn start_next(dir: &TestDirectory) -> RunningProcess {
    let next = dir.start(&format!("run --key k --ttl 5s --wait 60s -- bash -c '{NEXT}'"));
    eventually("the next stands in line", || dir.lease("k")["waiter_count"] == 1);
    next
}

/// When the next started, on the boot-time clock, in milliseconds.
fn started_ms(dir: &TestDirectory) -> u64 {
    dir.lines("started")[0].replace('.', "").parse::<u64>().unwrap() * 10
}

/// The next one ends well, at most a ttl and a second after the first one was struck, which leaves nothing behind.
fn assert_the_next_starts_in_time(dir: &TestDirectory, mut next: RunningProcess, struck_ms: u64) {
    next.finish().ended(0);
    let waited_ms = started_ms(dir).saturating_sub(struck_ms);
    assert!(waited_ms <= TTL_AND_A_SECOND_MS, "{waited_ms} ms");
    assert_none_beside_the_next(dir);
    assert!(pids(dir).into_iter().all(|pid| !runs(pid)));
}

/// Nothing of token 1 comes after the start of token 2.
fn assert_none_beside_the_next(dir: &TestDirectory) {
    let log = dir.lines("log");
    let start = log.iter().position(|line| line == "start 2").expect("the next has started");
    assert_eq!(log[start + 1..], ["end 2"], "beats of the first beside the next");
}

#[test]
fn when_run_is_killed_the_command_and_its_children_are_gone_before_the_next_starts() {
    let dir = TestDirectory::new();
    let mut first = start_stubborn(&dir);
    let next = start_next(&dir);
    let killed_ms = SystemClock.now().store_ms;
    first.send(Signal::KILL);
    first.finish();
    assert_the_next_starts_in_time(&dir, next, killed_ms);
}

#[test]
fn when_run_is_stopped_the_command_is_gone_before_the_next_starts_and_run_exits_lost() {
    let dir = TestDirectory::new();
    let mut first = start_stubborn(&dir);
    let next = start_next(&dir);
    let stopped_ms = SystemClock.now().store_ms;
    first.send(Signal::STOP);
    assert_the_next_starts_in_time(&dir, next, stopped_ms);

    first.send(Signal::CONT);
    first.finish().ended(76).says(&["the lease on k under token 1 was lost"]);
    let explained = dir.fencehold("explain k");
    let is_told = |line: &str| line.starts_with("1 ") && line.contains("expired") && line.contains("first");
    assert!(explained.out.lines().any(is_told), "{explained:?}");
}

#[test]
fn a_command_that_heeds_term_may_clean_up_after_run_was_killed() {
    let dir = TestDirectory::new();
    let script = "trap 'echo cleaned up >>log; exit' TERM; echo up; while :; do sleep 0.01; done";
    let mut running = dir.start(&["run", "--key", "k", "--", "bash", "-c", script]);
    assert_eq!(running.line(), "up");
    running.send(Signal::KILL);
    running.finish();
    eventually("it has cleaned up", || dir.lines("log") == ["cleaned up"]);
}

#[test]
fn the_watchdog_stands_apart_from_everything_that_could_take_it_along() {
    let dir = TestDirectory::new();
    let binary = env!("CARGO_BIN_EXE_fencehold");
    // A descriptor of the shell's: the command gets it, the watchdog must not keep it open.
    let script = format!("exec {binary} run --key k -- bash -c 'echo $$ >pids; exec sleep 1000' 7>side");
    let mut running = RunningProcess::start(&mut dir.shell(&script));
    eventually("the command runs", || !dir.lines("pids").is_empty());
    let watchdogs = children(running.pid(), "fh-watchdog");
    assert_eq!(watchdogs.len(), 1);
    let watchdog = watchdogs[0];

    assert_eq!(getsid(Some(process(watchdog))).unwrap(), process(watchdog), "a session of its own");
    assert_eq!(fs::read_link(format!("/proc/{watchdog}/cwd")).unwrap().to_str(), Some("/"));
    let mut open: Vec<String> = fs::read_dir(format!("/proc/{watchdog}/fd"))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap().display().to_string())
        .map(|target| target.split(':').next().unwrap_or_default().to_owned())
        .collect();
    open.sort();
    // Its line twice (as stdin, and as it is used), its timer, and nothing else.
    assert_eq!(open, ["/dev/null", "/dev/null", "anon_inode", "socket", "socket"]);

    let arguments = fs::read_to_string(format!("/proc/{watchdog}/cmdline")).unwrap();
    let arguments = arguments.trim_end_matches('\0');
    assert_eq!(arguments, "fencehold\0__watchdog", "not those of `run`, by which `run` may be killed");

    // What a terminal or a `kill 0` sends does not move it: it still does its work afterwards.
    let status = fs::read_to_string(format!("/proc/{watchdog}/status")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
    let blocked = u64::from_str_radix(blocked, 16).unwrap();
    for signal in
        [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::TSTP, Signal::USR1, Signal::PIPE]
    {
        assert_ne!(blocked & 1 << (signal.as_raw() - 1), 0, "{signal:?}");
        kill_process(process(watchdog), signal).unwrap();
    }
    running.send(Signal::KILL);
    running.finish();
    let command = pids(&dir)[0];
    eventually("the command is gone", || !runs(command));
    eventually("the watchdog is gone", || !runs(watchdog));
}

#[test]
fn a_watchdog_that_is_killed_is_replaced() {
    let dir = TestDirectory::new();
    let mut first = start_stubborn(&dir);
    let before = children(first.pid(), "fh-watchdog");
    assert_eq!(before.len(), 1);
    kill_process(process(before[0]), Signal::KILL).unwrap();
    eventually("another watches", || {
        let now = children(first.pid(), "fh-watchdog");
        now.len() == 1 && now != before && watches(now[0])
    });
    let mut next = start_next(&dir);
    first.send(Signal::STOP);
    assert_eq!(next.finish().code, 0);
    assert_none_beside_the_next(&dir);
    first.send(Signal::CONT);
    assert_eq!(first.finish().code, 76);
}

#[test]
fn a_command_is_not_left_running_without_a_watchdog() {
    let dir = TestDirectory::new();
    let mut running = start_stubborn(&dir);
    let mut killed = Vec::new();
    // If every watchdog is killed, `run` ends the command.
    eventually("it gives up", || {
        for pid in children(running.pid(), "fh-watchdog") {
            if !killed.contains(&pid) && kill_process(process(pid), Signal::KILL).is_ok() {
                killed.push(pid);
            }
        }
        running.is_over()
    });
    running.finish().ended(1).says(&["for want of a watchdog"]);
    assert!(pids(&dir).into_iter().all(|pid| !runs(pid)));
    assert!(dir.lease("k")["holder"].is_null(), "and the lease is given back");
}

/// The shortest life that `run` can have beside its command.
#[test]
fn a_command_that_kills_run_as_the_first_thing_it_does_is_ended() {
    let dir = TestDirectory::new();
    let script = "kill -9 $PPID; trap '' TERM; echo $$ >pids; while :; do echo beat $FENCEHOLD_TOKEN >>log; sleep 0.005; done";
    let mut first = dir.start(&["run", "--key", "k", "--ttl", "5s", "--", "bash", "-c", script]);
    first.finish().ended(137);
    let mut next = start_next(&dir);
    assert_eq!(next.finish().code, 0);
    assert_none_beside_the_next(&dir);
    assert!(pids(&dir).into_iter().all(|pid| !runs(pid)));
}

/// Nothing waits for one that is stopped, and the command is not left to it.
#[test]
fn a_watchdog_that_does_not_read_any_more_is_replaced() {
    let dir = TestDirectory::new();
    // More orders than the line has room for.
    std::fs::write(dir.path("jobs"), "1\n".repeat(200)).unwrap();
    dir.succeeds("job enqueue --queue q --kind k --jsonl jobs");
    let script = "if [ ! -e stopped ]; then touch stopped
        for pid in $(cat /proc/$PPID/task/*/children); do
            if [ \"$(cat /proc/$pid/comm)\" = fh-watchdog ]; then kill -STOP $pid; echo $pid >stopped; fi
        done
    fi";
    dir.succeeds(&["work", "--queue", "q", "--until-empty", "--", "sh", "-c", script]);
    assert_eq!(dir.json("job count")["completed"], 200);
    assert!(!runs(dir.lines("stopped")[0].parse().unwrap()), "it was ended, and another took its place");
}

/// A watchdog without a `run`, and a group for it to watch.
struct Watched {
    watchdog: RunningProcess,
    line: UnixStream,
    heard: BufReader<UnixStream>,
    group: RunningProcess,
}

impl Watched {
    /// The group is a shell that does what `script` says.
    fn new(script: &str) -> Self {
        let (ours, its) = UnixStream::pair().unwrap();
        let watchdog = Command::new(env!("CARGO_BIN_EXE_fencehold"))
            .arg("__watchdog")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(its)))
            .spawn()
            .unwrap();
        let mut group = Command::new("bash")
            .args(["-c", script])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = String::new();
        BufReader::new(group.stdout.take().unwrap()).read_line(&mut up).unwrap();
        assert_eq!(up, "up\n");
        let [watchdog, group] = [watchdog, group].map(RunningProcess::adopt);
        let heard = BufReader::new(ours.try_clone().unwrap());
        let mut watched = Watched { watchdog, heard, line: ours, group };
        assert_eq!(watched.hear(), "ready");
        watched
    }

    fn say(&mut self, line: &str) {
        writeln!(self.line, "{line}").unwrap();
    }

    /// The next report; empty: it is gone.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.heard.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// As command 1.
    fn watch(&mut self, grace_ms: u64, term_in_ms: u64, kill_in_ms: u64) -> u64 {
        let now_ms = SystemClock.now().store_ms;
        let group = self.group.child.id();
        self.say(&format!("watch 1 {grace_ms} {} {} {group}", now_ms + term_in_ms, now_ms + kill_in_ms));
        now_ms
    }

    /// What `run` does at its end, also at its sudden end.
    fn end_line(&mut self) {
        self.line.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// How the group's leader ended.
    fn group_ended(&mut self) -> ExitStatus {
        until("its end", || self.group.child.try_wait().unwrap())
    }

    /// Whether the watchdog ended well.
    fn watchdog_ended_well(&mut self) -> bool {
        until("its end", || self.watchdog.child.try_wait().unwrap()).success()
    }
}

const HEEDS: &str = "echo up; while :; do sleep 0.01; done";
const HEEDS_NOT: &str = "trap '' TERM; echo up; while :; do sleep 0.01; done";
const FOR_LONG: u64 = 3_600_000;

#[test]
fn without_news_the_group_is_asked_and_then_ended_on_time() {
    let mut watched = Watched::new(HEEDS_NOT);
    let began_ms = watched.watch(FOR_LONG, 200, 500);
    assert_eq!(watched.hear(), "terminated 1");
    assert!(SystemClock.now().store_ms >= began_ms + 200);
    assert_eq!(watched.hear(), "killed 1");
    let took_ms = SystemClock.now().store_ms - began_ms;
    assert_eq!(watched.group_ended().signal(), Some(9));
    // The upper bound is for a machine that has much else to do.
    assert!((500..5_000).contains(&took_ms), "{took_ms} ms");
}

#[test]
fn a_stopped_group_hears_the_request_too() {
    let mut watched = Watched::new("trap 'exit 4' TERM; echo up; while :; do sleep 0.01; done");
    watched.group.send(Signal::STOP);
    watched.watch(FOR_LONG, 0, FOR_LONG);
    assert_eq!(watched.hear(), "terminated 1");
    assert_eq!(watched.group_ended().code(), Some(4));
}

#[test]
fn news_in_time_keep_the_group_alive() {
    let mut watched = Watched::new(HEEDS);
    let began_ms = watched.watch(FOR_LONG, FOR_LONG, FOR_LONG);
    // Later, sooner, later again: the last order counts. The watchdog obeys in order, so its end comes after all of them.
    for at_ms in [began_ms + 2 * FOR_LONG, began_ms + FOR_LONG] {
        watched.say(&format!("until 1 {at_ms} {at_ms}"));
    }
    watched.say("gone 1");
    watched.end_line();
    assert_eq!(watched.hear(), "", "dismissed, and has done nothing");
    assert!(watched.watchdog_ended_well());
    assert!(!watched.group.is_over(), "the group still runs");
}

/// The number of a group is given again once the group is gone, that of an order is not.
#[test]
fn a_command_that_is_gone_takes_no_other_one_of_the_same_group_along() {
    let mut watched = Watched::new(HEEDS);
    let at_ms = watched.watch(FOR_LONG, FOR_LONG, FOR_LONG) + FOR_LONG;
    let group = watched.group.child.id();
    watched.say(&format!("watch 2 {FOR_LONG} {at_ms} {at_ms} {group}"));
    watched.say("gone 1");
    watched.end_line();
    assert_eq!(watched.group_ended().signal(), Some(15), "2 is watched still");
    assert!(watched.watchdog_ended_well());
}

/// What is said of one command concerns no other, and each has a time of its own.
#[test]
fn one_watchdog_watches_many_groups() {
    let mut watched = Watched::new(HEEDS);
    let at_ms = watched.watch(FOR_LONG, FOR_LONG, FOR_LONG) + FOR_LONG;
    let mut others = [(); 3].map(|()| {
        let mut command = Command::new("sleep");
        RunningProcess::adopt(command.arg("1000").process_group(0).spawn().unwrap())
    });
    for (id, other) in (2..).zip(&others) {
        watched.say(&format!("watch {id} 0 {at_ms} {at_ms} {}", other.child.id()));
    }
    watched.say("until 3 0 0");
    assert_eq!(watched.hear(), "killed 3");
    assert_eq!(until("its end", || others[1].child.try_wait().unwrap()).signal(), Some(9));
    assert!(!watched.group.is_over() && !others[0].is_over() && !others[2].is_over());
    watched.end_line();
    for other in &mut others {
        until("its end", || other.child.try_wait().unwrap());
    }
    watched.group.child.kill().unwrap();
    watched.group_ended();
    assert!(watched.watchdog_ended_well());
}

#[test]
fn bad_news_bring_the_end_nearer() {
    let mut watched = Watched::new(HEEDS);
    watched.watch(FOR_LONG, FOR_LONG, FOR_LONG);
    watched.say("until 1 0 0");
    assert_eq!(watched.hear(), "killed 1");
    assert_eq!(watched.group_ended().signal(), Some(9));
}

#[test]
fn a_line_that_ends_ends_the_group_after_its_grace() {
    for (script, signal) in [(HEEDS, 15), (HEEDS_NOT, 9)] {
        let mut watched = Watched::new(script);
        watched.watch(100, FOR_LONG, FOR_LONG);
        watched.end_line();
        assert_eq!(watched.group_ended().signal(), Some(signal));
        assert!(watched.watchdog_ended_well(), "and the watchdog goes when the group is gone");
    }
}

#[test]
fn a_line_that_ends_before_there_is_a_group_ends_the_watchdog_alone() {
    let mut watched = Watched::new(HEEDS);
    watched.end_line();
    assert!(watched.watchdog_ended_well());
    assert!(!watched.group.is_over());
}
