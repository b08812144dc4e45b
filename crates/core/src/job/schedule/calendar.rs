//! Which times of the calendar a cron line names. Nothing here knows of time zones.

use jiff::civil::{Date, DateTime};

use super::field::Values;

/// After 400 years the calendar repeats, weekdays included: a day that has not come by then never comes.
const MONTHS_SEARCHED: usize = 400 * 12 + 1;

/// The days and times of day that a line names, as sets: bit n stands for the number n.
#[derive(Clone)]
pub(super) struct Calendar {
    minutes: u64,
    hours: u64,
    days: u64,
    last_day: bool,
    months: u64,
    /// Sunday is 0.
    weekdays: u64,
    /// Whether a day of month *or* a day of week will do.
    either_day: bool,
}

impl Calendar {
    pub(super) fn new([minute, hour, day, month, weekday]: [Values; 5]) -> Self {
        Calendar {
            minutes: minute.set,
            hours: hour.set,
            days: day.set,
            last_day: day.last,
            months: month.set,
            // 7 is Sunday too.
            weekdays: weekday.set | weekday.set >> 7,
            either_day: !day.star && !weekday.star,
        }
    }

    /// The first time that is named, from `local` on. Seconds are not looked at.
    pub(super) fn first_from(&self, local: DateTime) -> Option<DateTime> {
        let today = local.date();
        let day = self.day_from(today)?;
        if day != today {
            return self.time_from(0, 0).and_then(|time| at(day, time));
        }
        match self.time_from(number(local.hour()), number(local.minute())) {
            Some(time) => at(day, time),
            None => at(self.day_from(day.tomorrow().ok()?)?, self.time_from(0, 0)?),
        }
    }

    fn time_from(&self, hour: u32, minute: u32) -> Option<(u32, u32)> {
        let this_hour = || Some((hour, first_from(self.minutes, minute)?));
        let later = || Some((first_from(self.hours, hour + 1)?, first_from(self.minutes, 0)?));
        if self.hours >> hour & 1 == 1 { this_hour().or_else(later) } else { later() }
    }

    fn day_from(&self, from: Date) -> Option<Date> {
        let (mut first, mut day) = (from.first_of_month(), number(from.day()));
        for _ in 0..MONTHS_SEARCHED {
            if let Some(day) = first_from(self.days_in(first), day) {
                return Date::new(first.year(), first.month(), i8::try_from(day).ok()?).ok();
            }
            (first, day) = (first.last_of_month().tomorrow().ok()?, 1);
        }
        None
    }

    /// The days that are named in the month that begins with `first`.
    fn days_in(&self, first: Date) -> u64 {
        if self.months >> first.month() & 1 == 0 {
            return 0;
        }
        let length = first.days_in_month();
        let all = (1 << (length + 1)) - 2;
        let last = if self.last_day { 1 << length } else { 0 };
        let by_month = (self.days | last) & all;

        let first_weekday = first.weekday().to_sunday_zero_offset();
        let by_week = (1..=length)
            .filter(|day| self.weekdays >> ((first_weekday + day - 1) % 7) & 1 == 1)
            .fold(0, |days, day| days | 1 << day);
        if self.either_day { by_month | by_week } else { by_month & by_week }
    }
}

/// The smallest number of a set, from `from` on.
fn first_from(set: u64, from: u32) -> Option<u32> {
    let rest = set & u64::MAX.checked_shl(from)?;
    (rest != 0).then(|| rest.trailing_zeros())
}

fn at(day: Date, (hour, minute): (u32, u32)) -> Option<DateTime> {
    let time = jiff::civil::Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()?;
    Some(day.to_datetime(time))
}

/// Parts of a date, which are never negative.
fn number(part: i8) -> u32 {
    u32::from(part.unsigned_abs())
}
