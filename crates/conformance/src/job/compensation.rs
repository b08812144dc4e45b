//! Compensation: the effects of a job that failed or was called off are undone, last one first, each once.

use super::prelude::*;

/// A job with these effects, each recorded and to be undone, under way.
fn saga(g: &Fixture, names: &[&str]) -> ClaimedWork {
    let work = g.new_work("q", "A");
    for name in names {
        g.record_undoable(&work, name);
    }
    work
}

fn effects(g: &Fixture, work: &ClaimedWork) -> Vec<(String, EffectState)> {
    let effects = g.detail(work.job.id).effects;
    effects
        .into_iter()
        .map(|effect| (effect.name.to_string(), effect.state))
        .collect()
}

/// The next undo job, which must undo this effect of this job.
fn undo_of(g: &Fixture, work: &ClaimedWork, name: &str) -> ClaimedWork {
    let undo = g.work("undo", "B");
    assert_eq!(undo.job.compensates, Some(CompensatedEffect { job_id: work.job.id, effect: effect(name) }));
    assert_eq!(undo.job.kind.as_str(), format!("undo-{name}"));
    assert_eq!(&*undo.job.payload, format!("{{\"undo\":\"{name}\"}}"));
    undo
}

/// A job that fails for good is undone, last effect first, each undo job enqueued when the one before it is done.
pub(super) fn effects_are_undone_last_one_first_and_each_once(g: &Fixture) {
    let work = saga(g, &["reserve", "charge", "ship"]);
    g.record(&work, "mail", "1").expect("a live claim");
    assert!(g.try_work("undo", "B").is_none(), "nothing is undone while the job is at work");
    g.fail_for_good(&work).expect("a live claim");
    for (nth, name) in ["ship", "charge", "reserve"].into_iter().enumerate() {
        assert_eq!(g.detail(work.job.id).job.compensation_state, CompensationState::Running);
        let undo = undo_of(g, &work, name);
        assert!(g.try_work("undo", "B").is_none(), "one at a time");
        let state = effects(g, &work)[2 - nth].1;
        assert_eq!(state, EffectState::Compensating);
        assert_eq!(g.complete(&undo), g.complete(&undo), "said twice, it goes one step further");
    }
    assert!(g.try_work("undo", "B").is_none(), "each once");
    assert_eq!(g.detail(work.job.id).job.compensation_state, CompensationState::Done);
    let states: Vec<EffectState> = effects(g, &work).into_iter().map(|effect| effect.1).collect();
    let undone = EffectState::Compensated;
    assert_eq!(states, [undone, undone, undone, EffectState::Done], "what names no undo stays");
    assert_eq!(g.state(work.job.id), JobState::Failed);
    assert_eq!(g.count("undo", JobState::Completed), 3);
    if g.has(TestCapability::TellsEvents) {
        let told = g.job_facts(work.job.id).into_iter().filter_map(|fact| match fact {
            EventData::EffectCompensationEnded { effect, compensated: true } => Some(effect),
            _ => None,
        });
        assert_eq!(told.collect::<Vec<_>>(), ["ship", "charge", "reserve"]);
    }
}

/// A failed undo stops the chain and is shown; started over, it goes on.
pub(super) fn a_failed_undo_stops_the_chain_until_it_is_retried(g: &Fixture) {
    let work = saga(g, &["reserve", "charge", "ship"]);
    g.fail_for_good(&work).expect("a live claim");
    g.complete(&undo_of(g, &work, "ship")).expect("a live claim");
    let undo = undo_of(g, &work, "charge");
    g.fail_for_good(&undo).expect("a live claim");
    assert!(g.try_work("undo", "B").is_none(), "what came before stands");
    assert_eq!(g.detail(work.job.id).job.compensation_state, CompensationState::Stopped);
    let shown = g.findings().into_iter();
    let shown: Vec<_> = shown.map(|found| (found.effect.to_string(), found.finding)).collect();
    for expected in [
        ("reserve", FindingKind::CompensationPending),
        ("charge", FindingKind::CompensationFailed),
        ("ship", FindingKind::Compensated),
    ] {
        assert!(shown.contains(&(expected.0.to_owned(), expected.1)), "{expected:?} is not in {shown:?}");
    }
    assert_eq!(g.retry(undo.job.id), Ok(JobState::Queued));
    g.complete(&undo_of(g, &work, "charge")).expect("a live claim");
    g.complete(&undo_of(g, &work, "reserve")).expect("a live claim");
    assert_eq!(g.detail(work.job.id).job.compensation_state, CompensationState::Done);
    assert!(effects(g, &work).iter().all(|effect| effect.1 == EffectState::Compensated));
}

/// An undo job is tried again like any other: a holder that dies in the middle of it stops nothing.
pub(super) fn an_undo_job_whose_holder_dies_is_tried_again(g: &Fixture) {
    let work = saga(g, &["charge", "ship"]);
    g.fail_for_good(&work).expect("a live claim");
    g.crash(&undo_of(g, &work, "ship"));
    g.complete(&undo_of(g, &work, "ship")).expect("a live claim");
    g.complete(&undo_of(g, &work, "charge")).expect("a live claim");
    assert_eq!(
        (g.detail(work.job.id).job.compensation_state, g.count("undo", JobState::Completed)),
        (CompensationState::Done, 2)
    );
}

/// A job that is done, or is only tried again, undoes nothing.
pub(super) fn a_job_that_is_done_or_tried_again_undoes_nothing(g: &Fixture) {
    let done = saga(g, &["charge"]);
    g.complete(&done).expect("a live claim");
    let again = saga(g, &["charge"]);
    g.fail(&again).expect("a live claim");
    assert!(g.try_work("undo", "B").is_none());
    for work in [&done, &again] {
        assert_eq!(g.detail(work.job.id).job.compensation_state, CompensationState::None);
        assert_eq!(effects(g, work), [("charge".to_owned(), EffectState::Done)]);
    }
}

/// R40: a job is called off while its holder is between two effects. Nothing is undone before the attempt has ended;
/// then every recorded effect is, once; one that was announced and never recorded is shown.
pub(super) fn a_job_cancelled_between_two_effects_is_undone_when_its_attempt_has_ended(g: &Fixture) {
    let work = saga(g, &["charge"]);
    g.cancel(work.job.id, false).expect("a running job");
    assert!(g.try_work("undo", "B").is_none(), "too early");
    // It has not learnt of it yet, and has its second effect.
    g.announce(&work, "ship", InDoubtPolicy::Manual).expect("a live claim");
    g.record_undoable(&work, "ship");
    g.announce(&work, "mail", InDoubtPolicy::Manual).expect("a live claim");
    assert!(g.renew_work(&work).expect("a live claim").cancel_requested);
    assert!(g.try_work("undo", "B").is_none(), "still too early");
    g.say(&work, Report::Release {}).expect("a live claim");
    assert_eq!(g.state(work.job.id), JobState::Cancelled);
    for name in ["ship", "charge"] {
        g.complete(&undo_of(g, &work, name)).expect("a live claim");
    }
    assert!(g.try_work("undo", "B").is_none(), "each once");
    let open: Vec<_> = g
        .findings()
        .into_iter()
        .filter(|found| found.finding == FindingKind::InDoubt)
        .map(|found| (found.job_id, found.effect))
        .collect();
    assert_eq!(open, [(work.job.id, effect("mail"))]);
}

/// R40: cancelled now, the holder is fenced out first: its next effect is not recorded, so it is not forgotten either.
pub(super) fn a_job_cancelled_now_is_undone_and_its_open_intent_is_shown(g: &Fixture) {
    let work = saga(g, &["charge"]);
    g.announce(&work, "ship", InDoubtPolicy::Retry).expect("a live claim");
    assert_eq!(g.cancel(work.job.id, true), Ok(JobState::Cancelled));
    assert!(matches!(g.record(&work, "ship", "1"), Err(JobRefusal::Stale { .. })));
    g.complete(&undo_of(g, &work, "charge")).expect("a live claim");
    assert!(g.try_work("undo", "B").is_none());
    let shown = g.findings().into_iter();
    let shown: Vec<_> = shown.map(|found| (found.effect.to_string(), found.finding)).collect();
    assert!(shown.contains(&("ship".to_owned(), FindingKind::InDoubt)), "{shown:?}");
}

/// R40: a holder that dies after its job was called off.
pub(super) fn a_cancelled_job_whose_holder_dies_is_undone(g: &Fixture) {
    let work = saga(g, &["charge"]);
    g.cancel(work.job.id, false).expect("a running job");
    g.crash(&work);
    g.complete(&undo_of(g, &work, "charge")).expect("a live claim");
    assert_eq!(g.detail(work.job.id).job.compensation_state, CompensationState::Done);
}

/// A job whose effects have been undone is not started over, and is not forgotten in the middle of it.
pub(super) fn a_job_that_is_being_undone_is_neither_retried_nor_deleted(g: &Fixture) {
    let work = saga(g, &["charge"]);
    g.fail_for_good(&work).expect("a live claim");
    assert!(matches!(g.retry(work.job.id), Err(JobRefusal::WrongState { .. })));
    assert!(matches!(g.delete(work.job.id, false), Err(JobRefusal::WrongState { .. })));
    g.complete(&undo_of(g, &work, "charge")).expect("a live claim");
    assert!(matches!(g.retry(work.job.id), Err(JobRefusal::WrongState { .. })), "its effects are gone");
    assert_eq!(g.delete(work.job.id, false), Ok(JobState::Failed));
}

/// An undo job without a queue of its own stands in the queue of the job that it undoes, on that job's terms.
pub(super) fn an_undo_job_stands_in_its_jobs_queue_unless_told_otherwise(g: &Fixture) {
    let work = g.new_work("q", "A");
    let undo = Compensation { kind: kind("refund"), queue: None, payload: "{}".into() };
    g.record_with_undo(&work, "charge", undo).expect("a live claim");
    g.fail_for_good(&work).expect("a live claim");
    let refund = g.work("q", "B");
    assert_eq!((refund.job.kind.as_str(), refund.job.options), ("refund", terms()));
    assert_eq!(g.detail(work.job.id).effects[0].compensation_job_id, Some(refund.job.id));
    assert_ne!(refund.job.token, Token::NONE);
}

/// A chain of undo jobs holds no other work up, and is held up by none.
pub(super) fn undoing_one_job_leaves_another_alone(g: &Fixture) {
    let (one, two) = (saga(g, &["charge"]), saga(g, &["charge"]));
    g.fail_for_good(&one).expect("a live claim");
    let undo = undo_of(g, &one, "charge");
    g.fail_for_good(&undo).expect("a live claim");
    g.fail_for_good(&two).expect("a live claim");
    g.complete(&undo_of(g, &two, "charge")).expect("a live claim");
    assert_eq!(g.detail(one.job.id).job.compensation_state, CompensationState::Stopped);
    assert_eq!(g.detail(two.job.id).job.compensation_state, CompensationState::Done);
    g.put_with(NewJob { options: terms(), ..g.job_for("q") });
    g.work("q", "B");
}
