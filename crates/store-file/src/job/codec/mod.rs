//! The bytes of what is kept of jobs: see [`crate::codec`].
//!
//! The types of what only the engine has are here; the others are in [`fencehold_contract::stored`].

#[cfg(test)]
mod golden;

use std::borrow::Cow;

use fencehold_contract::job::ScheduleSpec;
use fencehold_contract::stored::{EffectV1, JobV1, ScheduleV1, UndoOfV1};
use fencehold_core::Namespace;
use fencehold_core::job::{JobKind, JobRecord, QueueName, UniqueKey};
use fencehold_core::ledger::Effect;
use fencehold_engine::{JobBody, JobSummary};
use serde::{Deserialize, Serialize};

use crate::codec::{decode, encode};

const VERSION: u8 = 1;
/// A job that has come to its end, and when it did.
const ENDED: u8 = 2;

/// A job: what the working state knows of its body, and all that changes about it.
#[derive(Serialize, Deserialize)]
struct StandingV1 {
    about: AboutV1,
    record: JobV1,
}

#[derive(Serialize, Deserialize)]
struct AboutV1 {
    bytes: u32,
    yield_within_ms: u32,
    undoes: bool,
}

/// What never changes about a job. Borrowed while it is written: a payload may be large.
#[derive(Serialize, Deserialize)]
struct BodyV1<'a> {
    namespace: Namespace,
    queue: QueueName,
    kind: JobKind,
    payload: Cow<'a, str>,
    labels: Cow<'a, [(Box<str>, Box<str>)]>,
    trace: Option<Cow<'a, str>>,
    unique: Option<UniqueKey>,
    yield_within_ms: Option<u64>,
    enqueued_wall_ms: u64,
    undo_of: Option<UndoOfV1>,
}

impl StandingV1 {
    fn of(about: JobSummary, record: &JobRecord) -> Self {
        let JobSummary { bytes, yield_within_ms, undoes } = about;
        StandingV1 { about: AboutV1 { bytes, yield_within_ms, undoes }, record: record.into() }
    }

    fn read(self) -> (JobSummary, JobRecord) {
        let AboutV1 { bytes, yield_within_ms, undoes } = self.about;
        (JobSummary { bytes, yield_within_ms, undoes }, self.record.into())
    }
}

pub(super) fn encode_job(about: JobSummary, record: &JobRecord, into: &mut Vec<u8>) {
    encode(VERSION, &StandingV1::of(about, record), into);
}

pub(super) fn decode_job(bytes: &[u8]) -> Result<(JobSummary, JobRecord), String> {
    decode::<StandingV1>("record", VERSION, bytes).map(StandingV1::read)
}

/// A job that has come to its end, and when it did, in store time.
pub(super) fn encode_finished(about: JobSummary, record: &JobRecord, ended_ms: u64, into: &mut Vec<u8>) {
    encode(ENDED, &(StandingV1::of(about, record), ended_ms), into);
}

/// When it ended is 0 where an earlier version kept it.
pub(super) fn decode_finished(bytes: &[u8]) -> Result<(JobSummary, JobRecord, u64), String> {
    let (standing, ended_ms) = match bytes.first() {
        Some(&ENDED) => decode::<(StandingV1, u64)>("record", ENDED, bytes)?,
        _ => (decode("record", VERSION, bytes)?, 0),
    };
    let (about, record) = standing.read();
    Ok((about, record, ended_ms))
}

pub(super) fn encode_body(body: &JobBody, into: &mut Vec<u8>) {
    let JobBody {
        namespace,
        queue,
        kind,
        payload,
        labels,
        trace,
        unique,
        yield_within_ms,
        enqueued_wall_ms,
        undo_of,
    } = body;
    let stored = BodyV1 {
        namespace: namespace.clone(),
        queue: queue.clone(),
        kind: kind.clone(),
        payload: Cow::Borrowed(payload),
        labels: Cow::Borrowed(labels),
        trace: trace.as_deref().map(Cow::Borrowed),
        unique: unique.clone(),
        yield_within_ms: *yield_within_ms,
        enqueued_wall_ms: *enqueued_wall_ms,
        undo_of: undo_of.clone().map(UndoOfV1::from),
    };
    encode(VERSION, &stored, into);
}

pub(super) fn decode_body(bytes: &[u8]) -> Result<JobBody, String> {
    let stored: BodyV1<'_> = decode("body", VERSION, bytes)?;
    Ok(JobBody {
        namespace: stored.namespace,
        queue: stored.queue,
        kind: stored.kind,
        payload: stored.payload.into(),
        labels: stored.labels.into_owned(),
        trace: stored.trace.map(Box::from),
        unique: stored.unique,
        yield_within_ms: stored.yield_within_ms,
        enqueued_wall_ms: stored.enqueued_wall_ms,
        undo_of: stored.undo_of.map(Into::into),
    })
}

pub(super) fn encode_effect(effect: &Effect, into: &mut Vec<u8>) {
    encode(VERSION, &EffectV1::from(effect), into);
}

pub(super) fn decode_effect(bytes: &[u8]) -> Result<Effect, String> {
    decode::<EffectV1<'_>>("effect", VERSION, bytes).map(Effect::from)
}

pub(super) fn encode_schedule(spec: &ScheduleSpec, into: &mut Vec<u8>) {
    encode(VERSION, &ScheduleV1::from(spec), into);
}

pub(super) fn decode_schedule(bytes: &[u8]) -> Result<ScheduleSpec, String> {
    decode::<ScheduleV1<'_>>("schedule", VERSION, bytes).map(ScheduleSpec::from)
}
