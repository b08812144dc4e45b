//! The program of proof says what it cannot do.
#![cfg(feature = "bugs")]

use std::process::Command;

#[test]
fn a_seeded_bug_that_does_not_exist_is_refused_by_name() {
    let mut proof = Command::new(env!("CARGO_BIN_EXE_proof"));
    let answer = proof
        .args(["sim", "run", "--seeds", "1"])
        .env("FENCEHOLD_SEEDED_BUG", "NoSuchBug")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&answer.stderr);
    assert_eq!(answer.status.code(), Some(2), "{said}");
    assert!(said.contains("FENCEHOLD_SEEDED_BUG=NoSuchBug: there is none of that name"), "{said}");
}
