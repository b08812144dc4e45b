//! A page of metrics, in Prometheus' text format.

use std::fmt::{Display, Write as _};

use fencehold_contract::metrics::{Counter, Histogram};

/// The content type that goes with it.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page, as far as it is written.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

/// One series: its labels, each a name and a value, and its number.
pub(crate) type Series<'a> = (&'a [(&'a str, &'a str)], f64);

impl Page {
    /// A number that only grows.
    pub(crate) fn counter(&mut self, name: &str, help: &str, counter: &Counter) {
        self.counts(name, help, &[(&[], counter.get() as f64)]);
    }

    /// Numbers that only grow, apart by their labels.
    pub(crate) fn counts(&mut self, name: &str, help: &str, series: &[Series<'_>]) {
        self.family(name, help, "counter", series);
    }

    /// A number that goes up and down.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help, &[(&[], value)]);
    }

    /// Numbers that go up and down, apart by their labels.
    pub(crate) fn gauges(&mut self, name: &str, help: &str, series: &[Series<'_>]) {
        self.family(name, help, "gauge", series);
    }

    /// How many values there were of which size; `parts` of them are one of what the name says. (Divided, a bound is the
    /// number that people write; multiplied by a fraction, it is not.)
    pub(crate) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        parts: f64,
        histograms: &[(&[(&str, &str)], &Histogram)],
    ) {
        self.head(name, help, "histogram");
        for (labels, histogram) in histograms {
            let (buckets, sum) = histogram.read();
            let mut count = 0;
            for (end, so_far) in buckets {
                let end = end.map_or_else(|| "+Inf".to_owned(), |end| (end as f64 / parts).to_string());
                let mut labels = labels.to_vec();
                labels.push(("le", &end));
                self.line(&format!("{name}_bucket"), &labels, so_far);
                count = so_far;
            }
            self.line(&format!("{name}_sum"), labels, sum as f64 / parts);
            self.line(&format!("{name}_count"), labels, count);
        }
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn family(&mut self, name: &str, help: &str, kind: &str, series: &[Series<'_>]) {
        self.head(name, help, kind);
        for (labels, value) in series {
            self.line(name, labels, value);
        }
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            for c in text.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_form_that_prometheus_reads() {
        let mut page = Page::default();
        let wait = Histogram::new(&[500, 1_000]);
        wait.record(700);
        page.gauges("g", "What it is.", &[(&[("queue", "a\"\\\nb")], 1.5), (&[], 2.0)]);
        page.histograms("h_seconds", "How long.", 1_000.0, &[(&[("sync", "true")], &wait)]);
        assert_eq!(
            page.finish(),
            "# HELP g What it is.\n# TYPE g gauge\ng{queue=\"a\\\"\\\\\\nb\"} 1.5\ng 2\n\
             # HELP h_seconds How long.\n# TYPE h_seconds histogram\n\
             h_seconds_bucket{sync=\"true\",le=\"0.5\"} 0\nh_seconds_bucket{sync=\"true\",le=\"1\"} 1\n\
             h_seconds_bucket{sync=\"true\",le=\"+Inf\"} 1\nh_seconds_sum{sync=\"true\"} 0.7\n\
             h_seconds_count{sync=\"true\"} 1\n"
        );
    }
}
