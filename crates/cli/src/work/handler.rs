//! The handler of every job: one run of the command, from its start until nothing of it is left.

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use fencehold::{Job, JobError, LeaseState, Outcome};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::command::{Ran, run};
use super::line::Lines;
use super::{Plan, verdict};
use crate::failure::Failure;
use crate::process::{Tenure, boot_ms, most_grace_ms};

/// How long a job is kept whose command could not be started here, so that it does not come back at once.
const UNSTARTED: Duration = Duration::from_millis(100);

pub(super) struct Handler {
    pub(super) plan: Plan,
    pub(super) lines: Arc<Lines>,
}

impl Handler {
    /// Runs the command for a job. It blocks: a command is not dropped, but ended.
    pub(super) fn handle(&self, job: &Job, payload: &str) -> Result<Outcome, JobError> {
        Handle::current().block_on(self.attempt(job, payload))
    }

    async fn attempt(&self, job: &Job, payload: &str) -> Result<Outcome, JobError> {
        let (claim, now_ms) = (job.watch().snapshot(), boot_ms());
        // A job whose time limit is shorter than the ttl leaves a shorter grace too. With the whole one it would never begin.
        let left_ms = claim.deadline_ms.saturating_sub(now_ms);
        let grace_ms = self.plan.grace_ms.min(most_grace_ms(left_ms));
        if now_ms.saturating_add(grace_ms) >= claim.lost_at_ms {
            // Too late to begin: another worker has more time for it.
            return Ok(Outcome::release());
        }
        let (tell, tenure) = watch::channel(Tenure::of(&claim));
        let told_to_end = Cell::new(false);
        let ran = tokio::select! {
            ran = run(job, payload, &self.plan.words, grace_ms, tenure, &self.lines.writer) => ran,
            never = follow(job, tell, &told_to_end) => match never {},
        };
        match ran {
            Ok(ran) => self.outcome(job, &ran, told_to_end.get()),
            Err(failure) => {
                // It is not the job's fault that nothing could be started here.
                if let Failure::Said { what, .. } = &failure {
                    self.lines.note(&format!("job {}: {what}; it is handed back", job.id()));
                }
                tokio::time::sleep(UNSTARTED).await;
                Ok(Outcome::release())
            }
        }
    }

    fn outcome(&self, job: &Job, ran: &Ran, told_to_end: bool) -> Result<Outcome, JobError> {
        let (id, token, finish) = (job.id(), job.token(), &ran.finish);
        self.lines.ended(job, finish.code);
        if !finish.left.is_empty() {
            let pids: Vec<String> = finish.left.iter().map(ToString::to_string).collect();
            self.lines.note(&format!(
                "job {id}: processes of its command cannot be ended ({}), so its claim is left to run out",
                pids.join(", ")
            ));
            return Ok(Outcome::let_expire());
        }
        if finish.lost {
            let why = job.watch().snapshot().lost.map(|why| format!(" ({why})")).unwrap_or_default();
            self.lines.note(&format!(
                "job {id}: the claim under token {token} was lost{why}, and its command ended"
            ));
            return Ok(Outcome::let_expire());
        }
        match finish.code {
            // What was told to end is not believed when it says that it is done.
            Some(code) if !told_to_end && !finish.unwatched => {
                verdict::outcome(code, &ran.stdout, ran.stderr_end.bytes(), self.plan.snooze)
            }
            _ => Ok(Outcome::release()),
        }
    }
}

/// Follows the claim for the command: every new deadline, its end, and whether the command is still wanted. One that was told
/// to end hears only that its claim was taken away, which leaves it less time.
async fn follow(job: &Job, tell: watch::Sender<Tenure>, told_to_end: &Cell<bool>) -> Infallible {
    let mut claim = job.watch();
    let unwanted = async {
        tokio::select! {
            true = job.cancelled() => {}
            Some(_) = job.yield_requested() => {}
            () = job.drain_timed_out() => {}
        }
    };
    tokio::pin!(unwanted);
    loop {
        tokio::select! {
            () = &mut unwanted, if !told_to_end.get() => {
                told_to_end.set(true);
                tell.send_replace(Tenure::Unwanted { kill_at_ms: claim.snapshot().lost_at_ms });
            }
            snapshot = claim.changed() => {
                let tenure = Tenure::of(&snapshot);
                if tenure == Tenure::Taken || !told_to_end.get() {
                    tell.send_replace(tenure);
                }
                if snapshot.state == LeaseState::Lost {
                    return std::future::pending().await;
                }
            }
        }
    }
}
