//! Wall time for people, as RFC 3339 in UTC.

/// A moment to the second: `2026-11-15T03:23:03Z`.
pub(crate) fn utc(wall_ms: u64) -> String {
    let (date, second_of_day) = split(wall_ms);
    format!("{date}T{}Z", clock(second_of_day))
}

/// A moment to the millisecond, for the order of events.
pub(crate) fn utc_ms(wall_ms: u64) -> String {
    let (date, second_of_day) = split(wall_ms);
    format!("{date}T{}.{:03}Z", clock(second_of_day), wall_ms % 1_000)
}

fn split(wall_ms: u64) -> (String, u64) {
    let seconds = wall_ms / 1_000;
    let (year, month, day) = civil(seconds / 86_400);
    (format!("{year:04}-{month:02}-{day:02}"), seconds % 86_400)
}

fn clock(second_of_day: u64) -> String {
    format!("{:02}:{:02}:{:02}", second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60)
}

/// The date that is so many days after 1970-01-01, by the Gregorian rules. Years are counted from March, so that the
/// leap day is a year's last day and the lengths of the months follow one formula.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
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

    #[test]
    fn every_day_of_eight_centuries_follows_the_day_before() {
        let length = |year: u64, month: u64| match month {
            2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let mut expected = (1970, 1, 1);
        for days in 0..292_194 {
            assert_eq!(civil(days), expected);
            let (year, month, day) = expected;
            expected = match (day == length(year, month), month) {
                (false, _) => (year, month, day + 1),
                (true, 12) => (year + 1, 1, 1),
                (true, _) => (year, month + 1, 1),
            };
        }
    }
}
