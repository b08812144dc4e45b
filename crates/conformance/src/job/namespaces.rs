//! Tenants do not meet: a job of another namespace is unknown, whatever is shown for it.

use super::operation;
use super::prelude::*;

/// Queues of the same name in two namespaces are two queues.
pub(super) fn the_same_queue_in_two_namespaces_is_two_queues(g: &Fixture) {
    let other = g.in_namespace("other");
    let id = g.put("q");
    assert!(other.try_work("q", "A").is_none());
    assert_eq!(other.count("q", JobState::Queued), 0);
    assert!(other.jobs_where(&JobFilter::default(), 10).is_empty());
    g.set_queue("q", QueueMode::Paused);
    let theirs = other.put("q");
    assert_eq!(other.work("q", "A").job.id, theirs);
    g.set_queue("q", QueueMode::Open);
    assert_eq!(g.work("q", "A").job.id, id);
}

/// R34: the right id, hold id and token under the wrong namespace are worth nothing, and change nothing.
pub(super) fn a_job_of_another_namespace_is_unknown(g: &Fixture) {
    let other = g.in_namespace("other");
    let work = g.new_work("q", "A");
    let id = work.job.id;
    assert!(other.find(id).is_none());
    assert_eq!(other.renew_work(&work), Err(JobRefusal::JobNotFound));
    assert_eq!(other.complete(&work), Err(JobRefusal::JobNotFound));
    assert_eq!(other.record(&work, "charge", "1").map(drop), Err(JobRefusal::JobNotFound));
    assert_eq!(other.cancel(id, true), Err(JobRefusal::JobNotFound));
    assert_eq!(other.retry(id), Err(JobRefusal::JobNotFound));
    assert_eq!(other.delete(id, true), Err(JobRefusal::JobNotFound));
    assert!(other.start_wait(id, 1_000).answer().expect("an answer").is_none());
    assert!(other.findings().is_empty());
    g.complete(&work).expect("a live claim");
    assert!(other.find(id).is_none(), "also when it has come to its end");
    assert_eq!(other.delete(id, true), Err(JobRefusal::JobNotFound));
}

/// R34: nor can a job or an operation be begun under the id of another namespace's job, and the caller does not learn whose it is.
pub(super) fn an_id_of_another_namespace_is_not_to_be_had(g: &Fixture) {
    let other = g.in_namespace("other");
    let work = g.new_work("q", "A");
    let id = work.job.id;
    let begin = |key: &str| {
        let request = BeginOperationRequest { job_id: id, ..operation::request(&other, key, "B") };
        other.drive(jobs_of(&*other.test_store.store()).begin_operation(&other.call, request))
    };
    for state in [JobState::Running, JobState::Completed] {
        assert_eq!(g.state(id), state);
        assert_eq!(other.enqueue(NewJob { id, ..other.job_for("q") }), Err(JobRefusal::JobNotFound));
        assert_matches!(begin(state.name()), Err(StoreError::BadInput(_)));
        assert!(other.jobs_where(&JobFilter::default(), 10).is_empty());
        g.complete(&work).expect("a live claim, or the same answer");
    }
    let theirs = other.put("q");
    assert_eq!(other.work("q", "B").job.id, theirs, "and the store goes on");
}

/// A token that another namespace's job has is known as one, and not whose it is.
pub(super) fn a_token_of_another_namespace_names_no_job(g: &Fixture) {
    let other = g.in_namespace("other");
    let (mine, theirs) = (g.new_work("q", "A"), other.new_work("q", "B"));
    let wrong = g.say_as(AttemptRef { token: theirs.job.token, ..mine.attempt() }, completed());
    assert_matches!(wrong, Err(JobRefusal::WrongJob { job_id: None, .. }));
    g.complete(&mine).expect("a live claim");
}

/// A hold id of one namespace gets nothing in another.
pub(super) fn a_claim_means_nothing_in_another_namespace(g: &Fixture) {
    let other = g.in_namespace("other");
    g.put("q");
    let request = g.claim_for("q", "A");
    assert_eq!(g.claim(request.clone()).len(), 1);
    assert!(other.claim(request.clone()).is_empty());
    let theirs = other.put("q");
    assert_eq!(other.claim(request)[0].job.id, theirs);
}

/// A unique key of one namespace is free in another.
pub(super) fn a_unique_key_is_its_namespaces_own(g: &Fixture) {
    let other = g.in_namespace("other");
    let job = NewJob { unique: unique("invoice-42", 3_600_000), ..g.job_for("q") };
    g.put_with(job.clone());
    other.put_with(NewJob { id: fresh_id().0, payload: "{\"other\":1}".into(), ..job });
}

/// What happens to the jobs of one namespace is not told in another.
pub(super) fn events_of_another_namespaces_jobs_are_not_told(g: &Fixture) {
    let other = g.in_namespace("other");
    let id = g.put("q");
    assert_eq!(g.job_facts(id).len(), 1);
    assert!(other.events().is_empty());
}
