//! A few facts, one a line: a name, and what it is.

use super::colour::{Colour, Palette};

/// Lines of names and values, the values aligned.
pub(crate) fn facts(palette: Palette, lines: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let lines: Vec<_> = lines.into_iter().collect();
    let widest = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| {
        let pad = " ".repeat(widest - name.len() + 2);
        format!("{}{pad}{value}\n", palette.paint(name, Colour::Faint))
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_under_each_other() {
        let text = facts(Palette::plain(), [("key", "k".to_owned()), ("hold id", "x".to_owned())]);
        assert_eq!(text, "key      k\nhold id  x\n");
    }
}
