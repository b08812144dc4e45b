//! What is kept of jobs, byte for byte. A version first, so that a later one can be told apart; then the fields in a fixed
//! order. Never reorder or remove: add a version.

use fencehold_core::job::Record;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::About;

const VERSION: u8 = 1;

#[derive(Serialize, Deserialize)]
struct Standing<R> {
    about: About,
    record: R,
}

/// Anything that is kept, in its bytes.
pub(super) fn encode<T: Serialize>(value: &T, into: &mut Vec<u8>) {
    into.clear();
    into.push(VERSION);
    // Serialising plain data into a growing vector cannot fail.
    if let Ok(bytes) = postcard::to_extend(value, std::mem::take(into)) {
        *into = bytes;
    }
}

/// Reads it back, or says what is wrong with it.
pub(super) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, String> {
    match bytes.split_first() {
        None => Err(format!("the {what} is empty")),
        Some((&VERSION, body)) => {
            postcard::from_bytes(body).map_err(|error| format!("the {what} is damaged: {error}"))
        }
        Some((version, _)) => Err(format!("the {what} has the unknown version {version}")),
    }
}

pub(super) fn encode_job(about: About, record: &Record, into: &mut Vec<u8>) {
    encode(&Standing { about, record }, into);
}

pub(super) fn decode_job(bytes: &[u8]) -> Result<(About, Record), String> {
    decode::<Standing<Record>>("record", bytes).map(|standing| (standing.about, standing.record))
}
