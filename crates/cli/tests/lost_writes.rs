//! A directory that lost what was written last, without a reboot: its log was removed by hand, or its file system forgot
//! what was not synced (R44).
#![cfg(feature = "file")]

use std::fs;
use std::process::Command;

use fencehold_contract::clock::{Clock as _, SystemClock};

use crate::support::{DirectoryOwner, TestDirectory, said};

const TTL_MS: u64 = 3_600_000;

fn log(dir: &TestDirectory) -> std::path::PathBuf {
    dir.path("leases/fencehold.db-wal")
}

/// The moment on the machine's own clock.
fn now_ms() -> u64 {
    SystemClock.now().store_ms
}

/// R44: the renewal was acknowledged and not synced, and the file system forgets it.
#[test]
fn a_renewal_that_the_file_system_forgot_shortens_no_lease() {
    let dir = TestDirectory::new();
    let owner = DirectoryOwner::start(&dir);
    let lease = dir.json("lease acquire k --ttl 1h");
    let (hold, token) = (lease["hold_id"].as_str().unwrap(), lease["token"].as_u64().unwrap().to_string());
    let renew = || {
        let sent_ms = now_ms();
        let mut command = dir.command(&format!("lease renew k --token {token}"));
        said(command.env("FENCEHOLD_HOLD_ID", hold)).ended(0);
        sent_ms
    };
    // The first renewal under an owner is synced: it says that others are not.
    renew();
    let synced = fs::read(log(&dir)).unwrap();
    let sent_ms = renew();
    owner.kill();
    assert_ne!(fs::read(log(&dir)).unwrap(), synced, "the renewal was written");
    fs::write(log(&dir), synced).unwrap();
    let asked_ms = now_ms();
    let lease = dir.lease("k");
    let ends_ms = asked_ms + lease["holder"]["remaining_ms"].as_u64().unwrap();
    let promised_ms = sent_ms + TTL_MS;
    assert!(ends_ms >= promised_ms, "it ends {} ms before it was promised", promised_ms - ends_ms);
}

fn token(dir: &TestDirectory) -> u64 {
    let said = dir.succeeds("run --key k -- sh -c 'echo $FENCEHOLD_TOKEN'");
    said.out.trim().parse().unwrap()
}

/// The log belongs to the database beside it, and has what was acknowledged last.
#[test]
fn a_restore_never_advises_to_remove_a_log_that_is_in_use() {
    let dir = TestDirectory::new();
    assert_eq!(token(&dir), 1);
    let backup = dir.path("backup").display().to_string();
    dir.succeeds(&["store", "backup", &backup]);
    let owner = DirectoryOwner::start(&dir);
    assert_eq!(token(&dir), 2);
    owner.kill();
    let restore = format!("store restore {backup} --by me");
    let said = dir.fails(&restore, 74, &["it exists already, and was left untouched"]);
    assert!(!said.err.contains("remove"), "{said:?}");
    assert_eq!(token(&dir), 3, "nothing was lost");
}

/// The log of an owner that was killed is removed by hand: tokens would be given a second time.
#[test]
fn a_store_that_was_rewound_is_refused_until_it_is_advanced() {
    let dir = TestDirectory::new();
    let owner = DirectoryOwner::start(&dir);
    assert_eq!([token(&dir), token(&dir)], [1, 2]);
    owner.kill();
    fs::remove_file(log(&dir)).unwrap();
    for words in ["run --key k -- true", "store status", "lease ls"] {
        dir.fails(words, 74, &["was acknowledged from it", "store advance --by NAME --yes"]);
    }
    assert_eq!(dir.fencehold("store advance --by me --yes").code, 0);
    // What was granted and forgotten may still be believed in.
    dir.fails("lease acquire k --ttl 1h", 69, &["nobody is granted anything for another"]);
}

/// The same command in a time namespace of its own, whose boot-time clock is a day ahead.
fn a_day_ahead(command: &Command) -> Command {
    let mut ahead = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        ahead.arg("--map-root-user");
    }
    ahead
        .args(["--time", "--boottime", "86400"])
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    ahead
}

/// Each command takes the directory over from the one before. A boot-time clock that only seems to be another one is no
/// reboot, after which the lease would begin anew.
#[test]
fn owners_in_two_time_namespaces_in_turn_keep_no_lease_alive() {
    let dir = TestDirectory::new();
    if said(&mut a_day_ahead(&dir.command("--version"))).code != 0 {
        eprintln!("SKIPPED: this machine lets this user make no time namespace");
        return;
    }
    assert_eq!(dir.fencehold("lease acquire k --ttl 1h").code, 0);
    let mut remaining_ms = TTL_MS;
    for turn in 0..4 {
        let look = dir.command("lease get k -o json");
        let lease = said(&mut if turn % 2 == 0 { a_day_ahead(&look) } else { look }).json();
        let left_ms = lease["holder"]["remaining_ms"].as_u64().unwrap();
        assert!(left_ms < remaining_ms, "turn {turn}: {remaining_ms} ms were left, and now {left_ms} ms");
        remaining_ms = left_ms;
    }
}
