//! One kept record, byte for byte. A version first, so that a later one can be told apart; then the fields in a
//! fixed order. Never reorder or remove: add a version.

use std::num::NonZeroU64;

use fencehold_core::lease::{Ending, History, Hold, How, Notice, Record};
use fencehold_core::{HoldHash, Owner, Reason, Stamp, Task, Token};
use serde::{Deserialize, Serialize};

const VERSION: u8 = 1;

#[derive(Serialize, Deserialize)]
struct RecordV1 {
    hold: Option<HoldV1>,
    endings: Vec<EndingV1>,
    forgotten_at_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct HoldV1 {
    hash: [u8; 16],
    owner: Owner,
    task: Option<Task>,
    ttl_ms: u64,
    max_age_ms: u64,
    since: Stamp,
    priority: i16,
    notice: Option<NoticeV1>,
}

#[derive(Serialize, Deserialize)]
struct NoticeV1 {
    contender: Owner,
    task: Option<Task>,
    priority: i16,
    yield_at_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct EndingV1 {
    token: u64,
    hash: [u8; 16],
    owner: Owner,
    task: Option<Task>,
    how: u8,
    at: Stamp,
    by: Option<Owner>,
    reason: Option<Reason>,
}

/// A record's bytes. Its counter is a column of its own: should the bytes be damaged, the token survives.
pub(super) fn encode(record: &Record, into: &mut Vec<u8>) {
    into.clear();
    into.push(VERSION);
    let kept = RecordV1 {
        hold: record.hold.clone().map(HoldV1::from),
        endings: record.endings().iter().cloned().map(EndingV1::from).collect(),
        forgotten_at_ms: record.history.as_ref().and_then(|history| history.forgotten_at_ms),
    };
    // Serialising plain data into a growing vector cannot fail.
    if let Ok(bytes) = postcard::to_extend(&kept, std::mem::take(into)) {
        *into = bytes;
    }
}

/// Reads a record back, or says what is wrong with it.
pub(super) fn decode(counter: Token, bytes: &[u8]) -> Result<Record, String> {
    let Some((version, body)) = bytes.split_first() else { return Err("the record is empty".to_owned()) };
    if *version != VERSION {
        return Err(format!("the record has the unknown version {version}"));
    }
    let kept: RecordV1 =
        postcard::from_bytes(body).map_err(|error| format!("the record is damaged: {error}"))?;
    let endings: Vec<Ending> = kept.endings.into_iter().map(Ending::try_from).collect::<Result<_, _>>()?;
    let history = (!endings.is_empty() || kept.forgotten_at_ms.is_some())
        .then(|| Box::new(History { endings, forgotten_at_ms: kept.forgotten_at_ms }));
    Ok(Record { counter, hold: kept.hold.map(Hold::from), history })
}

impl From<Hold> for HoldV1 {
    fn from(hold: Hold) -> Self {
        HoldV1 {
            hash: *hold.hash.as_bytes(),
            owner: hold.owner,
            task: hold.task,
            ttl_ms: hold.ttl_ms,
            max_age_ms: hold.max_age_ms.map_or(0, NonZeroU64::get),
            since: hold.since,
            priority: hold.priority,
            notice: hold.notice.map(|notice| NoticeV1 {
                contender: notice.contender,
                task: notice.task,
                priority: notice.priority,
                yield_at_ms: notice.yield_at_ms,
            }),
        }
    }
}

impl From<HoldV1> for Hold {
    fn from(kept: HoldV1) -> Self {
        Hold {
            hash: HoldHash::from_bytes(kept.hash),
            owner: kept.owner,
            task: kept.task,
            ttl_ms: kept.ttl_ms,
            max_age_ms: NonZeroU64::new(kept.max_age_ms),
            since: kept.since,
            priority: kept.priority,
            notice: kept.notice.map(|notice| {
                Box::new(Notice {
                    contender: notice.contender,
                    task: notice.task,
                    priority: notice.priority,
                    yield_at_ms: notice.yield_at_ms,
                })
            }),
        }
    }
}

impl From<Ending> for EndingV1 {
    fn from(ending: Ending) -> Self {
        EndingV1 {
            token: ending.token.get(),
            hash: *ending.hash.as_bytes(),
            owner: ending.owner,
            task: ending.task,
            how: tag_of(ending.how),
            at: ending.at,
            by: ending.by,
            reason: ending.reason,
        }
    }
}

impl TryFrom<EndingV1> for Ending {
    type Error = String;

    fn try_from(kept: EndingV1) -> Result<Self, String> {
        Ok(Ending {
            token: Token::new(kept.token),
            hash: HoldHash::from_bytes(kept.hash),
            owner: kept.owner,
            task: kept.task,
            how: *How::ALL.get(usize::from(kept.how)).ok_or("the record has an unknown ending")?,
            at: kept.at,
            by: kept.by,
            reason: kept.reason,
        })
    }
}

/// An ending's number: its place in [`How::ALL`].
fn tag_of(how: How) -> u8 {
    How::ALL
        .iter()
        .position(|known| *known == how)
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use fencehold_conformance::golden;

    use super::*;

    fn full_record() -> Record {
        let owner = Owner::new("host/7").unwrap();
        let at = Stamp { store_ms: 5, wall_ms: 6 };
        let endings = How::ALL.iter().zip(1..).map(|(how, nth)| Ending {
            token: Token::new(nth),
            hash: HoldHash::from_bytes([9; 16]),
            owner: owner.clone(),
            task: Task::new("run-1").ok(),
            how: *how,
            at,
            by: Some(owner.clone()),
            reason: Reason::new("stuck").ok(),
        });
        Record {
            counter: Token::new(9),
            hold: Some(Hold {
                hash: HoldHash::from_bytes([3; 16]),
                owner: owner.clone(),
                task: None,
                ttl_ms: 30_000,
                max_age_ms: NonZeroU64::new(99),
                since: at,
                priority: -4,
                notice: Some(Box::new(Notice {
                    contender: owner.clone(),
                    task: None,
                    priority: 3,
                    yield_at_ms: 8,
                })),
            }),
            history: Some(Box::new(History { endings: endings.collect(), forgotten_at_ms: Some(2) })),
        }
    }

    fn bytes_of(record: &Record) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(record, &mut bytes);
        bytes
    }

    #[test]
    fn a_record_is_read_back_as_it_was_kept() {
        for record in [Record { counter: Token::new(9), ..Record::default() }, full_record()] {
            assert_eq!(decode(Token::new(9), &bytes_of(&record)), Ok(record));
        }
    }

    #[test]
    fn the_bytes_of_version_1_never_change() {
        let digest = bytes_of(&full_record()).iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        assert_eq!((bytes_of(&full_record()).len(), digest), (EXPECTED_LEN, EXPECTED_DIGEST));
    }
    const EXPECTED_LEN: usize = 390;
    const EXPECTED_DIGEST: u64 = 7_894_757_785_346_413_642;

    #[test]
    fn the_bytes_of_every_version_are_known() {
        golden::current(
            env!("CARGO_MANIFEST_DIR"),
            "lease.v1.hex",
            &golden::samples::leases(),
            bytes_of,
            |bytes| decode(Token::new(if bytes.len() == 4 { 0 } else { 9 }), bytes),
        );
    }

    #[test]
    fn damaged_bytes_give_an_error_and_never_a_panic() {
        let good = bytes_of(&full_record());
        for cut in 0..good.len() {
            assert!(decode(Token::new(9), &good[..cut]).is_err());
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            let _ = decode(Token::new(9), &bad);
        }
        assert!(decode(Token::new(9), &[2, 0, 0, 0]).unwrap_err().contains("unknown version 2"));
    }
}
