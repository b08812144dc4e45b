//! Twenty shells and one key: never two at a time, tokens in the order of running, whatever happens to the process that serves
//! the directory.
#![cfg(feature = "file")]

use std::fs;

use rustix::process::{Signal, kill_process};

use crate::support::{DirectoryOwner, RunningProcess, TestDirectory, eventually, process};

const SHELLS: usize = 20;

/// Notes its turn, lets others get in between if they can, and notes its end.
const TURN: &str = "echo start $FENCEHOLD_TOKEN >>log; sleep 0.02; echo end $FENCEHOLD_TOKEN >>log";

fn start_shells(dir: &TestDirectory) -> Vec<RunningProcess> {
    let words = ["run", "--wait", "60s", "--ttl", "5s", "--key", "k", "--", "sh", "-c", TURN];
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
        let token: u64 = line
            .strip_prefix("start ")
            .unwrap_or_else(|| panic!("two at a time: {log:?}"))
            .parse()
            .unwrap();
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
    let mut bystander = DirectoryOwner::start(&dir);
    let shells = start_shells(&dir);
    eventually("some had their turn", || turns(&dir) >= 3);
    bystander.0.child.kill().unwrap();
    bystander.0.finish();
    // Now one of the shells serves: no other process is there. It is killed while it surely is the owner: held in the middle of a
    // commit.
    let gates = dir.path("leases/gates");
    fs::create_dir(&gates).unwrap();
    fs::write(gates.join("commit.closed"), "").unwrap();
    let reached = gates.join("commit.reached");
    eventually("the next owner is in a commit", || {
        fs::read_to_string(&reached).is_ok_and(|pid| !pid.is_empty())
    });
    let next: i32 = fs::read_to_string(&reached).unwrap().parse().unwrap();
    let killed = [u32::try_from(next).unwrap()];
    assert!(shells.iter().any(|shell| shell.child.id() == killed[0]), "one of the shells serves");
    kill_process(process(next), Signal::KILL).unwrap();
    fs::remove_file(gates.join("commit.closed")).unwrap();
    assert_all_had_their_turn(&dir, shells, &killed);
}

#[test]
fn turns_go_on_when_whoever_serves_is_stopped() {
    let dir = TestDirectory::new();
    let bystander = DirectoryOwner::start(&dir);
    let gates = dir.path("leases/gates");
    fs::create_dir(&gates).unwrap();
    let shells = start_shells(&dir);
    eventually("some had their turn", || turns(&dir) >= 3);
    // Between two writes: stopped in the middle of one, it keeps the disk from all others (see the next test).
    fs::write(gates.join("confirm.closed"), "").unwrap();
    eventually("the bystander is held between two writes", || {
        fs::read_to_string(gates.join("confirm.reached"))
            .is_ok_and(|pid| pid == bystander.0.child.id().to_string())
    });
    bystander.0.stop();
    fs::remove_file(gates.join("confirm.closed")).unwrap();
    assert_all_had_their_turn(&dir, shells, &[]);
    bystander.0.send(Signal::CONT);
    assert_goes_on(&dir, bystander);
}

#[test]
fn turns_go_on_when_whoever_serves_was_stopped_in_the_middle_of_a_commit() {
    let dir = TestDirectory::new();
    let bystander = DirectoryOwner::start(&dir);
    let gates = dir.path("leases/gates");
    fs::create_dir(&gates).unwrap();
    let shells = start_shells(&dir);
    eventually("some had their turn", || turns(&dir) >= 3);
    fs::write(gates.join("commit.closed"), "").unwrap();
    eventually("the bystander is held inside a commit", || {
        fs::read_to_string(gates.join("commit.reached"))
            .is_ok_and(|pid| pid == bystander.0.child.id().to_string())
    });
    bystander.0.stop();
    fs::remove_file(gates.join("commit.closed")).unwrap();
    // No process can serve until it goes on: all must wait for that.
    let before = turns(&dir);
    let status = dir.fencehold(&["store", "status"]);
    assert_eq!(status.code, 69, "{status:?}");
    assert!(status.err.contains(&bystander.0.child.id().to_string()), "it is named: {status:?}");
    assert!(turns(&dir) <= before + 1, "one may have been granted before");
    bystander.0.send(Signal::CONT);
    assert_all_had_their_turn(&dir, shells, &[]);
    assert_goes_on(&dir, bystander);
}

/// The old owner, awake again, does as others do: its own lease is still kept, or it says that it was lost.
fn assert_goes_on(dir: &TestDirectory, mut bystander: DirectoryOwner) {
    bystander.0.say("go");
    let said = bystander.0.finish();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(dir.lease("bystander")["holder"].is_null());
}
