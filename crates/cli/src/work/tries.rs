//! When to try again what failed.

use fencehold_core::retry::full_jitter_ms;

use crate::process::boot_ms;

/// How soon something that failed is tried again: at first, and at most.
pub(super) const AGAIN_MS: u64 = 100;
const AGAIN_MS_MAX: u64 = 5_000;

/// When to try again what failed.
#[derive(Debug, Default)]
pub(super) struct Tries {
    pub(super) failures: u32,
    pub(super) not_before_ms: u64,
}

impl Tries {
    pub(super) fn failed(&mut self) {
        let pause_ms = full_jitter_ms(AGAIN_MS, AGAIN_MS_MAX, self.failures, random());
        self.not_before_ms = boot_ms().saturating_add(pause_ms.max(AGAIN_MS / 2));
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn went_well(&mut self) {
        *self = Tries::default();
    }

    pub(super) fn may(&self, now_ms: u64) -> bool {
        now_ms >= self.not_before_ms
    }
}

/// Any 64 bits.
pub(super) fn random() -> u64 {
    // Without randomness nothing is spread, and nothing else is lost.
    getrandom::u64().unwrap_or_default()
}
