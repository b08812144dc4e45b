//! Who gets in, what they may do there, and that no caller can take the server from the others: over real sockets.
#![allow(clippy::disallowed_methods, reason = "real sockets live in real time")]

mod gate;
mod limits;
mod matrix;
mod open;
mod rights;
mod stage;
mod storm;
mod worlds;
