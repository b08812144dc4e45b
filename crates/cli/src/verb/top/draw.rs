//! Drawing: what the state is, on a screen of its size, and nothing else. Colours say something, and nothing is said by a colour alone.

use std::fmt::Write as _;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::terminal::Frame;
use ratatui_core::text::Span;

use super::captions::{hints, nothing, summary};
use super::detail::Line;
use super::rows::{Cell, Column, Width, columns, time};
use super::state::{Overlay, State, Tab};
use crate::duration::show_ms;
use crate::show::{Colour, safe_in_line, wrap};

/// A smaller terminal has no room.
const COLUMNS_MIN: u16 = 60;
const ROWS_MIN: u16 = 12;
/// Between two columns.
const GAP: u16 = 2;
/// What came of something takes no more lines than this.
const NOTICE_LINES_MAX: u16 = 4;
/// Where a list, or what is opened, begins.
const BODY: u16 = 3;

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let says = format!("{}×{} is too small: top needs {COLUMNS_MIN}×{ROWS_MIN}", area.width, area.height);
        put(frame.buffer_mut(), area, &says, Style::new());
        return;
    }
    let mut canvas = Canvas { buffer: frame.buffer_mut(), state, area };
    canvas.head();
    if state.detail.is_some() {
        canvas.detail();
    } else {
        canvas.list();
    }
    let cursor = canvas.foot();
    let cursor = match &state.overlay {
        Overlay::Help => {
            canvas.help();
            None
        }
        Overlay::Confirm(confirmation) => canvas.confirmation(confirmation),
        Overlay::Nothing | Overlay::Filter(_) => cursor,
    };
    if let Some(position) = cursor {
        frame.set_cursor_position(position);
    }
}

/// A text from its beginning, as far as there is room in the first line of an area; and how many columns it took.
pub(super) fn put(buffer: &mut Buffer, area: Rect, text: &str, style: Style) -> u16 {
    let area = area.intersection(*buffer.area());
    if area.is_empty() {
        return 0;
    }
    let text = safe_in_line(text);
    let room = usize::from(area.width);
    let (end, _) = if Span::raw(&*text).width() <= room {
        buffer.set_stringn(area.x, area.y, &*text, room, style)
    } else {
        let (cut, _) = buffer.set_stringn(area.x, area.y, &*text, room - 1, style);
        buffer.set_stringn(cut, area.y, "…", 1, style)
    };
    end - area.x
}

/// The same, at the end of the area.
fn put_right(buffer: &mut Buffer, area: Rect, text: &str, style: Style) {
    let width = u16::try_from(Span::raw(&*safe_in_line(text)).width())
        .unwrap_or(u16::MAX)
        .min(area.width);
    let right = Rect { x: area.right() - width, width, ..area };
    put(buffer, right, text, style);
}

/// Where each column is in a width: those that share get what is left.
fn layout(columns: &[Column], width: u16) -> Vec<(u16, u16)> {
    let gaps = GAP * u16::try_from(columns.len().saturating_sub(1)).unwrap_or(0);
    let fixed: u16 = columns
        .iter()
        .map(|column| if let Width::Fixed(width) = column.width { width } else { 0 })
        .sum();
    let shares: u16 = columns
        .iter()
        .map(|column| if let Width::Share(share) = column.width { share } else { 0 })
        .sum();
    let mut left = width.saturating_sub(gaps + fixed);
    let mut left_shares = shares;
    let mut x = 0;
    let place = |column: &Column| {
        let width = match column.width {
            Width::Fixed(width) => width,
            Width::Share(share) => {
                let width = left * share / left_shares.max(1);
                (left, left_shares) = (left - width, left_shares - share);
                width
            }
        };
        let placed = (x, width);
        x += width + GAP;
        placed
    };
    columns.iter().map(place).collect()
}

/// What is drawn on.
pub(super) struct Canvas<'a> {
    pub(super) buffer: &'a mut Buffer,
    state: &'a State,
    pub(super) area: Rect,
}

impl Canvas<'_> {
    fn style(&self, colour: Colour) -> Style {
        let style = Style::new();
        let coloured = |style: Style, colour| if self.state.has_colours { style.fg(colour) } else { style };
        match colour {
            Colour::Plain => style,
            Colour::Strong => style.add_modifier(Modifier::BOLD),
            Colour::Faint => style.add_modifier(Modifier::DIM),
            Colour::Good => coloured(style, Color::Green),
            Colour::Warning => coloured(style, Color::Yellow),
            Colour::Bad => coloured(style, Color::Red),
        }
    }

    /// The one colour that says where one is.
    pub(super) fn accent(&self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.state.has_colours { style.fg(Color::Cyan) } else { style }
    }

    /// A line of the screen, from its left edge.
    fn line(&self, y: u16) -> Rect {
        Rect { x: self.area.x, y: self.area.y + y, width: self.area.width, height: 1 }
    }

    pub(super) fn put(&mut self, area: Rect, text: &str, colour: Colour) -> u16 {
        let style = self.style(colour);
        put(self.buffer, area, text, style)
    }

    fn put_right(&mut self, area: Rect, text: &str, colour: Colour) {
        let style = self.style(colour);
        put_right(self.buffer, area, text, style);
    }

    /// Texts one after the other.
    fn put_all<'t>(&mut self, area: Rect, texts: impl IntoIterator<Item = (&'t str, Colour)>) {
        let mut rest = area;
        for (text, colour) in texts {
            let used = self.put(rest, text, colour).min(rest.width);
            rest = Rect { x: rest.x + used, width: rest.width - used, ..rest };
        }
    }

    /// The lists; the store; how old it is; what was found, or why it was not.
    fn head(&mut self) {
        let state = self.state;
        let mut x = 0;
        for (nth, tab) in Tab::ALL.into_iter().enumerate() {
            let style =
                if tab == state.tab { self.accent().add_modifier(Modifier::REVERSED) } else { Style::new() };
            let rest = Rect { x, width: self.area.width.saturating_sub(x), ..self.line(0) };
            x += put(self.buffer, rest, &format!(" {} {} ", nth + 1, tab.name()), style);
        }
        let right = if state.is_paused {
            ("PAUSED".to_owned(), Colour::Warning)
        } else {
            (format!("every {}", crate::duration::show_exact_ms(state.every_ms)), Colour::Faint)
        };
        self.put_right(self.line(0), &right.0, right.1);

        let (age, colour) = self.age();
        let width = u16::try_from(age.chars().count()).unwrap_or(0);
        self.put_right(self.line(1), &age, colour);
        let left = Rect { width: self.area.width.saturating_sub(width + GAP), ..self.line(1) };
        let namespace = match state.namespace.as_str() {
            "default" => String::new(),
            name => format!("  namespace {name}"),
        };
        self.put_all(left, [(&*state.place, Colour::Faint), (&*namespace, Colour::Plain)]);

        match &state.freshness().trouble {
            Some(trouble) => _ = self.put(self.line(2), &trouble.says, Colour::Bad),
            None if state.detail.is_none() => self.summary(),
            None => {}
        }
    }

    fn age(&self) -> (String, Colour) {
        let freshness = self.state.freshness();
        match (freshness.fetched, &freshness.trouble) {
            (None, None) => ("looking…".to_owned(), Colour::Faint),
            (None, Some(trouble)) if trouble.passes => ("nothing yet, tried again".to_owned(), Colour::Bad),
            (None, Some(_)) => ("nothing to see".to_owned(), Colour::Bad),
            (Some(at), None) => (format!("as of {}", time(at.wall_ms)), Colour::Faint),
            (Some(at), Some(_)) => {
                let age = self.state.now.store_ms.saturating_sub(at.store_ms);
                (format!("OLD: as of {}, {} ago", time(at.wall_ms), show_ms(age)), Colour::Bad)
            }
        }
    }

    /// What the list has, and by which filter.
    fn summary(&mut self) {
        let state = self.state;
        let count = state.list().len();
        let mut says = summary(state, count);
        if !state.filter().is_empty() {
            let _ = write!(says, " · filter: {}", state.filter());
        }
        let (first, rows) = (state.cursors[state.tab.at()].offset, state.page_rows());
        let mut room = self.line(2);
        if count > rows {
            let position = format!("{}–{} of {count}", first + 1, (first + rows).min(count));
            self.put_right(room, &position, Colour::Faint);
            room.width = room
                .width
                .saturating_sub(u16::try_from(position.chars().count()).unwrap_or(0) + GAP);
        }
        self.put(room, &says, Colour::Plain);
    }

    fn table_head(&mut self, y: u16, columns: &[Column]) {
        let columns = self.shown(columns);
        for (column, (x, width)) in columns.iter().zip(layout(&columns, self.area.width)) {
            let area = Rect { x, width, ..self.line(y) };
            if column.is_number {
                self.put_right(area, column.title, Colour::Strong);
            } else {
                self.put(area, column.title, Colour::Strong);
            }
        }
    }

    /// Those for which the terminal is wide enough.
    fn shown(&self, columns: &[Column]) -> Vec<Column> {
        columns
            .iter()
            .filter(|column| column.from_columns <= self.area.width)
            .copied()
            .collect()
    }

    /// A cell for each column, also for those that are not shown.
    fn table_row(&mut self, y: u16, columns: &[Column], cells: &[Cell]) {
        let places = layout(&self.shown(columns), self.area.width);
        let shown = columns.iter().zip(cells);
        let terminal_columns = self.area.width;
        let shown = shown.filter(|(column, _)| column.from_columns <= terminal_columns);
        for ((column, cell), (x, width)) in shown.zip(places) {
            let area = Rect { x, width, ..self.line(y) };
            if column.is_number {
                self.put_right(area, &cell.text, cell.colour);
            } else {
                self.put(area, &cell.text, cell.colour);
            }
        }
    }

    fn list(&mut self) {
        let state = self.state;
        let rows = state.list();
        if rows.is_empty() {
            if state.freshness().fetched.is_some() {
                for (y, line) in (BODY + 1..).zip(nothing(state)) {
                    self.put(self.line(y), line, Colour::Faint);
                }
            } else {
                self.trouble();
            }
            return;
        }
        let columns = columns(state.tab);
        self.table_head(BODY, columns);
        let cursor = &state.cursors[state.tab.at()];
        for (y, (nth, row)) in
            (BODY + 1..).zip(rows.iter().enumerate().skip(cursor.offset).take(state.page_rows()))
        {
            self.table_row(y, columns, &row.cells(state.now.wall_ms));
            if nth == cursor.selected {
                let style = Style::new().add_modifier(Modifier::REVERSED);
                self.buffer.set_style(self.line(y), style);
            }
        }
    }

    /// Why there is nothing to see, with room for all of it.
    fn trouble(&mut self) {
        if let Some(trouble) = &self.state.freshness().trouble {
            let width = usize::from(self.area.width);
            let height = self.area.height.saturating_sub(BODY + 3);
            for (y, line) in (BODY + 1..BODY + 1 + height).zip(wrap(&safe_in_line(&trouble.says), width)) {
                self.put(self.line(y), &line, Colour::Plain);
            }
        }
    }

    fn detail(&mut self) {
        let lines = self.state.detail_lines();
        if lines.is_empty() {
            self.trouble();
            return;
        }
        let offset = self.state.detail_offset.min(self.state.detail_offset_max());
        for (y, line) in (BODY..).zip(lines.iter().skip(offset).take(self.state.page_rows() + 1)) {
            match line {
                Line::Texts(texts) => {
                    let texts = texts.iter().map(|cell| (&*cell.text, cell.colour));
                    self.put_all(self.line(y), texts);
                }
                Line::Head(columns) => self.table_head(y, columns),
                Line::Row(columns, cells) => self.table_row(y, columns, cells),
            }
        }
    }

    /// What came of something, or all of the chosen row; and the keys, or what is being typed.
    fn foot(&mut self) -> Option<(u16, u16)> {
        let state = self.state;
        let (status, keys) = (self.line(self.area.height - 2), self.line(self.area.height - 1));
        match &state.notice {
            Some(notice) => self.notice(&notice.says, notice.colour),
            None if state.is_acting => _ = self.put(status, "under way…", Colour::Faint),
            None if state.detail.is_none() => {
                let line = state.selected().map(|row| row.line()).unwrap_or_default();
                self.put(status, &line, Colour::Faint);
            }
            None => {}
        }
        if let Overlay::Filter(field) = &state.overlay {
            let hint = "Enter filters, Esc leaves it";
            self.put_right(keys, hint, Colour::Faint);
            let room = Rect { width: keys.width - 30, ..keys };
            return Some(self.field("/", &field.text, room));
        }
        self.hints(keys);
        None
    }

    /// What came of something, in full: over the end of the list, if it takes more than a line.
    fn notice(&mut self, says: &str, colour: Colour) {
        let lines = wrap(&safe_in_line(says), usize::from(self.area.width));
        let count = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(NOTICE_LINES_MAX);
        for (y, line) in (self.area.height - 1 - count..self.area.height - 1).zip(&lines) {
            let blank = " ".repeat(usize::from(self.area.width));
            self.buffer.set_style(self.line(y), Style::reset());
            self.put(self.line(y), &blank, Colour::Plain);
            self.put(self.line(y), line, colour);
        }
    }

    /// A text that is being typed: its end, where the cursor is.
    pub(super) fn field(&mut self, label: &str, text: &str, area: Rect) -> (u16, u16) {
        let used = self.put(area, label, Colour::Strong);
        let rest = Rect { x: area.x + used, width: area.width.saturating_sub(used + 1), ..area };
        let text = safe_in_line(text);
        let mut shown: &str = &text;
        while Span::raw(shown).width() > usize::from(rest.width) {
            let mut chars = shown.chars();
            chars.next();
            shown = chars.as_str();
        }
        let end = rest.x + self.put(rest, shown, Colour::Plain);
        (end, area.y)
    }

    fn hints(&mut self, area: Rect) {
        let accent = self.accent();
        let mut rest = area;
        for (key, does) in hints(self.state) {
            let width = u16::try_from(Span::raw(key).width() + 1 + Span::raw(does).width()).unwrap_or(0);
            if width > rest.width {
                break;
            }
            let used = put(self.buffer, rest, key, accent);
            let words = Rect { x: rest.x + used + 1, width: rest.width - used - 1, ..rest };
            let used = used + 1 + self.put(words, does, Colour::Plain) + GAP;
            let used = used.min(rest.width);
            rest = Rect { x: rest.x + used, width: rest.width - used, ..rest };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_share_what_is_left_and_none_goes_over_the_edge() {
        for tab in Tab::ALL {
            for width in [COLUMNS_MIN, 80, 99, 100, 120, 300] {
                let columns: Vec<Column> = columns(tab)
                    .iter()
                    .filter(|column| column.from_columns <= width)
                    .copied()
                    .collect();
                let places = layout(&columns, width);
                let (x, last) = places[places.len() - 1];
                assert!(x + last <= width, "{tab:?} at {width}: {places:?}");
                assert!(
                    places.iter().all(|(_, width)| *width > 0) || width < 80,
                    "{tab:?} at {width}: {places:?}"
                );
            }
        }
    }
}
