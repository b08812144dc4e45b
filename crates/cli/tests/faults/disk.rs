//! A disk that fails at its Nth write or sync, is slow at it, or is full.
//!
//! `strace` makes one system call of one process fail, for every N of a short run. The process is the only one that uses
//! the directory. It goes on as it can; then another starts from what is on the disk, and the history of both is checked.

use std::process::{Command, Stdio};

use fencehold_proof::history::Judgement;

use super::crew::Participants;
use super::is_long;
use super::participant::ParticipantPlan;
use crate::support::TestDirectory;

/// How many calls a short run has.
const CALLS: u64 = 14;
/// How long a call of it may take: who cannot reach a store soon says so.
const TIMEOUT_MS: u64 = 1_500;

/// Runs a participant whose Nth system call of this name meets a fault. `None`: there is no Nth.
fn short_run(fault: &str, call: &str, nth: usize) -> Option<Judgement> {
    let (dir, histories) = (TestDirectory::new(), tempfile::tempdir().unwrap());
    let mut participants = Participants::new(&dir.store(), histories.path());
    let plan = ParticipantPlan {
        who: "struck".to_owned(),
        seed: 7,
        calls: CALLS,
        timeout_ms: TIMEOUT_MS,
        ..participants.plan()
    };
    let notes = histories.path().join("strace");
    let ordinary = plan.command();
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-o"])
        .arg(&notes)
        .args(["-e", &format!("trace={call}"), "-e", &format!("inject={call}:{fault}:when={nth}")])
        // Its own history is not the store's disk.
        .arg("-P")
        .arg(dir.path("leases/fencehold.db"))
        .arg("-P")
        .arg(dir.path("leases/fencehold.db-wal"));
    command.arg(ordinary.get_program()).args(ordinary.get_args());
    for (name, value) in ordinary.get_envs() {
        command.env(name, value.unwrap());
    }
    let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    let seen = std::fs::read_to_string(&notes).unwrap();
    let struck = seen.contains("(INJECTED)") || seen.contains("(DELAYED)");
    std::fs::remove_file(&notes).unwrap();
    assert!(ended.success(), "{call} {nth} {fault}: it ended badly: {ended}");
    let judgement = participants.ends();
    struck.then_some(judgement)
}

/// How many short runs go on at once: they mostly wait for what the struck one left behind to run out.
const AT_ONCE: usize = 6;

/// Every Nth, up to the first that a run does not come to; or every few of them where time is short.
fn every_nth(fault: &str, call: &str, step: usize) -> usize {
    let step = if is_long() { 1 } else { step };
    let (mut struck, mut unclear) = (0, 0);
    let mut next = 1;
    loop {
        let nths: Vec<usize> = (0..AT_ONCE).map(|nth| next + nth * step).collect();
        next += AT_ONCE * step;
        let judged: Vec<Option<Judgement>> = std::thread::scope(|scope| {
            let runs: Vec<_> = nths.iter().map(|nth| scope.spawn(|| short_run(fault, call, *nth))).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        struck += judged.iter().flatten().count();
        unclear += judged.iter().flatten().map(|judgement| judgement.unclear).sum::<usize>();
        if judged.contains(&None) {
            break;
        }
    }
    println!("faults: {call} {fault}: {struck} runs struck, {unclear} calls without a clear answer");
    struck
}

#[test]
fn a_sync_that_fails_at_any_point_loses_nothing_that_was_acknowledged() {
    let struck = every_nth("error=EIO", "fdatasync", 2);
    assert!(struck >= 4, "{struck}");
}

#[test]
fn a_write_that_fails_at_any_point_loses_nothing_that_was_acknowledged() {
    let struck = every_nth("error=EIO", "pwrite64", 11);
    assert!(struck >= 4, "{struck}");
}

#[test]
fn a_write_for_which_there_is_no_room_loses_nothing_that_was_acknowledged() {
    let struck = every_nth("error=ENOSPC", "pwrite64", 17);
    assert!(struck >= 3, "{struck}");
}

/// A call that takes longer than a lease lasts, and than an owner may be silent: every one in turn, or one where time is
/// short.
fn takes_long(call: &str, one: usize) {
    let slow = "delay_enter=2500000";
    if is_long() {
        let struck = every_nth(slow, call, 1);
        assert!(struck >= 4, "{struck}");
    } else {
        assert!(short_run(slow, call, one).is_some());
    }
}

#[test]
fn a_sync_that_takes_long_at_any_point_loses_nothing() {
    takes_long("fdatasync", 5);
}

#[test]
fn a_write_that_takes_long_at_any_point_loses_nothing() {
    takes_long("pwrite64", 20);
}

/// A disk that is full, and then is not: a small one of its own, in a mount namespace of its own.
#[test]
fn a_disk_that_was_full_is_used_again_and_nothing_acknowledged_is_lost() {
    let histories = tempfile::tempdir().unwrap();
    let disk = histories.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mut participants =
        Participants::new(&format!("file:{}?create=true", disk.join("leases").display()), histories.path());
    let script = r#"
        mount -t tmpfs -o size=3m none "$DISK" || exit 99
        start() { "$@" > /dev/null; }
        FENCEHOLD_TEST_PART="$BEFORE" start "$@" || exit 1
        dd if=/dev/zero of="$DISK/filler" bs=4096 2> /dev/null
        FENCEHOLD_TEST_PART="$FULL" start "$@" || exit 2
        rm "$DISK/filler"
        FENCEHOLD_TEST_PART="$AFTER" start "$@" || exit 3
        cp -r "$DISK/leases" "$KEPT"
    "#;
    let plan = |participants: &mut Participants<'_>, who: &str, calls| {
        serde_json::to_string(&ParticipantPlan {
            who: who.to_owned(),
            calls,
            timeout_ms: TIMEOUT_MS,
            ..participants.plan()
        })
        .unwrap()
    };
    let ordinary = participants.plan().command();
    let kept = histories.path().join("kept");
    let ended = unshare()
        .args(["sh", "-c", script, "sh"])
        .arg(ordinary.get_program())
        .args(ordinary.get_args())
        .env("DISK", &disk)
        .env("KEPT", &kept)
        .env("BEFORE", plan(&mut participants, "before", 40))
        .env("FULL", plan(&mut participants, "full", 12))
        .env("AFTER", plan(&mut participants, "after", 40))
        .status()
        .unwrap();
    assert!(ended.success(), "it ended badly: {ended}");
    let full = std::fs::read_to_string(histories.path().join("full.jsonl")).unwrap();
    assert!(full.contains("unclear") || full.contains("refused"), "the disk was never full: {full}");
    std::fs::remove_file(kept.join("socket")).ok();
    std::fs::rename(&kept, disk.join("leases")).unwrap();
    println!("faults: disk full: {}", participants.ends());
}

/// A mount namespace of one's own, as root or as anybody.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--mount");
    command
}
