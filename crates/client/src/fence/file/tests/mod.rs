//! The protocol, killed at every step, and on a disk that loses power.

mod kill;
mod power;
mod sim;
