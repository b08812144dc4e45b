//! The secret that a caller shows, and what is kept of it.
//!
//! A token's text is `fencehold_<id>_<secret>`: the id is public and stands in lists and in the audit; the secret is 256
//! random bits. Kept is its plain SHA-256. A slow, salted hash is for passwords, which people choose and attackers guess;
//! 256 random bits cannot be guessed, and every request has to be checked.

use std::fmt;

use fencehold_core::BadInput;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// How every token begins, so that scanners for leaked secrets can find one.
const PREFIX: &str = "fencehold_";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// A token's public name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId([u8; ID_BYTES]);

impl TokenId {
    /// Reads an id as lists show it.
    pub fn parse(text: &str) -> Result<Self, BadInput> {
        let bad = || {
            BadInput::new(
                "token id",
                "must be 12 hexadecimal digits, as `fencehold access-token ls` shows them",
            )
        };
        unhex(text).map(TokenId).ok_or_else(bad)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(&self.0))
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenId({self})")
    }
}

/// What a caller shows. It prints as nothing; [`Bearer::reveal`] is the only way to its text.
#[derive(Clone, Copy)]
pub struct Bearer {
    /// Which token it claims to be.
    pub id: TokenId,
    secret: [u8; SECRET_BYTES],
}

impl Bearer {
    /// A token of these bits, which must be random.
    pub fn from_random(bits: [u8; ID_BYTES + SECRET_BYTES]) -> Self {
        Bearer {
            id: TokenId(std::array::from_fn(|at| bits[at])),
            secret: std::array::from_fn(|at| bits[ID_BYTES + at]),
        }
    }

    /// Reads what [`Bearer::reveal`] wrote. `None`: it has not the form of a token.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        Some(Bearer { id: TokenId(unhex(id)?), secret: unhex(secret)? })
    }

    /// The text to be handed to its user.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, hex(&self.secret))
    }

    /// What is kept instead of the secret.
    pub fn hash(&self) -> SecretHash {
        SecretHash(Sha256::digest(self.secret).into())
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bearer({}, …)", self.id)
    }
}

/// What is kept of a secret. Compared in constant time, and in no other way.
#[derive(Clone, Copy)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// A hash that no secret has, to be compared with where there is no token: an unknown id takes as long as a wrong secret.
    pub const NOBODYS: SecretHash = SecretHash([0; 32]);

    /// The hash as it was kept.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        SecretHash(bytes)
    }

    /// The bytes to keep.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads it as 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, BadInput> {
        let bad = || BadInput::new("secret_sha256", "must be 64 hexadecimal digits");
        unhex(text).map(SecretHash).ok_or_else(bad)
    }

    /// The hash as 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// Whether both are the same, in a time that does not tell how much of them is.
    pub fn is(&self, other: &SecretHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(…)")
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(crate) fn unhex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let text = text.as_bytes();
    if text.len() != 2 * BYTES {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer() -> Bearer {
        Bearer::from_random(std::array::from_fn(|at| u8::try_from(at).unwrap() + 0xa0))
    }

    #[test]
    fn a_token_survives_being_handed_out_and_never_prints_itself() {
        let bearer = bearer();
        let text = bearer.reveal();
        let again = Bearer::parse(&text).unwrap();
        assert!(again.hash().is(&bearer.hash()) && again.id == bearer.id);
        let printed = format!("{bearer:?} {:?}", bearer.hash());
        assert!(!printed.contains(&text[text.len() - 12..]), "{printed}");
    }

    #[test]
    fn one_wrong_digit_makes_another_token() {
        let text = bearer().reveal();
        let last = if text.ends_with('0') { "1" } else { "0" };
        let other = Bearer::parse(&format!("{}{last}", &text[..text.len() - 1])).unwrap();
        assert!(!other.hash().is(&bearer().hash()));
        assert!(!other.hash().is(&SecretHash::NOBODYS));
    }

    #[test]
    fn what_has_not_the_form_of_a_token_is_none() {
        let text = bearer().reveal();
        for bad in
            ["", "fencehold_", "fencehold__", &text[1..], &text[..text.len() - 1], &text.replace("a0", "é")]
        {
            assert!(Bearer::parse(bad).is_none(), "{bad}");
        }
    }
}
