//! A script's word about its attempt at a job: which attempt, and what is answered.

use fencehold_contract::job::{AttemptReport, Report};
use fencehold_core::job::{JobId, ReportedAttempt};
use serde::Serialize;

use crate::context::{Context, Store};
use crate::duration::show_ms;
use crate::failure::{Failure, only_answer};
use crate::hold;
use crate::show::facts;
use crate::verb::{DONE, Outcome};

pub(super) const MORE: &str = "\
The job is the one in FENCEHOLD_JOB_ID unless it is named. The hold id comes from FENCEHOLD_HOLD or from stdin; the \
arguments of a process are there for everybody to read. Exit code 76 means that the attempt is over: stop.";

/// Which attempt speaks.
#[derive(Debug, clap::Args)]
pub(super) struct Attempt {
    #[arg(value_name = "JOB", help = "Which job [env: FENCEHOLD_JOB_ID]")]
    pub(super) job: Option<JobId>,
    #[arg(long, value_name = "N", help = hold::TOKEN_HELP)]
    pub(super) token: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Answer {
    id: JobId,
    #[serde(flatten)]
    reported: ReportedAttempt,
}

impl Attempt {
    /// Says it, and prints what became of the job.
    pub(super) async fn say(self, context: &Context, word: Report) -> Outcome {
        let store = context.open_to_look()?;
        store.closing(async |store| self.tell(context, store, word).await).await
    }

    async fn tell(self, context: &Context, store: &Store, word: Report) -> Outcome {
        let attempt = hold::attempt(self.job, self.token)?;
        let id = attempt.job_id;
        let reports = vec![AttemptReport { attempt, report: word }];
        let answers = store.ask(async |jobs, call| jobs.report(call, reports.clone()).await).await?;
        let reported = only_answer(answers, |refusal| Failure::refused_job(id, refusal))?;
        let answer = Answer { id, reported };
        context.output.one(&answer, |palette| {
            let mut lines = vec![("job", id.to_string()), ("state", reported.state.to_string())];
            if let Some(ms) = reported.retry_in_ms {
                lines.push(("tried again in", show_ms(ms)));
            }
            if reported.late {
                lines.push(("late", "the claim had run out, and nobody had had the job since".to_owned()));
            }
            facts(palette, lines)
        })?;
        Ok(DONE)
    }
}
