//! Cron lines and time zones as text: what is taken, what is refused and in which words.

use fencehold_core::job::schedule::{Cron, Zone};
use proptest::prelude::*;

fn refusal(line: &str) -> String {
    Cron::parse(line).unwrap_err().to_string()
}

#[test]
fn a_zone_shows_a_moment_as_its_clocks_do() {
    let berlin = Zone::parse("Europe/Berlin").unwrap();
    assert_eq!(berlin.show(1_700_000_000_000), "2023-11-14T23:13:20+01:00");
    assert_eq!(berlin.show(u64::MAX), "", "a moment that no calendar has");
}

#[test]
fn a_bad_line_says_which_field_what_was_found_and_what_is_allowed() {
    for (line, says) in [
        ("60 * * * *", r#"cron line: minute "60" is not in 0-59"#),
        ("0 25 * * *", r#"cron line: hour "25" is not in 0-23"#),
        ("0 0 0 * *", r#"cron line: day of month "0" is not in 1-31 or L"#),
        ("0 0 * 13 *", r#"cron line: month "13" is not in 1-12 or JAN-DEC"#),
        ("0 0 * * MONDAY", r#"cron line: day of week "MONDAY" is not in 0-7 or SUN-SAT"#),
        ("0 0 * * 8", r#"cron line: day of week "8" is not in 0-7 or SUN-SAT"#),
        ("0 0 ? * *", r#"cron line: day of month "?" is not in 1-31 or L"#),
        ("L 0 * * *", r#"cron line: minute "L" is not in 0-59"#),
        ("-5 * * * *", r#"cron line: minute "-5" is not in 0-59"#),
        ("+5 * * * *", r#"cron line: minute "+5" is not in 0-59"#),
        ("5- * * * *", r#"cron line: minute "5-" is not in 0-59"#),
        ("99999999999 * * * *", r#"cron line: minute "99999999999" is not in 0-59"#),
        ("٣ * * * *", r#"cron line: minute "٣" is not in 0-59"#),
        ("1,,2 * * * *", r#"cron line: minute "1,,2" has an empty place in its list"#),
        ("0 9-17,25 * * *", r#"cron line: hour "25" is not in 0-23"#),
        ("0 22-2 * * *", r#"cron line: hour "22-2" runs backwards: write 22-23,0-2"#),
        ("0 0 * NOV-FEB *", r#"cron line: month "NOV-FEB" runs backwards: write NOV-12,1-FEB"#),
        ("0 0 * * FRI-MON", r#"cron line: day of week "FRI-MON" runs backwards: write FRI-6,0-MON"#),
        ("5/15 * * * *", r#"cron line: minute "5/15" has a step and no range: write 5-59/15"#),
        ("*/90 * * * *", r#"cron line: minute "*/90" has a step of "90", which is not in 1-59"#),
        ("0 */24 * * *", r#"cron line: hour "*/24" has a step of "24", which is not in 1-23"#),
        ("0 0 */31 * *", r#"cron line: day of month "*/31" has a step of "31", which is not in 1-30"#),
        ("*/0 * * * *", r#"cron line: minute "*/0" has a step of "0", which is not in 1-59"#),
        ("*/ * * * *", r#"cron line: minute "*/" has a step of "", which is not in 1-59"#),
        (" \t ", "cron line must not be empty"),
        (
            "0 0 * *",
            r#"cron line "0 0 * *" has 4 fields; it takes five: minute, hour, day of month, month, day of week"#,
        ),
        (
            "0 0 0 * * *",
            "cron line \"0 0 0 * * *\" has 6 fields; it takes five (there is none for seconds): \
             minute, hour, day of month, month, day of week",
        ),
        (
            "@reboot",
            "cron line \"@reboot\" is not known; the shorthands are \
             @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually",
        ),
    ] {
        assert_eq!(refusal(line), says, "{line}");
    }
    assert_eq!(refusal(&"1,".repeat(200)), "cron line has 400 bytes; the limit is 256");
}

#[test]
fn what_a_refusal_proposes_is_taken() {
    for line in ["0 22-23,0-2 * * *", "0 0 * NOV-12,1-FEB *", "0 0 * * FRI-6,0-MON", "5-59/15 * * * *"] {
        assert!(Cron::parse(line).is_ok(), "{line}");
    }
}

/// The first firings after the start of 2026, a Thursday.
fn first_firings(line: &str) -> Vec<u64> {
    let cron = Cron::parse(line).unwrap();
    let new_year = 1_767_225_600_000;
    std::iter::successors(Some(new_year), |&after| cron.next_after(after, &Zone::default()))
        .skip(1)
        .take(60)
        .collect()
}

#[test]
fn one_meaning_can_be_written_in_many_ways() {
    for (one, other) in [
        ("@hourly", "0 * * * *"),
        ("@DAILY", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 JAN *"),
        ("@annually", "0 0 1 1 *"),
        ("\t00  07 *\t* 7 ", "0 7 * * 0"),
        ("0 0 * jan,MAR Mon-wEd", "0 0 * 1,3 1-3"),
        ("0 0 * * FRI-SUN", "0 0 * * 0,5,6"),
        ("0 0 * * 5-0", "0 0 * * 5-7"),
        ("0 0 * * SUN-SUN", "0 0 * * SUN"),
        ("0 0 * * */2", "0 0 * * 0,2,4,6"),
        ("0 0 */30 * *", "0 0 1,31 * *"),
        ("10-30/10 0 * * *", "10,20,30 0 * * *"),
        ("0 0 l 4,6 *", "0 0 30 4,6 *"),
    ] {
        assert_eq!(first_firings(one), first_firings(other), "{one}");
    }
}

#[test]
fn a_line_is_shown_as_it_was_written_but_for_spaces() {
    for (line, shown) in [("  */5\t9-17  * *   MON-FRI ", "*/5 9-17 * * MON-FRI"), ("@daily", "@daily")] {
        let cron = Cron::parse(line).unwrap();
        assert_eq!((cron.to_string(), format!("{cron:?}")), (shown.to_owned(), format!("{shown:?}")));
        assert_eq!(serde_json::to_string(&cron).unwrap(), format!("{shown:?}"));
        assert_eq!(serde_json::from_str::<Cron>(&format!("{shown:?}")).unwrap(), cron);
    }
    let error = serde_json::from_str::<Cron>("\"0 25 * * *\"").unwrap_err().to_string();
    assert!(error.contains("hour \"25\" is not in 0-23"), "{error}");
}

#[test]
fn a_zone_is_found_by_its_name_and_spelled_as_the_database_does() {
    for (text, name) in
        [("Europe/Berlin", "Europe/Berlin"), ("america/new_york", "America/New_York"), ("utc", "UTC")]
    {
        let zone = Zone::parse(text).unwrap();
        assert_eq!((zone.to_string().as_str(), format!("{zone:?}")), (name, format!("{name:?}")));
        assert_eq!(serde_json::from_str::<Zone>(&serde_json::to_string(&zone).unwrap()).unwrap(), zone);
    }
    assert_eq!(Zone::default(), Zone::parse("UTC").unwrap());
    assert_ne!(Zone::default(), Zone::parse("Europe/Berlin").unwrap());
}

#[test]
fn an_unknown_zone_comes_with_what_was_probably_meant() {
    let plain = "write an IANA name such as Europe/Berlin, or UTC";
    for (text, advice) in [
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("berlin", "did you mean Europe/Berlin?"),
        ("America/New York", "did you mean America/New_York?"),
        ("NewYork", "did you mean America/New_York?"),
        ("Asia/Tokio", "did you mean Asia/Tokyo?"),
        ("CEST", plain),
        ("Bxrlinn", plain),
        ("Erop/Berxin", plain),
        ("Eurxpe/Berlinnn", plain),
        ("+02:00", plain),
        ("Middle/Earth", plain),
        ("../../etc/passwd", plain),
    ] {
        let error = Zone::parse(text).unwrap_err().to_string();
        assert_eq!(error, format!("time zone {text:?} is not known; {advice}"));
    }
    assert_eq!(Zone::parse("").unwrap_err().to_string(), "time zone must not be empty");
    assert_eq!(
        Zone::parse(&"x".repeat(65)).unwrap_err().to_string(),
        "time zone has 65 bytes; the limit is 64"
    );
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(
        any in ".*",
        near in "([-0-9*/,LlA-Z?@# ]{1,8} ){4,5}[-0-9*/,LA-Z]{1,8}",
        fields in prop::collection::vec("[*0-9]([-/,][0-9*]{1,3}){0,2}", 5),
        after: u64,
    ) {
        for text in [any, near, fields.join(" ")] {
            let _ = Zone::parse(&text);
            if let Ok(cron) = Cron::parse(&text) {
                prop_assert_eq!(&Cron::parse(&cron.to_string()).unwrap(), &cron);
                let _ = cron.next_after(after, &Zone::default());
            }
        }
    }
}
