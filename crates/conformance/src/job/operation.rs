//! Operations of request handlers: begun once under their idempotency key, a repeated request learns what became of them.

use super::ledger::resolve;
use super::prelude::*;

const WINDOW_MS: u64 = 3_600_000;

pub(super) fn request(g: &Fixture, key: &str, worker: &str) -> BeginOperationRequest {
    BeginOperationRequest {
        job_id: fresh_id().0,
        idempotency_key: UniqueKey::new(key).expect("a key"),
        payload: "{\"amount\":7}".into(),
        hold_id: fresh_hold(),
        owner: owner(worker),
        ttl_ms: g.ttl_ms(),
        idempotency_window_ms: WINDOW_MS,
        in_doubt_policy: InDoubtPolicy::Retry,
    }
}

fn begin(g: &Fixture, request: &BeginOperationRequest) -> OperationStatus {
    try_begin(g, request).expect("no conflict")
}

fn try_begin(g: &Fixture, request: &BeginOperationRequest) -> Result<OperationStatus, JobRefusal> {
    let began = g.drive(jobs_of(&*g.handle(&request.owner)).begin_operation(&g.call, request.clone()));
    began.expect("a beginning that is answered").map(|begun| begun.operation)
}

fn conflict(with: JobId) -> Result<OperationStatus, JobRefusal> {
    let (field, differs) = ("idempotency_key".to_owned(), "payload".to_owned());
    Err(JobRefusal::Conflict { field, job_id: with, differs })
}

fn begin_new(g: &Fixture, request: &BeginOperationRequest) -> ClaimedWork {
    match begin(g, request) {
        OperationStatus::Started { job } => ClaimedWork { hold: request.hold_id, job: *job },
        other => panic!("{other:?}"),
    }
}

/// P7: one that was begun needs no room to be answered again.
pub(super) fn in_a_full_namespace_the_same_beginning_has_the_same_operation(g: &Fixture) {
    g.set_limits(Quota { max_jobs: Some(1), ..Quota::default() });
    let first = request(g, "pay-7", "A");
    let work = begin_new(g, &first);
    assert_eq!(begin_new(g, &first).job.id, work.job.id, "the same request");
    let again = begin(g, &request(g, "pay-7", "B"));
    assert_matches!(again, OperationStatus::InProgress { job_id, .. } if job_id == work.job.id);
    let more = g.drive(jobs_of(&*g.test_store.store()).begin_operation(&g.call, request(g, "pay-8", "A")));
    assert!(matches!(more, Err(StoreError::LimitReached { limit: 1, .. })), "{more:?}");
}

/// New, then in progress (who, until when), then done with the stored answer.
pub(super) fn an_operation_is_new_then_in_progress_then_done(g: &Fixture) {
    let first = request(g, "pay-7", "A");
    let work = begin_new(g, &first);
    assert_eq!((work.job.id, &*work.job.payload), (first.job_id, "{\"amount\":7}"));
    g.assert_ms("a full ttl", work.job.remaining_ms, g.ttl_ms());
    match begin(g, &request(g, "pay-7", "B")) {
        OperationStatus::InProgress { job_id: job, owner, token, remaining_ms: expires_in_ms } => {
            assert_eq!((job, owner.as_str(), token), (work.job.id, "A", work.job.token));
            g.assert_ms("what is left", expires_in_ms, g.ttl_ms());
        }
        other => panic!("{other:?}"),
    }
    g.renew_work(&work).expect("a live claim");
    g.say(&work, completed()).expect("a live claim");
    let done = OperationStatus::Completed { job_id: work.job.id, result: Some("{\"sent\":true}".into()) };
    assert_eq!(begin(g, &request(g, "pay-7", "B")), done);
    assert_eq!(begin(g, &first), done, "also for the one that began it");
}

/// P7: the answer is lost; the same request again has the same operation, with the time that remains.
pub(super) fn the_same_beginning_again_has_the_same_operation(g: &Fixture) {
    let first = request(g, "pay-7", "A");
    let work = begin_new(g, &first);
    g.pass_if_it_can(g.ttl_ms() / 3);
    let again = begin_new(g, &first);
    assert_eq!((again.job.id, again.job.token), (work.job.id, work.job.token));
    if g.has(TestCapability::MovesTime) {
        g.assert_ms("what remains", again.job.remaining_ms, g.ttl_ms() - g.ttl_ms() / 3);
    }
}

/// P7: the same request is sent again, and its answer is not read: the operation stays with its holder.
pub(super) fn a_repetition_that_is_not_read_takes_no_operation_away(g: &Fixture) {
    let mut all = Vec::new();
    for round in 0..20 {
        let first = request(g, &format!("pay-{round}"), "A");
        let work = begin_new(g, &first);
        let store = g.handle(&first.owner);
        let jobs = jobs_of(&*store);
        g.send_and_go(jobs.begin_operation(&g.call, first), jobs.get_job(&g.call, work.job.id));
        g.renew_work(&work).expect("a live claim");
        all.push(work);
    }
    for work in all {
        g.complete(&work).expect("a live claim");
    }
}

/// The order of members and white space say nothing.
pub(super) fn an_operation_is_the_same_however_its_payload_was_written(g: &Fixture) {
    let of = |payload: &str| BeginOperationRequest { payload: payload.into(), ..request(g, "pay-7", "A") };
    let work = begin_new(g, &of("{\"amount\":7,\"to\":\"bob\"}"));
    let again = begin(g, &of(" {\"to\": \"bob\", \"amount\": 7}"));
    assert_matches!(again, OperationStatus::InProgress { job_id, .. } if job_id == work.job.id);
    assert_eq!(try_begin(g, &of("{\"amount\":8,\"to\":\"bob\"}")), conflict(work.job.id));
}

/// The same key for something else is a conflict.
pub(super) fn a_key_with_another_payload_is_a_conflict(g: &Fixture) {
    let work = begin_new(g, &request(g, "pay-7", "A"));
    let other = BeginOperationRequest { payload: "{\"amount\":8}".into(), ..request(g, "pay-7", "B") };
    assert_eq!(try_begin(g, &other), conflict(work.job.id));
    g.complete(&work).expect("a live claim");
    assert_eq!(try_begin(g, &other), conflict(work.job.id), "also when it is done");
}

/// An operation that failed for good, or was called off, says so.
pub(super) fn an_operation_that_failed_for_good_says_so(g: &Fixture) {
    let work = begin_new(g, &request(g, "pay-7", "A"));
    g.fail_for_good(&work).expect("a live claim");
    match begin(g, &request(g, "pay-7", "B")) {
        OperationStatus::Failed { job_id: job, state, error } => {
            assert_eq!((job, state), (work.job.id, JobState::Failed));
            assert_eq!(error.as_deref(), Some("no such customer"));
        }
        other => panic!("{other:?}"),
    }
}

/// The earlier holder died: by the policy it is new again, under a larger token; the earlier one is stale.
pub(super) fn an_operation_whose_holder_died_is_new_again(g: &Fixture) {
    let a = begin_new(g, &request(g, "pay-7", "A"));
    g.pass(g.ttl_ms());
    let b = begin_new(g, &request(g, "pay-7", "B"));
    assert_eq!((b.job.id, b.job.attempt), (a.job.id, 2));
    assert!(b.job.token > a.job.token);
    assert_stale(g.complete(&a), a.job.token, b.job.token);
    g.complete(&b).expect("a live claim");
}

/// The earlier holder died: by the other policy a person must look.
pub(super) fn an_operation_whose_holder_died_is_indeterminate_where_its_policy_says_so(g: &Fixture) {
    let ask = |worker: &str| BeginOperationRequest {
        in_doubt_policy: InDoubtPolicy::Manual,
        ..request(g, "pay-7", worker)
    };
    let a = begin_new(g, &ask("A"));
    g.pass(g.ttl_ms());
    assert_eq!(begin(g, &ask("B")), OperationStatus::InDoubt { job_id: a.job.id });
    assert_eq!(
        begin(g, &request(g, "pay-7", "B")),
        OperationStatus::InDoubt { job_id: a.job.id },
        "and stays it"
    );
    assert_eq!(g.state(a.job.id), JobState::InDoubt);
}

/// An operation that was given back is new for the next, whatever its policy: no holder died.
pub(super) fn an_operation_that_was_given_back_is_new_again(g: &Fixture) {
    let ask = |worker: &str| BeginOperationRequest {
        in_doubt_policy: InDoubtPolicy::Manual,
        ..request(g, "pay-7", worker)
    };
    let a = begin_new(g, &ask("A"));
    g.say(&a, Report::Release {}).expect("a live claim");
    assert_eq!(begin_new(g, &ask("B")).job.id, a.job.id);
}

/// P8: an operation whose holder died is listed at once, also where no one has asked for it since. A person says that it happened, and it
/// is completed with that; or that it did not, and the next request carries it out.
pub(super) fn an_operation_in_doubt_is_listed_until_a_person_resolves_it(g: &Fixture) {
    let manual = |key: &str, worker: &str| BeginOperationRequest {
        in_doubt_policy: InDoubtPolicy::Manual,
        ..request(g, key, worker)
    };
    for (nth, (happened, asked_again)) in [(true, true), (true, false), (false, true), (false, false)]
        .into_iter()
        .enumerate()
    {
        let key = format!("pay-{nth}");
        let a = begin_new(g, &manual(&key, "A"));
        assert!(g.findings().is_empty(), "its holder is at work");
        g.die(&a);
        if asked_again {
            assert_eq!(begin(g, &request(g, &key, "B")), OperationStatus::InDoubt { job_id: a.job.id });
        }
        let finding = only(g.findings());
        assert_eq!((finding.finding, finding.job_id), (FindingKind::InDoubt, a.job.id), "{key}");
        assert_eq!((finding.effect.as_str(), finding.token), ("operation", a.job.token), "{key}");
        assert_eq!(resolve(g, &a, "operation", happened.then_some("{\"receipt\":7}")), Ok(()), "{key}");
        assert!(g.findings().is_empty(), "{key}");
        assert_stale(g.complete(&a), a.job.token, g.detail(a.job.id).job.token);
        if happened {
            let done =
                OperationStatus::Completed { job_id: a.job.id, result: Some("{\"receipt\":7}".into()) };
            assert_eq!(begin(g, &manual(&key, "B")), done, "{key}");
        } else {
            let b = begin_new(g, &manual(&key, "B"));
            assert_eq!(b.job.id, a.job.id, "{key}");
            g.complete(&b).expect("a live claim");
        }
    }
}

/// Only a death leaves a doubt: a holder that reported knew, and so does an operator who ends the operation by force.
pub(super) fn an_operation_that_someone_reported_on_leaves_no_doubt(g: &Fixture) {
    let manual =
        |key: &str| BeginOperationRequest { in_doubt_policy: InDoubtPolicy::Manual, ..request(g, key, "A") };
    let reports = [completed(), failed(), Report::Release {}, Report::Snooze { delay_ms: 9 }];
    for (nth, report) in reports.into_iter().enumerate() {
        let work = begin_new(g, &manual(&format!("pay-{nth}")));
        g.say(&work, report).expect("a live claim");
        assert!(g.findings().is_empty() && g.detail(work.job.id).effects.is_empty(), "report {nth}");
    }
    let reason = || Reason::new("seen at the bank").expect("a reason");
    let actions = [
        JobAction::Complete { result: Some("1".into()), reason: reason() },
        JobAction::Fail { reason: reason() },
    ];
    for (nth, action) in actions.into_iter().enumerate() {
        let work = begin_new(g, &manual(&format!("forced-{nth}")));
        g.act(work.job.id, action).expect("a running job");
        assert!(g.findings().is_empty() && g.detail(work.job.id).effects.is_empty(), "action {nth}");
    }
}

/// Many begin one operation at once: one has it, the others learn who.
pub(super) fn an_operation_that_many_begin_at_once_is_ones(g: &Fixture) {
    for round in 0..10 {
        let key = format!("pay-{round}");
        let begun = at_once(6, |nth| begin(g, &request(g, &key, ["A", "B"][nth % 2])));
        let count = |of: fn(&&OperationStatus) -> bool| begun.iter().filter(of).count();
        let new = count(|begun| matches!(begun, OperationStatus::Started { .. }));
        let told = count(|begun| matches!(begun, OperationStatus::InProgress { .. }));
        assert_eq!((new, told), (1, 5), "{begun:?}");
    }
}

/// A key is remembered for its window, and then it is new.
pub(super) fn a_key_is_remembered_for_its_window(g: &Fixture) {
    let first = request(g, "pay-7", "A");
    g.complete(&begin_new(g, &first)).expect("a live claim");
    g.pass(WINDOW_MS - 1);
    assert!(matches!(begin(g, &request(g, "pay-7", "B")), OperationStatus::Completed { .. }));
    g.pass(WINDOW_MS);
    assert_ne!(begin_new(g, &request(g, "pay-7", "B")).job.id, first.job_id);
}

/// No worker takes an operation away from its request by claiming from its queue.
pub(super) fn operations_cannot_be_claimed(g: &Fixture) {
    let work = begin_new(g, &request(g, "pay-7", "A"));
    g.say(&work, Report::Release {}).expect("a live claim");
    let claim = ClaimJobsRequest { queues: vec![(QueueName::operations(), 1)], ..g.claim_for("q", "B") };
    assert_matches!(g.claim_raw(claim), Err(StoreError::BadInput(_)));
}
