//! A queue keeps its mode, whatever is put into it; and schedules fire whatever becomes of others.

use fencehold_contract::job::{QueueMode, SetQueueModeRequest};
use fencehold_core::job::JobId;
use fencehold_test_servers::calls::{call, owner, queue, schedule_spec};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::JobRaceFixture;
use crate::session::until;

/// Sets schedules, and gives the moment at which they are due.
fn set(fixture: &JobRaceFixture, names: &[&str]) -> u64 {
    let store = fixture.test_store.store();
    let set = |name: &&str| {
        let spec = schedule_spec(name, "0 * * * *", "reports");
        block_on(store.jobs().unwrap().set_schedule(&call(), spec)).unwrap()
    };
    let views: Vec<_> = names.iter().map(set).collect();
    views.last().unwrap().next_run_at_ms.unwrap()
}

fn fire(fixture: &JobRaceFixture, due_ms: u64, kind: &str) {
    let now_ms: u64 = fixture.watch.value("SELECT now_ms()").parse().unwrap();
    fixture.test_store.pass(due_ms - now_ms);
    let made = format!("SELECT count(*) FROM job_body WHERE kind = '{kind}'");
    until(&format!("{kind} fires"), || fixture.watch.value(&made) == "1");
}

#[test]
fn a_schedule_that_fires_into_a_paused_or_draining_queue_leaves_it_so() {
    for (mode, kept) in [(QueueMode::Paused, "1"), (QueueMode::Draining, "2")] {
        let fixture = JobRaceFixture::new();
        let due_ms = set(&fixture, &["hourly"]);
        let store = fixture.test_store.store();
        let order = SetQueueModeRequest { queue: queue("reports"), mode, by: owner("P") };
        block_on(store.jobs().unwrap().set_queue_mode(&call(), order)).unwrap();
        fire(&fixture, due_ms, "hourly");
        assert_eq!(fixture.watch.value("SELECT mode FROM job_queue WHERE name = 'reports'"), kept);
    }
}

#[test]
fn a_schedule_whose_job_id_is_taken_elsewhere_keeps_no_other_from_firing() {
    let fixture = JobRaceFixture::new();
    let due_ms = set(&fixture, &["first", "second"]);
    let taken = JobId::due(due_ms, "default/first");
    fixture
        .session()
        .value(&format!("SELECT enqueue_job('q', 'work', '{{}}', namespace => 'other', id => '{taken}')"));
    fire(&fixture, due_ms, "second");
}

#[test]
fn whoever_gets_a_unique_key_makes_its_job_although_the_queue_is_drained_meanwhile() {
    let (_fixture, [early, late, operator]) = JobRaceFixture::with_sessions();
    let enqueue = |nth: u8| {
        format!(
            "SELECT job_enqueue_batch('default', ARRAY['019a7afd-1e00-7000-8000-0000000000a{nth}']::uuid[], ARRAY['q'], ARRAY[0]::smallint[],
                ARRAY['work'], ARRAY['{{}}'], ARRAY[NULL]::jsonb[], ARRAY['{{\"unique\": \"u\"}}']::jsonb[], ARRAY[NULL]::bigint[],
                ARRAY[NULL]::bigint[], ARRAY[false], ARRAY['019a7afd-1e00-7000-8000-000000000001']::uuid[],
                ARRAY['019a7afd-1e00-7000-8000-000000000002']::uuid[], ARRAY[60000]::bigint[])"
        )
    };
    early.value("BEGIN");
    early.value(&enqueue(1));
    let late = late.run_blocked_by(&early, &enqueue(2));
    operator.value("UPDATE job_queue SET mode = 2 WHERE name = 'q'");
    early.value("ROLLBACK");
    late.value();
    let keys = [
        "SELECT count(*) FROM job_unique",
        "SELECT count(*) FROM job_unique u JOIN job_body b ON b.id = u.job",
    ];
    assert_eq!(keys.map(|sql| operator.value(sql)), ["1", "1"], "no key without its job");
}
