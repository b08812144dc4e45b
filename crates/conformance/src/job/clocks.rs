//! The wall clock is set forward and back: what waits for elapsed time does not notice, and what waits for a moment of the
//! calendar has it once.

use super::prelude::*;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 365 * 24 * HOUR_MS;

/// R42: ready is ready, also after a restart; and everything else in the queue is served.
pub(super) fn a_job_that_is_ready_stays_ready_when_the_wall_clock_is_set_back(g: &Fixture) {
    let now_ms = g.detail(g.put("probe")).job.enqueued_at_ms;
    let first = g.put_with(NewJob { when: When::At { wall_ms: now_ms + 5_000 }, ..g.job_for("q") });
    g.pass(5_000);
    until("a job that is ready", || g.state(first) == JobState::Queued);
    g.test_store.shift_wall(-HOUR_MS);
    let mut expected = vec![first];
    expected.extend(g.put_many("q", 3));
    g.restart_if_it_can();
    assert_eq!(g.state(first), JobState::Queued, "its moment has come");
    let claimed: Vec<JobId> = (0..4).map(|_| g.work("q", "A").job.id).collect();
    assert_eq!(claimed, expected);
}

/// A delay is counted by the store's clock: it ends neither early nor late.
pub(super) fn a_delay_is_elapsed_time(g: &Fixture) {
    let id = g.put_with(NewJob { when: When::After { delay_ms: MINUTE_MS }, ..g.job_for("q") });
    g.test_store.shift_wall(HOUR_MS);
    g.pass(MINUTE_MS - 1);
    assert!(g.try_work("q", "A").is_none(), "too early");
    g.test_store.shift_wall(-2 * HOUR_MS);
    g.pass(1);
    assert_eq!(g.work("q", "A").job.id, id);
}

/// A wall clock that is set forward frees no unique key.
pub(super) fn the_window_of_a_unique_key_is_elapsed_time(g: &Fixture) {
    let job = NewJob { unique: unique("invoice-42", 10 * MINUTE_MS), ..g.job_for("q") };
    let first = g.put_with(job.clone());
    let work = g.work("q", "A");
    g.complete(&work).expect("a live claim");
    g.test_store.shift_wall(YEAR_MS);
    g.pass(2 * MINUTE_MS);
    let again = g.enqueue(NewJob { id: fresh_id().0, ..job }).expect("an answer");
    assert_eq!((again.job_id, again.existed), (first, true));
}

fn schedules(g: &Fixture) -> Vec<ScheduleView> {
    g.drive(jobs_of(&*g.test_store.store()).list_schedules(&g.call))
        .expect("schedules")
}

/// A wall clock that is a year ahead for a moment silences no schedule; and the same schedule, set again, has its next
/// moment.
pub(super) fn a_schedule_goes_on_after_the_wall_clock_was_ahead(g: &Fixture) {
    let spec = ScheduleSpec {
        name: ScheduleName::new("beat").expect("a name"),
        cron: "* * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        queue: queue("q"),
        kind: kind("beat"),
        payload: "1".into(),
        options: terms(),
        labels: Vec::new(),
        by: owner("P"),
    };
    let set = || {
        g.drive(jobs_of(&*g.test_store.store()).set_schedule(&g.call, spec.clone()))
            .expect("a schedule")
    };
    let fired = || {
        let filter = JobFilter { kind: Some(kind("beat")), ..JobFilter::default() };
        g.jobs_where(&filter, 100).len()
    };
    let first_ms = set().next_run_at_ms.expect("a schedule that fires");
    for restarts in [false, true] {
        let before = fired();
        g.test_store.shift_wall(YEAR_MS);
        g.pass(1);
        until("a firing while the clock is ahead", || fired() > before);
        g.test_store.shift_wall(-YEAR_MS);
        if restarts && g.has(TestCapability::Restarts) {
            g.test_store.restart();
        }
        let next_ms = set().next_run_at_ms.expect("a schedule that fires");
        assert!(next_ms < first_ms + 60 * MINUTE_MS, "{next_ms} is not soon after {first_ms}");
        assert_eq!(schedules(g)[0].next_run_at_ms, Some(next_ms));
        let before = fired();
        // The moment that was fired while the clock was ahead is not fired again; the next one is.
        until("a schedule that goes on", || {
            g.pass(MINUTE_MS);
            fired() > before
        });
    }
}

/// A wall clock that is set forward has no finished job forgotten.
pub(super) fn finished_jobs_are_kept_for_elapsed_time(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.complete(&work).expect("a live claim");
    g.test_store.shift_wall(YEAR_MS);
    for _ in 0..5 {
        g.pass(2 * MINUTE_MS);
        assert_eq!(g.state(work.job.id), JobState::Completed);
    }
    g.test_store.shift_wall(-2 * YEAR_MS);
    g.pass(FINISHED_KEPT_MS);
    until("a finished job that is gone", || {
        g.pass(MINUTE_MS);
        g.find(work.job.id).is_none()
    });
}
