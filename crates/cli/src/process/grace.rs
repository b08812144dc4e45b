//! What a command gets between TERM and KILL.

use fencehold_core::ttl;

use crate::duration::show_exact_ms;
use crate::failure::Failure;

/// The longest default grace.
const GRACE_MS_MAX: u64 = 10_000;

/// The grace that was asked for, or the default. More than this, and TERM would come before a renewal is even due.
pub(crate) fn grace_ms(asked_ms: Option<u64>, ttl_ms: u64) -> Result<u64, Failure> {
    let Some(grace_ms) = asked_ms else { return Ok(default_grace_ms(ttl_ms)) };
    let most_ms = most_grace_ms(ttl_ms);
    if grace_ms > most_ms {
        let [grace, ttl, most] = [grace_ms, ttl_ms, most_ms].map(show_exact_ms);
        let what = format!("--grace <DURATION>: {grace} is too long for a ttl of {ttl}; the limit is {most}");
        return Err(Failure::usage(what).with_next("Choose a longer --ttl."));
    }
    Ok(grace_ms)
}

/// The longest grace of a command that has this long.
pub(crate) fn most_grace_ms(has_ms: u64) -> u64 {
    has_ms / 5 * 2
}

/// A quarter of the ttl, but no more than leaves room for a store that changes its owner: a renewal that falls due just
/// as the owner stops is answered two seconds later, and the command must not be ended for that.
fn default_grace_ms(ttl_ms: u64) -> u64 {
    const CHANGE_OF_OWNER_MS: u64 = 2_300;
    let renewal_due_ms = ttl_ms.saturating_mul(384) / 1_000;
    let kill_ms = ttl::lost_after_ms(ttl_ms);
    let room_ms = kill_ms.saturating_sub(renewal_due_ms).saturating_sub(CHANGE_OF_OWNER_MS);
    (ttl_ms / 4).min(room_ms).max(ttl_ms / 20).min(GRACE_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_grace_leaves_room_for_a_change_of_owner() {
        assert_eq!(default_grace_ms(30_000), 7_500);
        assert_eq!(default_grace_ms(300_000), GRACE_MS_MAX);
        assert_eq!(default_grace_ms(5_000), 280, "due at 1.92 s, answered by 4.22 s, ended at 4.5 s");
        assert_eq!(default_grace_ms(1_000), 50, "too short for a change of owner: what little there is");
    }
}
