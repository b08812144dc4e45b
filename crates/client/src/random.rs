//! Where randomness comes from. Everything below this crate takes it as an argument.

use fencehold_core::HoldId;

use crate::error::Error;

/// A hold id that nobody else has, and nobody can guess.
#[expect(clippy::disallowed_methods, reason = "the library is where randomness enters")]
pub(crate) fn hold_id() -> Result<HoldId, Error> {
    let mut bits = [0; 16];
    match getrandom::fill(&mut bits) {
        Ok(()) => Ok(HoldId::from_random(bits)),
        Err(error) => Err(Error::Unavailable { why: format!("the system gives no random bits: {error}") }),
    }
}

/// Bits that spread callers apart. Where the system gives none, everybody gets the middle.
#[expect(clippy::disallowed_methods, reason = "the library is where randomness enters")]
pub(crate) fn jitter() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX / 2)
}
