//! How a stream shows text: in which colours, and in how many columns. Both only on a terminal.

use std::io::IsTerminal;
use std::os::fd::AsFd;

/// How many columns a terminal has that does not say so.
const COLUMNS: usize = 80;

/// How a text is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Plain,
    Strong,
    Faint,
    Good,
    Warning,
    Bad,
}

/// Whether to colour at all, and how wide to write. By default as where there is no terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    pub(super) colours: bool,
    pub(super) columns: Option<usize>,
}

impl Style {
    /// The style for one of our streams.
    pub(crate) fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        if !stream.is_terminal() {
            return Style::default();
        }
        // By the convention of no-color.org: set, and not empty.
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let columns = rustix::termios::tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
        Style { colours: !unwanted && !dumb, columns: Some(if columns == 0 { COLUMNS } else { columns }) }
    }

    pub(crate) fn has_colours(self) -> bool {
        self.colours
    }

    /// How many columns there are; `None`: this is no terminal, and lines are as long as they are.
    pub(crate) fn columns(self) -> Option<usize> {
        self.columns
    }

    pub(crate) fn paint(self, text: &str, colour: Colour) -> String {
        let code = match colour {
            Colour::Plain => return text.to_owned(),
            _ if !self.colours => return text.to_owned(),
            Colour::Strong => "1",
            Colour::Faint => "2",
            Colour::Good => "32",
            Colour::Warning => "33",
            Colour::Bad => "31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// Sentences in lines that fit, all but the first of which are indented.
    pub(crate) fn wrap(self, text: &str, indent: usize) -> String {
        let Some(columns) = self.columns.filter(|columns| width(text) + indent > *columns) else {
            return text.to_owned();
        };
        let room = columns.saturating_sub(indent).max(1);
        let next = format!("\n{}", " ".repeat(indent));
        let paragraphs = text.split('\n').map(|paragraph| wrap(paragraph, room).join(&next));
        paragraphs.collect::<Vec<_>>().join("\n")
    }
}

/// A line as lines of at most so many columns, broken between words. What stands between backticks stays together if
/// it fits, so that a command can be copied; a word that is longer than a line is cut.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for mut word in words(text) {
        if !line.is_empty() && width(&line) + 1 + width(word) <= columns {
            line.push(' ');
        } else if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        while let Some((cut, _)) = word.char_indices().nth(columns).filter(|_| width(word) > columns) {
            lines.push(word[..cut].to_owned());
            word = &word[cut..];
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// The words of a line; a command in backticks is one.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut quoted) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '`' => quoted = !quoted,
            ' ' if !quoted || !text[at..].contains('`') => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    words.retain(|word| !word.is_empty());
    words
}

/// How many columns a text takes. Colours take none.
pub(super) fn width(text: &str) -> usize {
    let mut count = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => _ = chars.by_ref().find(char::is_ascii_alphabetic),
            _ => count += 1,
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_commands_stay_whole() {
        let text = "See `fencehold lease ls` for who holds what.";
        assert_eq!(wrap(text, 24), ["See `fencehold lease ls`", "for who holds what."]);
        assert_eq!(wrap(text, 22), ["See", "`fencehold lease ls`", "for who holds what."]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"], "a long word is cut");
        assert_eq!(wrap("", 3), [""]);
        assert_eq!(wrap("a `b c", 3), ["a", "`b", "c"], "a backtick alone quotes nothing");
    }

    #[test]
    fn only_a_terminal_has_columns() {
        assert_eq!(Style::default().wrap("one two", 2), "one two");
        assert_eq!(Style { columns: Some(6), ..Style::default() }.wrap("one two\nsix", 2), "one\n  two\nsix");
        assert_eq!(width("\u{1b}[31mred\u{1b}[0m"), 3);
    }
}
