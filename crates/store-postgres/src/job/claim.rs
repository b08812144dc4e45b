//! Claims: served at once, or by standing in line.
//!
//! The line is a table that every process sees, first come first served: a claim in it may take what those before it leave, and
//! is notified when there is something for it. So those for whom there is enough take it side by side.

use std::rc::Rc;
use std::time::Duration;

use fencehold_contract::job::{ClaimJobsRequest, ClaimedJobs};
use fencehold_contract::{CallContext, StoreError};
use fencehold_net::{PendingCall, sleep};

use super::claim_statement::{ClaimEnd, ClaimResult, ClaimRoute};
use crate::acquire::caller_gone;
use crate::statement::{Call, Parameter};
use crate::value::{Uuid128, from_sql, limit_to_sql, to_sql};
use crate::{PostgresInner, closed};

/// For how long a claim that does not wait gives way to those in line who have something to take.
const POLITE_TRIES: u32 = 25;
const POLITE_PAUSE: Duration = Duration::from_millis(20);
/// When to look again without a notification, after the first look from a place in line: a job that was about to be committed
/// then may have been put there by a session that did not see that place yet. From then on every session sees it.
const EARLY_LOOKS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];

impl PostgresInner {
    /// Serves one claim, waiting for the first job if need be.
    pub(super) async fn serve_claim(
        self: &Rc<Self>,
        about: &CallContext,
        request: &ClaimJobsRequest,
        caller: &PendingCall,
    ) -> Result<ClaimedJobs, StoreError> {
        self.begin_nothing_outdated()?;
        let core = Rc::clone(self);
        caller.after_response(async move { core.tell_lines().await });
        let taken = self.call(about, about.timeout_ms, 0).take_politely(request).await?;
        if taken.jobs.is_empty() && request.wait_ms > 0 {
            return self.stand_in_line(about, request, caller).await;
        }
        let resumed = taken.became == ClaimEnd::Repeated;
        Ok(ClaimedJobs { jobs: taken.jobs, waited_ms: 0, resumed })
    }

    /// Waits for the first job.
    async fn stand_in_line(
        &self,
        about: &CallContext,
        request: &ClaimJobsRequest,
        caller: &PendingCall,
    ) -> Result<ClaimedJobs, StoreError> {
        let listener = self.listen(&format!("line/{}", Uuid128::from(request.hold_id.hash()).text()));
        let (since_ms, sending) =
            self.call(about, about.timeout_ms, request.wait_ms).line_up(request).await?;
        let place = self.jobs.line.stand(sending);
        let mut early_looks = EARLY_LOOKS.into_iter();
        let answer = loop {
            if caller.has_gone() {
                break Err(caller_gone());
            }
            // Each look is a request of its own, and its timeout starts with it.
            let way = ClaimRoute::InLine { sending, gone: &|| caller.has_gone() };
            match self.call(about, about.timeout_ms, 0).take_jobs(request, &way).await {
                Ok(ClaimResult { became: ClaimEnd::Replaced, .. }) => {
                    let why = "the same claim was sent again, and the later one stands in line".to_owned();
                    return Err(StoreError::Unavailable { message: why });
                }
                Ok(taken) if !taken.jobs.is_empty() => {
                    let waited_ms = taken.now_ms.saturating_sub(since_ms);
                    let resumed = taken.became == ClaimEnd::Repeated;
                    return Ok(ClaimedJobs { jobs: taken.jobs, waited_ms, resumed });
                }
                Ok(ClaimResult { became: ClaimEnd::TooLate, now_ms, .. }) => {
                    let waited_ms = now_ms.saturating_sub(since_ms);
                    break Ok(ClaimedJobs { jobs: Vec::new(), waited_ms, resumed: false });
                }
                Ok(_) => {}
                Err(error) => break Err(error),
            }
            let early = early_looks.next();
            tokio::select! {
                () = listener.heard() => {}
                () = place.notified() => {}
                () = caller.gone() => {}
                () = sleep(early.unwrap_or_default()), if early.is_some() => {}
                () = self.closing.wait() => break Err(closed()),
            }
        };
        self.call(about, about.timeout_ms, 0).leave_line(request, sending).await;
        answer
    }
}

impl Call<'_> {
    /// Takes what there is. Those in line come first; but one of them that does not take what is there is passed over after a
    /// moment: it may be dead, or about to leave.
    async fn take_politely(&mut self, request: &ClaimJobsRequest) -> Result<ClaimResult, StoreError> {
        if request.wait_ms == 0 {
            for _ in 0..POLITE_TRIES {
                let taken = self.take_jobs(request, &ClaimRoute::AtOnce).await?;
                if !taken.jobs.is_empty() || taken.became != ClaimEnd::Behind {
                    return Ok(taken);
                }
                sleep(POLITE_PAUSE).await;
            }
        }
        let way = if request.wait_ms == 0 { ClaimRoute::PastTheLine } else { ClaimRoute::AtOnce };
        self.take_jobs(request, &way).await
    }

    async fn line_up(&mut self, request: &ClaimJobsRequest) -> Result<(u64, Uuid128), StoreError> {
        let queues: Vec<&str> = request.queues.iter().map(|(queue, _)| queue.as_str()).collect();
        let sql = "SELECT * FROM fencehold.job_line_up($1, $2, $3, $4, $5, $6)";
        let asked: [&dyn Parameter; 6] = [
            &self.namespace(),
            &queues,
            &Uuid128::from(request.hold_id.hash()),
            &limit_to_sql(request.limit),
            &to_sql(request.wait_ms),
            &to_sql(request.waited_before_ms),
        ];
        let (since_ms, sending) = self.row(sql, &asked).await?;
        Ok((from_sql(since_ms), sending))
    }

    async fn leave_line(&mut self, request: &ClaimJobsRequest, sending: Uuid128) {
        let sql = "SELECT fencehold.job_leave_line($1, $2, $3)";
        let asked: [&dyn Parameter; 3] =
            [&self.namespace(), &Uuid128::from(request.hold_id.hash()), &sending];
        if let Err(why) = self.execute(sql, &asked).await {
            // Its place is no longer kept up, and so it falls out of the line by itself.
            tracing::debug!(%why, "a claim could not leave its line");
        }
    }
}
