//! Drawing what lies above the lists: the keys, and what is to be confirmed.

use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::action::{Confirmation, ReasonKind};
use super::draw::{Canvas, put};
use super::press::KEYS;
use crate::show::{Colour, safe_in_line, wrap};

/// How much room the names of keys have.
const KEY_COLUMNS: u16 = 16;

impl Canvas<'_> {
    /// An empty box in the middle, with a title.
    fn window(&mut self, width: u16, height: u16, title: &str) -> Rect {
        let (width, height) = (width.min(self.area.width - 2), height.min(self.area.height - 2));
        let x = self.area.x + (self.area.width - width) / 2;
        let y = self.area.y + (self.area.height - height) / 2;
        let bar = "─".repeat(usize::from(width - 2));
        for at in 0..height {
            let line = Rect { x, y: y + at, width, height: 1 };
            let text = match at {
                0 => format!("┌{bar}┐"),
                at if at + 1 == height => format!("└{bar}┘"),
                _ => format!("│{}│", " ".repeat(usize::from(width - 2))),
            };
            self.buffer.set_style(line, Style::reset());
            self.put(line, &text, Colour::Plain);
        }
        self.put(Rect { x: x + 2, y, width: width - 4, height: 1 }, &format!(" {title} "), Colour::Strong);
        Rect { x: x + 2, y: y + 1, width: width - 4, height: height - 2 }
    }

    pub(super) fn help(&mut self) {
        let height = u16::try_from(KEYS.len()).unwrap_or(u16::MAX) + 2;
        let inner = self.window(62, height, "Keys; any key closes this");
        let accent = self.accent();
        for (y, (keys, does)) in (inner.y..inner.bottom()).zip(KEYS) {
            let line = Rect { y, height: 1, ..inner };
            put(self.buffer, line, keys, accent);
            let x = inner.x + KEY_COLUMNS;
            let words = Rect { x, width: inner.width.saturating_sub(KEY_COLUMNS), ..line };
            self.put(words, does, Colour::Plain);
        }
    }

    /// Asks; gives the place of the cursor, where a reason is typed.
    pub(super) fn confirmation(&mut self, confirmation: &Confirmation) -> Option<(u16, u16)> {
        let width = 74.min(self.area.width - 2);
        let explanation = safe_in_line(&confirmation.action.explanation()).into_owned();
        let explanation = wrap(&explanation, usize::from(width - 4));
        let room = self.area.height.saturating_sub(8);
        let lines = u16::try_from(explanation.len()).unwrap_or(u16::MAX).min(room);
        let wants = confirmation.wants();
        let has_reason = wants != ReasonKind::None;
        let height = lines + if has_reason { 6 } else { 4 };
        let inner = self.window(width, height, confirmation.action.title());
        let mut line = Rect { height: 1, ..inner };
        for text in explanation.iter().take(usize::from(lines)) {
            self.put(line, text, Colour::Plain);
            line.y += 1;
        }
        let mut cursor = None;
        if has_reason {
            line.y += 1;
            let label = if wants == ReasonKind::Required { "Reason: " } else { "Reason (optional): " };
            cursor = Some(self.field(label, &confirmation.reason.text, line));
        }
        line.y = inner.bottom() - 1;
        match &confirmation.problem {
            Some(problem) => self.put(line, problem, Colour::Bad),
            None => self.put(line, "Enter does it, Esc leaves it", Colour::Faint),
        };
        cursor
    }
}
