//! What refusals and states say to their readers.

use std::num::NonZeroU32;

use fencehold_core::job::{self, AttemptOutcome, JobId, JobOptions, JobState, QueueName};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::ledger::{EffectState, InDoubtPolicy};
use fencehold_core::limits::{ATTEMPT_MS_MAX, TRIES_MAX};
use fencehold_core::{BlockedAction, EventData, LeaseViolation, Owner, Reason, Refusal, Token};

fn lost(how: Option<LeaseOutcome>, by: Option<&str>, reason: Option<&str>) -> Refusal {
    let by = by.map(|by| Owner::new(by).expect("a good name"));
    let reason = reason.map(|reason| Reason::new(reason).expect("a good reason"));
    Refusal::Lost { token: Token::new(7), outcome: how, by, reason, current_token: Token::new(9) }
}

#[test]
fn a_refusal_says_how_the_hold_ended_and_through_whom() {
    let released = Refusal::HoldIdUsed { token: Some(Token::new(7)), outcome: Some(LeaseOutcome::Released) };
    assert_eq!(released.to_string(), "this hold has ended: token 7 was released");
    let forgotten = Refusal::HoldIdUsed { token: None, outcome: None };
    assert_eq!(
        forgotten.to_string(),
        "this hold has ended, or may have: the key's history no longer reaches back that far"
    );
    for (refusal, words) in [
        (lost(None, None, None), ""),
        (lost(Some(LeaseOutcome::Expired), None, None), ": it expired: it was not renewed in time"),
        (lost(Some(LeaseOutcome::AgedOut), None, None), ": it was held for its whole max age"),
        (
            lost(Some(LeaseOutcome::Yielded), Some("nightly"), None),
            ": it was asked to yield by nightly, and its time was up",
        ),
        (
            lost(Some(LeaseOutcome::Revoked), Some("ops"), Some("it was stuck")),
            ": it was revoked by ops (it was stuck)",
        ),
        (lost(Some(LeaseOutcome::Released), None, None), ": it was released"),
    ] {
        let all = format!("the hold under token 7 is over{words}; the key's current token is 9");
        assert_eq!(refusal.to_string(), all);
    }
}

#[test]
fn a_refusal_says_how_an_attempt_ended_and_whose_the_token_is() {
    let (token, current) = (Token::new(7), Token::new(9));
    let stale = |how| job::JobRefusal::Stale { token, outcome: how, current_token: current }.to_string();
    assert_eq!(stale(None), "token 7 is stale: the job went on under token 9");
    assert_eq!(
        stale(Some(AttemptOutcome::Crashed)),
        "token 7 is stale: the job went on under token 9 after this attempt ran out"
    );
    for (how, words) in AttemptOutcome::ALL.iter().zip([
        "was completed",
        "was completed late",
        "failed",
        "failed, as was said late",
        "ran over its time limit",
        "ran out",
        "was snoozed",
        "was released",
        "had to yield",
        "was given back, since its asker had gone",
        "stopped in doubt",
        "was ended by force",
        "was ended by `store advance`",
    ]) {
        let over = job::JobRefusal::Over { token, outcome: *how };
        assert_eq!(over.to_string(), format!("the attempt under token 7 is over: it {words}"));
    }
    let others = |job| job::JobRefusal::WrongJob { token, job_id: job }.to_string();
    assert_eq!(others(None), "token 7 was never given for this job");
    let job: JobId = "019a7afd-1e00-7000-8000-000000000001".parse().expect("a good id");
    assert_eq!(
        others(Some(job)),
        "token 7 was never given for this job; it is job 019a7afd-1e00-7000-8000-000000000001's"
    );
}

#[test]
fn states_are_read_as_they_are_written() {
    for state in JobState::ALL {
        assert_eq!(state.to_string().parse(), Ok(state));
        let settled = !matches!(state, JobState::Queued | JobState::Scheduled | JobState::Running);
        assert_eq!(state.is_settled(), settled, "{state}");
    }
    let wrong = "done".parse::<JobState>().expect_err("no such state").to_string();
    assert!(wrong.starts_with("state \"done\" is not one of queued, scheduled, running,"), "{wrong}");
    for (state, word) in [
        (EffectState::Intended(InDoubtPolicy::Retry), "intended"),
        (EffectState::Done, "done"),
        (EffectState::Compensating, "compensating"),
        (EffectState::Compensated, "compensated"),
        (EffectState::CompensationFailed, "compensation failed"),
    ] {
        assert_eq!(state.to_string(), word);
    }
}

#[test]
fn terms_on_which_nothing_can_be_tried_are_refused_at_their_bounds() {
    let problem = |terms: JobOptions| terms.check().err().map(|error| error.to_string());
    assert_eq!(problem(JobOptions::default()), None);
    for tries in [1, TRIES_MAX] {
        assert_eq!(
            problem(JobOptions { max_failures: tries, max_crashes: tries, ..JobOptions::default() }),
            None
        );
    }
    for tries in [0, TRIES_MAX + 1] {
        let said = format!("is {tries}; it takes 1 to {TRIES_MAX}");
        let attempts = problem(JobOptions { max_failures: tries, ..JobOptions::default() });
        assert_eq!(attempts, Some(format!("max_failures {said}")));
        let crashes = problem(JobOptions { max_crashes: tries, ..JobOptions::default() });
        assert_eq!(crashes, Some(format!("max_crashes {said}")));
    }
    let limited = |ms: u64| {
        let attempt_ms = u32::try_from(ms).ok().and_then(NonZeroU32::new);
        problem(JobOptions { attempt_timeout_ms: attempt_ms, ..JobOptions::default() })
    };
    assert_eq!(limited(ATTEMPT_MS_MAX), None);
    let said = limited(ATTEMPT_MS_MAX + 1).expect("it is too long");
    assert!(said.starts_with("time limit of an attempt is 2592000001 ms"), "{said}");
}

#[test]
fn queues_of_our_own_are_nobody_elses() {
    let said = QueueName::operations().check_open().expect_err("it is ours").to_string();
    assert!(said.starts_with("queue fencehold/operations is reserved"), "{said}");
    assert_eq!(QueueName::new("mail").expect("a good name").check_open(), Ok(()));
}

#[test]
fn a_broken_invariant_is_named() {
    assert_eq!(LeaseViolation::TwoHolders.to_string(), "invariant broken: TwoHolders");
    assert_eq!(job::JobViolation::TrailMalformed.to_string(), "invariant broken: TrailMalformed");
}

#[test]
fn a_stale_write_names_the_newest_token_and_a_late_one_how_its_hold_ended() {
    let token = |number| Token::new(number);
    let blocked = |current, outcome| EventData::StaleWriteBlocked {
        token: token(14),
        current_token: token(current),
        action: BlockedAction::Renew,
        outcome,
    };
    let said = |data: EventData| data.stale_write_refused().unwrap();
    assert_eq!(said(blocked(15, None)), "stale renewal under token 14 refused: the newest is 15");
    assert_eq!(
        said(blocked(14, Some(LeaseOutcome::Released))),
        "late renewal under token 14 refused: its hold was released"
    );
    assert_eq!(said(blocked(14, None)), "late renewal under token 14 refused: its hold is over");
    assert_eq!(EventData::KeyCollected { token: token(1) }.stale_write_refused(), None);
}
