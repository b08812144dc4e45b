//! What is kept in etcd, as JSON that a person can read with `etcdctl get`. `names` says under which keys. Never rename or remove a field:
//! add one, or raise the format.

use fencehold_contract::Quota;
use fencehold_contract::stored::{LeaseV1, LimitsV1};
use fencehold_core::lease::LeaseRecord;
use fencehold_core::{Owner, Timestamp, Token};
use serde::{Deserialize, Serialize};

use super::key_names::QueuePosition;

/// Raised when an older build could misread what a newer one writes.
const FORMAT: u32 = 1;

/// What holds for the whole store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoreMark {
    pub(super) format: u32,
    /// Every token given from now on is larger.
    pub(super) floor: Token,
    /// How often the store was advanced. A record of an earlier generation is lifted when it is next looked at.
    pub(super) generation: u64,
    /// Who advanced it last, and when.
    pub(super) advanced_by: Option<Owner>,
    pub(super) advanced_at: Timestamp,
    /// The longest ttl there ever was.
    pub(super) longest_ttl_ms: u64,
}

/// A waiter: where it stands, and in which lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredWaiter {
    pub(super) place: QueuePosition,
    pub(super) owner: Owner,
    pub(super) keys: Vec<fencehold_core::Key>,
}

#[derive(Serialize, Deserialize)]
struct StoredRecord {
    token: Token,
    generation: u64,
    #[serde(flatten)]
    lease: LeaseV1,
    /// The longest ttl that was ever granted on this key. An earlier version writes none.
    longest_ttl_ms: Option<u64>,
}

impl StoreMark {
    /// The mark of a store that was not used yet.
    pub(super) fn fresh() -> Self {
        StoreMark { format: FORMAT, ..StoreMark::default() }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mark: StoreMark = read(bytes)?;
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

pub(super) fn encode_record(record: &LeaseRecord, generation: u64, longest_ttl_ms: u64) -> Vec<u8> {
    let longest_ttl_ms = Some(longest_ttl_ms);
    encode(&StoredRecord { token: record.counter, generation, lease: record.into(), longest_ttl_ms })
}

/// A record, its generation, and the longest ttl that was ever granted on its key, where that is known.
pub(super) fn decode_record(bytes: &[u8]) -> Result<(LeaseRecord, u64, Option<u64>), String> {
    let StoredRecord { token, generation, lease, longest_ttl_ms } = read(bytes)?;
    Ok((lease.into_record(token), generation, longest_ttl_ms))
}

pub(super) fn encode_limits(limits: Quota) -> Vec<u8> {
    encode(&LimitsV1::from(limits))
}

pub(super) fn decode_limits(bytes: &[u8]) -> Result<Quota, String> {
    read::<LimitsV1>(bytes).map(Quota::from)
}

#[cfg(test)]
mod tests {
    use fencehold_conformance::golden::{self, samples};

    use super::*;

    const HERE: &str = env!("CARGO_MANIFEST_DIR");

    #[test]
    fn the_bytes_of_every_version_are_known() {
        let records = samples::leases_without_notice().map(|record| (record, 3, Some(90_000)));
        let encode = |(record, generation, longest): &(LeaseRecord, u64, Option<u64>)| {
            encode_record(record, *generation, longest.unwrap_or(0))
        };
        golden::current(HERE, "record.v1.json", &records, encode, decode_record);
        let mark = StoreMark {
            floor: Token::new(9),
            generation: 3,
            advanced_by: Owner::new("op").ok(),
            advanced_at: samples::AT,
            longest_ttl_ms: 90_000,
            ..StoreMark::fresh()
        };
        golden::current(HERE, "store.v1.json", &[StoreMark::fresh(), mark], encode_json, StoreMark::decode);
        let key = |name| fencehold_core::Key::new(name).unwrap();
        let waiting = StoredWaiter {
            place: QueuePosition::new(3, 90_000),
            owner: Owner::new("ada").unwrap(),
            keys: vec![key("gpu/3"), key("gpu/4")],
        };
        golden::current(HERE, "waiting.v1.json", &[waiting], encode_json, read);
        golden::current(
            HERE,
            "limits.v1.json",
            &samples::limits(),
            |limits| encode_limits(*limits),
            decode_limits,
        );
    }

    fn encode_json<T: Serialize>(kept: &T) -> Vec<u8> {
        encode(kept)
    }

    #[test]
    fn a_record_of_an_earlier_version_says_nothing_of_its_longest_ttl() {
        let earlier = br#"{"token":7,"generation":3,"hold":null,"endings":[],"forgotten_at_ms":null}"#;
        let record = LeaseRecord { counter: Token::new(7), ..LeaseRecord::default() };
        assert_eq!(decode_record(earlier), Ok((record, 3, None)));
    }

    #[test]
    fn what_a_later_build_wrote_is_refused_not_guessed() {
        let later = StoreMark { format: FORMAT + 1, ..StoreMark::default() };
        assert!(StoreMark::decode(&encode(&later)).unwrap_err().contains("format 2"));
        assert_eq!(StoreMark::decode(&encode(&StoreMark::fresh())), Ok(StoreMark::fresh()));
        assert!(decode_record(b"{").is_err());
    }
}
