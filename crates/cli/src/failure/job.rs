//! What the rules of jobs refuse, for people.

use fencehold_contract::job::{ChangeJobResult, ChangedJob};
use fencehold_contract::problem::Problem;
use fencehold_core::job::{AttemptOutcome, JobId, JobRefusal};

use super::Failure;
use crate::duration::show_ms;
use crate::hold_id::HOLD_VARIABLE;

impl Failure {
    /// What was refused to an attempt at a job, or to one that is to be enqueued.
    pub(crate) fn refused_job(id: JobId, refusal: JobRefusal) -> Self {
        let mut problem = Problem::from(refusal.clone());
        problem.job_id.get_or_insert(id);
        Failure::refused_as(&problem, id, &refusal)
    }

    /// What was refused to a person who would change a job: that it has finished is no loss of theirs.
    pub(crate) fn refused_change(job_id: JobId, refusal: JobRefusal) -> Self {
        let result = ChangeJobResult { job_id, result: Err(refusal.clone()) };
        match Result::<ChangedJob, Problem>::from(result) {
            Err(problem) => Failure::refused_as(&problem, job_id, &refusal),
            Ok(_) => Failure::refused_job(job_id, refusal),
        }
    }

    fn refused_as(problem: &Problem, id: JobId, refusal: &JobRefusal) -> Self {
        let explain = format!("`fencehold explain {id}` shows what happened.");
        let of = |what: String| Failure::of_problem(problem.clone(), what);
        let said = || of(format!("job {id}: {refusal}"));
        match refusal {
            JobRefusal::BadInput(bad) => bad.clone().into(),
            JobRefusal::JobNotFound => said().with_next("`fencehold job ls` lists the jobs."),
            JobRefusal::Stale { .. } => {
                said().with_next(format!("Stop: another worker has had the job since. {explain}"))
            }
            JobRefusal::Over { outcome, .. } if outcome.ran_out() => {
                said().with_next(format!("Stop: the job goes to another worker. {explain}"))
            }
            JobRefusal::Over { outcome: AttemptOutcome::Revoked | AttemptOutcome::Advanced, .. } => {
                said().with_next(format!("Stop what was done for it. {explain}"))
            }
            JobRefusal::WrongJob { .. } | JobRefusal::WrongHoldId { .. } => said().with_next(format!(
                "FENCEHOLD_JOB_ID, {HOLD_VARIABLE} and FENCEHOLD_TOKEN must come from the same `job claim`."
            )),
            JobRefusal::StoreRewound { .. } => said()
                .with_next("It was probably restored from a backup. `fencehold store advance` is the cure."),
            JobRefusal::TokensExhausted => said().with_next("Enqueue into a new store: tokens only grow."),
            JobRefusal::JobRunning { owner, token, remaining_ms } => {
                let left = show_ms(*remaining_ms);
                of(format!(
                    "job {id}: {owner} works on it under token {token}, for another {left} unless renewed"
                ))
                .with_next(
                    "Cancel it first (`fencehold job cancel`), or delete it with --force, which is recorded.",
                )
            }
            JobRefusal::Conflict { job_id, .. } => of(refusal.to_string())
                .with_next(format!("`fencehold job get {job_id}` shows what came first.")),
            JobRefusal::QueueDraining { queue } => {
                of(format!("queue {queue} is being drained and takes no new jobs"))
                    .with_next(format!("`fencehold queue resume {queue}` opens it again."))
            }
            JobRefusal::LimitReached { .. } => of(refusal.to_string()).with_next("Try again later."),
            _ => said().with_next(explain),
        }
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::job::{JobState, QueueName};
    use fencehold_core::{BadInput, Owner, Token};

    use super::*;
    use crate::exit_code::ExitStatus;

    #[test]
    fn each_refusal_has_its_exit_code_and_a_way_out() {
        let id = JobId::from_random(1, [1; 10]);
        let (token, owner) = (Token::new(3), Owner::new("a").unwrap());
        let (crashed, text) = (Some(AttemptOutcome::Crashed), || "some text".to_owned());
        for (refusal, exit) in [
            (JobRefusal::JobNotFound, ExitStatus::Failed),
            (JobRefusal::Stale { token, outcome: crashed, current_token: Token::new(4) }, ExitStatus::Lost),
            (JobRefusal::Over { token, outcome: AttemptOutcome::TimedOut }, ExitStatus::Lost),
            (JobRefusal::Over { token, outcome: AttemptOutcome::Failed }, ExitStatus::Lost),
            (JobRefusal::Finished { state: JobState::Cancelled }, ExitStatus::Lost),
            (JobRefusal::WrongJob { token, job_id: None }, ExitStatus::Usage),
            (JobRefusal::WrongHoldId { token }, ExitStatus::Usage),
            (JobRefusal::StoreRewound { token, current_token: Token::new(1) }, ExitStatus::Unusable),
            (JobRefusal::Conflict { field: text(), job_id: id, differs: text() }, ExitStatus::Usage),
            (JobRefusal::QueueDraining { queue: QueueName::default() }, ExitStatus::Held),
            (JobRefusal::LimitReached { message: text(), limit: 1 }, ExitStatus::Unavailable),
            (JobRefusal::JobRunning { owner, token, remaining_ms: 1 }, ExitStatus::Held),
            (JobRefusal::WrongState { state: JobState::Queued, message: text() }, ExitStatus::Failed),
        ] {
            let Failure::Said { exit: came, next, .. } = Failure::refused_job(id, refusal.clone()) else {
                panic!("nothing said")
            };
            assert_eq!(came, exit, "{refusal}");
            assert!(next.is_some(), "{refusal}");
        }
        let bad = Failure::refused_job(id, JobRefusal::BadInput(BadInput::new("payload", "is not JSON")));
        let Failure::Said { exit, what, .. } = bad else { panic!("nothing said") };
        assert_eq!((exit, what.as_str()), (ExitStatus::Usage, "payload is not JSON"));
        let late = Failure::refused_change(id, JobRefusal::Finished { state: JobState::Completed });
        // A caller that only asks for it has lost no claim.
        assert!(matches!(late, Failure::Said { exit: ExitStatus::Failed, .. }));
    }
}
