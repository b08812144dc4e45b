//! `fencehold effect resolve`: a person says whether an effect in doubt happened.

use clap::ArgGroup;
use fencehold_contract::job::{EffectResolution, ResolveEffectRequest};
use fencehold_core::Owner;
use fencehold_core::job::{EffectName, JobId};

use crate::context::Context;
use crate::failure::Failure;
use crate::identity;
use crate::verb::job::Payload;
use crate::verb::{DONE, VerbResult};

const USAGE: &str = "\
fencehold effect resolve [OPTIONS] <JOB> <EFFECT> --happened <JSON>
       fencehold effect resolve [OPTIONS] <JOB> <EFFECT> --did-not-happen";

const EXAMPLES: &str = "\
Examples:
  fencehold effect resolve 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 charge \\
    --happened '{\"receipt\":\"r-7\"}'
  fencehold effect resolve 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 charge \\
    --did-not-happen
";

/// Resolve an effect in doubt: it happened, or it did not
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
#[command(override_usage = USAGE)]
#[command(group = ArgGroup::new("resolution").required(true).args(["happened", "did_not_happen"]))]
pub(crate) struct Args {
    /// The job
    #[arg(value_name = "JOB")]
    job: JobId,
    /// The effect of it
    #[arg(value_name = "EFFECT")]
    effect: EffectName,
    /// It happened, and gave this value
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    happened: Option<Payload>,
    /// It did not happen: the job may try it again
    #[arg(long)]
    did_not_happen: bool,
    /// Who resolves it [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let by = self.by.map_or_else(identity::person, Ok)?;
        let resolution = match self.happened {
            Some(Payload(value)) => EffectResolution::Happened { value },
            None => EffectResolution::DidNotHappen {},
        };
        let request = ResolveEffectRequest { job_id: self.job, effect: self.effect, resolution, by };
        let store = context.open_to_look()?;
        let resolved = store
            .closing(async |store| {
                store
                    .ask(async |jobs, call| jobs.resolve_effect(call, request.clone()).await)
                    .await
            })
            .await?;
        resolved.map_err(|refusal| Failure::refused_change(request.job_id, refusal))?;
        context.output.done()?;
        Ok(DONE)
    }
}
