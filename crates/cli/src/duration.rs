//! Durations as people write and read them: `500ms`, `90s`, `1h30m`.

use std::fmt::Write as _;

pub(crate) use fencehold_core::duration::{parse_ms, show_exact_ms};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
