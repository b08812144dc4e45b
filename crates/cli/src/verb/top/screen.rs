//! The terminal as a screen: taken over as a whole, drawn on, and given back as it was, however the program ends.
//!
//! Every terminal of today understands the sequences that are used here: those of the VT100, the second screen, and brackets around what is
//! pasted.

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::{Frame, Terminal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::process::from_the_background;

/// The second screen, brackets around what is pasted, no cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?2004h\x1b[?25l\x1b[2J";
const LEAVE: &[u8] = b"\x1b[0m\x1b[?2004l\x1b[?25h\x1b[?1049l";

/// The modes of the terminal before it was taken over, while it is.
static MODES_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The whole terminal, until it is dropped.
pub(super) struct Screen {
    terminal: Terminal<Vt>,
}

impl Screen {
    /// Takes the terminal over. A panic gives it back before it says what went wrong.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        let terminal = Terminal::new(Vt::default())?;
        *MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            report(panic);
        }));
        let screen = Screen { terminal };
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        write(ENTER)?;
        Ok(screen)
    }

    /// Takes it again after another program had it: one that stopped us, say.
    pub(super) fn enter_again(&mut self) -> io::Result<()> {
        let mut raw = tcgetattr(io::stdin())?;
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        write(ENTER)?;
        self.redraw()
    }

    /// Draws all of it again the next time: something else may have written on it.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }

    pub(super) fn size(&self) -> io::Result<Size> {
        self.terminal.size()
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Err(io::Error::other("a thread of this process panicked"));
        }
        self.terminal.draw(draw).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the terminal back; once.
fn leave() {
    let before = MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        from_the_background(|| {
            // There is no more that could be done.
            let _ = write(LEAVE);
            // What was typed and not read was meant for us.
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
        });
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// What is drawn, gathered until it is written in one piece.
#[derive(Debug, Default)]
struct Vt {
    out: Vec<u8>,
}

impl Vt {
    fn go_to(&mut self, x: u16, y: u16) -> io::Result<()> {
        write!(self.out, "\x1b[{};{}H", y.saturating_add(1), x.saturating_add(1))
    }

    fn set_style(&mut self, colour: Color, modifier: Modifier) -> io::Result<()> {
        self.out.extend_from_slice(b"\x1b[0");
        for (flag, code) in [
            (Modifier::BOLD, ";1"),
            (Modifier::DIM, ";2"),
            (Modifier::UNDERLINED, ";4"),
            (Modifier::REVERSED, ";7"),
        ] {
            if modifier.contains(flag) {
                self.out.extend_from_slice(code.as_bytes());
            }
        }
        // No others are used: what a theme makes of these can be read on its background.
        let colour = match colour {
            Color::Red => ";31",
            Color::Green => ";32",
            Color::Yellow => ";33",
            Color::Cyan => ";36",
            _ => "",
        };
        write!(self.out, "{colour}m")
    }
}

impl Backend for Vt {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut style = None;
        let mut next = None;
        for (x, y, cell) in content {
            // After a character that takes two columns the cursor is said again, whatever the terminal thinks of its width.
            if next != Some((x, y)) {
                self.go_to(x, y)?;
            }
            if style != Some((cell.fg, cell.modifier)) {
                self.set_style(cell.fg, cell.modifier)?;
                style = Some((cell.fg, cell.modifier));
            }
            self.out.extend_from_slice(cell.symbol().as_bytes());
            next = cell.symbol().is_ascii().then_some((x.saturating_add(1), y));
        }
        self.out.extend_from_slice(b"\x1b[0m");
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.out.extend_from_slice(b"\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.out.extend_from_slice(b"\x1b[?25h");
        Ok(())
    }

    /// Where drawing leaves it does not matter: it is hidden, or set.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        self.go_to(x, y)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.out.extend_from_slice(match region {
            ClearType::All => b"\x1b[0m\x1b[2J",
            ClearType::AfterCursor => b"\x1b[0m\x1b[0J",
            ClearType::BeforeCursor => b"\x1b[0m\x1b[1J",
            ClearType::CurrentLine => b"\x1b[0m\x1b[2K",
            ClearType::UntilNewLine => b"\x1b[0m\x1b[0K",
        });
        Ok(())
    }

    /// A terminal that does not say has the size of the first ones.
    fn size(&self) -> io::Result<Size> {
        let size = tcgetwinsize(io::stdout())?;
        let or = |value: u16, other| if value == 0 { other } else { value };
        Ok(Size::new(or(size.ws_col, 80), or(size.ws_row, 24)))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = write(&self.out);
        self.out.clear();
        written
    }
}

#[cfg(test)]
mod tests {
    use ratatui_core::buffer::Buffer;
    use ratatui_core::layout::Rect;
    use ratatui_core::style::Style;

    use super::*;

    #[test]
    fn what_is_drawn_are_sequences_of_places_styles_and_texts() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 2));
        buffer.set_string(0, 0, "ab", Style::new().fg(Color::Red));
        buffer.set_string(2, 0, "日c", Style::new().add_modifier(Modifier::BOLD));
        let mut vt = Vt::default();
        let before = Buffer::empty(Rect::new(0, 0, 8, 2));
        vt.draw(before.diff(&buffer).into_iter()).unwrap();
        let shown = String::from_utf8(vt.out).unwrap();
        assert_eq!(shown, "\x1b[1;1H\x1b[0;31mab\x1b[0;1m日\x1b[1;5Hc\x1b[0m");
    }
}
