//! The line for jobs, as an interleaving of real sessions: a claim in it takes what those before it leave, without waiting
//! for them to commit, and never what one of them could have had.

use fencehold_core::job::JobId;
use fencehold_test_servers::calls::{OneByOne as _, call, new_job};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture};
use crate::job_transactions::request;
use crate::session::{Session, until};

fn hash(who: &str) -> String {
    format!("md5('{who}')::uuid")
}

/// Stands in line for so many jobs, under a name for this sending.
fn line_up(who: &str, wants: u32) -> String {
    format!("SELECT sending FROM job_line_up('default', ARRAY['q'], {}, {wants}, 600000, 0)", hash(who))
}

/// How many jobs a claim in line is given: as many as it wants, if it may.
fn take(session: &Session, who: &str, sending: &str, wants: u32) -> String {
    let sql = format!(
        "SELECT count(id) FROM job_claim('default', ARRAY['q'], ARRAY[1], ARRAY[0]::bigint[], {wants}, {}, '{who}', 30000,
             NULL, NULL, '{sending}', false)",
        hash(who)
    );
    session.value(&sql)
}

#[test]
fn those_in_line_take_side_by_side_what_those_before_them_leave() {
    let (_fixture, [first, second, third, fourth]) = JobRaceFixture::with_sessions();
    for nth in 2..=4 {
        first.value(&format!("SELECT enqueue_job('q', 'work', '{nth}')"));
    }
    // Four jobs; they want one, one, five and one.
    let one = first.value(&line_up("first", 1));
    let two = second.value(&line_up("second", 1));
    let three = third.value(&line_up("third", 5));
    let four = fourth.value(&line_up("fourth", 1));
    assert_eq!(take(&fourth, "fourth", &four, 1), "0", "seven are wanted before it");
    // The first has not committed: what it has taken is still to be seen, and so is its place.
    first.value("BEGIN");
    assert_eq!(take(&first, "first", &one, 1), "1");
    assert_eq!(take(&second, "second", &two, 1), "1", "there is enough for both");
    assert_eq!(take(&third, "third", &three, 5), "2", "all but what the first is about to have");
    assert_eq!(take(&fourth, "fourth", &four, 1), "0");
    first.value("ROLLBACK");
    assert_eq!(take(&fourth, "fourth", &four, 1), "0", "it is the first one's, who comes again");
    assert_eq!(take(&first, "first", &one, 1), "1");
}

/// Up to 10 000 jobs that those in line want: where there is enough for all of them, no claim joins them.
#[test]
fn where_there_is_more_than_those_in_line_want_a_newcomer_takes_the_rest_at_once() {
    let (_fixture, [worker, newcomer, other]) = JobRaceFixture::with_sessions();
    worker.value("SELECT count(enqueue_job('q', 'work', to_jsonb(n))) FROM generate_series(1, 1149) AS n");
    for who in ["one", "two", "three"] {
        worker.value(&line_up(who, 350));
    }
    let claim = |session: &Session, who: &str, wants: u32| {
        let sql = format!(
            "SELECT count(id) || '|' || min(queue) FILTER (WHERE id IS NULL) FROM job_claim('default', ARRAY['q'], ARRAY[1], ARRAY[0]::bigint[],
                 {wants}, {}, '{who}', 30000, NULL, NULL, NULL, false)",
            hash(who)
        );
        session.value(&sql)
    };
    assert_eq!(claim(&newcomer, "newcomer", 60), "60|0", "1 150 jobs, of which 1 050 are wanted");
    assert_eq!(claim(&newcomer, "second", 60), "40|0", "what those in line leave");
    assert_eq!(claim(&newcomer, "third", 60), "0|-4", "they leave nothing");
    // All of them are notified, for there is enough for each.
    worker.value("CREATE TABLE told (topic text)");
    worker.value(
        "CREATE OR REPLACE FUNCTION tell(topic text) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
             INSERT INTO told VALUES (topic)
         $$",
    );
    other.value("SELECT job_stir('default', ARRAY['q'])");
    assert_eq!(worker.value("SELECT count(*) FROM told"), "3");
}

#[test]
fn whoever_enqueues_learns_that_somebody_is_to_be_told_after_the_commit() {
    let (_fixture, [worker, clerk]) = JobRaceFixture::with_sessions();
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
        clerk.value(&sql)
    };
    assert_eq!([enqueue(1, 1), enqueue(2, 2)], ["1", "1 2"], "no claim is in line");
    worker.value(&line_up("worker", 1));
    assert_eq!([enqueue(3, 1), enqueue(4, 2)], ["0 1", "0 1 2"]);
}

#[test]
fn those_in_line_are_told_by_a_transaction_of_its_own_as_soon_as_there_is_something() {
    let (fixture, [worker]) = JobRaceFixture::with_sessions();
    // Who is notified, and that the jobs can be seen by then.
    worker.value(
        "CREATE TABLE told (queue text, there bigint);
         CREATE OR REPLACE FUNCTION job_tell_lines(p_namespaces text[], p_queues text[]) RETURNS void
         LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
             INSERT INTO told SELECT q, (SELECT count(*) FROM job_ready) FROM unnest(p_queues) AS q
         $$",
    );
    worker.value(&line_up("worker", 1));
    let store = fixture.test_store.store();
    store.enqueue_one(new_job(JobId::from_random(0, [7; 10]), "q", "1")).unwrap();
    let told = || worker.value("SELECT queue || ' ' || there FROM told");
    until("a notification", || !told().is_empty());
    assert_eq!(told(), "q 2", "the one that was there, and the new one");
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
    user.value(&format!("SELECT job_forget(ARRAY(SELECT arrival FROM job_body WHERE id = '{JOB}'))"));
    user.value("BEGIN");
    user.value("SELECT enqueue_job('q', 'work', '\"late\"')");
    let other = fixture.session();
    other.value("SELECT enqueue_job('q', 'work', '\"early\"')");
    assert_eq!(claimed(A), ["\"early\""]);
    user.value("COMMIT");
    assert_eq!(claimed(B), ["\"late\""], "and a claim that does not wait gets it, too");
}

#[test]
fn whoever_lines_up_again_after_it_was_served_leaves_no_place_behind() {
    let (_fixture, [first, second]) = JobRaceFixture::with_sessions();
    let sending = first.value(&line_up("first", 1));
    first.value("BEGIN");
    assert_eq!(take(&first, "first", &sending, 1), "1");
    // The same claim, sent again before that is answered.
    let lining_up = second.run_blocked_by(&first, &line_up("first", 1));
    first.value("COMMIT");
    let (second, sending) = lining_up.ends_well();
    assert_eq!(take(&second, "first", &sending, 1), "1", "it gets what it has");
    assert_eq!(second.value("SELECT count(*) FROM job_waiter"), "0");
}
