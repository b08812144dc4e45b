use super::*;

/// A history by hand: who, when it asked, what, when it was answered, what.
fn told(calls: &[(&str, u64, AskedCall, u64, CallResult)]) -> String {
    let mut text = String::new();
    for (nth, (who, sent_ms, ask, answered_ms, tell)) in (0_u64..).zip(calls) {
        for (at_ms, what) in
            [(sent_ms, CallHalf::Asked(ask.clone())), (answered_ms, CallHalf::Told(tell.clone()))]
        {
            text += &serde_json::to_string(&HistoryLine::new(*who, nth, *at_ms, what)).unwrap();
            text.push('\n');
        }
    }
    text
}

fn acquire() -> AskedCall {
    AskedCall::Acquire { key: "k".to_owned() }
}

fn granted(token: u64) -> CallResult {
    CallResult::Granted { token, remaining_ms: 1_000 }
}

fn problem_of(calls: &[(&str, u64, AskedCall, u64, CallResult)], end: Option<&FinalState>) -> String {
    check([told(calls).as_str()], end).problems.join("; ")
}

#[test]
fn a_history_of_turns_is_true() {
    let release = AskedCall::Release { key: "k".to_owned(), token: 1 };
    let calls = [
        ("a", 0, acquire(), 5, granted(1)),
        ("b", 6, acquire(), 9, CallResult::Held { token: 1 }),
        ("a", 10, release, 30, CallResult::Released),
        ("b", 20, acquire(), 25, granted(2)),
        ("c", 1_021, acquire(), 1_025, granted(3)),
    ];
    let end = FinalState { keys: BTreeMap::from([("k".to_owned(), 3)]), ..FinalState::default() };
    let judgement = check([told(&calls).as_str()], Some(&end));
    assert_eq!((judgement.problems, judgement.calls, judgement.grants), (vec![], 5, 3));
}

#[test]
fn two_holders_at_once_are_noticed() {
    let calls = [("a", 0, acquire(), 5, granted(1)), ("b", 900, acquire(), 999, granted(2))];
    assert!(problem_of(&calls, None).contains("while token 1 was promised until 1000 ms"));
}

#[test]
fn a_token_that_is_given_twice_is_noticed() {
    let calls = [("a", 0, acquire(), 5, granted(1)), ("b", 2_000, acquire(), 2_005, granted(1))];
    assert!(problem_of(&calls, None).contains("token 1 was given to"));
}

#[test]
fn tokens_that_shrink_are_noticed() {
    let calls = [("a", 0, acquire(), 5, granted(7)), ("b", 2_000, acquire(), 2_005, granted(6))];
    assert!(problem_of(&calls, None).contains("no order explains"));
}

#[test]
fn a_renewal_of_one_who_was_superseded_is_noticed() {
    let renew = AskedCall::Renew { key: "k".to_owned(), token: 1 };
    let calls = [
        ("a", 0, acquire(), 5, granted(1)),
        ("b", 1_500, acquire(), 1_505, granted(2)),
        ("a", 1_600, renew, 1_605, CallResult::Renewed { remaining_ms: 1_000 }),
    ];
    assert!(problem_of(&calls, None).contains("no order explains"));
}

#[test]
fn a_grant_that_the_store_forgot_is_noticed() {
    let end = FinalState { keys: BTreeMap::from([("k".to_owned(), 1)]), ..FinalState::default() };
    let calls = [("a", 0, acquire(), 5, granted(2))];
    assert!(problem_of(&calls, Some(&end)).contains("the store knows only 1"));
}

fn get() -> AskedCall {
    AskedCall::Get { key: "k".to_owned() }
}

fn renew(token: u64) -> AskedCall {
    AskedCall::Renew { key: "k".to_owned(), token }
}

fn release(token: u64) -> AskedCall {
    AskedCall::Release { key: "k".to_owned(), token }
}

fn renewed() -> CallResult {
    CallResult::Renewed { remaining_ms: 1_000 }
}

fn lost() -> CallResult {
    CallResult::Lost { why: "over".to_owned() }
}

fn unclear() -> CallResult {
    CallResult::Unclear { why: "no answer".to_owned() }
}

#[test]
fn a_key_that_is_free_while_it_is_promised_is_noticed() {
    let calls = [("a", 0, acquire(), 5, granted(1)), ("b", 6, get(), 999, CallResult::Free)];
    assert!(
        problem_of(&calls, None).contains("b asked at 6 ms and was answered Free at 999 ms, while token 1")
    );
    // By the renewal's promise alone.
    let calls = [
        ("a", 0, acquire(), 5, granted(1)),
        ("a", 900, renew(1), 905, renewed()),
        ("b", 1_500, get(), 1_505, CallResult::Free),
    ];
    assert!(problem_of(&calls, None).contains("promised from 905 to 1900 ms"));
}

#[test]
fn one_who_is_told_of_a_holder_that_nobody_heard_of_within_a_promise_is_noticed() {
    let calls = [("a", 0, acquire(), 5, granted(1)), ("b", 6, get(), 9, CallResult::Held { token: 2 })];
    assert!(problem_of(&calls, None).contains("answered Held { token: 2 }"));
}

#[test]
fn a_holder_that_is_sent_away_within_its_promise_is_noticed() {
    for ask in [renew(1), release(1)] {
        let calls = [("a", 0, acquire(), 5, granted(1)), ("a", 6, ask, 9, lost())];
        assert!(problem_of(&calls, None).contains("a asked at 6 ms and was answered Lost"));
    }
}

#[test]
fn a_key_may_be_free_and_a_holder_sent_away_where_the_promise_may_be_over() {
    let force = || AskedCall::Revoke { key: "k".to_owned() };
    let grant = || ("a", 10, acquire(), 15, granted(1));
    let honest = [
        // Before it is certain that the grant was made, and after it may have run out.
        vec![grant(), ("b", 12, get(), 20, CallResult::Free), ("b", 1_005, get(), 1_015, CallResult::Free)],
        vec![grant(), ("a", 1_005, renew(1), 1_015, lost())],
        // Given back, or perhaps.
        vec![
            grant(),
            ("a", 20, release(1), 30, CallResult::Released),
            ("b", 22, get(), 24, CallResult::Free),
        ],
        vec![grant(), ("a", 20, release(1), 30, unclear()), ("a", 31, release(1), 35, lost())],
        vec![grant(), ("a", 20, release(1), 30, unclear()), ("b", 500, get(), 505, CallResult::Free)],
        // Ended by force, or perhaps: also by one whose answer was lost.
        vec![grant(), ("b", 20, force(), 30, CallResult::Revoked), ("a", 22, renew(1), 24, lost())],
        vec![grant(), ("b", 20, force(), 30, CallResult::Revoked), ("c", 31, acquire(), 35, granted(3))],
        vec![grant(), ("b", 5, force(), 8, unclear()), ("a", 500, renew(1), 505, lost())],
        // A hold that had run out came back when a disk had failed.
        vec![grant(), ("b", 1_100, get(), 1_105, CallResult::Free), ("a", 1_200, renew(1), 1_205, renewed())],
        // A renewal that was not carried out for want of a store says nothing of the hold.
        vec![grant(), ("a", 20, renew(1), 30, CallResult::Refused { why: "unusable".to_owned() })],
    ];
    for calls in honest {
        assert_eq!(problem_of(&calls, None), "", "{calls:?}");
    }
}

#[test]
fn force_that_was_over_before_the_grant_excuses_nothing() {
    let force = AskedCall::Revoke { key: "k".to_owned() };
    let calls = [
        ("b", 0, force, 5, CallResult::Revoked),
        ("a", 10, acquire(), 15, granted(2)),
        ("b", 20, get(), 25, CallResult::Free),
    ];
    assert!(problem_of(&calls, None).contains("answered Free"));
}

#[test]
fn a_release_that_was_refused_gives_nothing_back() {
    let refused = CallResult::Refused { why: "unusable".to_owned() };
    let calls = [
        ("a", 0, acquire(), 5, granted(1)),
        ("a", 10, release(1), 15, refused),
        ("b", 20, acquire(), 25, granted(2)),
    ];
    assert!(problem_of(&calls, None).contains("while token 1 was promised until 1000 ms"));
}

#[test]
fn a_hold_that_goes_on_after_it_was_given_back_is_noticed() {
    let calls = [
        ("a", 0, acquire(), 5, granted(1)),
        ("a", 10, release(1), 15, CallResult::Released),
        ("b", 20, acquire(), 25, CallResult::Held { token: 1 }),
    ];
    assert!(problem_of(&calls, None).contains("given back at 15 ms"));
    // One that was given back by one who had it no more.
    let calls = [
        ("a", 0, acquire(), 5, granted(1)),
        ("b", 1_500, acquire(), 1_505, granted(2)),
        ("a", 1_600, release(1), 1_605, CallResult::Released),
    ];
    assert!(problem_of(&calls, None).contains("no order explains"));
    // Given back at the second sending, as at the first, whose answer was lost.
    let calls = [
        ("a", 0, acquire(), 5, granted(1)),
        ("a", 10, release(1), 15, unclear()),
        ("b", 20, acquire(), 25, granted(2)),
        ("a", 30, release(1), 35, CallResult::Released),
    ];
    assert_eq!(problem_of(&calls, None), "");
}

#[test]
fn a_worker_that_is_sent_away_within_its_promise_is_noticed() {
    let job = || "j".to_owned();
    let claimed = |token| CallResult::Claimed { job: job(), token, remaining_ms: 1_000 };
    let complete = |token| AskedCall::Complete { job: job(), token };
    for ask in [AskedCall::Record { job: job(), token: 1 }, complete(1)] {
        let calls = [("a", 0, AskedCall::Claim, 5, claimed(1)), ("a", 6, ask, 9, lost())];
        assert!(problem_of(&calls, None).contains("job j: a asked at 6 ms and was answered Lost"));
    }
    // A completion that was refused does not end the claim.
    let calls = [
        ("a", 0, AskedCall::Claim, 5, claimed(1)),
        ("a", 990, complete(1), 1_005, lost()),
        ("b", 992, AskedCall::Claim, 998, claimed(2)),
    ];
    assert!(problem_of(&calls, None).contains("while token 1 was promised until 1000 ms"));
    let honest = [
        vec![("a", 0, AskedCall::Claim, 5, claimed(1)), ("a", 6, complete(1), 9, CallResult::Completed)],
        vec![("a", 0, AskedCall::Claim, 5, claimed(1)), ("a", 990, complete(1), 1_005, lost())],
    ];
    for calls in honest {
        assert_eq!(problem_of(&calls, None), "", "{calls:?}");
    }
}

#[test]
fn an_effect_of_two_values_a_lost_job_and_a_second_doing_are_noticed() {
    let job = || "j".to_owned();
    let record = |token| AskedCall::Record { job: job(), token };
    let claimed = |token| CallResult::Claimed { job: job(), token, remaining_ms: 1_000 };
    let recorded = |value: &str| CallResult::Recorded { value: value.to_owned() };
    let calls = [
        ("a", 0, AskedCall::Enqueue { job: job() }, 1, CallResult::Enqueued),
        ("a", 2, AskedCall::Claim, 3, claimed(1)),
        ("a", 4, record(1), 5, recorded("1")),
        ("a", 6, AskedCall::Complete { job: job(), token: 1 }, 7, CallResult::Completed),
        ("b", 8, AskedCall::Claim, 9, claimed(2)),
        ("b", 10, record(2), 11, recorded("2")),
    ];
    let said = problem_of(&calls, Some(&FinalState::default()));
    for part in ["several values", "it was completed at 7 ms", "is lost"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_last_line_that_was_torn_by_a_kill_is_left_out() {
    let whole = told(&[("a", 0, acquire(), 5, granted(1))]);
    let torn = format!("{whole}{{\"who\":\"a\",\"nt");
    assert_eq!(check([torn.as_str()], None).problems, [""; 0]);
    assert_eq!(check([format!("{torn}\n").as_str()], None).problems.len(), 1);
}
