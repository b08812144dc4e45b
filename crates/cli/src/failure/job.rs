//! What the rules of jobs refuse, for people.

use fencehold_contract::job::{ChangeJobResult, ChangedJob};
use fencehold_contract::problem::Problem;
use fencehold_core::job::{AttemptOutcome, JobId, Refusal};

use super::Failure;
use crate::duration::show_ms;
use crate::hold::HOLD_VARIABLE;

impl Failure {
    /// What was refused to an attempt at a job, or to one that is to be enqueued.
    pub(crate) fn refused_job(id: JobId, refusal: Refusal) -> Self {
        let mut problem = Problem::from(refusal.clone());
        problem.job_id.get_or_insert(id);
        Failure::refused_as(&problem, id, &refusal)
    }

    /// What was refused to a person who would change a job: that it has finished is no loss of theirs.
    pub(crate) fn refused_change(job_id: JobId, refusal: Refusal) -> Self {
        let result = ChangeJobResult { job_id, result: Err(refusal.clone()) };
        match Result::<ChangedJob, Problem>::from(result) {
            Err(problem) => Failure::refused_as(&problem, job_id, &refusal),
            Ok(_) => Failure::refused_job(job_id, refusal),
        }
    }

    fn refused_as(problem: &Problem, id: JobId, refusal: &Refusal) -> Self {
        let explain = format!("`fencehold explain {id}` shows what happened.");
        let of = |what: String| Failure::of_problem(problem.clone(), what);
        let said = || of(format!("job {id}: {refusal}"));
        match refusal {
            Refusal::BadInput(bad) => bad.clone().into(),
            Refusal::JobNotFound => said().with_next("`fencehold job ls` lists the jobs."),
            Refusal::Stale { .. } => {
                said().with_next(format!("Stop: another worker has had the job since. {explain}"))
            }
            Refusal::Over { outcome, .. } if outcome.ran_out() => {
                said().with_next(format!("Stop: the job goes to another worker. {explain}"))
            }
            Refusal::Over { outcome: AttemptOutcome::Revoked | AttemptOutcome::Advanced, .. } => {
                said().with_next(format!("Stop what was done for it. {explain}"))
            }
            Refusal::WrongJob { .. } | Refusal::WrongHoldId { .. } => said().with_next(format!(
                "FENCEHOLD_JOB_ID, {HOLD_VARIABLE} and FENCEHOLD_TOKEN must come from the same `job claim`."
            )),
            Refusal::StoreRewound { .. } => said()
                .with_next("It was probably restored from a backup. `fencehold store advance` is the cure."),
            Refusal::JobRunning { owner, token, remaining_ms } => {
                let left = show_ms(*remaining_ms);
                of(format!(
                    "job {id}: {owner} works on it under token {token}, for another {left} unless renewed"
                ))
                .with_next(
                    "Cancel it first (`fencehold job cancel`), or delete it with --force, which is recorded.",
                )
            }
            Refusal::Conflict { job_id, .. } => of(refusal.to_string())
                .with_next(format!("`fencehold job get {job_id}` shows what came first.")),
            Refusal::QueueDraining { queue } => {
                of(format!("queue {queue} is being drained and takes no new jobs"))
                    .with_next(format!("`fencehold queue resume {queue}` opens it again."))
            }
            Refusal::LimitReached { .. } => of(refusal.to_string()).with_next("Try again later."),
            _ => said().with_next(explain),
        }
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::job::{JobState, QueueName};
    use fencehold_core::{BadInput, Owner, Token};

    use super::*;
    use crate::exit::Exit;

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
                    field: "unique_key".to_owned(),
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
        assert!(
            matches!(bad, Failure::Said { exit: Exit::Usage, what, .. } if what == "payload is not JSON")
        );
        let late = Failure::refused_change(id, Refusal::Finished { state: JobState::Completed });
        assert!(
            matches!(late, Failure::Said { exit: Exit::Failed, .. }),
            "a caller that only asks for it has lost no claim"
        );
    }
}
