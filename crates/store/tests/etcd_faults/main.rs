//! The store `etcd://` while members are killed, stopped and cut off.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]
