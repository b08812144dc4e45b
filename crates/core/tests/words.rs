//! What refusals and states say to whoever reads them.

use std::num::NonZeroU32;

use fencehold_core::job::{self, Ended, JobId, Queue, State, Terms};
use fencehold_core::lease::How;
use fencehold_core::ledger::{EffectState, OnDoubt};
use fencehold_core::limits::{ATTEMPT_MS_MAX, TRIES_MAX};
use fencehold_core::{Owner, Reason, Refusal, Token, Violation};

fn lost(how: Option<How>, by: Option<&str>, reason: Option<&str>) -> Refusal {
    let by = by.map(|by| Owner::new(by).expect("a good name"));
    let reason = reason.map(|reason| Reason::new(reason).expect("a good reason"));
    Refusal::Lost { token: Token::new(7), how, by, reason, current: Token::new(9) }
}

#[test]
fn a_refusal_says_how_the_hold_ended_and_through_whom() {
    let released = Refusal::Ended { token: Some(Token::new(7)), how: Some(How::Released) };
    assert_eq!(released.to_string(), "this hold has ended: token 7 was released");
    let forgotten = Refusal::Ended { token: None, how: None };
    assert_eq!(
        forgotten.to_string(),
        "this hold has ended, or may have: the key's history no longer reaches back that far"
    );
    for (refusal, words) in [
        (lost(None, None, None), ""),
        (lost(Some(How::Expired), None, None), ": it expired: it was not renewed in time"),
        (lost(Some(How::AgedOut), None, None), ": it was held for its whole max age"),
        (
            lost(Some(How::Yielded), Some("nightly"), None),
            ": it was asked to yield by nightly, and its time was up",
        ),
        (
            lost(Some(How::Revoked), Some("ops"), Some("it was stuck")),
            ": it was revoked by ops (it was stuck)",
        ),
        (lost(Some(How::Released), None, None), ": it was released"),
    ] {
        let all = format!("the hold under token 7 is over{words}; the key's current token is 9");
        assert_eq!(refusal.to_string(), all);
    }
}

#[test]
fn a_refusal_says_how_an_attempt_ended_and_whose_the_token_is() {
    let (token, current) = (Token::new(7), Token::new(9));
    let stale = |how| job::Refusal::Stale { token, how, current }.to_string();
    assert_eq!(stale(None), "token 7 is stale: the job went on under token 9");
    assert_eq!(
        stale(Some(Ended::Crashed)),
        "token 7 is stale: the job went on under token 9 after this attempt ran out"
    );
    for (how, words) in Ended::ALL.iter().zip([
        "was completed",
        "was completed late",
        "failed",
        "failed, as was said late",
        "ran over its time limit",
        "ran out",
        "was snoozed",
        "was handed back",
        "had to yield",
        "was given back, since its asker had gone",
        "stopped as indeterminate",
        "was ended by force",
        "was ended by `store advance`",
    ]) {
        let over = job::Refusal::Over { token, how: *how };
        assert_eq!(over.to_string(), format!("the attempt under token 7 is over: it {words}"));
    }
    let others = |job| job::Refusal::OtherJob { token, job }.to_string();
    assert_eq!(others(None), "token 7 was never given for this job");
    let job: JobId = "019a7afd-1e00-7000-8000-000000000001".parse().expect("a good id");
    assert_eq!(
        others(Some(job)),
        "token 7 was never given for this job; it is job 019a7afd-1e00-7000-8000-000000000001's"
    );
}

#[test]
fn states_are_read_as_they_are_written() {
    for state in State::ALL {
        assert_eq!(state.to_string().parse(), Ok(state));
        let settled = !matches!(state, State::Queued | State::Scheduled | State::Running);
        assert_eq!(state.is_settled(), settled, "{state}");
    }
    let wrong = "done".parse::<State>().expect_err("no such state").to_string();
    assert!(wrong.starts_with("state \"done\" is not one of queued, scheduled, running,"), "{wrong}");
    for (state, word) in [
        (EffectState::Intended(OnDoubt::RunAgain), "intended"),
        (EffectState::Done, "done"),
        (EffectState::Undoing, "undoing"),
        (EffectState::Undone, "undone"),
        (EffectState::UndoFailed, "undo failed"),
    ] {
        assert_eq!(state.to_string(), word);
    }
}

#[test]
fn terms_on_which_nothing_can_be_tried_are_refused_at_their_bounds() {
    let problem = |terms: Terms| terms.check().err().map(|error| error.to_string());
    assert_eq!(problem(Terms::default()), None);
    for tries in [1, TRIES_MAX] {
        assert_eq!(problem(Terms { max_attempts: tries, max_crashes: tries, ..Terms::default() }), None);
    }
    for tries in [0, TRIES_MAX + 1] {
        let said = format!("is {tries}; it takes 1 to {TRIES_MAX}");
        let attempts = problem(Terms { max_attempts: tries, ..Terms::default() });
        assert_eq!(attempts, Some(format!("max_attempts {said}")));
        let crashes = problem(Terms { max_crashes: tries, ..Terms::default() });
        assert_eq!(crashes, Some(format!("max_crashes {said}")));
    }
    let limited = |ms: u64| {
        let attempt_ms = u32::try_from(ms).ok().and_then(NonZeroU32::new);
        problem(Terms { attempt_ms, ..Terms::default() })
    };
    assert_eq!(limited(ATTEMPT_MS_MAX), None);
    let said = limited(ATTEMPT_MS_MAX + 1).expect("it is too long");
    assert!(said.starts_with("time limit of an attempt is 2592000001 ms"), "{said}");
}

#[test]
fn queues_of_our_own_are_nobody_elses() {
    let said = Queue::operations().check_open().expect_err("it is ours").to_string();
    assert!(said.starts_with("queue fencehold/operations is reserved"), "{said}");
    assert_eq!(Queue::new("mail").expect("a good name").check_open(), Ok(()));
}

#[test]
fn a_broken_invariant_is_named() {
    assert_eq!(Violation::TwoHolders.to_string(), "invariant broken: TwoHolders");
    assert_eq!(job::Violation::TrailMalformed.to_string(), "invariant broken: TrailMalformed");
}
