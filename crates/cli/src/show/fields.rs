//! A few facts, one a line: a name, and what it is.

use super::style::{Colour, Style};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_under_each_other() {
        let text = facts(Style::plain(), [("key", "k".to_owned()), ("hold id", "x".to_owned())]);
        assert_eq!(text, "key      k\nhold id  x\n");
    }
}
