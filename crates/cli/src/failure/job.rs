//! What the rules of jobs refuse, for people.

use fencehold_core::job::{Ended, JobId, Refusal};

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
            Refusal::Unknown => said(Exit::Failed).with_next("`fencehold job ls` lists the jobs there are."),
            Refusal::Stale { .. } => {
                said(Exit::Lost).with_next(format!("Stop: somebody else has had the job since. {explain}"))
            }
            Refusal::Over { how, .. } if how.ran_out() => {
                said(Exit::Lost).with_next(format!("Stop: the job goes to somebody else. {explain}"))
            }
            Refusal::Over { how: Ended::Revoked | Ended::Advanced, .. } => {
                said(Exit::Lost).with_next(format!("Stop what was done for it. {explain}"))
            }
            Refusal::Over { .. } | Refusal::Finished { .. } => said(Exit::Lost).with_next(explain),
            Refusal::OtherJob { .. } | Refusal::WrongHold { .. } => said(Exit::Usage).with_next(
                "FENCEHOLD_JOB_ID, FENCEHOLD_HOLD and FENCEHOLD_TOKEN must come from the same `job claim`.",
            ),
            Refusal::StoreRewound { .. } => said(Exit::Unusable)
                .with_next("It was probably restored from a backup. `fencehold store advance` is the cure."),
            Refusal::Running { owner, token, expires_in_ms } => {
                let left = show_ms(*expires_in_ms);
                let what = format!(
                    "job {id}: {owner} works on it under token {token}, for another {left} unless renewed"
                );
                Failure::new(Exit::Held, what).with_next(
                    "Cancel it first (`fencehold job cancel`), or delete it with --force, which is recorded.",
                )
            }
            Refusal::Conflict { first, .. } => Failure::new(Exit::Usage, refusal.to_string())
                .with_next(format!("`fencehold job get {first}` shows what came first.")),
            Refusal::Draining { queue } => {
                Failure::new(Exit::Held, format!("queue {queue} is being drained and takes no new jobs"))
                    .with_next(format!("`fencehold queue resume {queue}` opens it again."))
            }
            Refusal::Full { .. } => {
                Failure::new(Exit::Unavailable, refusal.to_string()).with_next("Try again later.")
            }
            _ => said(Exit::Failed).with_next(explain),
        }
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::job::{Queue, State};
    use fencehold_core::{BadInput, Owner, Token};

    use super::*;

    #[test]
    fn each_refusal_has_its_exit_code_and_a_way_out() {
        let id = JobId::from_random(1, [1; 10]);
        let token = Token::new(3);
        for (refusal, exit) in [
            (Refusal::Unknown, Exit::Failed),
            (Refusal::Stale { token, how: Some(Ended::Crashed), current: Token::new(4) }, Exit::Lost),
            (Refusal::Over { token, how: Ended::TimedOut }, Exit::Lost),
            (Refusal::Over { token, how: Ended::Failed }, Exit::Lost),
            (Refusal::Finished { state: State::Cancelled }, Exit::Lost),
            (Refusal::OtherJob { token, job: None }, Exit::Usage),
            (Refusal::WrongHold { token }, Exit::Usage),
            (Refusal::StoreRewound { shown: token, current: Token::new(1) }, Exit::Unusable),
            (
                Refusal::Conflict { what: "unique key".to_owned(), first: id, differs: "payload".to_owned() },
                Exit::Usage,
            ),
            (Refusal::Draining { queue: Queue::default() }, Exit::Held),
            (Refusal::Full { what: "jobs".to_owned(), limit: 1 }, Exit::Unavailable),
            (Refusal::Running { owner: Owner::new("a").unwrap(), token, expires_in_ms: 1 }, Exit::Held),
            (Refusal::NotNow { state: State::Queued, why: "it waits".to_owned() }, Exit::Failed),
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
