//! Durations as people write and read them: `500ms`, `90s`, `1h30m`.

use std::fmt::Write as _;

/// The units, longest first; a duration names each at most once, in this order.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration, in milliseconds. Limits are not judged here: each field has its own.
pub(crate) fn parse_ms(text: &str) -> Result<u64, String> {
    let example = "write it as 500ms, 90s, 2m or 1h30m";
    let text = text.trim();
    if text.starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    if text.is_empty() {
        return Err(format!("the duration is empty; {example}"));
    }
    let too_long = || "the duration is too long to count".to_owned();
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, next) = after.split_at(letters);
        if number.is_empty() {
            return Err(format!("not a duration; {example}"));
        }
        if unit.is_empty() {
            return Err(format!("a number needs a unit (ms, s, m, h, d); {example}"));
        }
        let Some((_, unit_ms)) = units.find(|(name, _)| *name == unit) else {
            let known = UNITS.iter().any(|(name, _)| *name == unit);
            return Err(if known {
                format!("units stand once each, longest first; {example}")
            } else {
                format!("{unit:?} is no unit (ms, s, m, h, d); {example}")
            });
        };
        let number: u64 = number.parse().map_err(|_| too_long())?;
        total_ms = number
            .checked_mul(*unit_ms)
            .and_then(|ms| total_ms.checked_add(ms))
            .ok_or_else(too_long)?;
        rest = next;
    }
    Ok(total_ms)
}

/// Writes a duration for people: two places at most, and no more exact than is useful.
pub(crate) fn show_ms(ms: u64) -> String {
    let mut text = String::new();
    let _ = match ms {
        0..1_000 => write!(text, "{ms}ms"),
        1_000..60_000 => write!(text, "{}.{}s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => write!(text, "{}m{:02}s", ms / 60_000, ms / 1_000 % 60),
        3_600_000..86_400_000 => write!(text, "{}h{:02}m", ms / 3_600_000, ms / 60_000 % 60),
        _ => write!(text, "{}d{:02}h", ms / 86_400_000, ms / 3_600_000 % 24),
    };
    text
}

/// How long something lasts that was chosen by people: exact, so that 30 s reads `30s` and not `30.0s`.
pub(crate) fn show_exact_ms(mut ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, unit_ms) in UNITS {
        if ms >= unit_ms {
            let _ = write!(text, "{}{unit}", ms / unit_ms);
            ms %= unit_ms;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, ms) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
            (" 7s ", 7_000),
        ] {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn a_bad_duration_says_what_is_wrong_with_it() {
        for (text, says) in [
            ("", "empty"),
            ("-5s", "negative"),
            ("90", "needs a unit"),
            ("s", "not a duration"),
            ("5x", "\"x\" is no unit"),
            ("5s2m", "longest first"),
            ("5s5s", "longest first"),
            ("1.5s", "needs a unit"),
            ("5s!", "not a duration"),
            ("٣s", "not a duration"),
            ("99999999999999999999s", "too long"),
            ("18446744073709551615d", "too long"),
            ("213503982334d99999999h", "too long"),
        ] {
            let error = parse_ms(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn durations_are_shown_with_two_places_at_most() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (12_345, "12.3s"),
            (59_999, "59.9s"),
            (60_000, "1m00s"),
            (3_599_999, "59m59s"),
            (3_600_000, "1h00m"),
            (90_061_000, "1d01h"),
            (u64::MAX, "213503982334d14h"),
        ] {
            assert_eq!(show_ms(ms), text);
        }
    }

    #[test]
    fn what_people_chose_is_shown_as_they_would_write_it() {
        for text in ["0s", "30s", "1h30m", "1d2h3m4s5ms", "2m500ms"] {
            assert_eq!(show_exact_ms(parse_ms(text).unwrap()), text);
        }
    }
}
