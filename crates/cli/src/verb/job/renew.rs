//! `fencehold job renew`: keep a claim that a script holds.

use fencehold_contract::http::RenewedAttempt;
use fencehold_core::job::AttemptRenewal;

use super::attempt::{AttemptArgs, MORE};
use crate::context::{Context, OpenStore};
use crate::duration::{show_exact_ms, show_ms};
use crate::failure::{Failure, only_answer};
use crate::hold_id;
use crate::show::facts;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  # After eval \"$(fencehold job claim --queue emails -o env)\"
  fencehold job renew || exit
  # Was the job cancelled?
  fencehold job renew -o json | jq .cancel_requested
";

/// Renew the claim on a job for another ttl
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    attempt: AttemptArgs,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        store.closing(async |store| self.renew(context, store).await).await
    }

    async fn renew(self, context: &Context, store: &OpenStore) -> VerbResult {
        let attempt = hold_id::attempt(self.attempt.job, self.attempt.token)?;
        let id = attempt.job_id;
        let renewed = store
            .ask(async |jobs, call| jobs.renew_attempts(call, vec![attempt.clone()]).await)
            .await?;
        let renewal = only_answer(renewed.results, |refusal| Failure::refused_job(id, refusal))?;
        let AttemptRenewal { token, remaining_ms, cancel_requested, yield_request } = renewal;
        let waited_ms = renewed.waited_ms;
        let renewed = RenewedAttempt { token, remaining_ms, cancel_requested, yield_request, waited_ms };
        context.output.one(&renewed, |style| {
            let mut lines = vec![
                ("job", id.to_string()),
                ("token", renewed.token.to_string()),
                ("left", show_ms(renewed.remaining_ms)),
            ];
            if renewed.cancel_requested {
                lines.push(("cancel requested", "stop, and release it".to_owned()));
            }
            if let Some(request) = &renewed.yield_request {
                lines.push(("yield to", request.contender.to_string()));
                lines.push(("yield in", show_exact_ms(request.yield_in_ms)));
            }
            facts(style, lines)
        })?;
        Ok(DONE)
    }
}
