//! What is typed: bytes of the terminal as keys.
//!
//! The escape key and the beginning of a sequence are the same byte, and a slow line can split a sequence. So a sequence that is not whole
//! waits for its rest: for a moment, after which it was the key. What is pasted comes in brackets, as one thing: a line break in it confirms
//! nothing.

use std::io::Read as _;
use std::time::Duration;

use tokio::sync::mpsc;

/// How long a sequence may take to be whole.
pub(super) const REST_WITHIN: Duration = Duration::from_millis(60);
/// More than this is no text of ours.
const PASTE_BYTES_MAX: usize = 16 << 10;
const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// A key, or what was pasted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    /// With the control key.
    Control(char),
    Enter,
    Escape,
    Tab,
    BackTab,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Paste(String),
}

/// Bytes until they are keys.
#[derive(Debug, Default)]
pub(super) struct KeyParser {
    pending: Vec<u8>,
}

/// What the first bytes are.
enum Parsed {
    /// So many bytes, which may be a key that has no meaning here.
    Key(Option<Key>, usize),
    Incomplete,
}

impl KeyParser {
    /// The keys that are whole with these bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while !self.pending.is_empty() {
            match parse(&self.pending) {
                Parsed::Key(key, length) => {
                    keys.extend(key);
                    self.pending.drain(..length);
                }
                Parsed::Incomplete if self.pending.len() > PASTE_BYTES_MAX => self.pending.clear(),
                Parsed::Incomplete => break,
            }
        }
        keys
    }

    /// Whether a sequence waits for its rest. A paste takes as long as it takes.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty() && !self.pending.starts_with(PASTE_BEGINS)
    }

    /// No more came: the first byte was a key of its own.
    pub(super) fn rest_did_not_come(&mut self) -> Vec<Key> {
        let escape = self.pending.first() == Some(&0x1b);
        self.pending.clear();
        escape.then_some(Key::Escape).into_iter().collect()
    }
}

fn parse(bytes: &[u8]) -> Parsed {
    let one = |key| Parsed::Key(Some(key), 1);
    match bytes {
        [0x1b, b'[', rest @ ..] => parse_sequence(bytes, rest),
        // Keys of keypads, and of the function row.
        [0x1b, b'O', last, ..] => Parsed::Key(named(*last), 3),
        [0x1b, b'O'] | [0x1b] | [] => Parsed::Incomplete,
        [0x1b, ..] => one(Key::Escape),
        [b'\r' | b'\n', ..] => one(Key::Enter),
        [b'\t', ..] => one(Key::Tab),
        [0x7f | 0x08, ..] => one(Key::Backspace),
        [control @ 1..=26, ..] => one(Key::Control(char::from(control + b'a' - 1))),
        [0..=31, ..] => Parsed::Key(None, 1),
        _ => parse_char(bytes),
    }
}

fn parse_char(bytes: &[u8]) -> Parsed {
    let text = match std::str::from_utf8(&bytes[..bytes.len().min(4)]) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(error) if error.error_len().is_none() => return Parsed::Incomplete,
        Err(_) => "",
    };
    match text.chars().next() {
        Some(c) => Parsed::Key((!c.is_control()).then_some(Key::Char(c)), c.len_utf8()),
        None => Parsed::Key(None, 1),
    }
}

/// A sequence that begins with `ESC [`: parameters, and a last byte that says which.
fn parse_sequence(bytes: &[u8], rest: &[u8]) -> Parsed {
    if bytes.starts_with(PASTE_BEGINS) {
        let pasted = &bytes[PASTE_BEGINS.len()..];
        let end = pasted.windows(PASTE_ENDS.len()).position(|window| window == PASTE_ENDS);
        return end.map_or(Parsed::Incomplete, |end| {
            let text = String::from_utf8_lossy(&pasted[..end]).into_owned();
            Parsed::Key(Some(Key::Paste(text)), PASTE_BEGINS.len() + end + PASTE_ENDS.len())
        });
    }
    // The function row of the Linux console.
    if let [b'[', more @ ..] = rest {
        return if more.is_empty() { Parsed::Incomplete } else { Parsed::Key(None, 4) };
    }
    let Some(end) = rest.iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        return Parsed::Incomplete;
    };
    let digits: String = rest[..end]
        .iter()
        .map(|byte| char::from(*byte))
        .take_while(char::is_ascii_digit)
        .collect();
    let key = match (rest[end], digits.as_str()) {
        (b'~', "1" | "7") => Some(Key::Home),
        (b'~', "4" | "8") => Some(Key::End),
        (b'~', "5") => Some(Key::PageUp),
        (b'~', "6") => Some(Key::PageDown),
        (b'Z', _) => Some(Key::BackTab),
        (last, _) => named(last),
    };
    Parsed::Key(key, 2 + end + 1)
}

fn named(last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'M' => Key::Enter,
        _ => return None,
    })
}

/// Reads the terminal in a thread of its own, which ends with the process: a read of a terminal cannot be called off, and a terminal that
/// does not block would not block for the shell either. The channel closes when the terminal is gone.
pub(super) fn listen() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    let read = move || {
        let mut bytes = [0; 1024];
        loop {
            match std::io::stdin().lock().read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => {
                    if sender.blocking_send(bytes[..count].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    };
    // Without a thread the channel closes at once, which ends the program in good order.
    let _ = std::thread::Builder::new().name("keyboard".to_owned()).spawn(read);
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        KeyParser::default().feed(bytes)
    }

    #[test]
    fn terminals_say_the_same_keys_in_different_ways() {
        for (bytes, key) in [
            (&b"\x1b[A"[..], Key::Up),
            (b"\x1bOA", Key::Up),
            (b"\x1b[1;5B", Key::Down),
            (b"\x1b[H", Key::Home),
            (b"\x1b[1~", Key::Home),
            (b"\x1bOF", Key::End),
            (b"\x1b[8~", Key::End),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[6~", Key::PageDown),
            (b"\x1b[Z", Key::BackTab),
            (b"\r", Key::Enter),
            (b"\x7f", Key::Backspace),
            (b"\x03", Key::Control('c')),
            ("ü".as_bytes(), Key::Char('ü')),
        ] {
            assert_eq!(keys(bytes), [key], "{bytes:?}");
        }
        assert_eq!(keys(b"\x1b[15~\x1b[[A\x1b[?1;2c"), [], "keys without a meaning");
        assert_eq!(keys(b"\xff\xfej"), [Key::Char('j')], "what is no text is left out");
    }

    #[test]
    fn every_split_of_a_sequence_is_the_same_key() {
        for whole in [&b"\x1b[1;5B"[..], b"\x1bOA", "€".as_bytes(), b"\x1b[200~a\rb\x1b[201~"] {
            for at in 1..whole.len() {
                let mut parser = KeyParser::default();
                let mut found = parser.feed(&whole[..at]);
                found.extend(parser.feed(&whole[at..]));
                assert_eq!(found, keys(whole), "{whole:?} split at {at}");
            }
        }
    }

    #[test]
    fn the_escape_key_is_one_when_nothing_follows() {
        let mut parser = KeyParser::default();
        assert_eq!(parser.feed(b"\x1b"), []);
        assert!(parser.is_waiting());
        assert_eq!(parser.rest_did_not_come(), [Key::Escape]);
        assert!(!parser.is_waiting());
        assert_eq!(keys(b"\x1bq"), [Key::Escape, Key::Char('q')]);
    }

    #[test]
    fn what_is_pasted_is_one_thing_and_never_too_much() {
        let mut parser = KeyParser::default();
        assert_eq!(parser.feed(b"\x1b[200~x\nq"), []);
        assert!(!parser.is_waiting(), "a paste is not cut short");
        assert_eq!(parser.feed(b"\x1b[201~j"), [Key::Paste("x\nq".to_owned()), Key::Char('j')]);
        parser.feed(b"\x1b[200~");
        parser.feed(&vec![b'x'; PASTE_BYTES_MAX]);
        assert_eq!(parser.feed(b"j"), [Key::Char('j')], "what has no end is dropped");
    }
}
