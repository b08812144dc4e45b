//! Every race a thousand times: one that is lost one time in a thousand is lost. On a directory, where what is promised waits
//! for the disk, as often as five minutes allow.

use crate::process;

const REPEATS: &str = "1000";
const REPEATS_ON_DISK: &str = "60";

pub(crate) fn run() -> Result<(), String> {
    play("memory:", REPEATS)?;
    let directory = std::env::temp_dir().join(format!("fencehold-races-{}", std::process::id()));
    let played = play(&format!("file:{}", directory.display()), REPEATS_ON_DISK);
    // Each race has removed its own; what one that ended badly has left is of no use to anybody.
    let _ = std::fs::remove_dir_all(&directory);
    played
}

fn play(store: &str, repeats: &str) -> Result<(), String> {
    let run = ["run", "--release", "-p", "fencehold-cli", "--"];
    let race = ["race", "all", "--store", store, "--repeat", repeats];
    process::run(&mut process::cargo(&[&run[..], &race[..]].concat()))
}
