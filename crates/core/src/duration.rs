//! Durations as people write them: `500ms`, `90s`, `1.5s`, `1h30m`. How they are rounded for a screen is not decided here.

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
        // What comes after a point: `1.5s`.
        let decimals = after
            .strip_prefix('.')
            .map_or(0, |after| after.bytes().take_while(u8::is_ascii_digit).count());
        let (decimals, after) = match decimals {
            0 => ("", after),
            count => (&after[1..=count], &after[1 + count..]),
        };
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
        let part_ms = decimal_ms(decimals, *unit_ms).ok_or_else(|| {
            format!("{number}.{decimals}{unit} is no whole number of milliseconds; {example}")
        })?;
        total_ms = number
            .checked_mul(*unit_ms)
            .and_then(|ms| ms.checked_add(part_ms))
            .and_then(|ms| total_ms.checked_add(ms))
            .ok_or_else(too_long)?;
        rest = next;
    }
    Ok(total_ms)
}

/// Reads a number that is written in digits only, without a sign.
pub(crate) fn parse_digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// The milliseconds of what stands after a point. `None`: they are not whole.
fn decimal_ms(decimals: &str, unit_ms: u64) -> Option<u64> {
    let decimals = decimals.trim_end_matches('0');
    let (mut part, mut one) = (0_u64, 1_u64);
    for digit in decimals.bytes() {
        part = part.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        one = one.checked_mul(10)?;
    }
    let scaled = part.checked_mul(unit_ms)?;
    (scaled % one == 0).then(|| scaled / one)
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
            ("6.0s", 6_000),
            ("1.5s", 1_500),
            ("0.25h", 900_000),
            ("1h1.5m", 3_690_000),
            ("1.000ms", 1),
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
            ("1.5", "needs a unit"),
            ("1.s", "needs a unit"),
            (".5s", "not a duration"),
            ("1.5.5s", "needs a unit"),
            ("1.5ms", "no whole number of milliseconds"),
            ("1.00000000000000000000000001s", "no whole number of milliseconds"),
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
