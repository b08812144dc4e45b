//! The bytes of everything that is kept of jobs. They never change: what is on a disk was written by an earlier version. A new
//! form is a new version, with a line of its own here.

use std::num::NonZeroU32;

use fencehold_contract::job::{ScheduleSpec, UndoOf};
use fencehold_core::job::{
    Attempt, Cancel, Claim, Due, EffectName, Ended, JobId, Kind, Notes, Queue, Record, ScheduleName, State,
    Terms, Trail, Undo, UniqueKey,
};
use fencehold_core::lease::Notice;
use fencehold_core::ledger::{Effect, EffectState, OnDoubt, UndoWith};
use fencehold_core::retry::{Backoff, Retry};
use fencehold_core::{HoldHash, Namespace, Owner, Reason, Stamp, Task, Token};
use fencehold_engine::{About, Body};

use super::*;

const AT: Stamp = Stamp { store_ms: 5, wall_ms: 1_800_000_000_000 };

fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

fn job(nth: u8) -> JobId {
    JobId::from_bytes([nth; 16])
}

fn terms(backoff: Backoff) -> Terms {
    Terms {
        priority: -3,
        max_attempts: 7,
        max_crashes: 2,
        attempt_ms: NonZeroU32::new(60_000),
        retry: Retry::new(backoff, 250, 90_000),
    }
}

/// One in every state, with every way to wait, to be undone and to end.
pub(in crate::job) fn records() -> Vec<Record> {
    let claim = Claim {
        hash: HoldHash::from_bytes([7; 16]),
        owner: owner("ada"),
        ttl_ms: 30_000,
        since: AT,
        cancel: Some(Box::new(Cancel { by: owner("op"), reason: Some(Reason::new("no more").unwrap()) })),
        notice: Some(Box::new(Notice {
            contender: owner("eve"),
            task: Some(Task::new("run-1").unwrap()),
            priority: 2,
            yield_at_ms: 70,
        })),
    };
    let attempt = |how: Ended| Attempt {
        token: Token::new(8),
        hash: claim.hash,
        owner: owner("ada"),
        since: AT,
        ended: Stamp { store_ms: 900, ..AT },
        how,
        error: Some("gone".into()),
    };
    let trail = Trail { attempts: Ended::ALL.map(attempt).to_vec(), forgotten: 3 };
    let backoffs = [Backoff::Fixed, Backoff::Linear, Backoff::Exponential];
    let dues = [Due::Now, Due::Store(9_000), Due::Wall(AT.wall_ms + 60_000)];
    let undoes = [Undo::Nothing, Undo::UnderWay, Undo::Done, Undo::Stopped];
    let states = State::ALL.iter().enumerate().map(|(nth, state)| Record {
        state: *state,
        due: dues[nth % dues.len()],
        token: Token::new(9),
        failures: 4,
        crashes: 1,
        terms: terms(backoffs[nth % backoffs.len()]),
        undo: undoes[nth % undoes.len()],
        notes: Notes { checkpoint: true, progress: false, result: nth % 2 == 0, effects: 2 },
        since_wall_ms: AT.wall_ms,
        claim: (*state == State::Running).then(|| Box::new(claim.clone())),
        trail: (nth > 0).then(|| Box::new(trail.clone())),
    });
    states.collect()
}

const ABOUT: About = About { bytes: 200, yield_within_ms: 1_000, undoes: true };

fn bodies() -> [Body; 2] {
    let body = Body {
        namespace: Namespace::new("team").unwrap(),
        queue: Queue::new("mail").unwrap(),
        kind: Kind::new("send").unwrap(),
        payload: r#"{"to":"ada"}"#.into(),
        labels: vec![("customer".into(), "7".into())],
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        unique: Some(UniqueKey::new("mail-7").unwrap()),
        yield_within_ms: Some(5_000),
        enqueued_wall_ms: AT.wall_ms,
        undo_of: Some(UndoOf { job: job(4), effect: EffectName::new("charge").unwrap() }),
    };
    let plain = Body {
        labels: Vec::new(),
        trace: None,
        unique: None,
        yield_within_ms: None,
        undo_of: None,
        ..body.clone()
    };
    [body, plain]
}

fn effects() -> Vec<Effect> {
    let states = [
        EffectState::Intended(OnDoubt::RunAgain),
        EffectState::Intended(OnDoubt::Ask),
        EffectState::Done,
        EffectState::Undoing,
        EffectState::Undone,
        EffectState::UndoFailed,
    ];
    let effect = |(nth, state): (usize, &EffectState)| Effect {
        name: EffectName::new("charge").unwrap(),
        nth: 3,
        token: Token::new(9),
        at_wall_ms: AT.wall_ms,
        state: *state,
        value: (nth > 1).then(|| "7".into()),
        undo: (nth > 2).then(|| {
            Box::new(UndoWith {
                kind: Kind::new("refund").unwrap(),
                queue: Queue::new("money").ok().filter(|_| nth > 3),
                payload: "{}".into(),
            })
        }),
        undo_job: (nth > 3).then(|| job(5)),
    };
    states.iter().enumerate().map(effect).collect()
}

fn schedule() -> ScheduleSpec {
    ScheduleSpec {
        name: ScheduleName::new("nightly").unwrap(),
        cron: "30 2 * * *".to_owned(),
        zone: "Europe/Berlin".to_owned(),
        queue: Queue::new("reports").unwrap(),
        kind: Kind::new("daily").unwrap(),
        payload: "{}".into(),
        terms: terms(Backoff::Linear),
        labels: vec![("team".into(), "a".into())],
        by: owner("ada"),
    }
}

/// How many bytes, and which.
fn digest(all: &[Vec<u8>]) -> (usize, u64) {
    let bytes = all.concat();
    let digest = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (bytes.len(), digest)
}

fn written(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

#[test]
fn the_bytes_of_records_never_change_and_are_read_back() {
    let records = records();
    let live = records.iter().map(|record| {
        let bytes = written(|into| encode_job(ABOUT, record, into));
        assert_eq!(decode_job(&bytes), Ok((ABOUT, record.clone())));
        bytes
    });
    assert_eq!(digest(&live.collect::<Vec<_>>()), (4_306, 14_557_396_406_540_632_380), "live");
    let finished = records.iter().map(|record| {
        let bytes = written(|into| encode_finished(ABOUT, record, 1_234, into));
        assert_eq!(decode_finished(&bytes), Ok((ABOUT, record.clone(), 1_234)));
        bytes
    });
    assert_eq!(digest(&finished.collect::<Vec<_>>()), (4_322, 7_799_151_458_547_433_940), "finished");
}

#[test]
fn the_bytes_of_bodies_never_change_and_are_read_back() {
    let bytes = bodies().map(|body| {
        let bytes = written(|into| encode_body(&body, into));
        assert_eq!(decode_body(&bytes), Ok(body));
        bytes
    });
    assert_eq!(digest(&bytes), (179, 1_640_775_854_969_191_062));
}

#[test]
fn the_bytes_of_effects_never_change_and_are_read_back() {
    let bytes = effects().into_iter().map(|effect| {
        let bytes = written(|into| encode_effect(&effect, into));
        assert_eq!(decode_effect(&bytes), Ok(effect));
        bytes
    });
    assert_eq!(digest(&bytes.collect::<Vec<_>>()), (207, 1_837_738_558_209_283_565));
}

#[test]
fn the_bytes_of_schedules_never_change_and_are_read_back() {
    let bytes = written(|into| encode_schedule(&schedule(), into));
    assert_eq!(decode_schedule(&bytes), Ok(schedule()));
    assert_eq!(digest(&[bytes]), (77, 18_070_810_540_479_365_852));
}

#[test]
fn the_bytes_of_every_version_are_known() {
    use fencehold_conformance::golden::{self, samples};
    const HERE: &str = env!("CARGO_MANIFEST_DIR");
    golden::current(
        HERE,
        "job.v1.hex",
        &samples::jobs(),
        |job| written(|into| encode_job(ABOUT, job, into)),
        |bytes| decode_job(bytes).map(|(_, record)| record),
    );
    golden::current(
        HERE,
        "job-finished.v2.hex",
        &samples::jobs(),
        |job| written(|into| encode_finished(ABOUT, job, 1_234, into)),
        |bytes| decode_finished(bytes).map(|(_, record, _)| record),
    );
    golden::current(
        HERE,
        "job-body.v1.hex",
        &bodies(),
        |body| written(|into| encode_body(body, into)),
        decode_body,
    );
    golden::current(
        HERE,
        "effect.v1.hex",
        &samples::effects(),
        |effect| written(|into| encode_effect(effect, into)),
        decode_effect,
    );
    golden::current(
        HERE,
        "schedule.v1.hex",
        &[samples::schedule()],
        |spec| written(|into| encode_schedule(spec, into)),
        decode_schedule,
    );
    let events = samples::events();
    golden::current(
        HERE,
        "events.v1.hex",
        &[events[..1].to_vec(), events.clone()],
        |events| postcard::to_allocvec(events).unwrap(),
        |bytes| postcard::from_bytes(bytes).map_err(|error| error.to_string()),
    );
    golden::current(
        HERE,
        "old-event.v1.hex",
        &events,
        |event| postcard::to_allocvec(event).unwrap(),
        |bytes| postcard::from_bytes(bytes).map_err(|error| error.to_string()),
    );
    golden::current(
        HERE,
        "limits.v1.json",
        &samples::limits(),
        |limits| serde_json::to_vec(limits).unwrap(),
        |bytes| serde_json::from_slice(bytes).map_err(|error| error.to_string()),
    );
}
