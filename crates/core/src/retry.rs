//! How long to wait before trying again. Randomness is an argument.

/// Full-jitter exponential backoff: anything from nothing to `base · 2^attempt`, never more than `cap`.
/// `random` is any 64 random bits.
pub fn full_jitter_ms(base_ms: u64, cap_ms: u64, attempt: u32, random: u64) -> u64 {
    let ceiling = base_ms
        .saturating_mul(1_u64.checked_shl(attempt).unwrap_or(u64::MAX))
        .min(cap_ms);
    random % ceiling.saturating_add(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_stays_between_nothing_and_its_ceiling() {
        assert_eq!(full_jitter_ms(10, 1_000, 3, 80), 80);
        assert_eq!(full_jitter_ms(10, 1_000, 3, 81), 0);
        for attempt in [0, 20, 63, 64, 1_000, u32::MAX] {
            for random in [0, 5, 12_345, u64::MAX] {
                assert!(full_jitter_ms(10, 1_000, attempt, random) <= 1_000);
            }
        }
        assert_eq!(full_jitter_ms(u64::MAX, u64::MAX, 9, 7), 7, "nothing overflows");
    }
}
