//! How things are written on a page: texts of callers, moments, durations, numbers, states.
//!
//! A text of a caller may have characters that hide or reorder what stands around it. They are shown by their number, and the text
//! is isolated from what surrounds it.

use std::fmt::Write as _;

use fencehold_core::Token;
use fencehold_core::job::{AttemptOutcome, JobState};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::wire::Moment;
use maud::{Markup, html};

/// How much of a text a table shows.
const CELL_CHARS_MAX: usize = 96;
/// And at how many hidden characters it ends: each takes more room than a letter.
const CELL_HIDDEN_MAX: usize = 8;
/// How much of a text a page shows.
const TEXT_CHARS_MAX: usize = 20_000;

/// Whether a character is invisible or changes the direction of others.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A text without characters that hide or reorder, for places that take no markup.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The beginning of a text, and whether that is all of it.
fn beginning(text: &str, chars_max: usize) -> (&str, bool) {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => (&text[..at], false),
        None => (text, true),
    }
}

/// The same, cut to so many characters.
pub(super) fn plain_beginning(text: &str, chars_max: usize) -> String {
    let (shown, is_all) = beginning(text, chars_max);
    format!("{}{}", plain(shown), if is_all { "" } else { "…" })
}

/// A stretch of a text that is shown as it is, or a character that is not.
enum Piece<'a> {
    Plain(&'a str),
    Hidden(char),
}

fn pieces(mut rest: &str, may_have_lines: bool) -> Vec<Piece<'_>> {
    let is_escaped = |c: char| is_hidden(c) && !(may_have_lines && matches!(c, '\n' | '\t'));
    let mut pieces = Vec::new();
    while let Some(at) = rest.find(is_escaped) {
        let (before, from) = rest.split_at(at);
        let mut chars = from.chars();
        pieces.push(Piece::Plain(before));
        pieces.extend(chars.next().map(Piece::Hidden));
        rest = chars.as_str();
    }
    pieces.push(Piece::Plain(rest));
    pieces
}

fn isolated(text: &str, chars_max: usize, may_have_lines: bool) -> Markup {
    let (shown, is_all) = beginning(text, chars_max);
    written(shown, is_all, may_have_lines)
}

fn written(shown: &str, is_all: bool, may_have_lines: bool) -> Markup {
    html! {
        bdi {
            @for piece in pieces(shown, may_have_lines) {
                @match piece {
                    Piece::Plain(text) => (text),
                    Piece::Hidden(c) => span class="escaped" {
                        "U+" (format!("{:04X}", u32::from(c)))
                    },
                }
            }
        }
        @if !is_all { span class="muted" { "…" } }
    }
}

/// A text of a caller.
pub(super) fn text(text: &str) -> Markup {
    isolated(text, TEXT_CHARS_MAX, false)
}

/// The same in a cell of a table: its beginning.
pub(super) fn cell(text: &str) -> Markup {
    let (shown, is_all) = beginning(text, CELL_CHARS_MAX);
    match shown.char_indices().filter(|(_, c)| is_hidden(*c)).nth(CELL_HIDDEN_MAX) {
        Some((at, _)) => written(&shown[..at], false, false),
        None => written(shown, is_all, false),
    }
}

/// A text of several lines, as it is.
pub(super) fn block(text: &str) -> Markup {
    html! { pre { (isolated(text, TEXT_CHARS_MAX, true)) } }
}

/// JSON of a caller, laid out.
pub(super) fn json(text: &str) -> Markup {
    let value: Result<serde_json::Value, _> = serde_json::from_str(text);
    let laid_out = value.and_then(|value| serde_json::to_string_pretty(&value));
    block(laid_out.as_deref().unwrap_or(text))
}

/// How long something lasts: its two largest units.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, 0) if ms > 0 => format!("{ms} ms"),
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, 0) => format!("{minutes} min"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, 0, _) => format!("{hours} h"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, 0, ..) => format!("{days} d"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

/// How long ago, or in how long: its largest unit.
pub(super) fn relative(now_ms: u64, at_ms: u64) -> String {
    let ms = now_ms.abs_diff(at_ms);
    let seconds = ms / 1_000;
    let amount = match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    };
    match at_ms {
        _ if ms < 1_000 => "now".to_owned(),
        at_ms if at_ms > now_ms => format!("in {amount}"),
        _ => format!("{amount} ago"),
    }
}

/// A moment: how long ago, with the exact one beside it.
pub(super) fn moment(now_ms: u64, at_ms: u64) -> Markup {
    let exact = Moment { wall_ms: at_ms }.to_string();
    html! { time datetime=(exact) title=(exact) { (relative(now_ms, at_ms)) } }
}

/// A number with its thousands apart.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A fencing token. It is never grouped: it is compared and copied.
pub(super) fn token(token: Token) -> Markup {
    html! { span class="token" { (token) } }
}

/// A word in the colour of what it means.
pub(super) fn badge(class: &str, word: impl ToString) -> Markup {
    html! { span class={ "badge " (class) } { (word.to_string().replace('_', " ")) } }
}

pub(super) fn state(state: JobState) -> Markup {
    badge(state_class(state), state)
}

/// The colour of a state: the same everywhere.
pub(super) const fn state_class(state: JobState) -> &'static str {
    match state {
        JobState::Running => "running",
        JobState::Queued | JobState::Scheduled => "waiting",
        JobState::Completed => "released",
        JobState::Cancelled => "quiet",
        JobState::Failed | JobState::Quarantined => "revoked",
        _ => "expired",
    }
}

/// The colour of how a hold ended.
pub(super) const fn lease_outcome_class(outcome: LeaseOutcome) -> &'static str {
    match outcome {
        LeaseOutcome::Released | LeaseOutcome::Yielded => "released",
        LeaseOutcome::Expired | LeaseOutcome::AgedOut => "expired",
        LeaseOutcome::Revoked | LeaseOutcome::Advanced => "revoked",
        _ => "quiet",
    }
}

/// The colour of how an attempt ended.
pub(super) const fn attempt_outcome_class(outcome: AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Completed | AttemptOutcome::CompletedLate => "released",
        AttemptOutcome::Crashed | AttemptOutcome::TimedOut => "expired",
        AttemptOutcome::Failed | AttemptOutcome::FailedLate => "revoked",
        _ => "quiet",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_are_harmless_and_visible() {
        let shown = text("<script>alert(1)</script> a\u{202e}b\u{0}").into_string();
        let escaped = |code: &str| format!(r#"<span class="escaped">{code}</span>"#);
        assert_eq!(
            shown,
            format!(
                "<bdi>&lt;script&gt;alert(1)&lt;/script&gt; a{}b{}</bdi>",
                escaped("U+202E"),
                escaped("U+0000")
            )
        );
        assert_eq!(plain("a\u{202e}b\u{200b}"), "a\\u{202e}b\\u{200b}");
        assert_eq!(plain_beginning("ünïx", 2), "ün…");
    }

    #[test]
    fn times_are_short_and_numbers_are_grouped() {
        for (ms, shown) in [
            (0, "0 s"),
            (999, "999 ms"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (7_500_000, "2 h 5 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(ms), shown);
        }
        assert_eq!(relative(100_000, 40_000), "1 min ago");
        assert_eq!(relative(100_000, 130_000), "in 30 s");
        assert_eq!([number(7), number(1_000), number(1_234_567)], ["7", "1,000", "1,234,567"]);
    }
}
