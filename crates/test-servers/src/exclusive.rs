//! Tests that change what belongs to the whole process: its umask, its signals, where it logs.

use std::process::Command;

/// Set in a process that was started for one test: the test's name.
const ALONE: &str = "FENCEHOLD_TEST_ALONE";

/// Whether this process was started for this test alone. If not, the test runs in such a process first, and must pass there.
///
/// `test` is its path, as the test harness lists it.
#[must_use]
pub fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some_and(|alone| alone == test) {
        return true;
    }
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1"])
        .env(ALONE, test)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{test}, alone: {}\n{said}", ran.status);
    false
}
