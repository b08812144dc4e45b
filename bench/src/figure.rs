//! One measured line, and the table of them. Ratios say something on a noisy machine; absolute times say little.

use fencehold_load::Measured;
use serde::Serialize;

/// One measured line.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figure {
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

impl Figure {
    pub(crate) fn new(what: impl Into<String>, clients: usize) -> Self {
        Figure { what: what.into(), clients, ..Figure::default() }
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

    pub(crate) fn measured(mut self, measured: &Measured) -> Self {
        self.per_second = measured.per_second();
        self.p50_us = measured.percentile_us(50.0);
        self.p99_us = measured.percentile_us(99.0);
        self
    }

    pub(crate) fn cpu(self, cpu_us: f64) -> Self {
        Figure { cpu_us, ..self }
    }

    pub(crate) fn ratio(mut self, against: impl Into<String>, ratio: f64) -> Self {
        self.against = against.into();
        self.ratio = Some(ratio);
        self
    }

    pub(crate) fn bar(mut self, bar: impl Into<String>, met: bool) -> Self {
        self.bar = bar.into();
        self.met = Some(met);
        self
    }

    fn row(&self) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let time = |us: f64| {
            or_dash(
                (us > 0.0)
                    .then(|| if us < 1e4 { format!("{us:.0} µs") } else { format!("{:.1} ms", us / 1e3) }),
            )
        };
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "**short**",
            None => "",
        };
        let cells = [
            self.what.clone(),
            or_dash((self.clients > 0).then(|| self.clients.to_string())),
            or_dash((self.per_second > 0.0).then(|| format!("{:.0}", self.per_second))),
            time(self.p50_us),
            time(self.p99_us),
            time(self.cpu_us),
            or_dash(self.ratio.map(|ratio| format!("{ratio:.2}"))),
            self.against.clone(),
            self.bar.clone(),
            met.to_owned(),
        ];
        format!("| {} |\n", cells.join(" | "))
    }
}

/// The table of `docs/benchmarks`.
pub(crate) fn table(lines: &[Figure]) -> String {
    let head = "| what | clients | per second | p50 | p99 | cpu each | ratio | against | bar | |\n\
                |---|---|---|---|---|---|---|---|---|---|\n";
    std::iter::once(head.to_owned()).chain(lines.iter().map(Figure::row)).collect()
}

/// The one in the middle.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_was_measured_and_whether_it_is_enough() {
        let line = Figure { per_second: 1234.5, p50_us: 69.4, p99_us: 12_345.0, ..Figure::new("renew", 64) };
        let line = line.ratio("redis-server", 0.456).bar("at least 0.5", false);
        let table = table(&[line.clone(), Figure::new("memory: 7 MB", 0)]);
        let rows: Vec<&str> = table.lines().skip(2).collect();
        let first =
            "| renew | 64 | 1234 | 69 µs | 12.3 ms | - | 0.46 | redis-server | at least 0.5 | **short** |";
        assert_eq!(rows, [first, "| memory: 7 MB | - | - | - | - | - | - |  |  |  |"]);
        assert_eq!(line.in_short(), "renew: 1234/s, 0.46 to redis-server");
    }
}
