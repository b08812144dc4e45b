//! The line for jobs, as an interleaving of real sessions: a claim in it takes what those before it leave, without waiting
//! for them to commit, and never what one of them could have had.

use fencehold_contract::job::NewJob;
use fencehold_core::job::{JobId, JobKind, QueueName};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture, run};
use crate::job_transactions::{call, request};
use crate::session::{LOOKS_MAX, Session};

fn hash(who: &str) -> String {
    format!("md5('{who}')::uuid")
}

/// Stands in line for so many jobs, under a name for this sending.
fn line_up(session: &Session, who: &str, wants: u32) -> String {
    let sql =
        format!("SELECT sending FROM job_line_up('default', ARRAY['q'], {}, {wants}, 600000, 0)", hash(who));
    run(session, &sql).unwrap()
}

/// How many jobs a claim in line is given: as many as it wants, if it may.
fn take(session: &Session, who: &str, sending: &str, wants: u32) -> String {
    let sql = format!(
        "SELECT count(id) FROM job_claim('default', ARRAY['q'], ARRAY[1], ARRAY[0]::bigint[], {wants}, {}, '{who}', 30000,
             NULL, NULL, '{sending}', false)",
        hash(who)
    );
    run(session, &sql).unwrap()
}

#[test]
fn those_in_line_take_side_by_side_what_those_before_them_leave() {
    let fixture = JobRaceFixture::new();
    let sessions = [(); 4].map(|()| fixture.session());
    let [first, second, third, fourth] = &sessions;
    for nth in 2..=4 {
        run(first, &format!("SELECT enqueue_job('q', 'work', '{nth}')"));
    }
    // Four jobs; they want one, one, five and one.
    let one = line_up(first, "first", 1);
    let two = line_up(second, "second", 1);
    let three = line_up(third, "third", 5);
    let four = line_up(fourth, "fourth", 1);
    assert_eq!(take(fourth, "fourth", &four, 1), "0", "seven are wanted before it");
    // The first has not committed: what it has taken is still to be seen, and so is its place.
    run(first, "BEGIN");
    assert_eq!(take(first, "first", &one, 1), "1");
    assert_eq!(take(second, "second", &two, 1), "1", "there is enough for both");
    assert_eq!(take(third, "third", &three, 5), "2", "all but what the first is about to have");
    assert_eq!(take(fourth, "fourth", &four, 1), "0");
    run(first, "ROLLBACK");
    assert_eq!(take(fourth, "fourth", &four, 1), "0", "it is the first one's, who comes again");
    assert_eq!(take(first, "first", &one, 1), "1");
}

#[test]
fn whoever_enqueues_learns_that_somebody_is_to_be_told_after_the_commit() {
    let fixture = JobRaceFixture::new();
    let [worker, clerk] = [(); 2].map(|()| fixture.session());
    let enqueue = |nth: u8, many: u8| {
        let ids: Vec<String> = (0..many)
            .map(|of| format!("'019a7afd-1e00-7000-8000-0000000{nth:02}0{of:02}'"))
            .collect();
        let sql = format!(
            "SELECT string_agg(e::text, ' ' ORDER BY e) FROM job_enqueue_batch('default', ARRAY[{}]::uuid[], array_fill('q'::text, ARRAY[{many}]),
                 array_fill(0::smallint, ARRAY[{many}]), array_fill('work'::text, ARRAY[{many}]), array_fill('{{}}'::text, ARRAY[{many}]),
                 array_fill(NULL::jsonb, ARRAY[{many}]), array_fill(NULL::jsonb, ARRAY[{many}]), array_fill(NULL::bigint, ARRAY[{many}]),
                 array_fill(NULL::bigint, ARRAY[{many}]), array_fill(false, ARRAY[{many}]), NULL, NULL, NULL) AS e",
            ids.join(", ")
        );
        run(&clerk, &sql).unwrap()
    };
    assert_eq!([enqueue(1, 1), enqueue(2, 2)], ["1", "1 2"], "no claim is in line");
    line_up(&worker, "worker", 1);
    assert_eq!([enqueue(3, 1), enqueue(4, 2)], ["0 1", "0 1 2"]);
}

#[test]
fn those_in_line_are_told_by_a_transaction_of_its_own_as_soon_as_there_is_something() {
    let fixture = JobRaceFixture::new();
    let worker = fixture.session();
    // Who is notified, and that the jobs can be seen by then.
    run(
        &worker,
        "CREATE TABLE told (queue text, there bigint);
         CREATE OR REPLACE FUNCTION job_tell_lines(p_namespaces text[], p_queues text[]) RETURNS void
         LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
             INSERT INTO told SELECT q, (SELECT count(*) FROM job_ready) FROM unnest(p_queues) AS q
         $$",
    );
    let store = fixture.test_store.store();
    let jobs = store.jobs().unwrap();
    let enqueue = || {
        let job = NewJob::new(
            JobId::from_random(0, [7; 10]),
            QueueName::new("q").unwrap(),
            JobKind::new("work").unwrap(),
            "1",
        );
        block_on(jobs.enqueue(&call(), vec![job])).unwrap().remove(0).unwrap();
    };
    line_up(&worker, "worker", 1);
    enqueue();
    let told = (0..LOOKS_MAX).find_map(|_| {
        let told = fixture
            .test_store
            .admin(&format!("SELECT queue || ' ' || there FROM {}.told", fixture.test_store.schema));
        told.first().and_then(|row| row[0].clone())
    });
    assert_eq!(told.as_deref(), Some("q 2"), "the one that was there, and the new one");
}

/// A job has its place when it is enqueued, and is seen when that is committed: it may come into a place that was searched before.
#[test]
fn a_job_that_is_committed_late_is_found_where_it_is() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let claimed = |who| {
        let claimed = block_on(store.jobs().unwrap().claim(&call(), request(who))).unwrap();
        claimed.jobs.iter().map(|job| job.payload.to_string()).collect::<Vec<_>>()
    };
    let user = fixture.session();
    run(&user, &format!("SELECT job_forget(ARRAY(SELECT arrival FROM job_body WHERE id = '{JOB}'))"));
    run(&user, "BEGIN");
    run(&user, "SELECT enqueue_job('q', 'work', '\"late\"')");
    let other = fixture.session();
    run(&other, "SELECT enqueue_job('q', 'work', '\"early\"')");
    assert_eq!(claimed(A), ["\"early\""]);
    run(&user, "COMMIT");
    assert_eq!(claimed(B), ["\"late\""], "and a claim that does not wait gets it, too");
}

#[test]
fn whoever_lines_up_again_after_it_was_served_leaves_no_place_behind() {
    let fixture = JobRaceFixture::new();
    let (first, second) = (fixture.session(), fixture.session());
    let sending = line_up(&first, "first", 1);
    run(&first, "BEGIN");
    assert_eq!(take(&first, "first", &sending, 1), "1");
    // The same claim, sent again before that is answered.
    let again =
        format!("SELECT sending FROM job_line_up('default', ARRAY['q'], {}, 1, 600000, 0)", hash("first"));
    let lining_up = second.run_blocked_by(&first, &again);
    run(&first, "COMMIT");
    let (second, said) = lining_up.end();
    let sending = said.unwrap()[0][0].clone().unwrap();
    assert_eq!(take(&second, "first", &sending, 1), "1", "it gets what it has");
    assert_eq!(run(&second, "SELECT count(*) FROM job_waiter").as_deref(), Some("0"));
}
