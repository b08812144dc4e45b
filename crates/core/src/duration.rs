//! Durations as people write them: `500ms`, `90s`, `1h30m`. How they are rounded for a screen is not decided here.

use std::fmt::Write as _;

/// The units, longest first; a duration names each at most once, in this order.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration, in milliseconds. Limits are not judged here: each field has its own.
pub fn parse_ms(text: &str) -> Result<u64, String> {
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

/// How long something lasts that was chosen by people: exact, so that 30 s reads `30s` and not `30.0s`.
pub fn show_exact_ms(mut ms: u64) -> String {
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
    fn what_people_chose_is_shown_as_they_would_write_it() {
        for text in ["0s", "30s", "1h30m", "1d2h3m4s5ms", "2m500ms"] {
            assert_eq!(show_exact_ms(parse_ms(text).unwrap()), text);
        }
    }
}
