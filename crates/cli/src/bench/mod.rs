//! Measuring a store against what lies beneath it: the disk's own sync rate, and a peer, in the same run. Ratios say
//! something on a noisy machine; absolute times say little.

mod beanstalkd;
mod disk;
mod home;
#[cfg(all(feature = "remote", feature = "server"))]
pub(crate) mod http;
pub(crate) mod job;
pub(crate) mod lease;
mod life;
mod load;
mod log;
pub(crate) mod named;
pub(crate) mod peers;
mod percentile;
mod processor;
pub(crate) mod queue;
mod redis;
mod scale;

use serde::Serialize;

/// Why nothing was measured.
pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// One measured line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// What was measured.
    pub(crate) what: String,
    /// By how many clients at once; 0 where that means nothing.
    pub(crate) clients: usize,
    /// How many a second; 0 where that means nothing.
    pub(crate) per_second: f64,
    /// Latency of one call, in microseconds: median, 99th percentile.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Processor time that each takes in this process, in microseconds; 0 where it was not measured.
    pub(crate) cpu_us: f64,
    /// What it is compared with, and the ratio.
    pub(crate) against: String,
    pub(crate) ratio: Option<f64>,
    /// The bar that the ratio, or the figure, is held to, and whether it was met.
    pub(crate) bar: String,
    pub(crate) met: Option<bool>,
}

impl Line {
    fn new(what: impl Into<String>, clients: usize) -> Self {
        Line {
            what: what.into(),
            clients,
            per_second: 0.0,
            p50_us: 0.0,
            p99_us: 0.0,
            cpu_us: 0.0,
            against: String::new(),
            ratio: None,
            bar: String::new(),
            met: None,
        }
    }

    /// For those who wait for the table: what was measured, and what came of it.
    pub(crate) fn in_short(&self) -> String {
        let rate = if self.per_second > 0.0 { format!(": {:.0}/s", self.per_second) } else { String::new() };
        let ratio = self
            .ratio
            .map(|ratio| format!(", {ratio:.2} to {}", self.against))
            .unwrap_or_default();
        format!("{}{rate}{ratio}", self.what)
    }

    fn measured(mut self, measured: &load::Measured) -> Self {
        self.per_second = measured.per_second();
        self.p50_us = measured.latencies.at(50.0);
        self.p99_us = measured.latencies.at(99.0);
        self
    }

    fn cpu(self, cpu_us: f64) -> Self {
        Line { cpu_us, ..self }
    }

    fn ratio(mut self, against: impl Into<String>, ratio: f64) -> Self {
        self.against = against.into();
        self.ratio = Some(ratio);
        self
    }

    fn bar(mut self, bar: impl Into<String>, met: bool) -> Self {
        self.bar = bar.into();
        self.met = Some(met);
        self
    }
}
