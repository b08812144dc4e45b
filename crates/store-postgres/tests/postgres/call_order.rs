//! The jobs of one call stand in its order, although the fast statement makes those that are plainly new, and the rules decide
//! about the others after it.

use fencehold_contract::job::{NewJob, QueueMode, SetQueueModeRequest, Unique};
use fencehold_core::Owner;
use fencehold_core::job::{JobKind, JobRefusal, QueueName, UniqueKey};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, JOB, JobRaceFixture, claim, run};
use crate::job_transactions::call;

const KEY: &str = "019a7afd-1e00-7000-8000-0000000000ff";

fn id(nth: u8) -> String {
    format!("019a7afd-1e00-7000-8000-0000000000{nth:02x}")
}

fn job(nth: u8, queue: &str, unique: Option<&str>) -> NewJob {
    let (queue, kind) = (QueueName::new(queue).unwrap(), JobKind::new("work").unwrap());
    let unique = unique.map(|key| Unique { key: UniqueKey::new(key).unwrap(), window_ms: 1 });
    NewJob { unique, ..NewJob::new(id(nth).parse().unwrap(), queue, kind, "{}") }
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
        let fixture = JobRaceFixture::new();
        let session = fixture.session();
        run(
            &session,
            &format!("INSERT INTO job_unique VALUES ('default', '{KEY}', '{JOB}', '{KEY}', now_ms())"),
        );
        run(&session, &claim(A));
        fixture.test_store.pass(if run_out { 30_000 } else { 29_999 });
        let expected = (!run_out).then_some("2");
        assert_eq!(run(&session, &made_at_once()).as_deref(), expected, "run out: {run_out}");
    }
}

/// The key is refused to the first, since its queue is being drained, and given to the second: before the third is made.
#[test]
fn of_two_with_one_key_the_second_stands_before_what_comes_after_it() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let jobs = store.jobs().unwrap();
    let (queue, by) = (QueueName::new("drained").unwrap(), Owner::new("P").unwrap());
    block_on(jobs.set_queue_mode(&call(), SetQueueModeRequest { queue, mode: QueueMode::Draining, by }))
        .unwrap();
    let three = vec![job(2, "drained", Some("k")), job(3, "q", Some("k")), job(4, "q", None)];
    let answers = block_on(jobs.enqueue(&call(), three)).unwrap();
    assert!(matches!(answers[0], Err(JobRefusal::QueueDraining { .. })), "{answers:?}");
    let order = "SELECT string_agg(right(id::text, 1), ' ' ORDER BY arrival) FROM job_body";
    assert_eq!(run(&fixture.session(), order).as_deref(), Some("1 3 4"));
}
