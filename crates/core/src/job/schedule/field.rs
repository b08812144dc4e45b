//! One field of a cron line: a set of numbers, written as a list of values, ranges and steps.

use crate::duration::parse_digits;
use crate::error::BadInput;

/// What a field takes.
pub(super) struct Field {
    /// As errors name it.
    name: &'static str,
    /// As errors list it.
    allowed: &'static str,
    min: u32,
    max: u32,
    /// The greatest number that `*` stands for: 7 is a second name of Sunday, not an eighth day.
    star_max: u32,
    /// Three-letter names, from `min` up.
    names: &'static [&'static str],
    /// Whether `L`, the last day of the month, is one of its values.
    takes_last: bool,
}

pub(super) const MINUTE: Field = Field::numbers("cron line: minute", "0-59", 0, 59);
pub(super) const HOUR: Field = Field::numbers("cron line: hour", "0-23", 0, 23);
pub(super) const DAY_OF_MONTH: Field =
    Field { takes_last: true, ..Field::numbers("cron line: day of month", "1-31 or L", 1, 31) };
pub(super) const MONTH: Field = Field {
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    ..Field::numbers("cron line: month", "1-12 or JAN-DEC", 1, 12)
};
pub(super) const DAY_OF_WEEK: Field = Field {
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    star_max: 6,
    ..Field::numbers("cron line: day of week", "0-7 or SUN-SAT", 0, 7)
};

/// What was read from a field.
#[derive(Default)]
pub(super) struct Values {
    /// One bit for each number; never empty, unless `last` is set.
    pub(super) set: u64,
    /// Whether a `*` stands in it.
    pub(super) star: bool,
    /// Whether it has `L`.
    pub(super) last: bool,
}

impl Field {
    const fn numbers(name: &'static str, allowed: &'static str, min: u32, max: u32) -> Self {
        Field { name, allowed, min, max, star_max: max, names: &[], takes_last: false }
    }

    fn bad(&self, problem: String) -> BadInput {
        BadInput::new(self.name, problem)
    }

    pub(super) fn parse(&self, text: &str) -> Result<Values, BadInput> {
        let mut values = Values::default();
        for item in text.split(',') {
            if item.is_empty() {
                return Err(self.bad(format!("{text:?} has an empty place in its list")));
            }
            if self.takes_last && item.eq_ignore_ascii_case("L") {
                values.last = true;
                continue;
            }
            let (span, step) = match item.split_once('/') {
                Some((span, step)) => (span, Some(step)),
                None => (item, None),
            };
            let (first, last) = self.span(item, span, step)?;
            let step = step.map_or(Ok(1), |step| self.step(item, step))?;
            values.star |= span == "*";
            for value in (first..=last).step_by(step) {
                values.set |= 1 << value;
            }
        }
        Ok(values)
    }

    /// `*`, `5` or `5-9`, as its first and last number.
    fn span(&self, item: &str, span: &str, step: Option<&str>) -> Result<(u32, u32), BadInput> {
        if span == "*" {
            return Ok((self.min, self.star_max));
        }
        let ends = span
            .split_once('-')
            .filter(|(first, last)| !(first.is_empty() || last.is_empty()));
        let Some((first, last)) = ends else {
            let value = self.value(span)?;
            // Some crons read `5/15` as 5 alone, others as 5-59/15.
            let Some(step) = step else { return Ok((value, value)) };
            let written = format!("{span}-{}/{step}", self.star_max);
            return Err(self.bad(format!("{item:?} has a step and no range: write {written}")));
        };
        let (from, mut to) = (self.value(first)?, self.value(last)?);
        // Sunday has two numbers so that it can begin a week and end one: FRI-SUN.
        if to == 0 && from > 0 && self.max > self.star_max {
            to = self.max;
        }
        if from > to {
            let written = format!("{first}-{},{}-{last}", self.star_max, self.min);
            return Err(self.bad(format!("{span:?} runs backwards: write {written}")));
        }
        Ok((from, to))
    }

    fn value(&self, text: &str) -> Result<u32, BadInput> {
        let number = parse_digits(text).filter(|number| (self.min..=self.max).contains(number));
        let mut names = (self.min..).zip(self.names);
        let by_name = || Some(names.find(|(_, name)| name.eq_ignore_ascii_case(text))?.0);
        number
            .or_else(by_name)
            .ok_or_else(|| self.bad(format!("{text:?} is not in {}", self.allowed)))
    }

    /// A step of the whole field or more would leave one value, and the line would not do what it seems to say:
    /// `*/90` is not every 90 minutes.
    fn step(&self, item: &str, text: &str) -> Result<usize, BadInput> {
        let most = (self.star_max - self.min) as usize;
        let step = parse_digits(text).filter(|step| (1..=most).contains(step));
        step.ok_or_else(|| self.bad(format!("{item:?} has a step of {text:?}, which is not in 1-{most}")))
    }
}
