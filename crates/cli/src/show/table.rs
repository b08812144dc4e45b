//! A small table for people: aligned columns, two spaces apart, no frame.

use super::colour::{Colour, Palette};

/// One cell: a text and how it is meant.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    colour: Colour,
}

impl Cell {
    /// The same cell in a colour.
    pub(crate) fn in_colour(self, colour: Colour) -> Self {
        Cell { colour, ..self }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        // A line break would end the row.
        let text = text.to_string().replace('\n', "\\u{a}");
        Cell { text: super::safe(&text).into_owned(), colour: Colour::Plain }
    }
}

/// What stands where there is nothing to show.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> Cell {
    value.map_or_else(|| Cell::from("-").in_colour(Colour::Faint), Cell::from)
}

/// Rows under a header.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new<const COLUMNS: usize>(header: [&'static str; COLUMNS]) -> Self {
        Table { header: header.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row<const COLUMNS: usize>(&mut self, cells: [Cell; COLUMNS]) {
        debug_assert_eq!(COLUMNS, self.header.len(), "a row has as many cells as the header");
        self.rows.push(cells.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines of the table, each ended.
    pub(crate) fn render(&self, palette: Palette) -> String {
        let header: Vec<Cell> = self
            .header
            .iter()
            .map(|name| Cell::from(name).in_colour(Colour::Strong))
            .collect();
        let mut widths: Vec<usize> = self.header.iter().map(|name| width(name)).collect();
        for row in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(width(&cell.text));
            }
        }
        let mut text = String::new();
        for row in std::iter::once(&header).chain(&self.rows) {
            let mut line = String::new();
            for (at, (cell, widest)) in row.iter().zip(&widths).enumerate() {
                line.push_str(&palette.paint(&cell.text, cell.colour));
                if at + 1 < row.len() {
                    let pad = widest - width(&cell.text) + 2;
                    line.extend(std::iter::repeat_n(' ', pad));
                }
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters() {
        let mut table = Table::new(["KEY", "TOKEN", "OWNER"]);
        table.row(["ключ".into(), 7.into(), "a".into()]);
        table.row(["k".into(), 1_234_567.into(), or_dash(None::<u8>)]);
        assert_eq!(
            table.render(Palette::plain()),
            "KEY   TOKEN    OWNER\nключ  7        a\nk     1234567  -\n",
            "and nothing trails"
        );
    }

    #[test]
    fn colour_does_not_change_the_alignment() {
        let mut table = Table::new(["A", "B"]);
        table.row([Cell::from("held").in_colour(Colour::Good), "x".into()]);
        let painted = table.render(Palette::coloured());
        assert!(painted.contains("\u{1b}[32mheld\u{1b}[0m  x"), "{painted:?}");
    }
}
