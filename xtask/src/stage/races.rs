//! Every race a thousand times: one that is lost one time in a thousand is lost. In memory that takes a minute, on a directory, where
//! what is promised waits for the disk and for other threads, half an hour.

use crate::process;

const REPEATS: &str = "1000";

pub(crate) fn run() -> Result<(), String> {
    play("memory:")?;
    let directory = std::env::temp_dir().join(format!("fencehold-races-{}", std::process::id()));
    let played = play(&format!("file:{}", directory.display()));
    // Each race has removed its own; what one that ended badly has left is of no use to anybody.
    let _ = std::fs::remove_dir_all(&directory);
    played
}

fn play(store: &str) -> Result<(), String> {
    let mut race = process::cargo("run --release -p fencehold-cli -- race run --all");
    process::run(race.args(["--store", store, "--repeat", REPEATS]))
}
