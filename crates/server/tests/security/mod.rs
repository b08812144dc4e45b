//! Who gets in, what they may do there, and that no caller can take the server from the others: over real sockets.
#![allow(clippy::disallowed_methods, reason = "real sockets live in real time")]

mod batch;
pub(crate) mod fixture;
pub(crate) mod gated_store;
mod limits;
mod matrix;
mod namespaces;
mod no_tokens;
mod reconnect_storm;
mod rights;
