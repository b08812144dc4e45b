//! Colours, only on a terminal, and never where `NO_COLOR` is set.

use std::io::IsTerminal;

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

/// Whether to colour at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Palette {
    colours: bool,
}

impl Palette {
    /// The palette for one of our streams.
    pub(crate) fn of(stream: &impl IsTerminal) -> Self {
        // By the convention of no-color.org: set, and not empty.
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Palette { colours: stream.is_terminal() && !unwanted && !dumb }
    }

    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Palette { colours: false }
    }

    #[cfg(test)]
    pub(crate) fn coloured() -> Self {
        Palette { colours: true }
    }

    pub(crate) fn has_colours(self) -> bool {
        self.colours
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
}
