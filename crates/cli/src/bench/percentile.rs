//! Latencies, all of them kept: percentiles are exact.

use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(super) struct Latencies {
    sorted: bool,
    micros: Vec<f64>,
}

impl Latencies {
    pub(super) fn add(&mut self, latency: Duration) {
        self.sorted = false;
        self.micros.push(latency.as_secs_f64() * 1e6);
    }

    pub(super) fn merge(&mut self, other: Latencies) {
        self.sorted = false;
        self.micros.extend(other.micros);
    }

    pub(super) fn sort(&mut self) {
        self.micros.sort_by(f64::total_cmp);
        self.sorted = true;
    }

    /// The latency that this share of calls did not exceed, in microseconds. Sorted first, or nothing.
    pub(super) fn at(&self, percent: f64) -> f64 {
        if !self.sorted || self.micros.is_empty() {
            return 0.0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index within the vector"
        )]
        let at = ((self.micros.len() as f64 * percent / 100.0).ceil() as usize).clamp(1, self.micros.len());
        self.micros[at - 1]
    }

    pub(super) fn len(&self) -> usize {
        self.micros.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_latency_that_so_many_did_not_exceed() {
        let mut latencies = Latencies::default();
        for ms in (1..=100).rev() {
            latencies.add(Duration::from_millis(ms));
        }
        latencies.sort();
        assert_eq!((latencies.at(50.0), latencies.at(99.0), latencies.at(100.0)), (50e3, 99e3, 100e3));
        assert!((Latencies::default().at(99.0)).abs() < f64::EPSILON);
    }
}
