//! The claimer: one thread that keeps the shelf as full as the pace of the work makes useful.
//!
//! One claim is one hold id for as long as its outcome is open: an answer that got lost is asked for again by the same
//! hold id, which gets the same jobs. A worker that stops while the outcome is open leaves the question to the handle's own
//! thread, which releases whatever was claimed.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use fencehold_contract::StoreError;
use fencehold_contract::job::{ClaimJobsRequest, ClaimedJobs};
use fencehold_core::limits::JOBS_PER_CALL_MAX;
use fencehold_core::ttl::GrantedTerm;

use super::WorkerCore;
use super::event::WorkerEvent;
use super::shared::ReadyJob;
use crate::error::Error;
use crate::holding::HoldGrant;
use crate::random::hold_id;
use crate::renewal::free_unseen_claim;
use crate::retry::{RetryLoop, may_pass};
use crate::time::{First, first};
use crate::wake::lock;

/// A prefetched job that no slot has begun after this long is released: another worker may have a slot free.
const SHELF_MS_MAX: u64 = 2_000;
/// How long one claim stands in line. Nothing depends on it but how soon a connection is noticed that died in silence.
const CLAIM_WAIT_MS: u64 = 60_000;

impl WorkerCore {
    /// Claims until the worker is asked to stop, or cannot go on.
    pub(super) async fn claim(&self) {
        // The breaker is looked at first: each change is seen before the claim that follows it.
        let work = Box::pin(first(self.follow_breaker(), self.connection().unless_closed(self.claim_on())));
        let outcome = match first(self.shared.draining(), work).await {
            First::Left(()) => Ok(()),
            First::Right(First::Left(never)) => match never {},
            First::Right(First::Right(outcome)) => outcome,
        };
        self.shared.count(|tally| {
            tally.claimer_gone = true;
            tally.failure = outcome.err().or(tally.failure.take());
        });
    }

    /// Passes on each change of the circuit breaker.
    async fn follow_breaker(&self) -> Infallible {
        let connection = self.connection();
        let mut seen = connection.breaker.changes();
        loop {
            seen = connection.breaker.changed(seen).await;
            let stats = connection.breaker.stats(connection.now_ms());
            self.shared.report_to(&WorkerEvent::CircuitBreakerChanged(&stats));
        }
    }

    /// `Ok`: no job is ready, and the worker is to end then.
    async fn claim_on(&self) -> Result<(), Error> {
        let connection = self.connection();
        // A worker has all the time in the world.
        let mut tries = RetryLoop::new(Some(u64::MAX));
        loop {
            let room = self.until_room().await;
            let request = ClaimJobsRequest {
                queues: self.terms.queues.clone(),
                limit: room.min(JOBS_PER_CALL_MAX),
                hold_id: hold_id()?,
                owner: self.terms.owner.clone(),
                ttl_ms: self.terms.ttl_ms,
                // What runs, or was not reported yet, may make a job ready, and may itself wait for one.
                wait_ms: if self.terms.until_empty && self.shared.is_idle() { 0 } else { CLAIM_WAIT_MS },
                waited_before_ms: 0,
            };
            let mut claim =
                ClaimAttempt { worker: self, request, began_ms: connection.now_ms(), unsure: false };
            let count = loop {
                let permit = tries.admitted(connection).await?;
                // A job that was claimed before may lie here meanwhile, for a slot that does not come free.
                let claimed = match first(self.release_stale(), claim.ask(permit.is_probe())).await {
                    First::Left(never) => match never {},
                    First::Right(claimed) => claimed,
                };
                drop(permit);
                match claimed {
                    Ok(count) => break count,
                    Err(error) if may_pass(&error) => {
                        if tries.failures == 0 {
                            tracing::warn!(%error, "no jobs can be claimed for the moment; trying on");
                            self.shared
                                .report_to(&WorkerEvent::ClaimFailed { error: &error.clone().into() });
                        }
                        // A budget that never comes back still lets a worker try now and then.
                        let _ = tries.pause(connection, error).await;
                    }
                    Err(error) => return Err(error.into()),
                }
            };
            tries.answered();
            // Nothing was at work that could have made a job ready since.
            if count == 0 && claim.request.wait_ms == 0 {
                return Ok(());
            }
        }
    }

    /// Waits until there is room for more jobs. Meanwhile sees to it that none is kept from others for too long.
    async fn until_room(&self) -> usize {
        loop {
            let seen = self.shared.tally.read(|_, version| version);
            let room = self.shared.room(self.terms.concurrency);
            if room > 0 {
                return room;
            }
            let changed = self.shared.tally.when(move |_, version| (version > seen).then_some(()));
            if let First::Left(never) = first(self.release_stale(), changed).await {
                match never {}
            }
        }
    }

    /// Releases jobs that have lain on the shelf for too long, as long as any lies there.
    async fn release_stale(&self) -> Infallible {
        while let Some(since_ms) = self.shared.oldest_ms() {
            self.connection()
                .timers
                .sleep_until(since_ms.saturating_add(SHELF_MS_MAX))
                .await;
            let before_ms = self.connection().now_ms().saturating_sub(SHELF_MS_MAX);
            let stale = self.shared.take_stale(before_ms);
            if !stale.is_empty() {
                tracing::debug!(jobs = stale.len(), "releasing jobs that no slot came free for");
                lock(&self.shared.prefetch_pace).stalled();
                self.hand_back(stale);
            }
        }
        pending().await
    }
}

/// One hold id, and whether jobs granted to it may not have been seen.
struct ClaimAttempt<'a> {
    worker: &'a WorkerCore,
    request: ClaimJobsRequest,
    began_ms: u64,
    unsure: bool,
}

impl ClaimAttempt<'_> {
    /// Asks once; to try the store (`is_probe`), without waiting in line. Gives how many jobs came of it.
    async fn ask(&mut self, is_probe: bool) -> Result<usize, StoreError> {
        let wait_ms = if is_probe { 0 } else { self.request.wait_ms };
        let ends_when_idle = self.worker.terms.until_empty && wait_ms > 0;
        let answer = if ends_when_idle { self.ask_until_idle().await } else { self.send(wait_ms).await };
        match answer {
            Ok((sent_ms, claimed)) => {
                self.unsure = false;
                let count = claimed.jobs.len();
                self.take_in(sent_ms, claimed);
                Ok(count)
            }
            Err(error) => {
                self.unsure |= matches!(error, StoreError::OutcomeUnknown { .. });
                Err(error)
            }
        }
    }

    /// Stands in line for as long as something could make a job ready, and then asks for an answer at once.
    async fn ask_until_idle(&mut self) -> Result<(u64, ClaimedJobs), StoreError> {
        let answer = {
            let mut in_line = pin!(self.send(self.request.wait_ms));
            if let First::Right(answer) = first(self.worker.shared.idle(), in_line.as_mut()).await {
                return answer;
            }
            // The same claim again takes the place of the one in line, and gets what that was given in this moment. Neither is
            // dropped while the other has jobs: the store would hand them back.
            let mut at_once = pin!(self.send(0));
            match first(in_line.as_mut(), at_once.as_mut()).await {
                First::Left(in_line) => match (in_line, at_once.await) {
                    (Ok((_, claimed)), at_once) if claimed.jobs.is_empty() => at_once,
                    (Err(StoreError::OutcomeUnknown { message: why }), Err(_)) => {
                        Err(StoreError::OutcomeUnknown { message: why })
                    }
                    (Err(_), at_once) => at_once,
                    (in_line, _) => in_line,
                },
                First::Right(at_once) => {
                    if matches!(&at_once, Ok((_, claimed)) if !claimed.jobs.is_empty()) {
                        let _ = in_line.await;
                    }
                    at_once
                }
            }
        };
        self.request.wait_ms = 0;
        answer
    }

    /// One sending. Gives when it was sent, too.
    async fn send(&self, wait_ms: u64) -> Result<(u64, ClaimedJobs), StoreError> {
        let connection = self.worker.connection();
        let sent_ms = connection.now_ms();
        let waited_before_ms = sent_ms.saturating_sub(self.began_ms);
        let wait_ms = wait_ms.saturating_sub(waited_before_ms);
        let request = ClaimJobsRequest { wait_ms, waited_before_ms, ..self.request.clone() };
        let claimed = connection.send_job(wait_ms, |jobs, call| jobs.claim(call, request)).await?;
        Ok((sent_ms, claimed))
    }

    fn take_in(&self, sent_ms: u64, claimed: ClaimedJobs) {
        let WorkerCore { shared, terms, .. } = self.worker;
        let connection = self.worker.connection();
        let now_ms = connection.now_ms();
        let ClaimedJobs { jobs, waited_ms, .. } = claimed;
        if waited_ms == 0 && !jobs.is_empty() {
            lock(&shared.prefetch_pace).saw_trip(now_ms.saturating_sub(sent_ms));
        }
        let mut ready = Vec::with_capacity(jobs.len());
        for job in jobs {
            let term = GrantedTerm::new(sent_ms, waited_ms, now_ms, job.remaining_ms);
            let granted = HoldGrant::of(&job, self.request.hold_id, terms.owner.clone(), terms.ttl_ms, term);
            // A handle that was closed meanwhile has it released.
            if let Ok(holding) = connection.take_in(granted) {
                ready.push(ReadyJob { claimed: Box::new(job), holding, since_ms: now_ms });
            }
        }
        self.worker.hand_back(shared.put(ready));
        self.worker.dispatch();
    }
}

impl Drop for ClaimAttempt<'_> {
    /// The worker stops while it is not known what became of this claim. (A sending that is under way is the store's to
    /// take back: dropping its future leaves the line.)
    fn drop(&mut self) {
        if self.unsure {
            let connection = self.worker.connection();
            connection.spawn(free_unseen_claim(Arc::clone(connection), self.request.clone()));
        }
    }
}
