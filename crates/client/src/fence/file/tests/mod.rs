//! The protocol, killed at every step, and on a disk that loses power.

mod kill;
mod power_cuts;
mod simulated_disk;
