//! What was measured, for people and for programs.

use fencehold_load::Measured;
use serde::Serialize;

use crate::show::{Style, Table, facts, or_dash};

#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    pub(super) store: String,
    pub(super) clients: u16,
    pub(super) processes: u16,
    pub(super) batch_size: u16,
    pub(super) duration_ms: u64,
    pub(super) operations: Vec<OperationFigures>,
}

/// One operation. Its rate counts leases or jobs, its latencies are those of a call.
#[derive(Debug, Serialize)]
pub(super) struct OperationFigures {
    name: &'static str,
    per_second: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
    /// How many requests to the storage one takes, where the store counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_count: Option<u64>,
}

impl OperationFigures {
    /// The operation that is this call of a round.
    pub(super) fn new(name: &'static str, all: &Measured, call: usize, request_count: Option<u64>) -> Self {
        let latency = all.calls.get(call).cloned().unwrap_or_default();
        OperationFigures {
            name,
            per_second: whole(all.per_second()),
            p50_us: whole(latency.percentile_us(50.0)),
            p99_us: whole(latency.percentile_us(99.0)),
            max_us: whole(latency.max_us()),
            request_count,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate or a latency, and `as` saturates"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

impl BenchReport {
    /// For people; `said` says what each client does.
    pub(super) fn text(&self, style: Style, said: &str) -> String {
        let processes = match self.processes {
            1 => "1 process".to_owned(),
            many => format!("{many} processes"),
        };
        let clients = format!("{} in {processes}", self.clients);
        let lines = [("store", self.store.clone()), ("clients", clients), ("each", said.to_owned())];
        let header = ["OPERATION", "PER SECOND", "P50", "P99", "MAX", "REQUESTS"];
        let mut table = Table::of(header, &self.operations, |operation| {
            let OperationFigures { name, per_second, p50_us, p99_us, max_us, request_count } = *operation;
            let [p50, p99, max] = [p50_us, p99_us, max_us].map(|us| show_us(us).into());
            [name.into(), per_second.into(), p50, p99, max, or_dash(request_count)]
        });
        if self.operations.iter().all(|operation| operation.request_count.is_none()) {
            table.drop_last_column();
        }
        format!("{}\n{}", facts(style, lines), table.render(style))
    }
}

/// Three places, in the unit that fits.
fn show_us(us: u64) -> String {
    let number = us as f64;
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{:.2} ms", number / 1e3),
        10_000..100_000 => format!("{:.1} ms", number / 1e3),
        100_000..1_000_000 => format!("{:.0} ms", number / 1e3),
        _ => format!("{:.2} s", number / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fencehold_load::Latencies;

    use super::*;

    #[test]
    fn a_report_says_what_was_measured_and_fits_a_terminal() {
        let mut latencies = Latencies::default();
        for us in [100, 200, 9_876_543] {
            latencies.add(Duration::from_micros(us));
        }
        let all = Measured { done: 123_456_789, time: Duration::from_secs(1), calls: vec![latencies] };
        let operations = vec![
            OperationFigures::new("acquire", &all, 0, Some(3)),
            OperationFigures::new("renew", &all, 1, None),
        ];
        let mut report = BenchReport {
            store: "memory:".to_owned(),
            clients: 16,
            processes: 4,
            batch_size: 1,
            duration_ms: 5_000,
            operations,
        };
        let text = report.text(Style::default(), "renews one, for 5.0s each");
        let expected = "\
store    memory:
clients  16 in 4 processes
each     renews one, for 5.0s each

OPERATION  PER SECOND  P50     P99     MAX     REQUESTS
acquire    123456789   201 µs  9.88 s  9.88 s  3
renew      123456789   0 µs    0 µs    0 µs    -
";
        assert_eq!(text, expected);
        report.operations.remove(0);
        let text = report.text(Style::default(), "");
        assert!(!text.contains("REQUESTS"), "there is nothing to count: {text}");
    }

    #[test]
    fn latencies_have_three_places() {
        let shown = [7, 999, 1_000, 12_340, 123_400, 1_234_000].map(show_us);
        assert_eq!(shown, ["7 µs", "999 µs", "1.00 ms", "12.3 ms", "123 ms", "1.23 s"]);
    }
}
