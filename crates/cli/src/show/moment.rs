//! Wall time for people, as RFC 3339 in UTC.

use fencehold_core::wire::Moment;

/// A moment to the second: `2026-11-15T03:23:03Z`.
pub(crate) fn utc(wall_ms: u64) -> String {
    let exact = utc_ms(wall_ms);
    exact
        .split_once('.')
        .map_or_else(|| exact.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// A moment to the millisecond, for the order of events.
pub(crate) fn utc_ms(wall_ms: u64) -> String {
    Moment { wall_ms }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_is_shown_by_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_077_926_399_999, "2004-02-27T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (1_794_626_583_000, "2026-11-14T03:23:03Z"),
        ] {
            assert_eq!(utc(ms), text);
        }
        assert_eq!(utc_ms(1_999), "1970-01-01T00:00:01.999Z");
        assert!(!utc(u64::MAX).is_empty(), "a broken clock is no reason to stop");
    }
}
