//! The hold id: the proof that a renewal or a release comes from the holder.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::error::BadInput;

/// 128 random bits, chosen by the client for one acquisition and used once.
///
/// It is a secret: anyone who knows it can end the hold. It prints as `HoldId(…)`; [`HoldId::reveal`] is the only
/// way to its value, so that a leak can be found by searching for one word.
///
/// Between machines it travels as those digits; in frames and records of our own, as bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HoldId([u8; 16]);

impl HoldId {
    /// A hold id of these bits. They must be random and used for one acquisition only.
    pub const fn from_random(bits: [u8; 16]) -> Self {
        HoldId(bits)
    }

    /// What a store keeps instead of the hold id.
    pub fn hash(&self) -> HoldHash {
        let digest = Sha256::digest(self.0);
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        HoldHash(short)
    }

    /// The secret itself, as 32 hexadecimal digits.
    pub fn reveal(&self) -> String {
        self.digits().iter().copied().map(char::from).collect()
    }

    fn digits(&self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        digits
    }

    /// Reads what [`HoldId::reveal`] wrote.
    pub fn parse(text: &str) -> Result<Self, BadInput> {
        // The text may be a secret with a typing error: the error must not repeat it.
        let bad =
            || BadInput::new("hold id", "must be 32 hexadecimal digits, as `lease acquire` printed them");
        let text = text.trim().as_bytes();
        if text.len() != 32 {
            return Err(bad());
        }
        let mut bits = [0; 16];
        for (bit, pair) in bits.iter_mut().zip(text.chunks_exact(2)) {
            let (high, low) = (DIGIT_OF[usize::from(pair[0])], DIGIT_OF[usize::from(pair[1])]);
            if (high | low) == NO_DIGIT {
                return Err(bad());
            }
            *bit = high << 4 | low;
        }
        Ok(HoldId(bits))
    }
}

/// What is in the table for a byte that is no digit: all bits, so that they stay whatever is added to them.
const NO_DIGIT: u8 = 0xff;

/// The value of each byte as a hexadecimal digit: a hold id is read with every request.
const DIGIT_OF: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        values[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

impl Serialize for HoldId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            // No copy of the secret stays behind in memory that was let go.
            let digits = self.digits();
            serializer.serialize_str(std::str::from_utf8(&digits).map_err(serde::ser::Error::custom)?)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for HoldId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            crate::wire::read_text(deserializer, HoldId::parse)
        } else {
            Deserialize::deserialize(deserializer).map(HoldId)
        }
    }
}

inline_schema!(HoldId, "HoldId", { "type": "string", "pattern": "^[0-9a-fA-F]{32}$" });

impl fmt::Debug for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HoldId(…)")
    }
}

/// The first 128 bits of the SHA-256 of a hold id: enough to recognise it, useless for renewing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HoldHash([u8; 16]);

impl HoldHash {
    /// The hash as it was kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        HoldHash(bytes)
    }

    /// The bytes to keep.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for HoldHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HoldHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_id_never_prints_itself() {
        let id = HoldId::from_random([0xab; 16]);
        assert_eq!(format!("{id:?} {:?}", id.hash()), "HoldId(…) HoldHash(…)");
        let typo = format!("{}zz", &id.reveal()[..30]);
        assert!(!HoldId::parse(&typo).unwrap_err().to_string().contains("abab"));
    }

    #[test]
    fn one_wrong_digit_anywhere_makes_it_no_hold_id() {
        let good = HoldId::from_random([0xab; 16]).reveal();
        for at in 0..good.len() {
            let bad: String = good
                .chars()
                .enumerate()
                .map(|(nth, digit)| if nth == at { 'g' } else { digit })
                .collect();
            assert!(HoldId::parse(&bad).is_err(), "{at}");
        }
    }

    #[test]
    fn a_hold_id_survives_reveal_and_parse() {
        let id = HoldId::from_random([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255, 0]);
        assert_eq!(HoldId::parse(&format!(" {}\n", id.reveal())), Ok(id));
    }
}
