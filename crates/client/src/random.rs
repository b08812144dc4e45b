//! Where randomness comes from. Everything below this crate takes it as an argument.

use fencehold_core::HoldId;
use fencehold_core::job::JobId;

use crate::error::Error;

/// A hold id that is unique, and cannot be guessed.
pub(crate) fn hold_id() -> Result<HoldId, Error> {
    bits().map(HoldId::from_random)
}

/// A name for one job, made at this moment.
pub(crate) fn job_id(wall_ms: u64) -> Result<JobId, Error> {
    bits().map(|bits| JobId::from_random(wall_ms, bits))
}

/// A text that no other process writes.
#[cfg(feature = "object")]
pub(crate) fn nonce() -> Result<String, Error> {
    bits().map(|bits| format!("{:032x}", u128::from_be_bytes(bits)))
}

#[expect(clippy::disallowed_methods, reason = "the library is where randomness enters")]
fn bits<const N: usize>() -> Result<[u8; N], Error> {
    let mut bits = [0; N];
    let failed = |error| Error::Unavailable { message: format!("the system gives no random bits: {error}") };
    getrandom::fill(&mut bits).map_err(failed).map(|()| bits)
}

/// Bits that spread callers apart. Where the system gives none, everybody gets the middle.
#[expect(clippy::disallowed_methods, reason = "the library is where randomness enters")]
pub(crate) fn jitter() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX / 2)
}
