//! Lines of the log about those who were not let in: a caller that tries every token must not fill the disk with it.

use std::sync::Mutex;

use crate::locked;

/// One line a second.
const EVERY_MS: u64 = 1_000;

/// When the last line was written, and how many were left out since.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<(Option<u64>, u64)>);

impl RefusalLog {
    /// Counts one. `Some`: it is to be logged, with how many were left out before it.
    pub(crate) fn count(&self, now_ms: u64) -> Option<u64> {
        let (last_ms, left_out) = &mut *locked(&self.0);
        if last_ms.is_some_and(|last_ms| now_ms.saturating_sub(last_ms) < EVERY_MS) {
            *left_out += 1;
            return None;
        }
        *last_ms = Some(now_ms);
        Some(std::mem::take(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_says_how_many_were_left_out() {
        let refusals = RefusalLog::default();
        let counted: Vec<_> = [0, 1, 999, 1_000, 1_500, 9_000].map(|ms| refusals.count(ms)).into();
        assert_eq!(counted, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
