//! Whatever lies in the database as a job is read or refused, and nothing panics.

use std::num::NonZeroU32;

use fencehold_core::job::{Attempt, Cancel, Claim, Ended, Notes, Record, State, Terms, Trail, Undo};
use fencehold_core::lease::Notice;
use fencehold_core::{HoldId, Owner, Reason, Stamp, Token};
use fencehold_engine::About;

use super::codec::{decode_job, encode_job};
use crate::fuzz::edited::{Edit, edited};

fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

/// Jobs as they are kept: new, put off, worked on by one who is to yield and to stop, and at its end.
fn jobs() -> Vec<Vec<u8>> {
    let now = Stamp { store_ms: 5, wall_ms: 1_800_000_000_000 };
    let terms = Terms { priority: -3, attempt_ms: NonZeroU32::new(60_000), ..Terms::default() };
    let new = Record::new(terms, None, now);
    let later = Record::new(terms, Some(now.wall_ms + 3_600_000), now);
    let claim = Claim {
        hash: HoldId::from_random([7; 16]).hash(),
        owner: owner("ada"),
        ttl_ms: 30_000,
        since: now,
        cancel: Some(Box::new(Cancel { by: owner("op"), reason: Some(Reason::new("no more").unwrap()) })),
        notice: Some(Box::new(Notice { contender: owner("eve"), task: None, priority: 2, yield_at_ms: 70 })),
    };
    let attempt = Attempt {
        token: Token::new(8),
        hash: claim.hash,
        owner: owner("ada"),
        since: now,
        ended: Stamp { store_ms: 900, ..now },
        how: Ended::Crashed,
        error: Some("gone".into()),
    };
    let trail = Some(Box::new(Trail { attempts: vec![attempt], ..Trail::default() }));
    let running = Record {
        state: State::Running,
        token: Token::new(9),
        crashes: 1,
        claim: Some(Box::new(claim)),
        trail: trail.clone(),
        ..new.clone()
    };
    let notes = Notes { checkpoint: true, progress: true, result: true, effects: 2 };
    let failed =
        Record { state: State::Failed, failures: 10, undo: Undo::UnderWay, notes, trail, ..new.clone() };
    let about = About { bytes: 200, yield_within_ms: 1_000, undoes: true };
    let encoded = |record: &Record| {
        let mut bytes = Vec::new();
        encode_job(about, record, &mut bytes);
        assert_eq!(decode_job(&bytes), Ok((about, record.clone())));
        bytes
    };
    [new, later, running, failed].iter().map(encoded).collect()
}

/// A job that is read is written as it was, and read again as the same.
#[test]
fn a_job_is_read_or_refused_and_read_again_as_the_same() {
    let jobs = jobs();
    let samples: Vec<&[u8]> = jobs.iter().map(Vec::as_slice).collect();
    bolero::check!().with_type::<(u8, Vec<Edit>)>().for_each(|(which, edits)| {
        let Ok((about, record)) = decode_job(&edited(&samples, *which, edits)) else { return };
        let mut again = Vec::new();
        encode_job(about, &record, &mut again);
        assert_eq!(decode_job(&again), Ok((about, record)));
    });
}
