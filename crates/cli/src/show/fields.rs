//! A few facts, one a line: a name, and what it is.

use fencehold_core::lease::YieldRequest;

use super::style::{Colour, Style};
use crate::duration::show_exact_ms;

/// Lines of names and values, the values aligned. On a terminal a long value goes on below its beginning, but for JSON,
/// which is to be copied.
pub(crate) fn facts(style: Style, lines: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let lines: Vec<_> = lines.into_iter().collect();
    let widest = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| {
        let pad = " ".repeat(widest - name.len() + 2);
        let json = value.starts_with(['{', '[', '"']);
        let value = if json { value.clone() } else { style.wrap(value, widest + 2) };
        format!("{}{pad}{value}\n", style.paint(name, Colour::Faint))
    };
    lines.iter().map(line).collect()
}

/// The lines of a request to yield, if there is one.
pub(crate) fn yield_lines(request: Option<&YieldRequest>) -> impl Iterator<Item = (&'static str, String)> {
    let lines = request.map(|request| {
        [("yield to", request.contender.to_string()), ("yield in", show_exact_ms(request.yield_in_ms))]
    });
    lines.into_iter().flatten()
}

/// The value of the labels of a job, if it has any.
pub(crate) fn labels(labels: &[(Box<str>, Box<str>)]) -> Option<String> {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (!labels.is_empty()).then(|| labels.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_under_each_other() {
        let text = facts(Style::default(), [("key", "k".to_owned()), ("hold id", "x".to_owned())]);
        assert_eq!(text, "key      k\nhold id  x\n");
    }
}
