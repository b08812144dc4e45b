//! The fencing token.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::TOKEN_MAX;

/// A fencing token: grows with every acquisition of a key, for ever. Gaps are normal.
///
/// Zero is the token of a key that was never held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Token(u64);

impl Token {
    /// The token of a key that was never held.
    pub const NONE: Token = Token(0);

    /// A token of this value.
    pub const fn new(value: u64) -> Self {
        Token(value)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as databases have it (`bigint`). Every token that a store grants fits; a larger one, which none has granted, counts as the
    /// largest.
    pub const fn as_i64(self) -> i64 {
        let value = if self.0 < TOKEN_MAX { self.0 } else { TOKEN_MAX };
        value.cast_signed()
    }

    /// The token `by` steps further, or `None` where that would pass the cap: refused, never wrapped.
    #[doc(hidden)]
    pub fn lifted(self, by: u64) -> Option<Self> {
        self.0.checked_add(by).filter(|value| *value <= TOKEN_MAX).map(Token)
    }

    /// What `store advance` makes of a counter: the token `by` steps further. A counter that has no token left to grant goes to the cap, and
    /// keeps no other from being raised.
    #[doc(hidden)]
    pub fn advanced(self, by: u64) -> Option<Self> {
        self.lifted(by).or_else(|| self.is_exhausted().then_some(Token(TOKEN_MAX)))
    }

    /// Whether no token is left to grant.
    pub fn is_exhausted(self) -> bool {
        self.next_to_grant().is_none()
    }

    /// The token that an acquisition takes. The last token below the cap is left for a revocation, so that even
    /// the last holder can be fenced out.
    pub(crate) fn next_to_grant(self) -> Option<Self> {
        self.lifted(1).filter(|token| token.0 < TOKEN_MAX)
    }
}

impl<'de> Deserialize<'de> for Token {
    /// What comes from outside, as text, may be anything: a number that JSON cannot carry is no token.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let from_outside = deserializer.is_human_readable();
        let value = u64::deserialize(deserializer)?;
        if from_outside && value > TOKEN_MAX {
            let problem = format!("token {value} is above the largest there can be, {TOKEN_MAX}");
            return Err(serde::de::Error::custom(problem));
        }
        Ok(Token(value))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

inline_schema!(Token, "Token", { "type": "integer", "minimum": 0, "maximum": TOKEN_MAX });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_json_cannot_carry_is_no_token() {
        let read = |value: u64| serde_json::from_str::<Token>(&value.to_string());
        assert_eq!(read(TOKEN_MAX).unwrap(), Token::new(TOKEN_MAX));
        assert!(read(TOKEN_MAX + 1).unwrap_err().to_string().contains("above the largest"));
    }

    #[test]
    fn a_token_shows_itself_as_its_number() {
        assert_eq!(Token::new(42).to_string(), "42");
    }

    #[test]
    fn a_token_is_refused_at_the_cap_and_never_wraps() {
        assert_eq!(Token::new(TOKEN_MAX).lifted(1), None);
        assert_eq!(Token::new(u64::MAX).lifted(1), None);
        assert_eq!(Token::new(TOKEN_MAX - 1).next_to_grant(), None, "the last one is for a revocation");
        assert_eq!(Token::new(TOKEN_MAX - 1).lifted(1), Some(Token::new(TOKEN_MAX)));
        for exhausted in [TOKEN_MAX - 1, TOKEN_MAX] {
            assert_eq!(Token::new(exhausted).advanced(7), Some(Token::new(TOKEN_MAX)));
        }
        assert_eq!(Token::new(TOKEN_MAX - 2).advanced(7), None, "it has one left, which would be lost");
    }
}
