//! Lists in pages, while jobs come and go.

use std::thread;

use fencehold_contract::job::ListEffectsRequest;
use fencehold_test_servers::calls::call;
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{JOB, JobRaceFixture};
use crate::session::until;

const LATER: &str = "run_at => to_timestamp(now_ms() / 1000.0) + interval '10 minutes'";

#[test]
fn jobs_that_go_while_a_page_is_put_together_push_no_others_off_it() {
    let (_fixture, [reader, other]) = JobRaceFixture::with_sessions();
    // Three more, all for later, of two kinds, so that the clock is asked whether they are due; the reader stops there.
    let mut arrivals = Vec::new();
    for kind in ["work", "work", "else"] {
        other.value(&format!("SELECT enqueue_job('q', '{kind}', '1', {LATER})"));
        arrivals.push(other.value("SELECT max(arrival) FROM job_body"));
    }
    other.value(
        "ALTER FUNCTION now_ms() RENAME TO test_now_ms;
         CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$ BEGIN
             IF current_setting('test.stops', true) = 'here' THEN PERFORM pg_advisory_xact_lock(1); END IF;
             RETURN test_now_ms();
         END $$",
    );
    let page = "SELECT arrival FROM job_list('default', 0, NULL, 'else', ARRAY[0, 1]::smallint[], '[]', NULL, NULL, 10, 2)
        WHERE id IS NULL";
    reader.value("SET test.stops = 'here'");
    other.value("BEGIN");
    other.value("SELECT pg_advisory_xact_lock(1)");
    let reader = reader.run_blocked_by(&other, page);
    other.value(&format!("SELECT job_forget(ARRAY(SELECT arrival FROM job_body WHERE id = '{JOB}'))"));
    other.value("COMMIT");
    assert_eq!(reader.value(), arrivals[0], "two were looked at, and the next is next");
}

#[test]
fn a_job_that_goes_while_it_is_looked_at_is_not_the_end_of_the_findings() {
    let (fixture, [other]) = JobRaceFixture::with_sessions();
    let store = fixture.test_store.store();
    other.value("SELECT enqueue_job('q', 'work', '2')");
    other
        .value("INSERT INTO job_effect (arrival, name, effect) SELECT arrival, 'charge', '{}' FROM job_body");
    other.value("BEGIN");
    other.value("LOCK TABLE job_past IN ACCESS EXCLUSIVE MODE");
    let page = thread::scope(|scope| {
        let request = ListEffectsRequest { cursor: None, limit: 1 };
        let asking = scope.spawn(|| block_on(store.jobs().unwrap().list_effects(&call(), request)).unwrap());
        let looks = "SELECT count(*) > 0 FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%job_look%'";
        until("it looks at the job", || fixture.watch.value(looks) == "t");
        other.value(&format!("SELECT job_forget(ARRAY(SELECT arrival FROM job_body WHERE id = '{JOB}'))"));
        other.value("COMMIT");
        asking.join().unwrap()
    });
    assert!(page.effects.is_empty() && page.next_cursor.is_some(), "another one is behind it: {page:?}");
}
