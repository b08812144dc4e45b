//! Real faults: processes that are killed and stopped, disks that fail and fill up, files that are torn, clocks
//! that jump.
//!
//! Participants use a store at random and write down their requests and responses (`participant.rs`, `calls.rs`). Then the
//! trouble stops, everything must come to its end, and the histories are checked for what was promised: one holder,
//! tokens that grow, an order that explains every answer, nothing acknowledged lost, no effect twice, no participant stuck.
//!
//! `FENCEHOLD_FAULTS=long` has more of everything.
#![allow(clippy::disallowed_methods, reason = "trouble has its pace in real time; nothing is ordered by it")]
#![allow(clippy::print_stdout, reason = "what was done is printed")]
#![allow(unreachable_pub, reason = "it is a module of a test program")]

mod calls;
mod clocks;
mod crew;
mod disk;
mod kills;
mod participant;
mod torn;

/// Not a test of its own: the process that the others start.
#[test]
fn a_participant() {
    participant::take_part_if_asked();
}

/// Whether there is time for more.
fn is_long() -> bool {
    std::env::var("FENCEHOLD_FAULTS").is_ok_and(|length| length == "long")
}
