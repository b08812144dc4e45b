//! A queue keeps its mode, whatever is put into it; and schedules fire whatever becomes of others.

use std::thread;

use fencehold_contract::CallContext;
use fencehold_contract::job::{QueueMode, ScheduleSpec, SetQueueModeRequest};
use fencehold_core::job::{JobId, JobKind, JobOptions, QueueName, ScheduleName};
use fencehold_core::{Namespace, Owner};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{JobRaceFixture, first, run};
use crate::session::LOOKS_MAX;

fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

fn schedule(name: &str) -> ScheduleSpec {
    ScheduleSpec {
        name: ScheduleName::new(name).unwrap(),
        cron: "0 * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        queue: QueueName::new("reports").unwrap(),
        kind: JobKind::new(name).unwrap(),
        payload: "{}".into(),
        options: JobOptions::default(),
        labels: Vec::new(),
        by: Owner::new("P").unwrap(),
    }
}

/// Sets schedules, and gives the moment at which they are due.
fn set(fixture: &JobRaceFixture, names: &[&str]) -> u64 {
    let store = fixture.test_store.store();
    let set = |name: &&str| block_on(store.jobs().unwrap().set_schedule(&call(), schedule(name))).unwrap();
    let views: Vec<_> = names.iter().map(set).collect();
    views.last().unwrap().next_run_at_ms.unwrap()
}

fn fire(fixture: &JobRaceFixture, due_ms: u64, kind: &str) {
    let now_ms: u64 = fixture
        .test_store
        .value(&format!("SELECT {}.now_ms()", fixture.test_store.schema))
        .parse()
        .unwrap();
    fixture.test_store.pass(due_ms - now_ms);
    let made = format!("SELECT count(*) FROM {}.job_body WHERE kind = '{kind}'", fixture.test_store.schema);
    let fired = (0..LOOKS_MAX).any(|_| {
        thread::yield_now();
        fixture.watch.value(&made) == "1"
    });
    assert!(fired, "{kind} never fired");
}

#[test]
fn a_schedule_that_fires_into_a_paused_or_draining_queue_leaves_it_so() {
    for (mode, kept) in [(QueueMode::Paused, "1"), (QueueMode::Draining, "2")] {
        let fixture = JobRaceFixture::new();
        let due_ms = set(&fixture, &["hourly"]);
        let (queue, by) = (QueueName::new("reports").unwrap(), Owner::new("P").unwrap());
        let store = fixture.test_store.store();
        block_on(
            store
                .jobs()
                .unwrap()
                .set_queue_mode(&call(), SetQueueModeRequest { queue, mode, by }),
        )
        .unwrap();
        fire(&fixture, due_ms, "hourly");
        let mode = format!("SELECT mode FROM {}.job_queue WHERE name = 'reports'", fixture.test_store.schema);
        assert_eq!(fixture.watch.value(&mode), kept);
    }
}

#[test]
fn a_schedule_whose_job_id_is_taken_elsewhere_keeps_no_other_from_firing() {
    let fixture = JobRaceFixture::new();
    let due_ms = set(&fixture, &["first", "second"]);
    let taken = JobId::due(due_ms, "default/first");
    run(
        &fixture.session(),
        &format!("SELECT enqueue_job('q', 'work', '{{}}', namespace => 'other', id => '{taken}')"),
    );
    fire(&fixture, due_ms, "second");
}

#[test]
fn whoever_gets_a_unique_key_makes_its_job_although_the_queue_is_drained_meanwhile() {
    let fixture = JobRaceFixture::new();
    let (early, late, operator) = (fixture.session(), fixture.session(), fixture.session());
    let enqueue = |nth: u8| {
        format!(
            "SELECT job_enqueue_batch('default', ARRAY['019a7afd-1e00-7000-8000-0000000000a{nth}']::uuid[], ARRAY['q'], ARRAY[0]::smallint[],
                ARRAY['work'], ARRAY['{{}}'], ARRAY[NULL]::jsonb[], ARRAY['{{\"unique\": \"u\"}}']::jsonb[], ARRAY[NULL]::bigint[],
                ARRAY[NULL]::bigint[], ARRAY[false], ARRAY['019a7afd-1e00-7000-8000-000000000001']::uuid[],
                ARRAY['019a7afd-1e00-7000-8000-000000000002']::uuid[], ARRAY[60000]::bigint[])"
        )
    };
    run(&early, "BEGIN");
    run(&early, &enqueue(1));
    let late = late.run_blocked_by(&early, &enqueue(2));
    run(&operator, "UPDATE job_queue SET mode = 2 WHERE name = 'q'");
    run(&early, "ROLLBACK");
    first(late.end().1).unwrap();
    let keys = run(&operator, "SELECT count(*) FROM job_unique");
    let jobs = run(&operator, "SELECT count(*) FROM job_unique u JOIN job_body b ON b.id = u.job");
    assert_eq!((keys.as_deref(), jobs.as_deref()), (Some("1"), Some("1")), "no key without its job");
}
