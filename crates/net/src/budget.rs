//! The time that one call has, whether a failed attempt is followed by another, and what the caller hears if not.
//!
//! The rules, for every store:
//!
//! - One deadline for all attempts of a call. Pauses grow, and leave time for another attempt; where there is none, the call
//!   ends with the failure that it has.
//! - A refusal is final. Everything else is retried until the deadline.
//! - A request that may have been carried out is sent again only if that is safe ([`ResendPolicy`]).
//! - Once the outcome of one attempt is unknown, no later failure says that nothing was done.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_contract::clock::Clock;

/// The first pause between two attempts, so that a server that is just starting is not flooded, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// An attempt is begun only if it has so much time: one that is cut off at once would tell nothing, and may be carried out.
const ATTEMPT_MIN: Duration = Duration::from_millis(50);

/// Why an attempt has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptError {
    /// Nothing was done, and it may work later.
    NotDone(String),
    /// The request was sent, and may have been carried out.
    Unknown(String),
    /// Nothing was done: what is there cannot be used as a store.
    Unusable(String),
    /// Nothing was done, and the same request fails in the same way again.
    Refused(StoreError),
}

/// Whether a request may be sent again although it may have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendPolicy {
    /// It names what it means by hold id and token, or only reads.
    Safe,
    /// It could act on a later holder.
    Never,
}

/// The time that one call has, and what is known of its attempts so far.
#[derive(Clone, Debug)]
pub struct CallBudget {
    clock: Arc<dyn Clock>,
    place: Arc<str>,
    started_ms: u64,
    deadline_ms: u64,
    backoff: RetryDelay,
    reads_only: bool,
    /// Whether something was sent that may have been carried out.
    pub outcome_unknown: bool,
}

impl CallBudget {
    /// Starts now, and ends after `timeout_ms` on top of `wait_ms` in line. `place` is the store, for messages.
    pub fn new(clock: &Arc<dyn Clock>, place: &Arc<str>, timeout_ms: u64, wait_ms: u64) -> Self {
        let started_ms = clock.now().store_ms;
        CallBudget {
            clock: Arc::clone(clock),
            place: Arc::clone(place),
            started_ms,
            deadline_ms: started_ms.saturating_add(wait_ms).saturating_add(timeout_ms),
            backoff: RetryDelay::new(FIRST_PAUSE, LONGEST_PAUSE),
            reads_only: false,
            outcome_unknown: false,
        }
    }

    /// The call changes nothing, so no outcome of it can be unknown.
    #[must_use]
    pub fn reads_only(self, reads_only: bool) -> Self {
        CallBudget { reads_only, ..self }
    }

    /// When the call started, by this machine's boot clock.
    pub fn started_ms(&self) -> u64 {
        self.started_ms
    }

    /// The time by the clock of the call.
    pub fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    /// How long the call has taken so far.
    pub fn elapsed_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.started_ms)
    }

    /// How much time is left.
    pub fn left(&self) -> Duration {
        Duration::from_millis(self.deadline_ms.saturating_sub(self.now_ms()))
    }

    /// Whether no time is left.
    pub fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Pauses before the next attempt of a request that may be repeated; or fails, if there is to be none.
    pub async fn retry_or_fail(&mut self, failure: impl Into<AttemptError>) -> Result<(), StoreError> {
        self.retry_or_fail_as(ResendPolicy::Safe, failure).await
    }

    /// Repeats an attempt that may be repeated until it has a response; or fails, if there is to be none.
    pub async fn retry<T, E: Into<AttemptError>>(
        &mut self,
        attempt: impl AsyncFn() -> Result<T, E>,
    ) -> Result<T, StoreError> {
        loop {
            match attempt().await {
                Ok(response) => return Ok(response),
                Err(failure) => self.retry_or_fail(failure).await?,
            }
        }
    }

    /// [`retry_or_fail`](Self::retry_or_fail) for any request.
    pub async fn retry_or_fail_as(
        &mut self,
        repeat: ResendPolicy,
        failure: impl Into<AttemptError>,
    ) -> Result<(), StoreError> {
        self.check(repeat, failure.into(), Duration::ZERO)?;
        self.pause(Duration::ZERO).await;
        Ok(())
    }

    /// Takes note of a failure, after which the store wants to be left alone for at least so long. `Err`: it is the end of
    /// the call.
    pub fn check(
        &mut self,
        repeat: ResendPolicy,
        failure: AttemptError,
        at_least: Duration,
    ) -> Result<(), StoreError> {
        let (why, may_repeat) = match failure {
            AttemptError::NotDone(why) => (why, true),
            AttemptError::Unknown(why) => {
                self.outcome_unknown = true;
                (why, repeat == ResendPolicy::Safe)
            }
            AttemptError::Unusable(why) => {
                let place = self.place.to_string();
                return Err(self.unknown_if_sent(StoreError::Unusable { store: place, message: why }));
            }
            AttemptError::Refused(error) => return Err(self.unknown_if_sent(error)),
        };
        if !may_repeat || at_least >= self.left_to_pause() {
            return Err(self.unanswered(&why));
        }
        tracing::debug!(place = &*self.place, why, "no response: trying again");
        Ok(())
    }

    /// Pauses before the next attempt: longer each time, no shorter than the store asks for, and not until it is too late.
    pub async fn pause(&mut self, at_least: Duration) {
        sleep(self.backoff.next_pause().max(at_least).min(self.left_to_pause())).await;
    }

    fn left_to_pause(&self) -> Duration {
        self.left().saturating_sub(ATTEMPT_MIN)
    }

    /// The error of a call that ends without a response.
    pub fn unanswered(&self, why: &str) -> StoreError {
        self.unknown_if_sent(StoreError::Unavailable { message: format!("{}: {why}", self.place) })
    }

    /// 'Nothing was done' is true of the last attempt; an earlier one may have been carried out.
    fn unknown_if_sent(&self, error: StoreError) -> StoreError {
        if self.outcome_unknown && !self.reads_only { error.or_unknown() } else { error }
    }
}

/// Pauses that double up to a limit.
#[derive(Clone, Debug)]
pub struct RetryDelay {
    next: Duration,
    max: Duration,
}

impl RetryDelay {
    /// The first pause, and the longest.
    pub const fn new(first: Duration, max: Duration) -> Self {
        RetryDelay { next: first, max }
    }

    /// The next pause.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }

    /// Waits for the next pause.
    pub async fn pause(&mut self) {
        sleep(self.next_pause()).await;
    }
}

/// Waits in real time.
#[expect(
    clippy::disallowed_methods,
    reason = "spares whatever is at the other end of the network, in real time; no lease is decided by it"
)]
pub async fn sleep(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use fencehold_contract::clock::ManualClock;

    use super::*;

    fn budget(clock: &ManualClock) -> CallBudget {
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        CallBudget::new(&clock, &Arc::from("place"), 1_000, 500)
    }

    fn not_done() -> AttemptError {
        AttemptError::NotDone("down".to_owned())
    }

    fn check(budget: &mut CallBudget, repeat: ResendPolicy, failure: AttemptError) -> Result<(), StoreError> {
        budget.check(repeat, failure, Duration::ZERO)
    }

    fn unknown() -> AttemptError {
        AttemptError::Unknown("lost".to_owned())
    }

    #[test]
    fn all_attempts_share_one_deadline_after_the_time_in_line() {
        let clock = ManualClock::new();
        let mut budget = budget(&clock);
        clock.advance_ms(1_449);
        assert_eq!(check(&mut budget, ResendPolicy::Safe, not_done()), Ok(()));
        assert_eq!((budget.left().as_millis(), budget.elapsed_ms()), (51, 1_449));
        clock.advance_ms(1);
        let why = "place: down".to_owned();
        assert_eq!(
            check(&mut budget, ResendPolicy::Safe, not_done()),
            Err(StoreError::Unavailable { message: why })
        );
    }

    /// Else the last attempt would be cut off as soon as it is sent, and its outcome would be unknown.
    #[test]
    fn a_store_that_wants_to_be_left_alone_until_the_deadline_is_not_asked_again() {
        let mut budget = budget(&ManualClock::new());
        let after_ms = |ms| Duration::from_millis(ms);
        assert_eq!(budget.check(ResendPolicy::Safe, not_done(), after_ms(1_449)), Ok(()));
        let why = "place: down".to_owned();
        let said = budget.check(ResendPolicy::Safe, not_done(), after_ms(1_450));
        assert_eq!(said, Err(StoreError::Unavailable { message: why }));
    }

    #[test]
    fn an_unknown_outcome_is_repeated_where_that_is_safe_and_said_at_the_end() {
        let clock = ManualClock::new();
        let mut budget = budget(&clock);
        assert_eq!(check(&mut budget, ResendPolicy::Safe, unknown()), Ok(()));
        clock.advance_ms(1_500);
        // The last attempt was not carried out; the one before may have been.
        let why = "place: down".to_owned();
        assert_eq!(
            check(&mut budget, ResendPolicy::Safe, not_done()),
            Err(StoreError::OutcomeUnknown { message: why })
        );
    }

    #[test]
    fn what_could_act_on_a_later_holder_is_not_repeated_once_it_may_have_been_done() {
        let clock = ManualClock::new();
        let mut budget = budget(&clock);
        assert_eq!(check(&mut budget, ResendPolicy::Never, not_done()), Ok(()));
        let why = "place: lost".to_owned();
        assert_eq!(
            check(&mut budget, ResendPolicy::Never, unknown()),
            Err(StoreError::OutcomeUnknown { message: why })
        );
    }

    #[test]
    fn a_refusal_is_final_and_says_that_nothing_was_done_only_if_that_is_known() {
        let clock = ManualClock::new();
        let mut budget = budget(&clock);
        let unusable = || AttemptError::Unusable("no rights".to_owned());
        let (place, why) = ("place".to_owned(), "no rights".to_owned());
        assert_eq!(
            check(&mut budget, ResendPolicy::Safe, unusable()),
            Err(StoreError::Unusable { store: place, message: why })
        );
        let denied = StoreError::Forbidden { message: "no".to_owned() };
        assert_eq!(
            check(&mut budget, ResendPolicy::Safe, AttemptError::Refused(denied.clone())),
            Err(denied.clone())
        );
        budget.outcome_unknown = true;
        let said = check(&mut budget, ResendPolicy::Safe, unusable());
        assert!(matches!(said, Err(StoreError::OutcomeUnknown { .. })), "{said:?}");
        // The request itself was refused: the caller has to know why.
        assert_eq!(
            check(&mut budget, ResendPolicy::Safe, AttemptError::Refused(denied.clone())),
            Err(denied)
        );
    }

    #[test]
    fn what_only_reads_has_no_unknown_outcome() {
        let clock = ManualClock::new();
        let mut budget = budget(&clock).reads_only(true);
        assert_eq!(check(&mut budget, ResendPolicy::Safe, unknown()), Ok(()));
        clock.advance_ms(1_500);
        let why = "place: lost".to_owned();
        assert_eq!(
            check(&mut budget, ResendPolicy::Safe, unknown()),
            Err(StoreError::Unavailable { message: why })
        );
    }

    /// With no time left there is nothing to sleep for, and so no runtime is needed.
    #[test]
    fn no_pause_goes_beyond_the_deadline() {
        let clock = ManualClock::new();
        let mut budget = budget(&clock);
        clock.advance_ms(1_500);
        fencehold_test_store::block_on(budget.pause(Duration::from_secs(86_400)));
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = RetryDelay::new(Duration::from_millis(10), Duration::from_millis(35));
        let pauses: Vec<u128> = (0..4).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 35, 35]);
    }
}
