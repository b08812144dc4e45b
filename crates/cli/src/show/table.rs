//! A small table for people: aligned columns, two spaces apart, no frame.

use super::style::{Colour, Style, width, wrap};

/// What stands between two columns.
const GAP: usize = 2;
/// No column gets narrower than this to make the others fit.
const COLUMN_MIN: usize = 8;

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

/// A cell that goes on in every line of its row.
pub(crate) const BAR: &str = "│";

/// Rows under a header.
#[derive(Debug)]
pub(crate) struct Table {
    /// The header is the first.
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A row of each thing.
    pub(crate) fn of<T, const COLUMNS: usize>(
        header: [&'static str; COLUMNS],
        things: impl IntoIterator<Item = T>,
        row: impl FnMut(T) -> [Cell; COLUMNS],
    ) -> Self {
        Table::grid(header, things.into_iter().map(row))
    }

    /// Rows of which each has a cell for each column of the header.
    pub(crate) fn grid<'a, R: Into<Vec<Cell>>>(
        header: impl IntoIterator<Item = &'a str>,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let header = header
            .into_iter()
            .map(|name| Cell::from(name).in_colour(Colour::Strong))
            .collect();
        Table { rows: std::iter::once(header).chain(rows.into_iter().map(Into::into)).collect() }
    }

    /// The lines of a table that stands below something else; nothing, if it has no rows.
    pub(crate) fn below(&self, style: Style) -> String {
        if self.is_empty() { String::new() } else { format!("\n{}", self.render(style)) }
    }

    pub(crate) fn drop_last_column(&mut self) {
        for row in &mut self.rows {
            row.pop();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// The lines of the table, each ended. On a terminal they fit: the widest columns give way, and their cells go on in
    /// the next line.
    pub(crate) fn render(&self, style: Style) -> String {
        let mut widths = vec![0; self.rows.first().map_or(0, Vec::len)];
        for row in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(width(&cell.text));
            }
        }
        if let Some(columns) = style.columns() {
            fit(&mut widths, columns);
        }
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<Vec<String>> =
                row.iter().zip(&widths).map(|(cell, width)| lines(cell, *width)).collect();
            for nth in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let mut line = String::new();
                let mut pad = 0;
                for ((cell, lines), widest) in row.iter().zip(&cells).zip(&widths) {
                    let after = if cell.text == BAR { BAR } else { "" };
                    let part = lines.get(nth).map_or(after, String::as_str);
                    if !part.is_empty() {
                        line.extend(std::iter::repeat_n(' ', pad));
                        line.push_str(&style.paint(part, cell.colour));
                        pad = 0;
                    }
                    pad += widest - width(part) + GAP;
                }
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    }
}

/// Takes from the widest columns until all fit.
fn fit(widths: &mut [usize], columns: usize) {
    let mut over =
        (widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)).saturating_sub(columns);
    while over > 0
        && let Some(widest) = widths.iter_mut().max()
        && *widest > COLUMN_MIN
    {
        *widest -= 1;
        over -= 1;
    }
}

fn lines(cell: &Cell, columns: usize) -> Vec<String> {
    if width(&cell.text) <= columns { vec![cell.text.clone()] } else { wrap(&cell.text, columns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters() {
        let rows = [("ключ", 7, Some("a")), ("k", 1_234_567, None)];
        let row = |(key, token, owner): (_, u32, _)| [Cell::from(key), token.into(), or_dash(owner)];
        let mut table = Table::of(["KEY", "TOKEN", "OWNER"], rows, row);
        assert_eq!(
            table.render(Style::default()),
            "KEY   TOKEN    OWNER\nключ  7        a\nk     1234567  -\n",
            "and nothing trails"
        );
        table.drop_last_column();
        assert_eq!(table.render(Style::default()), "KEY   TOKEN\nключ  7\nk     1234567\n");
    }

    #[test]
    fn colour_does_not_change_the_alignment() {
        let row = |text| [Cell::from(text).in_colour(Colour::Good), "x".into()];
        let table = Table::of(["A", "B"], ["held"], row);
        let painted = table.render(Style { colours: true, ..Style::default() });
        assert!(painted.contains("\u{1b}[32mheld\u{1b}[0m  x"), "{painted:?}");
    }

    #[test]
    fn a_table_fits_the_terminal_and_loses_nothing() {
        let row = |reason| ["reports/daily".into(), "a".into(), Cell::from(reason)];
        let reasons = ["the host is gone and will not come back"];
        let table = Table::of(["KEY", "OWNER", "REASON"], reasons, row);
        let text = table.render(Style { columns: Some(40), ..Style::default() });
        assert!(text.lines().all(|line| width(line) <= 40), "{text}");
        assert_eq!(
            text,
            "\
KEY            OWNER  REASON
reports/daily  a      the host is gone
                      and will not come
                      back
"
        );
    }

    #[test]
    fn a_bar_goes_on_beside_a_cell_of_many_lines() {
        let rows = [[Cell::from("takes it: token 1"), BAR.into()], [BAR.into(), "runs out".into()]];
        let text = Table::grid(["A", "clock"], rows).render(Style { columns: Some(20), ..Style::default() });
        assert_eq!(text, "A           clock\ntakes it:   │\ntoken 1     │\n│           runs out\n");
    }
}
