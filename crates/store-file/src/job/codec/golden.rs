//! The bytes of everything that is kept of jobs, held against what they have always been.

use fencehold_conformance::golden::{self, samples};
use fencehold_contract::job::CompensatedEffect;
use fencehold_core::Namespace;
use fencehold_core::job::{EffectName, JobKind, QueueName, UniqueKey};
use fencehold_engine::{JobBody, JobSummary};

use super::*;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const ABOUT: JobSummary = JobSummary { bytes: 200, yield_within_ms: 1_000, undoes: true };

fn bodies() -> [JobBody; 2] {
    let body = JobBody {
        namespace: Namespace::new("team").unwrap(),
        queue: QueueName::new("mail").unwrap(),
        kind: JobKind::new("send").unwrap(),
        payload: r#"{"to":"ada"}"#.into(),
        labels: vec![("customer".into(), "7".into())],
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        unique: Some(UniqueKey::new("mail-7").unwrap()),
        yield_within_ms: Some(5_000),
        enqueued_wall_ms: samples::AT.wall_ms,
        undo_of: Some(CompensatedEffect {
            job_id: samples::job(4),
            effect: EffectName::new("charge").unwrap(),
        }),
    };
    let plain = JobBody {
        labels: Vec::new(),
        trace: None,
        unique: None,
        yield_within_ms: None,
        undo_of: None,
        ..body.clone()
    };
    [body, plain]
}

fn written(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

#[test]
fn the_bytes_of_every_version_of_jobs_are_known() {
    let jobs: Vec<_> = samples::jobs().into_iter().map(|record| (ABOUT, record)).collect();
    let encode = |(about, record): &(JobSummary, JobRecord)| written(|into| encode_job(*about, record, into));
    golden::current(HERE, "job.v1.hex", &jobs, encode, decode_job);
    let at = |ended_ms: u64| {
        jobs.iter()
            .map(|(about, record)| (*about, record.clone(), ended_ms))
            .collect::<Vec<_>>()
    };
    golden::earlier(HERE, "job.v1.hex", &at(0), decode_finished);
    let encode = |(about, record, ended_ms): &(JobSummary, JobRecord, u64)| {
        written(|into| encode_finished(*about, record, *ended_ms, into))
    };
    golden::current(HERE, "job-finished.v2.hex", &at(1_234), encode, decode_finished);
}

#[test]
fn the_bytes_of_every_version_of_what_jobs_have_are_known() {
    let encode = |body: &JobBody| written(|into| encode_body(body, into));
    golden::current(HERE, "job-body.v1.hex", &bodies(), encode, decode_body);
    let encode = |effect: &Effect| written(|into| encode_effect(effect, into));
    golden::current(HERE, "effect.v1.hex", &samples::effects(), encode, decode_effect);
    let encode = |spec: &ScheduleSpec| written(|into| encode_schedule(spec, into));
    golden::current(HERE, "schedule.v1.hex", &[samples::schedule()], encode, decode_schedule);
}
