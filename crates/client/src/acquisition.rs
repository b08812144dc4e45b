//! Standing in line for a key, whatever happens to the store, the answers or the caller meanwhile.
//!
//! One acquisition is one hold id for as long as its outcome is open: an answer that got lost is asked for again by the
//! same hold id, which gets the same lease (R13). A caller that leaves while the outcome is open leaves the question to
//! the handle's own thread, which frees whatever was granted (R14). A grant that arrives when the caller's time is up is
//! given back and not told (R19).

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::{AcquireLeaseRequest, AcquiredLease, HoldRef, StoreError};
use fencehold_core::Refusal;
use fencehold_core::limits::{HOLD_AGE_MS_MAX, WAIT_MS_MAX};
use fencehold_core::ttl::GrantedTerm;

use crate::breaker::Permit;
use crate::connection::ConnectionInner;
use crate::error::Error;
use crate::holding::{HoldGrant, HoldTarget};
use crate::metrics;
use crate::random::hold_id;
use crate::renewal::{free_unseen_grant, give_back};
use crate::retry::{RetryLoop, left_alone};

/// A caller with a limit does not retry a silent store for longer than that limit; but no less than this.
const PATIENCE_MS_MIN: u64 = 1_000;
/// How often in a row a hold id may turn out to have ended unseen. One that was never sent before cannot have: a store
/// that says so again and again is not to be reasoned with.
const ENDED_MAX: u32 = 8;

/// A store without lines is polled as if it had failed this often: every 1.6 s at most.
const POLL_FAILURES: u32 = 6;

/// Acquires, on these terms, standing in line for up to a limit: `None` is as long as it takes, 0 not at all. Hold ids, and
/// what a request says of time in line, are made here.
pub(crate) async fn acquire(
    connection: &Arc<ConnectionInner>,
    terms: &AcquireLeaseRequest,
    limit_ms: Option<u64>,
) -> Result<(HoldRef, HoldGrant), Error> {
    let started_ms = connection.now_ms();
    let claim = HoldAttempt::new(connection, terms)?;
    let until_ms = limit_ms.filter(|ms| *ms > 0).map(|ms| started_ms.saturating_add(ms));
    let tries = RetryLoop::new(until_ms);
    let mut acquisition =
        Acquisition { connection, terms, started_ms, first_sent_ms: None, limit_ms, claim, tries, ended: 0 };
    connection.unless_closed(acquisition.run()).await
}

struct Acquisition<'a> {
    connection: &'a Arc<ConnectionInner>,
    terms: &'a AcquireLeaseRequest,
    started_ms: u64,
    first_sent_ms: Option<u64>,
    /// `None`: as long as it takes; 0: no standing in line.
    limit_ms: Option<u64>,
    claim: HoldAttempt<'a>,
    tries: RetryLoop,
    /// How often in a row the store has taken a hold id for used.
    ended: u32,
}

impl<'a> Acquisition<'a> {
    async fn run(&mut self) -> Result<(HoldRef, HoldGrant), Error> {
        loop {
            let permit = self.admitted().await?;
            let sent_ms = self.connection.now_ms();
            if self.claim.age_ms(sent_ms) > HOLD_AGE_MS_MAX {
                // No store would hear of so old a hold id. Whatever it was granted is freed in the background.
                self.claim = HoldAttempt::new(self.connection, self.terms)?;
            }
            // One that tries for all others does not wait in line yet.
            let wait_ms = if permit.is_probe() { 0 } else { self.wait_ms(sent_ms) };
            let answer = self.ask(sent_ms, wait_ms).await;
            drop(permit);
            match answer {
                Ok(acquired) => {
                    if let Some(granted) = self.granted(sent_ms, acquired).await? {
                        return Ok(granted);
                    }
                }
                Err(error) => self.refused(error, sent_ms.saturating_add(wait_ms)).await?,
            }
        }
    }

    /// One sending.
    async fn ask(&mut self, sent_ms: u64, wait_ms: u64) -> Result<AcquiredLease, StoreError> {
        let timeout_ms = match self.limit_ms {
            None | Some(0) => self.connection.timeout_ms,
            Some(_) => self.connection.timeout_ms.min(wait_ms.max(PATIENCE_MS_MIN)),
        };
        // None before the first sending, however long that took: a store takes what has stood in line for one that was sent before.
        let stood_ms = sent_ms.saturating_sub(*self.first_sent_ms.get_or_insert(sent_ms));
        let request = AcquireLeaseRequest {
            hold_id_age_ms: self.claim.age_ms(sent_ms),
            wait_ms,
            waited_before_ms: stood_ms,
            preempt_within_ms: self.terms.preempt_within_ms.map(|ms| ms.saturating_sub(stood_ms)),
            ..self.claim.request.clone()
        };
        let call = self.connection.call(timeout_ms);
        self.claim.sent(sent_ms, sent_ms.saturating_add(wait_ms));
        let answer = self.connection.store.acquire(&call, request);
        let answer = self.connection.answer(wait_ms, timeout_ms, answer).await;
        self.claim.answered(&answer);
        answer
    }

    /// How long this sending may stand in line.
    fn wait_ms(&self, now_ms: u64) -> u64 {
        self.until_ms().unwrap_or(u64::MAX).saturating_sub(now_ms).min(WAIT_MS_MAX)
    }

    /// When the caller's own time is up.
    fn until_ms(&self) -> Option<u64> {
        self.limit_ms.map(|limit_ms| self.started_ms.saturating_add(limit_ms))
    }

    fn is_try(&self) -> bool {
        self.limit_ms == Some(0)
    }

    /// A grant, if it comes in time to be of use.
    async fn granted(
        &mut self,
        sent_ms: u64,
        acquired: AcquiredLease,
    ) -> Result<Option<(HoldRef, HoldGrant)>, Error> {
        let AcquiredLease { key, grant, waited_ms } = acquired;
        let now_ms = self.connection.now_ms();
        let term = GrantedTerm::new(sent_ms, waited_ms, now_ms, grant.remaining_ms);
        let late = !self.is_try() && self.until_ms().is_some_and(|until_ms| now_ms > until_ms);
        let AcquireLeaseRequest { hold_id, owner, task, ttl_ms, max_age_ms, .. } = self.claim.request.clone();
        let (token, target) = (grant.token, HoldTarget::Key(key.clone()));
        let hold = HoldRef { key, hold_id, token };
        if late || now_ms >= term.lost_at_ms() {
            let why = format!("a grant of {} arrived only when most of its time was over", hold.key);
            self.connection
                .spawn(give_back(Arc::clone(self.connection), hold, term.deadline_ms()));
            self.claim = HoldAttempt::new(self.connection, self.terms)?;
            if late {
                let waited = Duration::from_millis(now_ms.saturating_sub(self.started_ms));
                return Err(Error::WaitTimedOut { keys: self.terms.any_of.clone(), waited });
            }
            return self.failed(StoreError::Unavailable { message: why }).await.map(|()| None);
        }
        metrics::lease_acquired(now_ms.saturating_sub(self.started_ms));
        let trip_ms = now_ms.saturating_sub(sent_ms).saturating_sub(waited_ms);
        self.connection.advisor.saw_round_trip(trip_ms);
        let granted = HoldGrant { held: target, token, owner, task, ttl_ms, max_age_ms, hold: hold_id, term };
        Ok(Some((hold, granted)))
    }

    /// Not granted: gives up with an error, or makes ready to ask again.
    async fn refused(&mut self, error: StoreError, line_until_ms: u64) -> Result<(), Error> {
        let StoreError::Refused { key, refusal } = error else { return self.failed(error).await };
        self.tries.answered();
        let now_ms = self.connection.now_ms();
        match refusal {
            Refusal::Held { .. } if self.has_time(now_ms) => {
                self.ended = 0;
                self.claim = HoldAttempt::new(self.connection, self.terms)?;
                if now_ms < line_until_ms {
                    // This store does not let anybody stand in line for as long as was asked: poll.
                    let at_ms = now_ms.saturating_add(self.connection.retries.backoff_ms(POLL_FAILURES));
                    let until_ms = self.until_ms().unwrap_or(u64::MAX);
                    self.connection.timers.sleep_until(at_ms.min(until_ms)).await;
                    if !self.has_time(self.connection.now_ms()) {
                        return Err(Error::refused(key, refusal));
                    }
                }
                Ok(())
            }
            // This hold id was granted without our seeing it, and is over; or the key's history is too short to tell.
            // Either way it will never be granted again, and a new one is asked for.
            Refusal::HoldIdUsed { .. } if self.ended < ENDED_MAX => {
                self.ended += 1;
                self.claim = HoldAttempt::new(self.connection, self.terms)?;
                Ok(())
            }
            refusal => Err(Error::refused(key, refusal)),
        }
    }

    fn has_time(&self, now_ms: u64) -> bool {
        self.until_ms().is_none_or(|until_ms| now_ms < until_ms)
    }

    /// The store could not, or may not have been able to, decide.
    async fn failed(&mut self, error: StoreError) -> Result<(), Error> {
        let again = match &error {
            // To leave now could leave a lease behind that no holder knows of: even a caller that does not
            // wait asks again.
            StoreError::OutcomeUnknown { .. } => true,
            StoreError::Unavailable { .. } | StoreError::LimitReached { .. } => !self.is_try(),
            _ => false,
        };
        if !again {
            return Err(error.into());
        }
        self.tries.pause(self.connection, error).await.map_err(Error::from)
    }

    /// Waits for the breaker to let this call through.
    async fn admitted(&mut self) -> Result<Permit<'a>, Error> {
        let connection: &'a ConnectionInner = self.connection;
        if self.is_try() {
            let now_ms = connection.now_ms();
            return connection
                .breaker
                .admit(now_ms)
                .map_err(|at_ms| left_alone(connection, at_ms, now_ms));
        }
        self.tries.admitted(connection).await
    }
}

/// One hold id, and whether a grant to it may not have been seen.
struct HoldAttempt<'a> {
    connection: &'a Arc<ConnectionInner>,
    request: AcquireLeaseRequest,
    /// When it was sent for the first time.
    sent_ms: Option<u64>,
    /// Until when a sending whose outcome is not known may stand in line.
    unsure_until_ms: Option<u64>,
    line_until_ms: u64,
}

impl<'a> HoldAttempt<'a> {
    fn new(connection: &'a Arc<ConnectionInner>, terms: &AcquireLeaseRequest) -> Result<Self, Error> {
        let request = AcquireLeaseRequest { hold_id: hold_id()?, ..terms.clone() };
        Ok(HoldAttempt { connection, request, sent_ms: None, unsure_until_ms: None, line_until_ms: 0 })
    }

    /// How old the hold id is. None at all tells the store that it was never sent before.
    fn age_ms(&self, now_ms: u64) -> u64 {
        self.sent_ms.map_or(0, |sent_ms| now_ms.saturating_sub(sent_ms).max(1))
    }

    fn sent(&mut self, now_ms: u64, line_until_ms: u64) {
        self.sent_ms.get_or_insert(now_ms);
        self.line_until_ms = line_until_ms;
    }

    fn answered(&mut self, answer: &Result<AcquiredLease, StoreError>) {
        match answer {
            // Nothing came of this sending; an earlier one may still have been carried out.
            Err(StoreError::Unavailable { .. } | StoreError::LimitReached { .. }) => {}
            Err(StoreError::OutcomeUnknown { .. }) => {
                self.unsure_until_ms = self.unsure_until_ms.max(Some(self.line_until_ms));
            }
            // A definite answer about this hold id settles every sending before it.
            _ => self.unsure_until_ms = None,
        }
    }
}

impl Drop for HoldAttempt<'_> {
    /// The caller leaves, or goes on with another hold id, while it is not known what became of this one. (A sending
    /// that is under way is the store's to take back: dropping its future leaves the line.)
    fn drop(&mut self) {
        if let (Some(until_ms), Some(sent_ms)) = (self.unsure_until_ms, self.sent_ms) {
            let until_ms = until_ms.max(self.connection.now_ms()).saturating_add(self.request.ttl_ms);
            let task =
                free_unseen_grant(Arc::clone(self.connection), self.request.clone(), sent_ms, until_ms);
            self.connection.spawn(task);
        }
    }
}
