//! Finding jobs, acting on all that match, waiting for one, and forgetting them after their time.

use std::cell::OnceCell;

use super::prelude::*;

fn ids(g: &Fixture, filter: &JobFilter) -> Vec<JobId> {
    g.jobs_where(filter, 100).into_iter().map(|job| job.id).collect()
}

fn matching(
    g: &Fixture,
    filter: JobFilter,
    cursor: Option<u64>,
    limit: usize,
    dry_run: bool,
) -> ChangeJobBatchResponse {
    let selector =
        if filter == JobFilter::default() { JobSelector::All {} } else { JobSelector::Filter { filter } };
    let action = JobAction::Cancel { reason: None, force: false };
    g.act_raw(ChangeJobsRequest { selector, action, by: owner("P"), dry_run, cursor, limit })
        .expect("an action that is answered")
}

/// A list shows what its filters ask for, and nothing else.
pub(super) fn a_list_shows_what_its_filters_ask_for(g: &Fixture) {
    let labelled = NewJob { labels: vec![label("tenant", "acme"), label("tier", "gold")], ..g.job_for("q") };
    let done = g.put_with(labelled);
    g.complete(&g.work("q", "A")).expect("a live claim");
    let running = g.put_with(NewJob { labels: vec![label("tenant", "acme")], ..g.job_for("q") });
    g.work("q", "A");
    let mail =
        g.put_with(NewJob { kind: kind("mail"), payload: "{\"to\":\"bob\"}".into(), ..g.job_for("q") });
    let other = g.put("r");
    let any = JobFilter::default;
    let cases = [
        ("nothing", any(), vec![done, running, mail, other]),
        ("queue", JobFilter { queue: Some(queue("q")), ..any() }, vec![done, running, mail]),
        ("kind", JobFilter { kind: Some(kind("mail")), ..any() }, vec![mail]),
        ("state", JobFilter { states: vec![JobState::Queued], ..any() }, vec![mail, other]),
        (
            "states",
            JobFilter { states: vec![JobState::Completed, JobState::Running], ..any() },
            vec![done, running],
        ),
        ("label", JobFilter { labels: vec![label("tenant", "acme")], ..any() }, vec![done, running]),
        (
            "labels",
            JobFilter { labels: vec![label("tier", "gold"), label("tenant", "acme")], ..any() },
            vec![done],
        ),
        ("other value", JobFilter { labels: vec![label("tenant", "acm")], ..any() }, vec![]),
        ("owner", JobFilter { owner: Some(owner("A")), ..any() }, vec![running]),
        ("nobody", JobFilter { owner: Some(owner("B")), ..any() }, vec![]),
        ("text", JobFilter { payload_contains: Some("\"bob\"".to_owned()), ..any() }, vec![mail]),
        ("all of it", JobFilter { queue: Some(queue("r")), kind: Some(kind("mail")), ..any() }, vec![]),
    ];
    for (what, filter, expected) in cases {
        assert_eq!(ids(g, &filter), expected, "by {what}");
    }
}

/// A list says what looking at one job says.
pub(super) fn a_list_says_what_a_look_says(g: &Fixture) {
    g.new_work("q", "A");
    g.fail_for_good(&g.new_work("q", "A")).expect("a live claim");
    g.put("q");
    for view in g.jobs_where(&JobFilter::default(), 100) {
        assert_eq!(g.detail(view.id).job, view);
    }
}

/// Pages show every job exactly once, in the order of arrival, whatever happens in between.
pub(super) fn pages_show_every_job_once_and_in_order(g: &Fixture) {
    let put = g.put_many("q", 57);
    for nth in [3, 8, 30] {
        g.cancel(put[nth], false).expect("no attempt is running");
    }
    for page in [1, 7, 1_000] {
        let listed = g.jobs_where(&JobFilter::default(), page).into_iter();
        let listed: Vec<JobId> = listed.map(|job| job.id).collect();
        assert_eq!(listed, put, "in pages of {page}");
    }
    let cancelled = JobFilter { states: vec![JobState::Cancelled], ..JobFilter::default() };
    assert_eq!(ids(g, &cancelled), [put[3], put[8], put[30]]);
}

/// A dry run says what would be done, and does nothing.
pub(super) fn a_dry_run_does_nothing(g: &Fixture) {
    let put = g.put_many("q", 3);
    let running = g.new_work("r", "A");
    let would = matching(g, JobFilter::default(), None, 100, true);
    let told: Vec<_> = would.results.iter().map(|item| (item.job_id, item.result.clone())).collect();
    let mut expected: Vec<_> = put.iter().map(|id| (*id, Ok(JobState::Cancelled))).collect();
    expected.push((running.job.id, Ok(JobState::Running)));
    assert_eq!(told, expected);
    assert!(put.iter().all(|id| g.state(*id) == JobState::Queued));
    assert!(!g.renew_work(&running).expect("a live claim").cancel_requested);
    let request = |dry_run| ChangeJobsRequest {
        dry_run,
        ..ChangeJobsRequest::new(
            JobSelector::Ids { job_ids: put.clone() },
            JobAction::Delete { force: false },
            owner("P"),
        )
    };
    let deleted = g.act_raw(request(true)).expect("an action that is answered");
    assert!(deleted.results.iter().all(|item| item.result == Ok(JobState::Queued)), "{deleted:?}");
    assert_eq!(g.count("q", JobState::Queued), 3);
    assert_eq!(g.act_raw(request(false)).expect("an action that is answered"), deleted);
    assert_eq!(ids(g, &JobFilter::default()), [running.job.id]);
}

/// An action on all that match goes page by page, reaches all of them and no other.
pub(super) fn an_action_on_all_that_match_reaches_all_and_no_other(g: &Fixture) {
    let put = g.put_many("q", 25);
    let spared = g.put_many("r", 2);
    let filter = JobFilter { queue: Some(queue("q")), ..JobFilter::default() };
    let (mut cursor, mut reached) = (None, Vec::new());
    loop {
        let acted = matching(g, filter.clone(), cursor, 10, false);
        assert!(acted.results.len() <= 10);
        reached.extend(acted.results.iter().map(|item| item.job_id));
        assert!(acted.results.iter().all(|item| item.result == Ok(JobState::Cancelled)), "{acted:?}");
        cursor = acted.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(reached, put);
    assert!(spared.iter().all(|id| g.state(*id) == JobState::Queued));
}

/// A waiter for a job is notified when it has come to its end, with what it gave.
pub(super) fn one_who_waits_for_a_job_is_told_its_end(g: &Fixture) {
    let work = g.new_work("q", "A");
    let (one, two) = (g.start_wait(work.job.id, 600_000), g.start_wait(work.job.id, 600_000));
    g.fail(&work).expect("a live claim");
    assert!(one.answered().is_none(), "a job that is tried again has not come to its end");
    g.retry(work.job.id).expect("a job that can start over");
    g.complete(&g.work("q", "B")).expect("a live claim");
    for waiting in [one, two] {
        let detail = waiting.answer().expect("an answer").expect("a job");
        assert_eq!(
            (detail.job.state, detail.result.as_deref()),
            (JobState::Completed, Some("{\"sent\":true}"))
        );
    }
    let at_once = g.start_wait(work.job.id, 600_000).answer().expect("an answer").expect("a job");
    assert_eq!(at_once.job.state, JobState::Completed, "it is there already");
    let unknown = g.start_wait(fresh_id().0, 600_000).answer().expect("an answer");
    assert!(unknown.is_none(), "an unknown job is not waited for");
}

/// A waiter is notified too when only a person can help: a quarantined job or one in doubt waits for no one else.
pub(super) fn one_who_waits_for_a_job_is_told_that_only_a_person_can_help(g: &Fixture) {
    let told = |waiting: PendingCall<Result<Option<JobDetail>, StoreError>>| {
        waiting.answer().expect("an answer").expect("a job").job.state
    };
    let poison = g.put_with(NewJob { options: JobOptions { max_crashes: 1, ..terms() }, ..g.job_for("q") });
    let waiting = g.start_wait(poison, 600_000);
    g.crash(&g.work("q", "A"));
    assert_eq!(told(waiting), JobState::Quarantined);
    assert_eq!(told(g.start_wait(poison, 600_000)), JobState::Quarantined, "it is there already");
    let first = g.new_work("q", "A");
    assert_eq!(g.announce(&first, "charge", InDoubtPolicy::Manual), PROCEED);
    let waiting = g.start_wait(first.job.id, 600_000);
    g.crash(&first);
    assert!(waiting.answered().is_none(), "a crashed job is tried again");
    assert_eq!(g.announce(&g.work("q", "B"), "charge", InDoubtPolicy::Manual), IN_DOUBT);
    assert_eq!(told(waiting), JobState::InDoubt);
}

/// One who has waited for long enough learns how the job stands; one whose job is deleted, that there is none.
pub(super) fn one_who_waited_long_enough_is_told_how_it_stands(g: &Fixture) {
    let id = g.put("q");
    let now = g.start_wait(id, 0).answer().expect("an answer").expect("a job");
    assert_eq!(now.job.state, JobState::Queued);
    let waiting = g.start_wait(id, 5_000);
    let answer = OnceCell::new();
    until("the end of its time", || {
        g.pass(1_000);
        waiting.answered().is_some_and(|answered| answer.set(answered).is_ok())
    });
    let detail = answer.into_inner().expect("an answer").expect("an answer").expect("a job");
    assert_eq!(detail.job.state, JobState::Queued);
    let patient = g.start_wait(id, 600_000);
    g.delete(id, false).expect("no attempt is running");
    assert!(patient.answer().expect("an answer").is_none());
}

/// Finished jobs are kept for their time, and then forgotten; what has not come to its end never is.
pub(super) fn finished_jobs_are_forgotten_after_their_time(g: &Fixture) {
    let work = g.new_work("q", "A");
    g.complete(&work).expect("a live claim");
    let done = work.job.id;
    let failed = g.new_work("q", "A");
    g.fail_for_good(&failed).expect("a live claim");
    let ready = g.put("q");
    g.pass(FINISHED_KEPT_MS - 1);
    assert_eq!((g.state(done), g.state(failed.job.id)), (JobState::Completed, JobState::Failed));
    let late = g.put("q");
    g.cancel(late, false).expect("no attempt is running");
    g.pass(120_000);
    until("finished jobs that are gone", || {
        g.pass(60_000);
        g.find(done).is_none() && g.find(failed.job.id).is_none()
    });
    assert_eq!((g.state(ready), g.state(late)), (JobState::Queued, JobState::Cancelled));
    assert_eq!((g.count("q", JobState::Completed), g.count("q", JobState::Failed)), (0, 0));
    assert_eq!(g.count("q", JobState::Cancelled), 1);
}

/// A finished job outlives its time while its unique key is taken: the same request is still the same job.
pub(super) fn a_finished_job_is_kept_while_its_unique_key_is_taken(g: &Fixture) {
    let monthly = NewJob { unique: unique("invoice-42", 4 * FINISHED_KEPT_MS), ..g.job_for("q") };
    let id = g.put_with(monthly.clone());
    g.complete(&g.work("q", "A")).expect("a live claim");
    let plain = g.new_work("q", "A");
    g.complete(&plain).expect("a live claim");
    g.pass(FINISHED_KEPT_MS);
    until("a finished job that is gone", || {
        g.pass(60_000);
        g.find(plain.job.id).is_none()
    });
    assert_eq!(g.state(id), JobState::Completed, "its key is still taken");
    let again = NewJob { id: fresh_id().0, ..monthly };
    assert_eq!(g.enqueue(again).map(|enqueued| (enqueued.job_id, enqueued.existed)), Ok((id, true)));
    g.pass(4 * FINISHED_KEPT_MS);
    until("a finished job that is gone", || {
        g.pass(60_000);
        g.find(id).is_none()
    });
}
