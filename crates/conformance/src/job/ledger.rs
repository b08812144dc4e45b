//! The ledger: effects at most once, and what is done when one is in doubt.

use super::prelude::*;

fn value(answer: Result<LedgerResponse, JobRefusal>) -> Option<String> {
    match answer {
        Ok(LedgerResponse::Recorded { recorded_effect: effect }) => effect.value.map(String::from),
        other => panic!("{other:?}"),
    }
}

/// The next attempt at the only job of the queue.
fn next_attempt(g: &Fixture, work: &ClaimedWork) -> ClaimedWork {
    g.say(work, Report::Release {}).expect("a live claim");
    g.work("q", "B")
}

pub(super) fn resolve(
    g: &Fixture,
    work: &ClaimedWork,
    name: &str,
    happened: Option<&str>,
) -> Result<(), JobRefusal> {
    let happened = match happened {
        Some(value) => EffectResolution::Happened { value: value.into() },
        None => EffectResolution::DidNotHappen {},
    };
    let request = ResolveEffectRequest {
        job_id: work.job.id,
        effect: effect(name),
        resolution: happened,
        by: owner("P"),
    };
    g.drive(jobs_of(&*g.test_store.other()).resolve_effect(&g.call, request))
        .expect("an answer")
}

/// P8: an effect that was recorded gives its stored value to every later attempt, and does not happen again.
pub(super) fn a_recorded_effect_is_there_for_every_later_attempt(g: &Fixture) {
    let first = g.new_work("q", "A");
    assert_eq!(g.announce(&first, "charge", InDoubtPolicy::Retry), PROCEED);
    assert_eq!(value(g.record(&first, "charge", "\"receipt 7\"")).as_deref(), Some("\"receipt 7\""));
    assert_eq!(value(g.record(&first, "ship", "8")).as_deref(), Some("8"), "also without an intent");
    let second = next_attempt(g, &first);
    let told = second.job.effects.iter();
    let told: Vec<_> = told.map(|effect| (effect.name.as_str(), effect.state)).collect();
    assert_eq!(told, [("charge", EffectState::Done), ("ship", EffectState::Done)]);
    assert_eq!(second.job.effects[0].token, first.job.token, "under the token that did it");
    let begun = g.announce(&second, "charge", InDoubtPolicy::Retry);
    assert_eq!(value(begun).as_deref(), Some("\"receipt 7\""));
    assert_eq!(g.detail(first.job.id).effects.len(), 2);
}

/// P8: the first record stands, no matter who records it again.
pub(super) fn the_first_record_of_an_effect_stands(g: &Fixture) {
    let first = g.new_work("q", "A");
    g.record(&first, "charge", "1").expect("a live claim");
    assert_eq!(value(g.record(&first, "charge", "2")).as_deref(), Some("1"));
    let second = next_attempt(g, &first);
    assert_eq!(value(g.record(&second, "charge", "3")).as_deref(), Some("1"));
    let effects = g.detail(first.job.id).effects;
    assert_eq!((effects.len(), effects[0].token), (1, first.job.token));
}

/// P8: many record one effect at once: one value, and all learn it.
pub(super) fn an_effect_that_is_recorded_many_times_at_once_has_one_value(g: &Fixture) {
    let work = g.new_work("q", "A");
    let values = at_once(6, |nth| value(g.record(&work, "charge", &nth.to_string())));
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    assert_eq!(g.detail(work.job.id).effects.len(), 1);
}

/// P8, R06: a stale attempt records nothing and announces nothing.
pub(super) fn a_stale_attempt_writes_nothing_into_the_ledger(g: &Fixture) {
    let first = g.new_work("q", "A");
    let second = next_attempt(g, &first);
    let (stale, newest) = (first.job.token, second.job.token);
    assert_stale(g.announce(&first, "charge", InDoubtPolicy::Retry), stale, newest);
    assert_stale(g.record(&first, "charge", "1"), stale, newest);
    g.record(&second, "ship", "2").expect("a live claim");
    assert_stale(g.announce(&first, "ship", InDoubtPolicy::Retry), stale, newest);
    let effects = g.detail(first.job.id).effects;
    assert_eq!(effects.iter().map(|effect| effect.name.as_str()).collect::<Vec<_>>(), ["ship"]);
}

/// R17: killed between an effect and its record, with the policy to run again: the next attempt goes ahead, under the
/// same name and so under the same idempotency key.
pub(super) fn an_open_intent_is_run_again_where_its_policy_says_so(g: &Fixture) {
    let first = g.new_work("q", "A");
    assert_eq!(g.announce(&first, "charge", InDoubtPolicy::Retry), PROCEED);
    g.crash(&first);
    let second = g.work("q", "B");
    let found = only(second.job.effects.clone());
    assert_eq!(found.state, EffectState::Intended(InDoubtPolicy::Retry));
    assert_eq!(g.announce(&second, "charge", InDoubtPolicy::Retry), PROCEED);
    assert_eq!(value(g.record(&second, "charge", "1")).as_deref(), Some("1"));
    let effects = g.detail(first.job.id).effects;
    assert_eq!((effects.len(), effects[0].token), (1, second.job.token));
}

/// R17: with the policy to ask, the next attempt stops in doubt, and people are shown why.
pub(super) fn an_open_intent_stops_the_job_where_its_policy_says_so(g: &Fixture) {
    let first = g.new_work("q", "A");
    assert_eq!(g.announce(&first, "charge", InDoubtPolicy::Manual), PROCEED);
    assert_eq!(g.announce(&first, "charge", InDoubtPolicy::Manual), PROCEED, "its own answer was lost");
    g.crash(&first);
    let second = g.work("q", "B");
    assert_eq!(g.announce(&second, "charge", InDoubtPolicy::Retry), IN_DOUBT, "the first policy counts");
    assert_eq!(
        (g.state(first.job.id), g.ended(first.job.id)),
        (JobState::InDoubt, Some(AttemptOutcome::InDoubt))
    );
    assert_over(g.complete(&second), &second, AttemptOutcome::InDoubt);
    assert!(g.try_work("q", "B").is_none(), "it waits for a person");
    let finding = only(g.findings());
    assert_eq!((finding.finding, finding.job_id), (FindingKind::InDoubt, first.job.id));
    assert_eq!((finding.effect, finding.job_state), (effect("charge"), JobState::InDoubt));
}

/// P8: an attempt that knows that its effect did not happen leaves nothing in doubt; what an earlier attempt announced
/// stays.
pub(super) fn a_withdrawn_intent_leaves_nothing_in_doubt(g: &Fixture) {
    let first = g.new_work("q", "A");
    let withdraw =
        |work: &ClaimedWork| g.write_ledger(work, LedgerEntry::Withdraw { effect: effect("charge") });
    assert_eq!(g.announce(&first, "charge", InDoubtPolicy::Manual), PROCEED);
    assert_eq!(withdraw(&first), Ok(LedgerResponse::Withdrawn {}));
    assert_eq!(withdraw(&first), Ok(LedgerResponse::Withdrawn {}), "the same entry gets the same answer");
    assert!(g.detail(first.job.id).effects.is_empty() && g.findings().is_empty());
    let second = next_attempt(g, &first);
    assert_stale(withdraw(&first), first.job.token, second.job.token);
    assert_eq!(g.announce(&second, "charge", InDoubtPolicy::Manual), PROCEED, "as if it had never been");
    let third = next_attempt(g, &second);
    let refused = withdraw(&third);
    assert_matches!(refused, Err(JobRefusal::WrongState { .. }), "an earlier attempt may have had it");
    assert_eq!(only(g.findings()).effect, effect("charge"));
    assert_eq!(value(g.record(&third, "charge", "1")).as_deref(), Some("1"));
    assert_eq!(value(withdraw(&third)).as_deref(), Some("1"), "what is recorded has happened");
}

/// A person says that it happened, and the job goes on with that; or that it did not, and it is done anew.
pub(super) fn a_person_settles_a_doubt_and_the_job_goes_on(g: &Fixture) {
    for happened in [Some("\"receipt 7\""), None] {
        let first = g.new_work("q", "A");
        assert_eq!(g.announce(&first, "charge", InDoubtPolicy::Manual), PROCEED);
        let refused = resolve(g, &first, "charge", happened);
        assert_matches!(refused, Err(JobRefusal::WrongState { .. }), "its holder is at work");
        g.crash(&first);
        let second = g.work("q", "B");
        assert_eq!(g.announce(&second, "charge", InDoubtPolicy::Manual), IN_DOUBT);
        assert_eq!(resolve(g, &first, "charge", happened), Ok(()));
        let refused = resolve(g, &first, "charge", happened);
        assert_matches!(refused, Err(JobRefusal::WrongState { .. }), "it is settled");
        assert_eq!(
            g.findings()
                .into_iter()
                .filter(|found| found.finding == FindingKind::InDoubt)
                .count(),
            0
        );
        let third = g.work("q", "B");
        assert_eq!(third.job.id, first.job.id);
        match happened {
            Some(text) => {
                assert_eq!(value(g.announce(&third, "charge", InDoubtPolicy::Manual)).as_deref(), Some(text));
            }
            None => {
                assert_eq!(g.announce(&third, "charge", InDoubtPolicy::Manual), PROCEED);
            }
        }
        g.complete(&third).expect("a live claim");
    }
}

/// A late attempt may report the outcome of its effect, which ends the doubt; but it may begin nothing new.
pub(super) fn a_late_outcome_settles_a_doubt(g: &Fixture) {
    let first = g.new_work("q", "A");
    assert_eq!(g.announce(&first, "charge", InDoubtPolicy::Manual), PROCEED);
    g.crash(&first);
    assert_over(g.announce(&first, "ship", InDoubtPolicy::Retry), &first, AttemptOutcome::Crashed);
    assert_eq!(value(g.record(&first, "charge", "1")).as_deref(), Some("1"));
    let second = g.work("q", "B");
    assert_eq!(value(g.announce(&second, "charge", InDoubtPolicy::Manual)).as_deref(), Some("1"));
    assert_stale(g.record(&first, "ship", "2"), first.job.token, second.job.token);
}

/// Many entries in one call are answered each, in order.
pub(super) fn many_entries_are_answered_each_and_in_order(g: &Fixture) {
    let work = g.new_work("q", "A");
    let record = |name: &str, value: &str| AttemptLedgerEntry {
        attempt: work.attempt(),
        entry: LedgerEntry::Record { effect: effect(name), value: value.into(), compensation: None },
    };
    let entries =
        vec![record("one", "1"), record("two", "not json"), record("three", "3"), record("one", "4")];
    let answers = g
        .drive(jobs_of(&*g.test_store.store()).write_effects(&g.call, entries))
        .expect("entries that are answered");
    assert!(matches!(answers[1], Err(JobRefusal::BadInput(_))), "{answers:?}");
    assert_eq!(value(answers[3].clone()).as_deref(), Some("1"));
    let effects = g.detail(work.job.id).effects;
    let names: Vec<_> = effects.iter().map(|effect| effect.name.as_str()).collect();
    assert_eq!(names, ["one", "three"], "in the order in which they were first heard of");
}

/// A job has so many effects and no more.
pub(super) fn a_job_has_a_bounded_number_of_effects(g: &Fixture) {
    let work = g.new_work("q", "A");
    let entries = (0..=EFFECTS_PER_JOB_MAX).map(|nth| AttemptLedgerEntry {
        attempt: work.attempt(),
        entry: LedgerEntry::Record {
            effect: effect(&format!("effect-{nth}")),
            value: "1".into(),
            compensation: None,
        },
    });
    let answers = g
        .drive(jobs_of(&*g.test_store.store()).write_effects(&g.call, entries.collect()))
        .expect("entries that are answered");
    let (last, rest) = answers.split_last().expect("answers");
    assert!(rest.iter().all(Result::is_ok));
    assert!(matches!(last, Err(JobRefusal::LimitReached { .. })), "{last:?}");
    let again = g.record(&work, "effect-0", "2");
    assert_matches!(again, Ok(LedgerResponse::Recorded { .. }), "an old one is still there");
}
