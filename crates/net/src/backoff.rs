//! Pauses between attempts.

use std::time::Duration;

/// Pauses that double up to a limit.
#[derive(Clone, Debug)]
pub struct RetryDelay {
    next: Duration,
    max: Duration,
}

impl RetryDelay {
    /// The first pause, and the longest.
    pub const fn new(first: Duration, max: Duration) -> Self {
        RetryDelay { next: first, max }
    }

    /// The next pause.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }

    /// Waits for the next pause.
    pub async fn pause(&mut self) {
        sleep(self.next_pause()).await;
    }
}

/// Waits in real time.
#[expect(
    clippy::disallowed_methods,
    reason = "spares whatever is at the other end of the network, in real time; no lease is decided by it"
)]
pub async fn sleep(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = RetryDelay::new(Duration::from_millis(10), Duration::from_millis(35));
        let pauses: Vec<u128> = (0..4).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 35, 35]);
    }
}
