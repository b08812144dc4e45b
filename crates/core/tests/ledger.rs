//! The ledger of a job: effects at most once, doubts by their policy, undoing in reverse.

use fencehold_core::Token;
use fencehold_core::job::{EffectName, JobId, JobKind};
use fencehold_core::ledger::{
    Compensation, Effect, EffectOutcome, EffectStart, EffectState, InDoubtPolicy, begin, idempotency_key,
    next_to_undo, record, stands_undone,
};
use proptest::prelude::*;

const WALL_MS: u64 = 1_700_000_000_000;

fn name(text: &str) -> EffectName {
    EffectName::new(text).expect("a good name")
}

fn undo_with(kind: &str) -> Compensation {
    Compensation { kind: JobKind::new(kind).expect("a good kind"), queue: None, payload: "{}".into() }
}

fn outcome(effect: &str, value: &str) -> EffectOutcome {
    EffectOutcome { name: name(effect), value: value.into(), compensation: None }
}

/// An announced effect.
fn intent(policy: InDoubtPolicy, token: u64) -> Effect {
    match begin(None, &name("charge"), policy, Token::new(token), 0, WALL_MS) {
        EffectStart::Go(effect) => effect,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_effect_that_was_never_heard_of_may_go_ahead_and_is_announced() {
    let effect = intent(InDoubtPolicy::Manual, 7);
    assert_eq!(effect.state, EffectState::Intended(InDoubtPolicy::Manual));
    assert_eq!((effect.position, effect.token, effect.written_at_ms), (0, Token::new(7), WALL_MS));
    assert_eq!((effect.value, effect.compensation, effect.compensation_job_id), (None, None, None));
}

#[test]
fn the_first_record_stands() {
    let first = record(None, &outcome("charge", "1"), Token::new(7), 3, WALL_MS).unwrap();
    assert_eq!((first.state, first.value.as_deref(), first.position), (EffectState::Done, Some("1"), 3));
    let again = record(Some(&first), &outcome("charge", "2"), Token::new(8), 4, WALL_MS + 1);
    assert_eq!(again, Err(first.clone()), "not its value, not its token, not its place");
    let begun = begin(Some(&first), &name("charge"), InDoubtPolicy::Manual, Token::new(8), 4, WALL_MS + 1);
    assert_eq!(begun, EffectStart::Recorded(first), "and it does not run again");
}

#[test]
fn an_outcome_keeps_the_place_of_its_intent() {
    let announced = intent(InDoubtPolicy::Manual, 7);
    let done = record(Some(&announced), &outcome("charge", "1"), Token::new(7), 9, WALL_MS + 1).unwrap();
    assert_eq!((done.position, done.state), (0, EffectState::Done));
}

#[test]
fn the_attempt_that_announced_may_ask_again() {
    // Its first answer was lost, so it has not gone ahead.
    for policy in [InDoubtPolicy::Manual, InDoubtPolicy::Retry] {
        let announced = intent(policy, 7);
        let again = begin(Some(&announced), &name("charge"), policy, Token::new(7), 5, WALL_MS + 9);
        assert_eq!(again, EffectStart::Go(announced));
    }
}

#[test]
fn a_later_attempt_goes_by_the_policy_that_the_intent_was_written_with() {
    // R17
    let asks = intent(InDoubtPolicy::Manual, 7);
    for policy in [InDoubtPolicy::Manual, InDoubtPolicy::Retry] {
        let begun = begin(Some(&asks), &name("charge"), policy, Token::new(8), 1, WALL_MS);
        assert_eq!(begun, EffectStart::InDoubt, "{policy:?}");
    }
    let runs = intent(InDoubtPolicy::Retry, 7);
    for policy in [InDoubtPolicy::Manual, InDoubtPolicy::Retry] {
        let begun = begin(Some(&runs), &name("charge"), policy, Token::new(8), 1, WALL_MS + 5);
        // The same effect, announced anew: by whom, when, and what is to be done should this one die as well.
        let (token, at_wall_ms) = (Token::new(8), WALL_MS + 5);
        let state = EffectState::Intended(policy);
        assert_eq!(
            begun,
            EffectStart::Go(Effect { token, written_at_ms: at_wall_ms, state, ..runs.clone() }),
            "{policy:?}"
        );
    }
}

#[test]
fn every_attempt_has_an_effect_under_one_idempotency_key() {
    // R17
    let job = JobId::from_random(WALL_MS, [1; 10]);
    let other = JobId::from_random(WALL_MS, [2; 10]);
    let charge = name("charge");
    assert_eq!(idempotency_key(job, &charge), idempotency_key(job, &charge));
    assert_ne!(idempotency_key(job, &charge), idempotency_key(other, &charge));
    assert_ne!(idempotency_key(job, &charge), idempotency_key(job, &name("ship")));
}

#[test]
fn what_was_undone_or_is_being_undone_counts_as_having_happened() {
    for state in [
        EffectState::Done,
        EffectState::Compensating,
        EffectState::Compensated,
        EffectState::CompensationFailed,
    ] {
        let effect = Effect { state, ..intent(InDoubtPolicy::Retry, 7) };
        let begun = begin(Some(&effect), &name("charge"), InDoubtPolicy::Retry, Token::new(8), 1, WALL_MS);
        assert_eq!(begun, EffectStart::Recorded(effect.clone()), "{state}");
        let again = record(Some(&effect), &outcome("charge", "2"), Token::new(8), 1, WALL_MS);
        assert_eq!(again, Err(effect), "{state}");
    }
}

/// The effects of one job: in which state each stands, and whether it can be undone.
fn effects(list: &[(EffectState, bool)]) -> Vec<Effect> {
    let of = |(nth, (state, can)): (usize, &(EffectState, bool))| Effect {
        name: name(&format!("effect-{nth}")),
        position: u16::try_from(nth).expect("few effects"),
        state: *state,
        compensation: can.then(|| Box::new(undo_with("undo"))),
        ..intent(InDoubtPolicy::Manual, 7)
    };
    list.iter().enumerate().map(of).collect()
}

#[test]
fn an_undo_that_failed_or_is_under_way_holds_the_others_back() {
    for blocking in [EffectState::Compensating, EffectState::CompensationFailed] {
        let effects =
            effects(&[(EffectState::Done, true), (blocking, true), (EffectState::Compensated, true)]);
        assert_eq!(next_to_undo(&effects), None, "{blocking}");
        assert!(!stands_undone(&effects), "{blocking}");
    }
}

#[test]
fn what_cannot_be_undone_or_never_surely_happened_is_left_out() {
    let intended = EffectState::Intended(InDoubtPolicy::Manual);
    let effects = effects(&[(EffectState::Done, true), (EffectState::Done, false), (intended, true)]);
    assert_eq!(next_to_undo(&effects).map(|effect| effect.position), Some(0));
    assert!(!stands_undone(&effects));
    assert!(stands_undone(&effects[1..]));
    assert!(stands_undone(&[]));
}

/// What attempts do to one effect.
#[derive(Clone, Copy, Debug)]
enum EffectStep {
    /// A newer attempt takes the job.
    NextAttempt,
    Begin(InDoubtPolicy),
    Record(u8),
}

fn deed() -> impl Strategy<Value = EffectStep> {
    prop_oneof![
        2 => Just(EffectStep::NextAttempt),
        3 => prop_oneof![Just(InDoubtPolicy::Retry), Just(InDoubtPolicy::Manual)].prop_map(EffectStep::Begin),
        2 => any::<u8>().prop_map(EffectStep::Record),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_effect_is_recorded_at_most_once_whatever_the_number_of_attempts(
        deeds in prop::collection::vec(deed(), 1..60),
    ) {
        // P8. The model remembers the first value, and who announced it last with which policy.
        let mut found: Option<Effect> = None;
        let mut first_value: Option<String> = None;
        let mut announced: Option<(u64, InDoubtPolicy)> = None;
        let mut token = 1;
        for deed in deeds {
            match deed {
                EffectStep::NextAttempt => token += 1,
                EffectStep::Begin(policy) => {
                    let begun = begin(found.as_ref(), &name("charge"), policy, Token::new(token), 0, WALL_MS);
                    let in_doubt = announced.is_some_and(|(by, policy)| by != token && policy == InDoubtPolicy::Manual);
                    match begun {
                        EffectStart::Recorded(effect) => {
                            prop_assert_eq!(effect.value.as_deref(), first_value.as_deref());
                            prop_assert!(first_value.is_some());
                        }
                        EffectStart::InDoubt => prop_assert!(in_doubt && first_value.is_none()),
                        EffectStart::Go(effect) => {
                            prop_assert!(!in_doubt && first_value.is_none(), "it may have happened already");
                            if announced.is_none_or(|(by, _)| by != token) {
                                announced = Some((token, policy));
                            }
                            found = Some(effect);
                        }
                    }
                }
                EffectStep::Record(value) => {
                    let value = value.to_string();
                    match record(found.as_ref(), &outcome("charge", &value), Token::new(token), 0, WALL_MS) {
                        Ok(effect) => {
                            prop_assert!(first_value.is_none(), "recorded twice");
                            first_value = Some(value);
                            found = Some(effect);
                        }
                        Err(stands) => prop_assert_eq!(stands.value.as_deref(), first_value.as_deref()),
                    }
                }
            }
        }
    }

    #[test]
    fn effects_are_undone_last_one_first_and_each_once(
        list in prop::collection::vec((any::<bool>(), any::<bool>()), 0..12),
        fails_at in prop::option::of(0..12_usize),
    ) {
        let state = |done| if done { EffectState::Done } else { EffectState::Intended(InDoubtPolicy::Manual) };
        let list: Vec<_> = list.into_iter().map(|(done, can)| (state(done), can)).collect();
        let mut effects = effects(&list);
        let can_be = effects.iter().filter(|effect| effect.state == EffectState::Done && effect.compensation.is_some());
        let expected: Vec<u16> = can_be.map(|effect| effect.position).rev().collect();
        let mut undone = Vec::new();
        while let Some(nth) = next_to_undo(&effects).map(|effect| effect.position) {
            let at = usize::from(nth);
            effects[at].state = EffectState::Compensating;
            prop_assert!(next_to_undo(&effects).is_none(), "one at a time");
            let failed = fails_at == Some(undone.len());
            effects[at].state = if failed { EffectState::CompensationFailed } else { EffectState::Compensated };
            undone.push(nth);
        }
        let reached = fails_at.map_or(expected.len(), |at| expected.len().min(at + 1));
        prop_assert_eq!(&undone[..], &expected[..reached]);
        let stopped = fails_at.is_some_and(|at| at < expected.len());
        prop_assert_eq!(stands_undone(&effects), !stopped);
    }
}
