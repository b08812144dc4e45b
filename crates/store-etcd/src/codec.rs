//! What is kept in etcd, as JSON that a person can read with `etcdctl get`. Never rename or remove a field: add one,
//! or raise the format.

use std::num::NonZeroU64;

use fencehold_core::lease::{Ending, History, Hold, How, Record};
use fencehold_core::{HoldHash, Owner, Reason, Stamp, Task, Token};
use serde::{Deserialize, Serialize};

use super::names::Place;

/// Raised when an older build could misread what a newer one writes.
const FORMAT: u32 = 1;

/// What holds for the whole store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) format: u32,
    /// Every token given from now on is larger.
    pub(super) floor: Token,
    /// How often the store was advanced. A record of an earlier generation is lifted when it is next looked at.
    pub(super) generation: u64,
    /// Who advanced it last, and when.
    pub(super) advanced_by: Option<Owner>,
    pub(super) advanced_at: Stamp,
    /// The longest ttl there ever was.
    pub(super) longest_ttl_ms: u64,
}

/// A waiter: where it stands, and in which lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) place: Place,
    pub(super) owner: Owner,
    pub(super) keys: Vec<fencehold_core::Key>,
}

#[derive(Serialize, Deserialize)]
struct KeptRecord {
    token: Token,
    generation: u64,
    hold: Option<KeptHold>,
    endings: Vec<KeptEnding>,
    forgotten_at_ms: Option<u64>,
    /// The longest ttl that was ever granted on this key. An earlier version writes none.
    longest_ttl_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct KeptHold {
    hash: HoldHash,
    owner: Owner,
    task: Option<Task>,
    ttl_ms: u64,
    max_age_ms: Option<NonZeroU64>,
    since: Stamp,
    priority: i16,
}

#[derive(Serialize, Deserialize)]
struct KeptEnding {
    token: Token,
    hash: HoldHash,
    owner: Owner,
    task: Option<Task>,
    how: How,
    at: Stamp,
    by: Option<Owner>,
    reason: Option<Reason>,
}

impl Mark {
    /// The mark of a store that nobody has used yet.
    pub(super) fn fresh() -> Self {
        Mark { format: FORMAT, ..Mark::default() }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mark: Mark = read(bytes)?;
        if mark.format == FORMAT {
            return Ok(mark);
        }
        Err(format!("it has the format {}, and this build knows {FORMAT}", mark.format))
    }
}

/// The bytes of a mark or of a waiter.
pub(super) fn encode(kept: &impl Serialize) -> Vec<u8> {
    // Plain data with text for field names: there is nothing in it that JSON cannot say.
    serde_json::to_vec(kept).unwrap_or_default()
}

pub(super) fn read<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("it cannot be read: {error}"))
}

pub(super) fn encode_record(record: &Record, generation: u64, longest_ttl_ms: u64) -> Vec<u8> {
    encode(&KeptRecord {
        token: record.counter,
        generation,
        hold: record.hold.as_ref().map(|hold| KeptHold {
            hash: hold.hash,
            owner: hold.owner.clone(),
            task: hold.task.clone(),
            ttl_ms: hold.ttl_ms,
            max_age_ms: hold.max_age_ms,
            since: hold.since,
            priority: hold.priority,
        }),
        endings: record.endings().iter().map(kept_ending).collect(),
        forgotten_at_ms: record.history.as_ref().and_then(|history| history.forgotten_at_ms),
        longest_ttl_ms: Some(longest_ttl_ms),
    })
}

/// A record, its generation, and the longest ttl that was ever granted on its key, where that is known.
pub(super) fn decode_record(bytes: &[u8]) -> Result<(Record, u64, Option<u64>), String> {
    let kept: KeptRecord = read(bytes)?;
    let endings: Vec<Ending> = kept.endings.into_iter().map(ending).collect();
    let history = (!endings.is_empty() || kept.forgotten_at_ms.is_some())
        .then(|| Box::new(History { endings, forgotten_at_ms: kept.forgotten_at_ms }));
    let hold = kept.hold.map(|hold| Hold {
        hash: hold.hash,
        owner: hold.owner,
        task: hold.task,
        ttl_ms: hold.ttl_ms,
        max_age_ms: hold.max_age_ms,
        since: hold.since,
        priority: hold.priority,
        notice: None,
    });
    Ok((Record { counter: kept.token, hold, history }, kept.generation, kept.longest_ttl_ms))
}

fn kept_ending(ending: &Ending) -> KeptEnding {
    KeptEnding {
        token: ending.token,
        hash: ending.hash,
        owner: ending.owner.clone(),
        task: ending.task.clone(),
        how: ending.how,
        at: ending.at,
        by: ending.by.clone(),
        reason: ending.reason.clone(),
    }
}

fn ending(kept: KeptEnding) -> Ending {
    let KeptEnding { token, hash, owner, task, how, at, by, reason } = kept;
    Ending { token, hash, owner, task, how, at, by, reason }
}

#[cfg(test)]
mod tests {
    use fencehold_conformance::golden::{self, samples};

    use super::*;

    const HERE: &str = env!("CARGO_MANIFEST_DIR");

    #[test]
    fn the_bytes_of_every_version_are_known() {
        let records = samples::leases_without_notice().map(|record| (record, 3, Some(90_000)));
        let encode = |(record, generation, longest): &(Record, u64, Option<u64>)| {
            encode_record(record, *generation, longest.unwrap_or(0))
        };
        golden::current(HERE, "record.v1.json", &records, encode, decode_record);
        let mark = Mark {
            floor: Token::new(9),
            generation: 3,
            advanced_by: Owner::new("op").ok(),
            advanced_at: samples::AT,
            longest_ttl_ms: 90_000,
            ..Mark::fresh()
        };
        golden::current(HERE, "store.v1.json", &[Mark::fresh(), mark], encode_json, Mark::decode);
        let key = |name| fencehold_core::Key::new(name).unwrap();
        let waiting = Waiting {
            place: Place::new(3, 90_000),
            owner: Owner::new("ada").unwrap(),
            keys: vec![key("gpu/3"), key("gpu/4")],
        };
        golden::current(HERE, "waiting.v1.json", &[waiting], encode_json, read);
        golden::current(HERE, "limits.v1.json", &samples::limits(), encode_json, read);
    }

    fn encode_json<T: Serialize>(kept: &T) -> Vec<u8> {
        encode(kept)
    }

    fn stamp(ms: u64) -> Stamp {
        Stamp { store_ms: ms, wall_ms: ms + 1 }
    }

    #[test]
    fn a_record_survives_being_kept() {
        let owner = Owner::new("A").unwrap();
        let ending = |how| Ending {
            token: Token::new(6),
            hash: HoldHash::from_bytes([9; 16]),
            owner: owner.clone(),
            task: None,
            how,
            at: stamp(5),
            by: Some(owner.clone()),
            reason: Reason::new("it was stuck").ok(),
        };
        let record = Record {
            counter: Token::new(7),
            hold: Some(Hold {
                hash: HoldHash::from_bytes([8; 16]),
                owner: owner.clone(),
                task: Task::new("run-42").ok(),
                ttl_ms: 30_000,
                max_age_ms: NonZeroU64::new(60_000),
                since: stamp(7),
                priority: -3,
                notice: None,
            }),
            history: Some(Box::new(History {
                endings: How::ALL.map(ending).to_vec(),
                forgotten_at_ms: Some(4),
            })),
        };
        for record in [record, Record::default()] {
            assert_eq!(decode_record(&encode_record(&record, 3, 90_000)), Ok((record, 3, Some(90_000))));
        }
    }

    #[test]
    fn a_record_of_an_earlier_version_says_nothing_of_its_longest_ttl() {
        let earlier = br#"{"token":7,"generation":3,"hold":null,"endings":[],"forgotten_at_ms":null}"#;
        let record = Record { counter: Token::new(7), ..Record::default() };
        assert_eq!(decode_record(earlier), Ok((record, 3, None)));
    }

    #[test]
    fn what_a_later_build_wrote_is_refused_not_guessed() {
        let later = Mark { format: FORMAT + 1, ..Mark::default() };
        assert!(Mark::decode(&encode(&later)).unwrap_err().contains("format 2"));
        assert_eq!(Mark::decode(&encode(&Mark::fresh())), Ok(Mark::fresh()));
        assert!(decode_record(b"{").is_err());
    }
}
