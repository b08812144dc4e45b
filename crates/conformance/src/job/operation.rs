//! Operations of request handlers: begun once under their idempotency key, whoever asks again is told what became of them.

use fencehold_contract::job::{BeginRequest, Begun, ClaimRequest, Word};
use fencehold_contract::{Limits, StoreError};
use fencehold_core::job::{Queue, State, UniqueKey};
use fencehold_core::ledger::OnDoubt;
use fencehold_test_store::Power;

use super::ground::{Work, completed, fresh_id, jobs_of};
use crate::Verdict;
use crate::drive::at_once;
use crate::ground::{Ground, fresh_hold, owner};

const WINDOW_MS: u64 = 3_600_000;

pub(super) fn request(g: &Ground, key: &str, worker: &str) -> BeginRequest {
    BeginRequest {
        id: fresh_id().0,
        key: UniqueKey::new(key).expect("a key"),
        payload: "{\"amount\":7}".into(),
        hold: fresh_hold(),
        owner: owner(worker),
        ttl_ms: g.ttl_ms(),
        window_ms: WINDOW_MS,
        policy: OnDoubt::RunAgain,
    }
}

fn begin(g: &Ground, request: &BeginRequest) -> Begun {
    let store = g.handle(&request.owner);
    let began = g.drive(jobs_of(&*store).begin(&g.call, request.clone()));
    began.expect("a beginning that is answered").what
}

fn begin_new(g: &Ground, request: &BeginRequest) -> Work {
    match begin(g, request) {
        Begun::New(job) => Work { hold: request.hold, job: *job },
        other => panic!("{other:?}"),
    }
}

/// P7: one that was begun needs no room to be answered again.
pub(super) fn in_a_full_namespace_the_same_beginning_has_the_same_operation(g: &Ground) -> Verdict {
    g.set_limits(Limits { jobs: Some(1), ..Limits::default() })?;
    let first = request(g, "pay-7", "A");
    let work = begin_new(g, &first);
    assert_eq!(begin_new(g, &first).job.id, work.job.id, "the same request");
    match begin(g, &request(g, "pay-7", "B")) {
        Begun::InProgress { job, .. } => assert_eq!(job, work.job.id),
        other => panic!("{other:?}"),
    }
    let store = g.arena.store();
    let more = g.drive(jobs_of(&*store).begin(&g.call, request(g, "pay-8", "A")));
    assert!(matches!(more, Err(StoreError::Full { limit: 1, .. })), "{more:?}");
    Ok(())
}

/// New, then in progress (who, until when), then done with the stored answer.
pub(super) fn an_operation_is_new_then_in_progress_then_done(g: &Ground) -> Verdict {
    let first = request(g, "pay-7", "A");
    let work = begin_new(g, &first);
    assert_eq!((work.job.id, &*work.job.payload), (first.id, "{\"amount\":7}"));
    g.assert_ms("a full ttl", work.job.remaining_ms, g.ttl_ms());
    match begin(g, &request(g, "pay-7", "B")) {
        Begun::InProgress { job, owner, token, expires_in_ms } => {
            assert_eq!((job, owner.as_str(), token), (work.job.id, "A", work.job.token));
            g.assert_ms("what is left", expires_in_ms, g.ttl_ms());
        }
        other => panic!("{other:?}"),
    }
    g.renew_work(&work).expect("a live claim");
    g.say(&work, completed()).expect("a live claim");
    let done = Begun::Done { job: work.job.id, result: Some("{\"sent\":true}".into()) };
    assert_eq!(begin(g, &request(g, "pay-7", "B")), done);
    assert_eq!(begin(g, &first), done, "also for whoever began it");
    Ok(())
}

/// P7: the answer is lost; the same request again has the same operation, with the time that remains.
pub(super) fn the_same_beginning_again_has_the_same_operation(g: &Ground) -> Verdict {
    let first = request(g, "pay-7", "A");
    let work = begin_new(g, &first);
    if g.has(Power::MovesTime) {
        g.pass(g.ttl_ms() / 3);
    }
    let again = begin_new(g, &first);
    assert_eq!((again.job.id, again.job.token), (work.job.id, work.job.token));
    if g.has(Power::MovesTime) {
        g.assert_ms("what remains", again.job.remaining_ms, g.ttl_ms() - g.ttl_ms() / 3);
    }
    Ok(())
}

/// P7: the same request is sent again, and its answer is not read: the operation stays with whoever has it.
pub(super) fn a_repetition_that_is_not_read_takes_no_operation_away(g: &Ground) -> Verdict {
    let mut all = Vec::new();
    for round in 0..20 {
        let first = request(g, &format!("pay-{round}"), "A");
        let work = begin_new(g, &first);
        let store = g.handle(&first.owner);
        let jobs = jobs_of(&*store);
        g.send_and_go(jobs.begin(&g.call, first), jobs.job(&g.call, work.job.id));
        g.renew_work(&work).expect("a live claim");
        all.push(work);
    }
    for work in all {
        g.complete(&work).expect("a live claim");
    }
    Ok(())
}

/// The order of members and white space say nothing.
pub(super) fn an_operation_is_the_same_however_its_payload_was_written(g: &Ground) -> Verdict {
    let of = |payload: &str| BeginRequest { payload: payload.into(), ..request(g, "pay-7", "A") };
    let work = begin_new(g, &of("{\"amount\":7,\"to\":\"bob\"}"));
    match begin(g, &of(" {\"to\": \"bob\", \"amount\": 7}")) {
        Begun::InProgress { job, .. } => assert_eq!(job, work.job.id),
        other => panic!("{other:?}"),
    }
    assert_eq!(begin(g, &of("{\"amount\":8,\"to\":\"bob\"}")), Begun::Conflict { job: work.job.id });
    Ok(())
}

/// The same key for something else is a conflict.
pub(super) fn a_key_with_another_payload_is_a_conflict(g: &Ground) -> Verdict {
    let work = begin_new(g, &request(g, "pay-7", "A"));
    let other = BeginRequest { payload: "{\"amount\":8}".into(), ..request(g, "pay-7", "B") };
    assert_eq!(begin(g, &other), Begun::Conflict { job: work.job.id });
    g.complete(&work).expect("a live claim");
    assert_eq!(begin(g, &other), Begun::Conflict { job: work.job.id }, "also when it is done");
    Ok(())
}

/// An operation that failed for good, or was called off, says so.
pub(super) fn an_operation_that_failed_for_good_says_so(g: &Ground) -> Verdict {
    let work = begin_new(g, &request(g, "pay-7", "A"));
    g.fail_for_good(&work).expect("a live claim");
    match begin(g, &request(g, "pay-7", "B")) {
        Begun::Failed { job, state, error } => {
            assert_eq!((job, state), (work.job.id, State::Failed));
            assert_eq!(error.as_deref(), Some("no such customer"));
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

/// The earlier holder died: by the policy it is new again, under a larger token; the earlier one is stale.
pub(super) fn an_operation_whose_holder_died_is_new_again(g: &Ground) -> Verdict {
    g.needs(Power::MovesTime)?;
    let a = begin_new(g, &request(g, "pay-7", "A"));
    g.pass(g.ttl_ms());
    let b = begin_new(g, &request(g, "pay-7", "B"));
    assert_eq!((b.job.id, b.job.attempt), (a.job.id, 2));
    assert!(b.job.token > a.job.token);
    super::ground::assert_stale(g.complete(&a), a.job.token, b.job.token);
    g.complete(&b).expect("a live claim");
    Ok(())
}

/// The earlier holder died: by the other policy a person must look.
pub(super) fn an_operation_whose_holder_died_is_indeterminate_where_its_policy_says_so(
    g: &Ground,
) -> Verdict {
    g.needs(Power::MovesTime)?;
    let ask = |worker: &str| BeginRequest { policy: OnDoubt::Ask, ..request(g, "pay-7", worker) };
    let a = begin_new(g, &ask("A"));
    g.pass(g.ttl_ms());
    assert_eq!(begin(g, &ask("B")), Begun::Indeterminate { job: a.job.id });
    assert_eq!(begin(g, &request(g, "pay-7", "B")), Begun::Indeterminate { job: a.job.id }, "and stays it");
    assert_eq!(g.state(a.job.id), State::Indeterminate);
    Ok(())
}

/// An operation that was given back is new for the next, whatever its policy: nobody died.
pub(super) fn an_operation_that_was_given_back_is_new_again(g: &Ground) -> Verdict {
    let ask = |worker: &str| BeginRequest { policy: OnDoubt::Ask, ..request(g, "pay-7", worker) };
    let a = begin_new(g, &ask("A"));
    g.say(&a, Word::HandBack).expect("a live claim");
    assert_eq!(begin_new(g, &ask("B")).job.id, a.job.id);
    Ok(())
}

/// Many begin one operation at once: one has it, the others are told who.
pub(super) fn an_operation_that_many_begin_at_once_is_ones(g: &Ground) -> Verdict {
    for round in 0..10 {
        let key = format!("pay-{round}");
        let begun = at_once(6, |nth| begin(g, &request(g, &key, ["A", "B"][nth % 2])));
        let new = begun.iter().filter(|begun| matches!(begun, Begun::New(_))).count();
        let told = begun.iter().filter(|begun| matches!(begun, Begun::InProgress { .. })).count();
        assert_eq!((new, told), (1, 5), "{begun:?}");
    }
    Ok(())
}

/// A key is remembered for its window, and then it is new.
pub(super) fn a_key_is_remembered_for_its_window(g: &Ground) -> Verdict {
    g.needs(Power::MovesTime)?;
    let first = request(g, "pay-7", "A");
    g.complete(&begin_new(g, &first)).expect("a live claim");
    g.pass(WINDOW_MS - 1);
    assert!(matches!(begin(g, &request(g, "pay-7", "B")), Begun::Done { .. }));
    g.pass(WINDOW_MS);
    assert_ne!(begin_new(g, &request(g, "pay-7", "B")).job.id, first.id);
    Ok(())
}

/// Nobody takes an operation away from its request by claiming from its queue.
pub(super) fn operations_cannot_be_claimed(g: &Ground) -> Verdict {
    let work = begin_new(g, &request(g, "pay-7", "A"));
    g.say(&work, Word::HandBack).expect("a live claim");
    let claim = ClaimRequest { queues: vec![(Queue::operations(), 1)], ..g.claim_for("q", "B") };
    match g.claim_raw(claim) {
        Err(StoreError::BadInput(_)) => Ok(()),
        other => panic!("{other:?}"),
    }
}
