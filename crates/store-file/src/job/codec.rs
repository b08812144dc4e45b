//! What is kept of jobs, byte for byte. A version first, so that a later one can be told apart; then the fields in a fixed
//! order. Never reorder or remove: add a version.

use fencehold_core::job::Record;
use fencehold_engine::About;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const VERSION: u8 = 1;
/// A job that has come to its end, and when it did.
const VERSION_ENDED: u8 = 2;

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

/// A job that has come to its end, and when it did, in store time.
pub(super) fn encode_finished(about: About, record: &Record, ended_ms: u64, into: &mut Vec<u8>) {
    encode(&(Standing { about, record }, ended_ms), into);
    if let Some(version) = into.first_mut() {
        *version = VERSION_ENDED;
    }
}

/// When it ended is 0 where an earlier version kept it.
pub(super) fn decode_finished(bytes: &[u8]) -> Result<(About, Record, u64), String> {
    let Some((&VERSION_ENDED, body)) = bytes.split_first() else {
        return decode_job(bytes).map(|(about, record)| (about, record, 0));
    };
    let (standing, ended_ms): (Standing<Record>, u64) =
        postcard::from_bytes(body).map_err(|error| format!("the record is damaged: {error}"))?;
    Ok((standing.about, standing.record, ended_ms))
}

pub(super) fn decode_job(bytes: &[u8]) -> Result<(About, Record), String> {
    decode::<Standing<Record>>("record", bytes).map(|standing| (standing.about, standing.record))
}
