//! `fencehold job renew`: keep a claim that a script holds.

use fencehold_core::job::{AttemptRenewal, JobId};
use serde::Serialize;

use super::attempt::{Attempt, MORE};
use crate::context::{Context, Store};
use crate::duration::{show_exact_ms, show_ms};
use crate::failure::{Failure, only_answer};
use crate::hold;
use crate::show::facts;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  # After `eval \"$(fencehold job claim --queue emails -o env)\"`
  fencehold job renew || exit
  # Has somebody called the job off?
  fencehold job renew -o json | jq .cancel_requested
";

/// Keep a job for another ttl
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    attempt: Attempt,
}

#[derive(Debug, Serialize)]
struct Kept {
    id: JobId,
    #[serde(flatten)]
    renewal: AttemptRenewal,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open_to_look()?;
        store.closing(async |store| self.renew(context, store).await).await
    }

    async fn renew(self, context: &Context, store: &Store) -> Outcome {
        let attempt = hold::attempt(self.attempt.job, self.attempt.token)?;
        let id = attempt.job_id;
        let renewed = store
            .ask(async |jobs, call| jobs.renew_attempts(call, vec![attempt.clone()]).await)
            .await?;
        let renewal = only_answer(renewed.results, |refusal| Failure::refused_job(id, refusal))?;
        let kept = Kept { id, renewal };
        context.output.one(&kept, |palette| {
            let Kept { id, renewal } = &kept;
            let mut lines = vec![
                ("job", id.to_string()),
                ("token", renewal.token.to_string()),
                ("remaining", show_ms(renewal.remaining_ms)),
            ];
            if renewal.cancel_requested {
                lines.push(("cancelled", "stop at a good place, and hand it back".to_owned()));
            }
            if let Some(notice) = &renewal.yield_request {
                lines.push(("yield to", notice.contender.to_string()));
                lines.push(("yield in", show_exact_ms(notice.yield_in_ms)));
            }
            facts(palette, lines)
        })?;
        Ok(DONE)
    }
}
