//! Schedules: each firing makes one job, however many schedulers there are and however long they slept.

use super::prelude::*;

const MINUTE_MS: u64 = 60_000;

fn name(text: &str) -> ScheduleName {
    ScheduleName::new(text).expect("a name")
}

pub(super) fn spec(cron: &str) -> ScheduleSpec {
    ScheduleSpec {
        name: name("nightly"),
        cron: cron.to_owned(),
        time_zone: "UTC".to_owned(),
        queue: queue("q"),
        kind: kind("report"),
        payload: "{\"of\":\"yesterday\"}".into(),
        options: terms(),
        labels: vec![label("from", "schedule")],
        by: owner("P"),
    }
}

pub(super) fn try_set(g: &Fixture, spec: &ScheduleSpec) -> Result<ScheduleView, StoreError> {
    g.drive(jobs_of(&*g.test_store.store()).set_schedule(&g.call, spec.clone()))
}

pub(super) fn set(g: &Fixture, spec: &ScheduleSpec) -> ScheduleView {
    try_set(g, spec).expect("a good schedule")
}

fn all(g: &Fixture) -> Vec<ScheduleView> {
    g.drive(jobs_of(&*g.test_store.store()).list_schedules(&g.call))
        .expect("schedules")
}

pub(super) fn remove(g: &Fixture) -> bool {
    g.drive(jobs_of(&*g.test_store.other()).delete_schedule(&g.call, name("nightly"), owner("P")))
        .expect("an answer")
}

/// What was fired so far.
fn fired(g: &Fixture) -> Vec<JobId> {
    let filter = JobFilter { kind: Some(kind("report")), ..JobFilter::default() };
    g.jobs_where(&filter, 100).into_iter().map(|job| job.id).collect()
}

/// To the moment at which a schedule fires next.
fn pass_to_next(g: &Fixture, view: &ScheduleView) {
    let probe = g.put("probe");
    let now_ms = g.detail(probe).job.enqueued_at_ms;
    g.pass(view.next_run_at_ms.expect("a schedule that fires") - now_ms);
}

/// A schedule fires at its moment, once, and its job is what the schedule says.
pub(super) fn a_schedule_fires_once_at_its_moment(g: &Fixture) {
    let view = set(g, &spec("*/5 * * * *"));
    assert_eq!((view.last_run_at_ms, all(g)), (None, vec![view.clone()]));
    let next_ms = view.next_run_at_ms.expect("a schedule that fires");
    assert!(next_ms.is_multiple_of(5 * MINUTE_MS), "on the minute");
    assert!(fired(g).is_empty());
    pass_to_next(g, &view);
    until("a firing", || !fired(g).is_empty());
    let work = g.work("q", "A");
    assert_eq!((work.job.kind.as_str(), &*work.job.payload), ("report", "{\"of\":\"yesterday\"}"));
    assert_eq!((work.job.options, &work.job.labels[..]), (terms(), &[label("from", "schedule")][..]));
    assert_eq!(fired(g).len(), 1);
    let after = all(g).remove(0);
    assert_eq!((after.last_run_at_ms, after.next_run_at_ms), (Some(next_ms), Some(next_ms + 5 * MINUTE_MS)));
    g.pass(5 * MINUTE_MS);
    until("the next firing", || fired(g).len() == 2);
    if g.has(TestCapability::TellsEvents) {
        let fired = |event: &Event| matches!(event.data, EventData::ScheduleFired { .. });
        assert_eq!(g.events().into_iter().filter(fired).count(), 2);
    }
}

/// Moments that were missed are made up for by one firing, not by a herd.
pub(super) fn what_was_missed_is_fired_once(g: &Fixture) {
    let view = set(g, &spec("* * * * *"));
    g.pass(100 * MINUTE_MS);
    until("a firing", || !fired(g).is_empty());
    assert_eq!(fired(g).len(), 1);
    let after = all(g).remove(0);
    assert_eq!(after.last_run_at_ms, view.next_run_at_ms, "for the moment that was missed");
    assert!(after.next_run_at_ms > view.next_run_at_ms.map(|ms| ms + 99 * MINUTE_MS), "and on from now");
}

/// A wall clock that is set back fires nothing a second time.
pub(super) fn a_wall_clock_set_back_fires_nothing_twice(g: &Fixture) {
    let view = set(g, &spec("*/5 * * * *"));
    pass_to_next(g, &view);
    until("a firing", || fired(g).len() == 1);
    g.test_store.shift_wall(-20 * 60_000);
    // Set anew in the meantime, so that its moments are computed anew.
    remove(g);
    let again = set(g, &spec("*/5 * * * *"));
    assert!(again.next_run_at_ms < view.next_run_at_ms);
    for _ in 0..3 {
        g.pass(5 * MINUTE_MS);
    }
    until("the moments that never were", || fired(g).len() >= 2);
    g.pass(5 * MINUTE_MS + 1);
    until("a schedule that went on", || all(g)[0].last_run_at_ms >= view.next_run_at_ms);
    let at_the_moment = |id: &JobId| g.detail(*id).job.enqueued_at_ms >= view.next_run_at_ms.unwrap_or(0);
    assert_eq!(fired(g).iter().filter(|id| at_the_moment(id)).count(), 1, "each moment once");
}

/// Two set the same schedule at once, again and again: there is one, and it fires once.
pub(super) fn the_same_schedule_set_by_many_fires_once(g: &Fixture) {
    let views = at_once(4, |_| set(g, &spec("*/5 * * * *")));
    assert!(views.iter().all(|view| view.next_run_at_ms == views[0].next_run_at_ms));
    assert_eq!(all(g).len(), 1);
    pass_to_next(g, &views[0]);
    at_once(4, |_| set(g, &spec("*/5 * * * *")));
    until("a firing", || !fired(g).is_empty());
    at_once(4, |_| set(g, &spec("*/5 * * * *")));
    assert_eq!(fired(g).len(), 1);
}

/// A schedule that was changed fires by its new line, and one that was removed no more.
pub(super) fn a_schedule_can_be_changed_and_removed(g: &Fixture) {
    let hourly = set(g, &spec("0 * * * *"));
    let often = set(g, &ScheduleSpec { queue: queue("r"), ..spec("* * * * *") });
    assert!(often.next_run_at_ms <= hourly.next_run_at_ms);
    assert_eq!(all(g), std::slice::from_ref(&often));
    g.pass(MINUTE_MS);
    until("a firing", || g.count("r", JobState::Queued) == 1);
    assert!(remove(g));
    assert!(!remove(g), "there is none any more");
    g.pass(200 * MINUTE_MS);
    assert_eq!((fired(g).len(), all(g).len()), (1, 0));
}

/// A bad cron line is refused with the field that is wrong; a bad zone is, too.
pub(super) fn a_bad_cron_line_says_which_field_is_wrong(g: &Fixture) {
    let lines = [
        ("61 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of week"),
    ];
    for (line, field) in lines {
        match try_set(g, &spec(line)) {
            Err(StoreError::BadInput(bad)) => assert!(bad.to_string().contains(field), "{line}: {bad}"),
            other => panic!("{line}: {other:?}"),
        }
    }
    let never = ["", "* * * *", "* * * * * *", "0 0 30 2 *", "@sometimes"];
    let zones = ["", "Atlantis/Capital", "+25:00"];
    let bad = never.iter().map(|line| spec(line));
    let bad = bad.chain(
        zones
            .iter()
            .map(|zone| ScheduleSpec { time_zone: (*zone).to_owned(), ..spec("* * * * *") }),
    );
    for spec in bad {
        let answer = try_set(g, &spec);
        assert_matches!(answer, Err(StoreError::BadInput(_)), "{:?} in {:?}", spec.cron, spec.time_zone);
    }
    assert!(all(g).is_empty());
}

/// A schedule whose jobs could not be enqueued is refused when it is made, not when it fires.
pub(super) fn a_schedule_of_bad_jobs_is_refused(g: &Fixture) {
    let mut hopeless = terms();
    hopeless.max_failures = 0;
    for bad in [
        ScheduleSpec { payload: "{".into(), ..spec("* * * * *") },
        ScheduleSpec { options: hopeless, ..spec("* * * * *") },
        ScheduleSpec { queue: QueueName::operations(), ..spec("* * * * *") },
    ] {
        assert_matches!(try_set(g, &bad), Err(StoreError::BadInput(_)));
    }
    assert!(all(g).is_empty());
}

/// The id of the next firing can be computed; a tenant that takes it for a job of its own stops no one else's schedule,
/// and certainly not the store. (A server does not even accept such an id.)
pub(super) fn a_schedule_fires_whatever_another_namespace_has_taken(g: &Fixture) {
    let view = set(g, &spec("*/5 * * * *"));
    let due_ms = view.next_run_at_ms.expect("a schedule that fires");
    let id = JobId::due(due_ms, &format!("{}/nightly", g.call.namespace));
    let other = g.in_namespace("other");
    match other.enqueue(NewJob { id, ..other.job_for("q") }) {
        Ok(_) | Err(JobRefusal::BadInput(_)) => {}
        Err(refusal) => panic!("{refusal:?}"),
    }
    pass_to_next(g, &view);
    until("a firing", || !fired(g).is_empty());
    assert_eq!(fired(g).len(), 1);
    g.work("q", "A");
}
