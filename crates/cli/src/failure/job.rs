//! What the rules of jobs refuse, for people.

use fencehold_core::job::{AttemptOutcome, JobId, Refusal};

use super::Failure;
use crate::duration::show_ms;
use crate::exit::Exit;

impl Failure {
    /// What was refused to a job, or to somebody who spoke for it.
    pub(crate) fn refused_job(id: JobId, refusal: Refusal) -> Self {
        let explain = format!("`fencehold explain {id}` tells what happened.");
        let said = |exit| Failure::new(exit, format!("job {id}: {refusal}"));
        match &refusal {
            Refusal::BadInput(bad) => Failure::new(Exit::Usage, bad.to_string()),
            Refusal::JobNotFound => {
                said(Exit::Failed).with_next("`fencehold job ls` lists the jobs there are.")
            }
            Refusal::Stale { .. } => {
                said(Exit::Lost).with_next(format!("Stop: somebody else has had the job since. {explain}"))
            }
            Refusal::Over { outcome: how, .. } if how.ran_out() => {
                said(Exit::Lost).with_next(format!("Stop: the job goes to somebody else. {explain}"))
            }
            Refusal::Over { outcome: AttemptOutcome::Revoked | AttemptOutcome::Advanced, .. } => {
                said(Exit::Lost).with_next(format!("Stop what was done for it. {explain}"))
            }
            Refusal::Over { .. } | Refusal::Finished { .. } => said(Exit::Lost).with_next(explain),
            Refusal::WrongJob { .. } | Refusal::WrongHoldId { .. } => said(Exit::Usage).with_next(
                "FENCEHOLD_JOB_ID, FENCEHOLD_HOLD and FENCEHOLD_TOKEN must come from the same `job claim`.",
            ),
            Refusal::StoreRewound { .. } => said(Exit::Unusable)
                .with_next("It was probably restored from a backup. `fencehold store advance` is the cure."),
            Refusal::JobRunning { owner, token, remaining_ms: expires_in_ms } => {
                let left = show_ms(*expires_in_ms);
                let what = format!(
                    "job {id}: {owner} works on it under token {token}, for another {left} unless renewed"
                );
                Failure::new(Exit::Held, what).with_next(
                    "Cancel it first (`fencehold job cancel`), or delete it with --force, which is recorded.",
                )
            }
            Refusal::Conflict { job_id: first, .. } => Failure::new(Exit::Usage, refusal.to_string())
                .with_next(format!("`fencehold job get {first}` shows what came first.")),
            Refusal::QueueDraining { queue } => {
                Failure::new(Exit::Held, format!("queue {queue} is being drained and takes no new jobs"))
                    .with_next(format!("`fencehold queue resume {queue}` opens it again."))
            }
            Refusal::LimitReached { .. } => {
                Failure::new(Exit::Unavailable, refusal.to_string()).with_next("Try again later.")
            }
            _ => said(Exit::Failed).with_next(explain),
        }
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::job::{JobState, QueueName};
    use fencehold_core::{BadInput, Owner, Token};

    use super::*;

    #[test]
    fn each_refusal_has_its_exit_code_and_a_way_out() {
        let id = JobId::from_random(1, [1; 10]);
        let token = Token::new(3);
        for (refusal, exit) in [
            (Refusal::JobNotFound, Exit::Failed),
            (
                Refusal::Stale {
                    token,
                    outcome: Some(AttemptOutcome::Crashed),
                    current_token: Token::new(4),
                },
                Exit::Lost,
            ),
            (Refusal::Over { token, outcome: AttemptOutcome::TimedOut }, Exit::Lost),
            (Refusal::Over { token, outcome: AttemptOutcome::Failed }, Exit::Lost),
            (Refusal::Finished { state: JobState::Cancelled }, Exit::Lost),
            (Refusal::WrongJob { token, job_id: None }, Exit::Usage),
            (Refusal::WrongHoldId { token }, Exit::Usage),
            (Refusal::StoreRewound { token, current_token: Token::new(1) }, Exit::Unusable),
            (
                Refusal::Conflict {
                    field: "unique key".to_owned(),
                    job_id: id,
                    differs: "payload".to_owned(),
                },
                Exit::Usage,
            ),
            (Refusal::QueueDraining { queue: QueueName::default() }, Exit::Held),
            (Refusal::LimitReached { message: "jobs".to_owned(), limit: 1 }, Exit::Unavailable),
            (Refusal::JobRunning { owner: Owner::new("a").unwrap(), token, remaining_ms: 1 }, Exit::Held),
            (Refusal::WrongState { state: JobState::Queued, message: "it waits".to_owned() }, Exit::Failed),
        ] {
            let Failure::Said { exit: came, next, .. } = Failure::refused_job(id, refusal.clone()) else {
                panic!("nothing said")
            };
            assert_eq!(came, exit, "{refusal}");
            assert!(next.is_some(), "{refusal}");
        }
        let bad = Failure::refused_job(id, Refusal::BadInput(BadInput::new("payload", "is not JSON")));
        assert_eq!(bad, Failure::new(Exit::Usage, "payload is not JSON"));
    }
}
