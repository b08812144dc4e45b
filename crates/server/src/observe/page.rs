//! A page of metrics, in Prometheus' text format.

use std::fmt::{Display, Write as _};

use fencehold_contract::metrics::Histogram;

/// The content type that goes with it.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page, as far as it is written.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

/// What tells a series from the others of its name: names and values.
type Labels<V, const N: usize> = [(&'static str, V); N];

const NO_LABELS: Labels<&str, 0> = [];

impl Page {
    /// A number that only grows.
    pub(crate) fn count(&mut self, name: &str, help: &str, value: impl Display) {
        self.counts(name, help, [(NO_LABELS, value)]);
    }

    /// Numbers that only grow, apart by their labels.
    pub(crate) fn counts<V: AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<V, N>, impl Display)>,
    ) {
        self.family(name, help, "counter", series);
    }

    /// A number that goes up and down.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.gauges(name, help, [(NO_LABELS, value)]);
    }

    /// Numbers that go up and down, apart by their labels.
    pub(crate) fn gauges<V: AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<V, N>, impl Display)>,
    ) {
        self.family(name, help, "gauge", series);
    }

    /// How many values there were of which size; `parts` of them are one of what the name says. (Divided, a bound is the
    /// number that people write; multiplied by a fraction, it is not.)
    pub(crate) fn histograms<'h, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        parts: f64,
        histograms: impl IntoIterator<Item = (Labels<&'static str, N>, &'h Histogram)>,
    ) {
        self.head(name, help, "histogram");
        for (labels, histogram) in histograms {
            let (buckets, sum) = histogram.read();
            let mut count = 0;
            for (end, so_far) in buckets {
                let end = end.map_or_else(|| "+Inf".to_owned(), |end| (end as f64 / parts).to_string());
                let labels = labels.into_iter().chain([("le", end.as_str())]);
                self.line(&format!("{name}_bucket"), labels, so_far);
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

    fn family<V: AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        series: impl IntoIterator<Item = (Labels<V, N>, impl Display)>,
    ) {
        self.head(name, help, kind);
        for (labels, value) in series {
            self.line(name, labels.iter().map(|(label, text)| (*label, text.as_ref())), value);
        }
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line<'l>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        value: impl Display,
    ) {
        self.0.push_str(name);
        let mut mark = '{';
        for (label, text) in labels {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{mark}{label}=\"{text}\"");
            mark = ',';
        }
        self.0.push_str(if mark == ',' { "}" } else { "" });
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
        page.gauges("g", "What it is.", [([("queue", "a\"\\\nb"), ("state", "open")], 1.5)]);
        page.gauge("n", "How many.", 2.0);
        page.histograms("h_seconds", "How long.", 1_000.0, [([("sync", "true")], &wait)]);
        assert_eq!(
            page.finish(),
            "# HELP g What it is.\n# TYPE g gauge\ng{queue=\"a\\\"\\\\\\nb\",state=\"open\"} 1.5\n\
             # HELP n How many.\n# TYPE n gauge\nn 2\n\
             # HELP h_seconds How long.\n# TYPE h_seconds histogram\n\
             h_seconds_bucket{sync=\"true\",le=\"0.5\"} 0\nh_seconds_bucket{sync=\"true\",le=\"1\"} 1\n\
             h_seconds_bucket{sync=\"true\",le=\"+Inf\"} 1\nh_seconds_sum{sync=\"true\"} 0.7\n\
             h_seconds_count{sync=\"true\"} 1\n"
        );
    }
}
