//! What others wrote, made safe for a terminal: a key, an owner or an error can hold characters that move the cursor, hide
//! text or turn its direction.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A text for people, in which control characters and those that turn the direction of text are written out. Line breaks,
/// tabs and our own colours stay.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| is_odd(c) && !"\n\t".contains(c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(colour) = colour(rest) {
            shown.push_str(colour);
            rest = &rest[colour.len()..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        if is_odd(c) && !"\n\t".contains(c) {
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// A text for one line of a screen that is drawn: no line break, no tab and no colour is left of it, and nothing that cannot be seen.
#[cfg(feature = "top")]
pub(crate) fn safe_in_line(text: &str) -> Cow<'_, str> {
    let is_odd = |c: char| is_odd(c) || is_unseen(c);
    if !text.chars().any(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) {
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether a character takes no room, so that two names would look alike.
#[cfg(feature = "top")]
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// JSON in which characters that turn the direction of text are escaped: the same document, and safe to look at.
pub(crate) fn safe_json(text: String) -> String {
    if !text.chars().any(is_turning) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_turning(c) {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

fn is_odd(c: char) -> bool {
    c.is_control() || is_turning(c)
}

fn is_turning(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A colour at the beginning of a text: `ESC [ digits m`.
fn colour(text: &str) -> Option<&str> {
    let digits = text.strip_prefix("\u{1b}[")?;
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    digits[end..].starts_with('m').then(|| &text[..=2 + end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_or_turns_text_is_written_out_and_colours_stay() {
        assert_eq!(safe("plain\ttext\n"), "plain\ttext\n");
        assert_eq!(safe("\u{1b}[31mred\u{1b}[0m"), "\u{1b}[31mred\u{1b}[0m");
        assert_eq!(safe("a\u{1b}[2Jb\u{202e}c\r\u{9b}"), "a\\u{1b}[2Jb\\u{202e}c\\u{d}\\u{9b}");
    }

    #[cfg(feature = "top")]
    #[test]
    fn on_a_line_of_a_screen_nothing_stays_that_is_no_letter() {
        assert_eq!(safe_in_line("plain text, ünïx 日本"), "plain text, ünïx 日本");
        assert_eq!(
            safe_in_line("a\tb\n\u{1b}[31mc\u{202e}d\u{200b}"),
            "a\\u{9}b\\u{a}\\u{1b}[31mc\\u{202e}d\\u{200b}"
        );
    }

    #[test]
    fn json_stays_the_same_document() {
        let value = serde_json::json!({ "owner": "x\u{202e}y" });
        let shown = safe_json(value.to_string());
        assert!(!shown.contains('\u{202e}'));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
