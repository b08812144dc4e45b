//! A job's name: chosen by the caller that enqueues it, so that the same enqueue can be sent twice and makes one job.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::error::BadInput;

/// 128 bits that name one job for ever: the moment it was made, then randomness, laid out as a UUID of version 7. Ids
/// made one after the other are near each other, which is what a store's index likes best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId([u8; 16]);

impl JobId {
    /// An id made at this moment from random bits, which must be used for one job only.
    pub fn from_random(wall_ms: u64, bits: [u8; 10]) -> Self {
        let mut id = [0; 16];
        id[..6].copy_from_slice(&wall_ms.to_be_bytes()[2..]);
        id[6..].copy_from_slice(&bits);
        JobId(id).marked(7)
    }

    /// No id: the server that enqueues the job is to make one. A job that still has it is refused.
    #[doc(hidden)]
    pub const fn nil() -> Self {
        JobId([0; 16])
    }

    /// Whether it is none.
    pub fn is_nil(&self) -> bool {
        *self == JobId::nil()
    }

    /// The id of a job that follows from another one, always the same: so that it is enqueued once, however often that
    /// is tried.
    #[doc(hidden)]
    pub fn following(self, name: &str) -> Self {
        let digest = Sha256::new().chain_update(self.0).chain_update(name).finalize();
        let mut id = self.0;
        id[6..].copy_from_slice(&digest[..10]);
        JobId(id).marked(8)
    }

    /// The id of a job that was due at a moment under some name, always the same.
    #[doc(hidden)]
    pub fn due(wall_ms: u64, name: &str) -> Self {
        let digest = Sha256::digest(name);
        let mut bits = [0; 10];
        bits.copy_from_slice(&digest[..10]);
        JobId(JobId::from_random(wall_ms, bits).0).marked(8)
    }

    /// Whether it follows from something else, and was not made at random: a caller that can compute it could take it away
    /// from the job that is to have it.
    #[doc(hidden)]
    pub const fn is_derived(self) -> bool {
        self.0[6] >> 4 == 8
    }

    /// The id as it was kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        JobId(bytes)
    }

    /// The bytes to keep.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Something that looks random and is always the same for this job and this number: spreads jobs in time without
    /// a source of randomness.
    #[doc(hidden)]
    pub fn spread(self, number: u64) -> u64 {
        let digest = Sha256::new().chain_update(self.0).chain_update(number.to_be_bytes()).finalize();
        let mut bits = [0; 8];
        bits.copy_from_slice(&digest[..8]);
        u64::from_be_bytes(bits)
    }

    /// Reads an id as people write it: 32 hexadecimal digits, with or without hyphens.
    pub fn parse(text: &str) -> Result<Self, BadInput> {
        let bad = || {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(64).collect();
            let problem = format!("{shown:?} is not 32 hexadecimal digits, as `job enqueue` printed them");
            BadInput::new("job id", problem)
        };
        let mut digits = text.trim().chars().filter(|c| *c != '-').map(|c| c.to_digit(16));
        let mut id = [0; 16];
        for byte in &mut id {
            let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
                return Err(bad());
            };
            *byte = u8::try_from(high << 4 | low).map_err(|_| bad())?;
        }
        if digits.next().is_some() { Err(bad()) } else { Ok(JobId(id)) }
    }

    /// The id as people write it.
    pub(crate) fn text(self) -> [u8; 36] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; 36];
        let mut to = 0;
        for (at, byte) in self.0.iter().enumerate() {
            to += usize::from(matches!(at, 4 | 6 | 8 | 10));
            text[to] = DIGITS[usize::from(byte >> 4)];
            text[to + 1] = DIGITS[usize::from(byte & 15)];
            to += 2;
        }
        text
    }

    fn marked(mut self, version: u8) -> Self {
        self.0[6] = self.0[6] & 0x0f | version << 4;
        self.0[8] = self.0[8] & 0x3f | 0x80;
        self
    }
}

#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for JobId {
    fn from(uuid: uuid::Uuid) -> Self {
        JobId::from_bytes(uuid.into_bytes())
    }
}

#[cfg(feature = "uuid")]
impl From<JobId> for uuid::Uuid {
    fn from(id: JobId) -> Self {
        uuid::Uuid::from_bytes(id.0)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

impl std::str::FromStr for JobId {
    type Err = BadInput;
    fn from_str(text: &str) -> Result<Self, BadInput> {
        JobId::parse(text)
    }
}

/// As people write it where people read, and as its bytes where only stores do.
impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            return JobId::parse(&text).map_err(serde::de::Error::custom);
        }
        Deserialize::deserialize(deserializer).map(JobId)
    }
}

inline_schema!(JobId, "JobId", { "type": "string", "format": "uuid" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_being_written_and_read() {
        let id = JobId::from_random(1_763_000_000_000, [0xff; 10]);
        assert_eq!(JobId::parse(&id.to_string()), Ok(id));
        assert_eq!(JobId::parse(&id.to_string().replace('-', "")), Ok(id));
        // What RFC 9562 asks of every id: its version, and two bits that say whose numbering that is.
        assert_eq!((&id.to_string()[14..15], &id.to_string()[19..20]), ("7", "b"));
        let zeros = JobId::from_random(0, [0; 10]).to_string();
        assert_eq!(zeros, "00000000-0000-7000-8000-000000000000");
        for bad in ["", "7", &format!("{id}0"), &id.to_string().replace('f', "g"), "é".repeat(32).as_str()] {
            assert!(JobId::parse(bad).is_err(), "{bad}");
        }
        let error = JobId::parse("no\u{7} id").unwrap_err().to_string();
        assert!(error.starts_with("job id \"no id\" is not 32"), "{error}");
    }

    #[test]
    fn jobs_are_spread_alike_every_time_and_apart_from_each_other() {
        let (one, other) = (JobId::from_random(7, [3; 10]), JobId::from_random(7, [4; 10]));
        assert_eq!(one.spread(1), one.spread(1));
        assert!(one.spread(1) != one.spread(2) && one.spread(1) != other.spread(1));
    }

    #[test]
    fn one_that_anybody_can_compute_can_be_told_from_one_made_at_random() {
        assert!(JobId::due(1_763_000_000_000, "nightly").is_derived());
        assert!(!JobId::from_random(1_763_000_000_000, [0x88; 10]).is_derived());
    }

    #[test]
    fn programs_read_an_id_as_people_do() {
        let id = JobId::from_random(7, [3; 10]);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{id}\""));
        assert_eq!(serde_json::from_str::<JobId>(&json).unwrap(), id);
    }

    #[test]
    fn ids_stand_in_the_order_of_their_making() {
        let ids = [5, 1 << 20, 1 << 40].map(|wall_ms| JobId::from_random(wall_ms, [9; 10]));
        assert!(ids.is_sorted());
    }

    #[test]
    fn what_follows_from_a_job_has_one_name() {
        let id = JobId::from_random(7, [1; 10]);
        assert_eq!(id.following("charge"), id.following("charge"));
        assert_ne!(id.following("charge"), id.following("ship"));
        assert_ne!(id.following("charge"), id);
    }
}
