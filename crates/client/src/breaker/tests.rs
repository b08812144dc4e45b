use std::sync::Barrier;
use std::time::Duration;

use super::*;

const TIMEOUT_MS: u64 = 10_000;
/// By default half of the timeout.
const SLOW_MS: u64 = 5_000;

fn breaker() -> Breaker {
    breaker_with(|_| {})
}

fn breaker_with(change: impl FnOnce(&mut CircuitBreakerPolicy)) -> Breaker {
    let mut policy = CircuitBreakerPolicy::default();
    change(&mut policy);
    // Chance takes nothing off.
    Breaker::new(policy, TIMEOUT_MS, || 0)
}

impl Breaker {
    fn fails(&self, now_ms: u64) {
        self.failed(now_ms, now_ms);
    }

    fn works(&self, now_ms: u64) {
        self.answered(now_ms, now_ms, false);
    }

    fn opened(self, now_ms: u64) -> Self {
        (0..self.policy.failures_in_a_row).for_each(|_| self.fails(now_ms));
        assert_eq!(self.state(now_ms), CircuitBreakerState::Open);
        self
    }

    fn state(&self, now_ms: u64) -> CircuitBreakerState {
        self.stats(now_ms).state
    }

    /// Whether a call may go that has its response at once.
    fn would_admit(&self, now_ms: u64) -> Result<(), u64> {
        self.admit(now_ms).map(drop)
    }

    /// For how long it is open after a probe at this moment has failed.
    fn fails_probe(&self, now_ms: u64) -> u64 {
        let probe = self.admit(now_ms).expect("a probe may go");
        self.fails(now_ms);
        drop(probe);
        self.would_admit(now_ms).expect_err("open anew") - now_ms
    }
}

#[test]
fn it_opens_after_failures_in_a_row_and_not_before() {
    let breaker = breaker();
    for _ in 0..4 {
        breaker.fails(0);
    }
    breaker.works(0);
    for _ in 0..4 {
        breaker.fails(0);
    }
    assert_eq!(breaker.would_admit(0), Ok(()), "a success between them starts the count anew");
    breaker.fails(0);
    assert_eq!(breaker.would_admit(0), Err(1_000));
    assert_eq!(breaker.state(0), CircuitBreakerState::Open);
}

#[test]
fn it_opens_when_half_the_calls_of_a_window_fail() {
    let breaker = breaker();
    for _ in 0..9 {
        breaker.works(0);
        breaker.fails(0);
    }
    breaker.works(0);
    assert_eq!(breaker.state(0), CircuitBreakerState::Closed, "19 calls say nothing yet");
    breaker.fails(0);
    assert_eq!(breaker.state(0), CircuitBreakerState::Open);
}

#[test]
fn an_old_window_says_nothing_about_now() {
    let breaker = breaker();
    for _ in 0..9 {
        breaker.fails(0);
        breaker.works(0);
    }
    breaker.works(10_000);
    breaker.fails(10_000);
    assert_eq!(breaker.state(10_000), CircuitBreakerState::Closed);
}

#[test]
fn slow_responses_open_it_as_failures_do() {
    let breaker = breaker();
    for nth in 0..5 {
        assert_eq!(breaker.state(SLOW_MS), CircuitBreakerState::Closed, "{nth} were slow");
        breaker.answered(0, SLOW_MS, false);
    }
    assert_eq!(breaker.state(SLOW_MS), CircuitBreakerState::Open);
    let stats = breaker.stats(SLOW_MS);
    assert_eq!((stats.slow_count, stats.failed_count, stats.opened_count), (5, 0, 1));
}

#[test]
fn half_the_calls_of_a_window_may_be_slow_or_failed_together() {
    let breaker = breaker_with(|policy| policy.window = Duration::from_secs(60));
    for _ in 0..5 {
        breaker.answered(0, SLOW_MS, false);
        breaker.works(SLOW_MS);
        breaker.fails(SLOW_MS);
        assert_eq!(breaker.state(SLOW_MS), CircuitBreakerState::Closed);
        breaker.works(SLOW_MS);
    }
    breaker.answered(SLOW_MS, 2 * SLOW_MS, false);
    assert_eq!(breaker.state(2 * SLOW_MS), CircuitBreakerState::Open);
}

#[test]
fn a_response_just_before_the_threshold_is_in_time() {
    let breaker = breaker();
    (0..100).for_each(|_| breaker.answered(0, SLOW_MS - 1, false));
    assert_eq!((breaker.state(SLOW_MS), breaker.stats(SLOW_MS).slow_count), (CircuitBreakerState::Closed, 0));
}

#[test]
fn what_waits_in_line_is_never_slow() {
    let breaker = breaker();
    (0..100).for_each(|_| breaker.answered(0, 60_000, true));
    let stats = breaker.stats(60_000);
    assert_eq!((stats.state, stats.slow_count), (CircuitBreakerState::Closed, 0));
}

#[test]
fn the_threshold_is_half_the_timeout_or_what_the_policy_says() {
    let slow_ms = |slow_after| breaker_with(|policy| policy.slow_after = slow_after).slow_ms;
    assert_eq!(slow_ms(None), TIMEOUT_MS / 2);
    let in_a_hurry = Breaker::new(CircuitBreakerPolicy::default(), 300, || 0);
    assert_eq!(in_a_hurry.slow_ms, 1_000, "a short timeout makes no store slow");
    assert_eq!(slow_ms(Some(Duration::from_millis(250))), 250);
    assert_eq!(slow_ms(Some(Duration::MAX)), u64::MAX);
}

#[test]
fn half_open_lets_one_call_try_and_its_outcome_decides() {
    let breaker = breaker().opened(0);
    assert_eq!(breaker.would_admit(999), Err(1_000));
    let probe = breaker.admit(1_000).expect("one may try");
    assert_eq!(breaker.state(1_000), CircuitBreakerState::HalfOpen);
    assert_eq!(breaker.would_admit(1_000), Err(2_000), "and only one");
    assert_eq!(breaker.stats(1_000).retry_in, Some(Duration::from_secs(1)));
    breaker.failed(1_000, 1_500);
    drop(probe);
    assert_eq!(breaker.would_admit(2_000), Err(3_500), "its failure opens anew");
    let _probe = breaker.admit(3_500).expect("one may try");
    breaker.answered(3_500, 3_600, false);
    assert_eq!(breaker.state(3_600), CircuitBreakerState::Closed);
    assert_eq!((breaker.would_admit(3_600), breaker.would_admit(3_600)), (Ok(()), Ok(())));
}

#[test]
fn a_slow_probe_opens_it_anew() {
    let breaker = breaker().opened(0);
    let _probe = breaker.admit(1_000).expect("one may try");
    breaker.answered(1_000, 1_000 + SLOW_MS, false);
    assert_eq!(breaker.state(1_000 + SLOW_MS), CircuitBreakerState::Open);
}

#[test]
fn a_probe_that_is_never_heard_of_again_keeps_nobody_out() {
    let breaker = breaker().opened(0);
    let _in_line = breaker.admit(1_000).expect("one may try");
    assert_eq!(breaker.would_admit(1_999), Err(2_000));
    assert_eq!(breaker.would_admit(2_000), Ok(()));
}

#[test]
fn a_probe_whose_caller_leaves_makes_room_at_once() {
    let breaker = breaker().opened(0);
    let probe = breaker.admit(1_000).expect("one may try");
    assert_eq!(breaker.would_admit(1_000), Err(2_000));
    drop(probe);
    assert_eq!(breaker.would_admit(1_000), Ok(()));
}

#[test]
fn no_more_calls_try_at_once_than_the_policy_allows() {
    const CALLERS: usize = 32;
    let breaker = breaker_with(|policy| policy.max_half_open_calls = 3).opened(0);
    let (all_asked, start) = (Barrier::new(CALLERS), Barrier::new(CALLERS));
    let admitted = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let permit = breaker.admit(1_000);
                    // No permit ends before every caller has asked for one.
                    all_asked.wait();
                    permit.map(drop)
                })
            })
            .collect();
        callers
            .into_iter()
            .map(|caller| caller.join().expect("a caller"))
            .collect::<Vec<_>>()
    });
    assert_eq!(admitted.iter().filter(|admitted| admitted.is_ok()).count(), 3);
    assert!(admitted.iter().all(|admitted| matches!(admitted, Ok(()) | Err(2_000))), "{admitted:?}");
}

#[test]
fn it_stays_open_for_longer_each_time_up_to_its_bound() {
    let breaker = breaker().opened(0);
    let mut now_ms = 1_000;
    let mut open_ms = Vec::new();
    for _ in 0..6 {
        open_ms.push(breaker.fails_probe(now_ms));
        now_ms += open_ms[open_ms.len() - 1];
    }
    assert_eq!(open_ms, [2_000, 4_000, 8_000, 10_000, 10_000, 10_000]);
    assert_eq!(breaker.stats(now_ms).opened_in_a_row, 7);
}

#[test]
fn an_opening_soon_after_it_closed_counts_as_one_more_in_a_row() {
    let breaker = breaker().opened(0);
    breaker.works(500);
    let breaker = breaker.opened(60_499);
    assert_eq!(breaker.would_admit(60_499), Err(62_499), "the second in a row");
    breaker.works(60_500);
    let breaker = breaker.opened(120_500);
    assert_eq!(breaker.would_admit(120_500), Err(121_500), "it was closed for a minute: a first one again");
    assert_eq!(breaker.stats(120_500).opened_count, 3);
}

#[test]
fn chance_takes_off_up_to_half_of_the_time_open() {
    let open_ms = |random: fn() -> u64, percent| {
        let policy = CircuitBreakerPolicy { open_jitter_percent: percent, ..CircuitBreakerPolicy::default() };
        let breaker = Breaker::new(policy, TIMEOUT_MS, random).opened(0);
        breaker.would_admit(0).expect_err("open")
    };
    assert_eq!((open_ms(|| 0, 50), open_ms(|| 200, 50), open_ms(|| 500, 50)), (1_000, 800, 500));
    assert_eq!(open_ms(|| 501, 50), 1_000, "and never more");
    assert_eq!((open_ms(|| 500, 0), open_ms(|| 1_000, 100)), (1_000, 1), "never 0");
    assert!((0..100).any(|_| open_ms(crate::random::jitter, 50) != open_ms(crate::random::jitter, 50)));
}

#[test]
fn a_policy_that_opens_for_longer_than_the_bound_keeps_its_time() {
    let breaker = breaker_with(|policy| policy.open_for = Duration::from_secs(60)).opened(0);
    assert_eq!(breaker.would_admit(0), Err(60_000));
    assert_eq!(breaker.fails_probe(60_000), 60_000);
    let breaker = breaker_with(|policy| policy.open_for = Duration::MAX).opened(0);
    assert_eq!(breaker.would_admit(0), Err(u64::from(u32::MAX)), "nothing overflows");
}

#[test]
fn what_was_sent_before_it_changed_is_old_news() {
    let breaker = breaker().opened(100);
    let _probe = breaker.admit(1_100).expect("one may try");
    breaker.failed(1_099, 1_200);
    breaker.answered(0, 1_200 + SLOW_MS, false);
    assert_eq!(breaker.state(1_200), CircuitBreakerState::HalfOpen, "it is the probe that decides");
    breaker.works(1_300);
    (0..5).for_each(|_| breaker.failed(1_200, 11_200));
    assert_eq!(breaker.state(11_200), CircuitBreakerState::Closed);
    assert_eq!(breaker.stats(11_200).failed_count, 11, "it is counted all the same");
}

#[test]
fn the_metrics_name_the_state_and_every_count() {
    let breaker = breaker().opened(0);
    breaker.answered(0, SLOW_MS, false);
    breaker.count_refused();
    (0..2).for_each(|_| breaker.count_delayed());
    let page = breaker.stats(0).to_prometheus();
    for line in [
        "fencehold_client_circuit_breaker_state{state=\"closed\"} 0",
        "fencehold_client_circuit_breaker_state{state=\"open\"} 1",
        "fencehold_client_circuit_breaker_state{state=\"half_open\"} 0",
        "fencehold_client_circuit_breaker_opened_total 1",
        "fencehold_client_circuit_breaker_refused_total 1",
        "fencehold_client_circuit_breaker_delayed_total 2",
        "fencehold_client_calls_failed_total 5",
        "fencehold_client_calls_slow_total 1",
    ] {
        assert!(page.lines().any(|have| have == line), "{line} is not in {page}");
    }
    let types = page.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(types, 6, "{page}");
}
