//! Wall clocks that jump by an hour, forward and back, while leases are held (R20, R21). Each jump is seen by every
//! participant at once: they read it from one file.

use std::process::Command;

use crate::support::Room;
use crate::trouble::{Crew, Dose};

/// Where Debian keeps it.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
const JUMPS: [&str; 3] = ["+1h", "-1h", "+0"];

fn by_another_clock(command: &mut Command) {
    command
        .env("LD_PRELOAD", LIBRARY)
        .env("FAKETIME_TIMESTAMP_FILE", std::env::temp_dir().join(clock_file()))
        .env("FAKETIME_NO_CACHE", "1")
        // The wall clock alone: nobody sets the boot clock.
        .env("DONT_FAKE_MONOTONIC", "1");
}

fn clock_file() -> String {
    format!("fencehold-faults-clock-{}", std::process::id())
}

#[test]
fn wall_clocks_that_jump_change_nothing() {
    assert!(std::path::Path::new(LIBRARY).exists(), "`cargo xtask servers` installs {LIBRARY}");
    let clock = std::env::temp_dir().join(clock_file());
    std::fs::write(&clock, "+0").unwrap();
    let (room, histories) = (Room::new(), tempfile::tempdir().unwrap());
    let mut crew = Crew::new(&room.store(), histories.path()).prepared(by_another_clock);
    let dose = Dose { participants: 4, kills: 9, stops: 0, calls: 600 };
    let mut jumps = 0;
    crew.suffers(dose, |nth| {
        std::fs::write(&clock, JUMPS[nth % JUMPS.len()]).unwrap();
        jumps += 1;
    });
    std::fs::write(&clock, "+0").unwrap();
    println!("faults: {jumps} jumps of the wall clock: {}", crew.ends());
    std::fs::remove_file(&clock).unwrap();
    assert!(jumps >= 9);
}
