//! Counts of events: each is counted once, whether it is still kept or not.

use std::collections::BTreeMap;

use crate::job_races::JobRaceFixture;
use crate::session::Session;

fn counts(session: &Session) -> BTreeMap<String, u64> {
    let counts = session.value("SELECT jsonb_object_agg(kind, count) FROM event_counts()");
    serde_json::from_str(&counts).unwrap()
}

fn stats(session: &Session) -> String {
    session.value("SELECT complete || ' ' || counts FROM lease_stats('default', 3600000)")
}

/// More events than are kept: those that go are in the counts from the same moment on.
#[test]
fn an_event_is_counted_once_before_and_after_it_is_removed() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    let before = counts(&session);
    assert_eq!(before.get("job_enqueued"), Some(&1), "{before:?}");
    let ended = |how: &str, count: u64| {
        let fact = format!(
            r#"{{"lease_ended": {{"token": 1, "owner": "A", "task": null, "how": "{how}", "by": null, "reason": null}}}}"#
        );
        format!(
            "INSERT INTO event (at_ms, namespace, key, fact)
                SELECT now_ms(), 'default', 'k/' || n, '{fact}' FROM generate_series(1, {count}) AS n"
        )
    };
    session.value(&ended("expired", 20_000));
    session.value(&ended("released", 10_000));
    session.value("INSERT INTO event (at_ms, namespace, key, fact) VALUES (now_ms() - 7200000, 'default', 'k/old', \
        '{\"lease_ended\": {\"token\": 1, \"owner\": \"A\", \"task\": null, \"how\": \"revoked\", \"by\": null, \"reason\": null}}')",
    );
    let all = counts(&session);
    let of = |kind: &str| all.get(kind).copied().unwrap_or(0);
    assert_eq!(
        [
            of("lease_ended/expired"),
            of("lease_ended/released"),
            of("lease_ended/revoked"),
            of("job_enqueued")
        ],
        [20_000, 10_000, 1, 1]
    );
    let lately = r#"true {"expired": 20000, "released": 10000}"#;
    assert_eq!(stats(&session), lately);
    session.value("SELECT events_remove()");
    let left = session.number("SELECT count(*) FROM event");
    assert!(left <= 16_384, "{left} are left");
    assert_eq!(counts(&session), all, "the counts are the same");
    assert_eq!(stats(&session), lately);
    assert_eq!(session.value("SELECT counts::text FROM lease_stats('elsewhere', 3600000)"), "{}");
}

/// Counts name the newest event, and none while one with a lower number may still come: a replay up to the newest would not have it.
#[test]
fn counts_name_an_event_where_all_before_it_are_counted() {
    let fixture = JobRaceFixture::new();
    let (slow, session) = (fixture.session(), fixture.session());
    let counted = || {
        session.value(
            "SELECT coalesce(s.event_seq, 0) || ' ' || coalesce(q.event_seq, 0) || ' ' || coalesce(t.event_seq, 0) || ' ' || s.counts
             FROM lease_ended_counts('default', 3600000) s, job_queue_list('default') q, event_totals() t",
        )
    };
    let ended = "INSERT INTO event (at_ms, namespace, key, fact) VALUES (60000 * (now_ms() / 60000), 'default', 'k', \
        '{\"lease_ended\": {\"token\": 1, \"owner\": \"A\", \"task\": null, \"how\": \"released\", \"by\": null, \"reason\": null}}')";
    let newest = || session.value("SELECT events_newest()");
    let all_of = |seq: &str| format!("{seq} {seq} {seq} ");
    assert!(counted().starts_with(&all_of(&newest())), "{}", counted());
    slow.value("BEGIN");
    slow.value(ended);
    session.value(ended);
    assert!(counted().starts_with("0 0 0 "), "an event with a lower number is still to come: {}", counted());
    assert!(
        counted().ends_with(", \"released\", 1]]"),
        "what is there is counted all the same: {}",
        counted()
    );
    slow.value("COMMIT");
    assert!(counted().starts_with(&all_of(&newest())), "{}", counted());
    assert!(counted().ends_with(", \"released\", 2]]"), "{}", counted());
}

/// A completion in a row of many, and a late one, count as what they are.
#[test]
fn rows_of_many_events_count_each_of_them() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    let row = |what: u8, flags: &str| {
        format!(
            "INSERT INTO job_event (last_seq, at_ms, namespace, what, seqs, ids, names, flags)
                SELECT max(n), now_ms(), 'default', {what}, array_agg(n ORDER BY n), array_agg(gen_random_uuid()), ARRAY['A'], {flags}
                FROM (SELECT nextval('event_seq') AS n FROM generate_series(1, 3)) AS s"
        )
    };
    for (what, flags) in [(2, "NULL"), (3, "NULL"), (3, "ARRAY[true, false, true]")] {
        session.value(&row(what, flags));
    }
    let counts = counts(&session);
    let of = |kind: &str| counts.get(kind).copied().unwrap_or(0);
    assert_eq!(of("job_claimed"), 3);
    assert_eq!(of("job_attempt_ended/completed"), 4);
    assert_eq!(of("job_attempt_ended/completed_late"), 2);
}
