//! Twenty shells and one key: never two at a time, tokens in the order of running, whatever happens to the process that serves
//! the directory.
#![cfg(feature = "file")]

use rustix::process::Signal;

use crate::support::{DirectoryOwner, Gates, RunningProcess, TestDirectory, eventually, until};

const SHELLS: usize = 20;

/// Notes its turn, lets others get in between if they can, and notes its end.
const TURN: &str = "echo start $FENCEHOLD_TOKEN >>log; sleep 0.02; echo end $FENCEHOLD_TOKEN >>log";

fn start_shells(dir: &TestDirectory) -> Vec<RunningProcess> {
    let words = format!("run --wait 60s --ttl 5s --key k -- sh -c '{TURN}'");
    (0..SHELLS).map(|_| dir.start(&words)).collect()
}

fn turns(dir: &TestDirectory) -> usize {
    dir.lines("log").iter().filter(|line| line.starts_with("end")).count()
}

fn assert_all_had_their_turn(dir: &TestDirectory, shells: Vec<RunningProcess>, killed: &[u32]) {
    let mut failed = 0;
    for mut shell in shells {
        let killed = killed.contains(&shell.child.id());
        let said = shell.finish();
        if killed {
            failed += 1;
        } else {
            assert_eq!(said.code, 0, "{said:?}");
        }
    }
    let log = dir.lines("log");
    let mut last = 0;
    let mut whole = 0;
    let mut lines = log.iter().peekable();
    while let Some(line) = lines.next() {
        let token = line.strip_prefix("start ").unwrap_or_else(|| panic!("two at a time: {log:?}"));
        let token: u64 = token.parse().unwrap();
        assert!(token > last, "out of order: {log:?}");
        last = token;
        // A shell that was killed in its turn has no end.
        if lines.next_if(|next| **next == format!("end {token}")).is_some() {
            whole += 1;
        }
    }
    assert!(whole >= SHELLS - failed, "{whole} turns, {failed} killed: {log:?}");
}

#[test]
fn twenty_shells_take_turns() {
    let dir = TestDirectory::new();
    let shells = start_shells(&dir);
    assert_all_had_their_turn(&dir, shells, &[]);
}

#[test]
fn turns_go_on_when_whoever_serves_is_killed_and_the_next_one_too() {
    let dir = TestDirectory::new();
    let bystander = DirectoryOwner::start(&dir);
    let shells = start_shells(&dir);
    eventually("some had their turn", || turns(&dir) >= 3);
    bystander.kill();
    // Now one of the shells serves: no other process is there. It is killed while it surely is the owner: held in the middle of a
    // commit.
    let gates = Gates::of(&dir);
    gates.close("commit");
    let next = until("an owner in a commit", || gates.reached("commit"));
    let served = shells.iter().find(|shell| shell.child.id() == next);
    served.expect("one of the shells serves").send(Signal::KILL);
    gates.open("commit");
    assert_all_had_their_turn(&dir, shells, &[next]);
}

#[test]
fn turns_go_on_when_whoever_serves_is_stopped() {
    let dir = TestDirectory::new();
    let bystander = DirectoryOwner::start(&dir);
    let gates = Gates::of(&dir);
    let shells = start_shells(&dir);
    eventually("some had their turn", || turns(&dir) >= 3);
    // Between two writes: stopped in the middle of one, it keeps the disk from all others (see the next test).
    gates.close("confirm");
    eventually("the bystander is held between two writes", || {
        gates.reached("confirm") == Some(bystander.id())
    });
    bystander.0.stop();
    gates.open("confirm");
    assert_all_had_their_turn(&dir, shells, &[]);
    bystander.0.send(Signal::CONT);
    assert_goes_on(&dir, bystander);
}

#[test]
fn turns_go_on_when_whoever_serves_was_stopped_in_the_middle_of_a_commit() {
    let dir = TestDirectory::new();
    let bystander = DirectoryOwner::start(&dir);
    let gates = Gates::of(&dir);
    let shells = start_shells(&dir);
    eventually("some had their turn", || turns(&dir) >= 3);
    gates.close("commit");
    eventually("the bystander is held inside a commit", || gates.reached("commit") == Some(bystander.id()));
    bystander.0.stop();
    gates.open("commit");
    // No process can serve until it goes on: all must wait for that.
    let before = turns(&dir);
    // It is named.
    dir.fails("store status", 69, &[&bystander.id().to_string()]);
    assert!(turns(&dir) <= before + 1, "one may have been granted before");
    bystander.0.send(Signal::CONT);
    assert_all_had_their_turn(&dir, shells, &[]);
    assert_goes_on(&dir, bystander);
}

/// The old owner, awake again, does as others do: its own lease is still kept, or it says that it was lost.
fn assert_goes_on(dir: &TestDirectory, mut bystander: DirectoryOwner) {
    bystander.0.say("go");
    bystander.0.finish().ended(0);
    assert!(dir.lease("bystander")["holder"].is_null());
}
