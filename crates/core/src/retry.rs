//! How long to wait before trying again. Randomness is an argument.

/// Full-jitter exponential backoff: anything from nothing to `base · 2^attempt`, never more than `cap`.
/// `random` is any 64 random bits.
pub fn full_jitter_ms(base_ms: u64, cap_ms: u64, attempt: u32, random: u64) -> u64 {
    let ceiling = base_ms
        .saturating_mul(1_u64.checked_shl(attempt).unwrap_or(u64::MAX))
        .min(cap_ms);
    random % ceiling.saturating_add(1).max(1)
}

/// How the delay grows from failure to failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Backoff {
    /// Not at all.
    Fixed,
    /// By the base each time.
    Linear,
    /// Twofold each time.
    Exponential,
}

/// How long a job waits after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Retry {
    /// How the delay grows.
    pub backoff: Backoff,
    /// The first delay.
    pub base_ms: u32,
    /// The longest delay.
    pub cap_ms: u32,
    /// Up to how much of it jitter takes off, in percent.
    pub jitter_percent: u8,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { backoff: Backoff::Exponential, base_ms: 1_000, cap_ms: 3_600_000, jitter_percent: 20 }
    }
}

impl Retry {
    /// The delay after this many failures. `random` is any 64 random bits.
    pub fn delay_ms(&self, failures: u32, random: u64) -> u64 {
        let base_ms = u64::from(self.base_ms);
        let steps = failures.max(1);
        let delay_ms = match self.backoff {
            Backoff::Fixed => base_ms,
            Backoff::Linear => base_ms.saturating_mul(u64::from(steps)),
            Backoff::Exponential => base_ms.saturating_mul(1_u64.checked_shl(steps - 1).unwrap_or(u64::MAX)),
        };
        let delay_ms = delay_ms.min(u64::from(self.cap_ms));
        let jitter_ms = delay_ms * u64::from(self.jitter_percent.min(100)) / 100;
        delay_ms - random % (jitter_ms + 1)
    }

    /// Whether it makes sense.
    pub fn check(&self) -> Result<(), crate::BadInput> {
        if self.cap_ms < self.base_ms {
            return Err(crate::BadInput::new("retry", "has a cap below its base"));
        }
        Ok(())
    }
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
