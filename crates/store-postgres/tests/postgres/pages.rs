//! Lists in pages, while jobs come and go.

use std::thread;

use fencehold_contract::job::ListEffectsRequest;
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{JOB, JobRaceFixture, run};
use crate::job_transactions::call;
use crate::session::LOOKS_MAX;

const LATER: &str = "run_at => to_timestamp(now_ms() / 1000.0) + interval '10 minutes'";

#[test]
fn jobs_that_go_while_a_page_is_put_together_push_no_others_off_it() {
    let fixture = JobRaceFixture::new();
    let (reader, other) = (fixture.session(), fixture.session());
    // Three more, all for later, so that the clock is asked whether they are due; the reader stops there.
    let mut arrivals = Vec::new();
    for _ in 0..3 {
        run(&other, &format!("SELECT enqueue_job('q', 'work', '1', {LATER})"));
        arrivals.push(run(&other, "SELECT max(arrival) FROM job_body").unwrap());
    }
    run(
        &other,
        "ALTER FUNCTION now_ms() RENAME TO test_now_ms;
         CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$ BEGIN
             IF current_setting('test.stops', true) = 'here' THEN PERFORM pg_advisory_xact_lock(1); END IF;
             RETURN test_now_ms();
         END $$",
    );
    let schema = fixture.test_store.schema;
    let page = format!(
        "SELECT arrival FROM {schema}.job_list('default', 0, NULL, NULL, ARRAY[0]::smallint[], '[]', NULL, NULL, 10, 2)
         WHERE id IS NULL"
    );
    run(&reader, "SET test.stops = 'here'");
    run(&other, "BEGIN");
    run(&other, "SELECT pg_advisory_xact_lock(1)");
    let reader = reader.run_blocked_by(&other, &page);
    run(&other, &format!("SELECT job_forget(ARRAY(SELECT arrival FROM job_body WHERE id = '{JOB}'))"));
    run(&other, "COMMIT");
    let (_, said) = reader.end();
    assert_eq!(said.unwrap()[0][0].as_ref(), Some(&arrivals[0]), "two were looked at, and the next is next");
}

#[test]
fn a_job_that_goes_while_it_is_looked_at_is_not_the_end_of_the_findings() {
    let fixture = JobRaceFixture::new();
    let (store, other) = (fixture.test_store.store(), fixture.session());
    run(&other, "SELECT enqueue_job('q', 'work', '2')");
    run(
        &other,
        "INSERT INTO job_effect (arrival, name, effect) SELECT arrival, 'charge', '{}' FROM job_body",
    );
    run(&other, "BEGIN");
    run(&other, "LOCK TABLE job_past IN ACCESS EXCLUSIVE MODE");
    let page = thread::scope(|scope| {
        let request = ListEffectsRequest { cursor: None, limit: 1 };
        let asking = scope.spawn(|| block_on(store.jobs().unwrap().list_effects(&call(), request)).unwrap());
        let looks = "SELECT count(*) > 0 FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%job_look%'";
        assert!(
            (0..LOOKS_MAX).any(|_| fixture.watch.value(looks) == "t"),
            "it never came to look at the job"
        );
        run(&other, &format!("SELECT job_forget(ARRAY(SELECT arrival FROM job_body WHERE id = '{JOB}'))"));
        run(&other, "COMMIT");
        asking.join().unwrap()
    });
    assert!(page.effects.is_empty() && page.next_cursor.is_some(), "another one is behind it: {page:?}");
}
