//! What a script reports of its attempt at a job.

use fencehold_contract::job::{AttemptReport, Report};
use fencehold_core::job::JobId;

use crate::context::{Context, OpenStore};
use crate::duration::show_ms;
use crate::failure::{Failure, only_answer};
use crate::hold_id;
use crate::show::facts;
use crate::verb::{DONE, VerbResult};

pub(super) const MORE: &str = "\
The hold id comes from FENCEHOLD_HOLD_ID or from stdin, never from an argument, which every user of the machine could \
read. Exit code 76 means that the attempt is lost: stop.";

/// Which attempt it is.
#[derive(Debug, clap::Args)]
pub(super) struct AttemptArgs {
    #[arg(value_name = "JOB", help = "Which job [env: FENCEHOLD_JOB_ID]")]
    pub(super) job: Option<JobId>,
    #[arg(long, value_name = "N", help = hold_id::TOKEN_HELP)]
    pub(super) token: Option<u64>,
}

impl AttemptArgs {
    /// Reports, and prints what became of the job.
    pub(super) async fn report(self, context: &Context, report: Report) -> VerbResult {
        let store = context.open_to_look()?;
        store.closing(async |store| self.send(context, store, report).await).await
    }

    async fn send(self, context: &Context, store: &OpenStore, report: Report) -> VerbResult {
        let attempt = hold_id::attempt(self.job, self.token)?;
        let id = attempt.job_id;
        let reports = vec![AttemptReport { attempt, report }];
        let answers = store.ask(async |jobs, call| jobs.report(call, reports.clone()).await).await?;
        let reported = only_answer(answers, |refusal| Failure::refused_job(id, refusal))?;
        context.output.one(&reported, |style| {
            let mut lines = vec![("job", id.to_string()), ("state", reported.state.to_string())];
            if let Some(ms) = reported.retry_in_ms {
                lines.push(("retry in", show_ms(ms)));
            }
            if reported.late {
                lines.push((
                    "late",
                    "the claim had expired, but no other worker had the job since".to_owned(),
                ));
            }
            facts(style, lines)
        })?;
        Ok(DONE)
    }
}
