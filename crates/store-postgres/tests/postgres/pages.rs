//! Lists in pages, while jobs come and go.

use std::thread;

use fencehold_contract::ListLeasesRequest;
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

#[test]
fn a_page_looks_at_few_leases_first_and_at_more_where_few_pass() {
    let (fixture, [other]) = JobRaceFixture::with_sessions();
    let store = fixture.test_store.store();
    other.value(
        "INSERT INTO lease_key (namespace, key, counter, look_at_ms)
         SELECT 'default', 'key/' || n, 1, 9000000000000000 FROM generate_series(1, 300) AS n;
         CREATE TABLE looked (nth serial, looks integer);
         ALTER FUNCTION lease_list RENAME TO test_lease_list;
         CREATE FUNCTION lease_list(
             of_namespace text, of_prefix text, of_owner text, of_task text, free_too boolean, after_id bigint, most integer,
             looks integer, of_task_prefix text DEFAULT NULL, OUT leases jsonb, OUT next bigint)
         LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN
             INSERT INTO looked (looks) VALUES (looks);
             SELECT t.leases, t.next INTO leases, next
             FROM test_lease_list(of_namespace, of_prefix, of_owner, of_task, free_too, after_id, most, looks, of_task_prefix) AS t;
         END $$",
    );
    let page = |prefix: Option<&str>| {
        let prefix = prefix.map(str::to_owned);
        let request =
            ListLeasesRequest { prefix, include_free: true, limit: 10, ..ListLeasesRequest::default() };
        block_on(store.list(&call(), request)).unwrap()
    };
    let looked = || {
        other.value("WITH seen AS (DELETE FROM looked RETURNING *) SELECT string_agg(looks::text, ' ' ORDER BY nth) FROM seen")
    };
    let full = page(None);
    assert_eq!((full.leases.len(), full.next_cursor.is_some()), (10, true));
    assert_eq!(looked(), "11");
    let some = page(Some("key/2"));
    assert_eq!((some.leases.len(), some.next_cursor.is_some()), (10, true));
    assert_eq!(looked(), "11 110");
    let none = page(Some("other/"));
    assert_eq!((none.leases.len(), none.next_cursor), (0, None));
    assert_eq!(looked(), "11 110 1100");
}
