use super::*;

/// A history by hand: who, when it asked, what, when it was told, what.
fn told(calls: &[(&str, u64, Ask, u64, Tell)]) -> String {
    let mut text = String::new();
    for (nth, (who, sent_ms, ask, answered_ms, tell)) in (0_u64..).zip(calls) {
        for (at_ms, what) in [(sent_ms, What::Asked(ask.clone())), (answered_ms, What::Told(tell.clone()))] {
            text += &serde_json::to_string(&Line::new(*who, nth, *at_ms, what)).unwrap();
            text.push('\n');
        }
    }
    text
}

fn acquire() -> Ask {
    Ask::Acquire { key: "k".to_owned() }
}

fn granted(token: u64) -> Tell {
    Tell::Granted { token, remaining_ms: 1_000 }
}

fn problem_of(calls: &[(&str, u64, Ask, u64, Tell)], end: Option<&End>) -> String {
    check([told(calls).as_str()], end).problems.join("; ")
}

#[test]
fn a_history_of_turns_is_true() {
    let release = Ask::Release { key: "k".to_owned(), token: 1 };
    let calls = [
        ("a", 0, acquire(), 5, granted(1)),
        ("b", 6, acquire(), 9, Tell::Held { token: 1 }),
        ("a", 10, release, 30, Tell::Released),
        ("b", 20, acquire(), 25, granted(2)),
        ("c", 1_021, acquire(), 1_025, granted(3)),
    ];
    let end = End { keys: BTreeMap::from([("k".to_owned(), 3)]), ..End::default() };
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
    let renew = Ask::Renew { key: "k".to_owned(), token: 1 };
    let calls = [
        ("a", 0, acquire(), 5, granted(1)),
        ("b", 1_500, acquire(), 1_505, granted(2)),
        ("a", 1_600, renew, 1_605, Tell::Renewed { remaining_ms: 1_000 }),
    ];
    assert!(problem_of(&calls, None).contains("no order explains"));
}

#[test]
fn a_grant_that_the_store_forgot_is_noticed() {
    let end = End { keys: BTreeMap::from([("k".to_owned(), 1)]), ..End::default() };
    let calls = [("a", 0, acquire(), 5, granted(2))];
    assert!(problem_of(&calls, Some(&end)).contains("the store knows only 1"));
}

#[test]
fn an_effect_of_two_values_a_lost_job_and_a_second_doing_are_noticed() {
    let job = || "j".to_owned();
    let record = |token| Ask::Record { job: job(), token };
    let claimed = |token| Tell::Claimed { job: job(), token, remaining_ms: 1_000 };
    let recorded = |value: &str| Tell::Recorded { value: value.to_owned() };
    let calls = [
        ("a", 0, Ask::Enqueue { job: job() }, 1, Tell::Enqueued),
        ("a", 2, Ask::Claim, 3, claimed(1)),
        ("a", 4, record(1), 5, recorded("1")),
        ("a", 6, Ask::Complete { job: job(), token: 1 }, 7, Tell::Completed),
        ("b", 8, Ask::Claim, 9, claimed(2)),
        ("b", 10, record(2), 11, recorded("2")),
    ];
    let said = problem_of(&calls, Some(&End::default()));
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
