//! Wall clocks that jump by an hour, forward and back, while leases are held (R20, R21). Each jump is seen by every
//! participant at once: they read it from one file.

use std::path::Path;
use std::process::Command;

use fencehold_contract::clock::{Clock as _, SystemClock};

use super::crew::{FaultRates, Participants};
use crate::support::{TestDirectory, eventually};

/// Where Debian keeps it.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// What the clocks are set by, and how much that is.
const JUMPS: [(&str, i64); 3] = [("+1h", 3_600_000), ("-1h", -3_600_000), ("+0", 0)];
/// How far a clock that was set may be from where it was set to: clocks drift, and a wall clock may be stepped by its keeper.
const NEARLY_MS: i64 = 60_000;

fn by_another_clock(command: &mut Command) {
    command
        .env("LD_PRELOAD", LIBRARY)
        .env("FAKETIME_TIMESTAMP_FILE", std::env::temp_dir().join(clock_file()))
        .env("FAKETIME_NO_CACHE", "1")
        // The wall clock alone: the boot clock is never set.
        .env("DONT_FAKE_MONOTONIC", "1");
}

fn clock_file() -> String {
    format!("fencehold-faults-clock-{}", std::process::id())
}

/// By how much the wall clock is ahead of the boot clock, as every participant has found it at each of its calls.
fn times(histories: &Path) -> Vec<Vec<i64>> {
    let files = std::fs::read_dir(histories).unwrap().map(|entry| entry.unwrap().path());
    let of_participants = files.filter(|path| path.extension().is_some_and(|ending| ending == "times"));
    let read = |path| std::fs::read_to_string(path).unwrap();
    // The last line may have been torn by a kill.
    let whole = |text: &String| text.rsplit_once('\n').map(|(lines, _)| lines.to_owned()).unwrap_or_default();
    let lines = |text: String| whole(&text).lines().map(|line| line.parse().unwrap()).collect();
    of_participants.map(read).map(lines).collect()
}

#[test]
fn wall_clocks_that_jump_change_nothing() {
    assert!(Path::new(LIBRARY).exists(), "`cargo xtask servers` installs {LIBRARY}");
    let clock = std::env::temp_dir().join(clock_file());
    std::fs::write(&clock, "+0").unwrap();
    let (dir, histories) = (TestDirectory::new(), tempfile::tempdir().unwrap());
    let participants = Participants::new(&dir.store(), histories.path());
    let mut participants = participants.prepared(by_another_clock).that_tells_the_time();
    let dose = FaultRates { participants: 4, kills: 9, stops: 0, calls: 600 };
    let now = SystemClock.now();
    let ahead_ms = i64::try_from(now.wall_ms - now.store_ms).unwrap();
    let is_at = |time: &i64, by_ms: i64| (time - ahead_ms - by_ms).abs() < NEARLY_MS;
    let mut jumps = 0;
    participants.suffers(dose, |nth| {
        let (by, by_ms) = JUMPS[nth % JUMPS.len()];
        std::fs::write(&clock, by).unwrap();
        eventually("a participant whose clock was set", || {
            let last = |times: &Vec<i64>| times.last().is_some_and(|time| is_at(time, by_ms));
            times(histories.path()).iter().any(last)
        });
        jumps += 1;
    });
    std::fs::write(&clock, "+0").unwrap();
    println!("faults: {jumps} jumps of the wall clock: {}", participants.ends());
    std::fs::remove_file(&clock).unwrap();
    assert!(jumps >= 9);
    let saw = |times: &Vec<i64>| {
        let was_at = |(_, by_ms): &&(&str, i64)| times.iter().any(|time| is_at(time, *by_ms));
        JUMPS.iter().filter(was_at).count()
    };
    let most = times(histories.path()).iter().map(saw).max();
    assert!(most >= Some(2), "no participant's clock was set while it was at work");
}
