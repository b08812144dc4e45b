//! The jobs of one call stand in its order, although the fast statement makes those that are plainly new, and the rules decide
//! about the others after it.

use fencehold_contract::job::{NewJob, QueueMode, SetQueueModeRequest};
use fencehold_core::job::JobRefusal;
use fencehold_test_servers::calls::{call, new_job, owner, queue, unique};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, JOB, JobRaceFixture, claim};

const KEY: &str = "019a7afd-1e00-7000-8000-0000000000ff";

fn id(nth: u8) -> String {
    format!("019a7afd-1e00-7000-8000-0000000000{nth:02x}")
}

fn job(nth: u8, queue: &str) -> NewJob {
    new_job(id(nth).parse().unwrap(), queue, "{}")
}

/// The statement for two jobs of which the first has the key: the numbers of those that it made.
fn made_at_once() -> String {
    format!(
        "SELECT string_agg(e::text, ' ' ORDER BY e) FROM job_enqueue_batch('default', ARRAY['{}', '{}']::uuid[], ARRAY['q', 'q'],
            ARRAY[0, 0]::smallint[], ARRAY['work', 'work'], ARRAY['{{}}', '{{}}'], ARRAY[NULL, NULL]::jsonb[],
            ARRAY[NULL, NULL]::jsonb[], ARRAY[NULL, NULL]::bigint[], ARRAY[NULL, NULL]::bigint[], ARRAY[false, false],
            ARRAY['{KEY}', NULL]::uuid[], ARRAY['{KEY}', NULL]::uuid[], ARRAY[0, NULL]::bigint[]) AS e",
        id(2),
        id(3)
    )
}

/// Whether the job that has the key is over now is for the rules to say, and if so, theirs is the first.
#[test]
fn a_call_waits_for_the_rules_where_the_claim_of_whoever_has_its_key_has_run_out() {
    for run_out in [false, true] {
        let (fixture, [session]) = JobRaceFixture::with_sessions();
        session.value(&format!(
            "INSERT INTO job_unique VALUES ('default', '{KEY}', '{JOB}', '{KEY}', now_ms())"
        ));
        session.value(&claim(A));
        fixture.test_store.pass(if run_out { 30_000 } else { 29_999 });
        let expected = if run_out { "" } else { "2" };
        assert_eq!(session.value(&made_at_once()), expected, "run out: {run_out}");
    }
}

/// The key is refused to the first, since its queue is being drained, and given to the second: before the third is made.
#[test]
fn of_two_with_one_key_the_second_stands_before_what_comes_after_it() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let jobs = store.jobs().unwrap();
    let order = SetQueueModeRequest { queue: queue("drained"), mode: QueueMode::Draining, by: owner("P") };
    block_on(jobs.set_queue_mode(&call(), order)).unwrap();
    let with_key = |job| NewJob { unique: unique("k", 1), ..job };
    let three = vec![with_key(job(2, "drained")), with_key(job(3, "q")), job(4, "q")];
    let answers = block_on(jobs.enqueue(&call(), three)).unwrap();
    assert!(matches!(answers[0], Err(JobRefusal::QueueDraining { .. })), "{answers:?}");
    let order = "SELECT string_agg(right(id::text, 1), ' ' ORDER BY arrival) FROM job_body";
    assert_eq!(fixture.session().value(order), "1 3 4");
}
