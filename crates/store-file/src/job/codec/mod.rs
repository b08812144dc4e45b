//! What is kept of jobs, byte for byte. A version first, so that a later one can be told apart; then the fields in a fixed
//! order. Never reorder or remove: add a version.

#[cfg(test)]
pub(super) mod golden;
mod kept;

use fencehold_contract::job::ScheduleSpec;
use fencehold_core::job::Record;
use fencehold_core::ledger::Effect;
use fencehold_engine::{About, Body};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::kept::{BodyV1, EffectV1, ScheduleV1, StandingV1};

const VERSION: u8 = 1;
/// A job that has come to its end, and when it did.
const VERSION_ENDED: u8 = 2;

/// Anything that is kept, in its bytes.
fn encode<T: Serialize>(value: &T, into: &mut Vec<u8>) {
    into.clear();
    into.push(VERSION);
    // Serialising plain data into a growing vector cannot fail.
    if let Ok(bytes) = postcard::to_extend(value, std::mem::take(into)) {
        *into = bytes;
    }
}

/// Reads it back, or says what is wrong with it.
fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, String> {
    match bytes.split_first() {
        None => Err(format!("the {what} is empty")),
        Some((&VERSION, body)) => {
            postcard::from_bytes(body).map_err(|error| format!("the {what} is damaged: {error}"))
        }
        Some((version, _)) => Err(format!("the {what} has the unknown version {version}")),
    }
}

pub(super) fn encode_job(about: About, record: &Record, into: &mut Vec<u8>) {
    encode(&StandingV1::of(about, record), into);
}

/// A job that has come to its end, and when it did, in store time.
pub(super) fn encode_finished(about: About, record: &Record, ended_ms: u64, into: &mut Vec<u8>) {
    encode(&(StandingV1::of(about, record), ended_ms), into);
    if let Some(version) = into.first_mut() {
        *version = VERSION_ENDED;
    }
}

/// When it ended is 0 where an earlier version kept it.
pub(super) fn decode_finished(bytes: &[u8]) -> Result<(About, Record, u64), String> {
    let Some((&VERSION_ENDED, body)) = bytes.split_first() else {
        return decode_job(bytes).map(|(about, record)| (about, record, 0));
    };
    let (standing, ended_ms): (StandingV1, u64) =
        postcard::from_bytes(body).map_err(|error| format!("the record is damaged: {error}"))?;
    let (about, record) = standing.read()?;
    Ok((about, record, ended_ms))
}

pub(super) fn decode_job(bytes: &[u8]) -> Result<(About, Record), String> {
    decode::<StandingV1>("record", bytes)?.read()
}

pub(super) fn encode_body(body: &Body, into: &mut Vec<u8>) {
    encode(&BodyV1::of(body), into);
}

pub(super) fn decode_body(bytes: &[u8]) -> Result<Body, String> {
    decode::<BodyV1<'_>>("body", bytes).map(BodyV1::read)
}

pub(super) fn encode_effect(effect: &Effect, into: &mut Vec<u8>) {
    encode(&EffectV1::of(effect), into);
}

pub(super) fn decode_effect(bytes: &[u8]) -> Result<Effect, String> {
    decode::<EffectV1<'_>>("effect", bytes)?.read()
}

pub(super) fn encode_schedule(spec: &ScheduleSpec, into: &mut Vec<u8>) {
    encode(&ScheduleV1::of(spec), into);
}

pub(super) fn decode_schedule(bytes: &[u8]) -> Result<ScheduleSpec, String> {
    decode::<ScheduleV1<'_>>("schedule", bytes)?.read()
}
