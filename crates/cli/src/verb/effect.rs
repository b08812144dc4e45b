//! `fencehold effect …`: side effects of jobs that a person should know of.

use clap::ArgGroup;
use fencehold_contract::job::{
    EffectPage, EffectResolution, EffectView, FindingKind, ListEffectsRequest, ResolveEffectRequest,
};
use fencehold_core::Owner;
use fencehold_core::job::{EffectName, JobId};
use fencehold_core::limits::PAGE_MAX;

use crate::context::{Context, pages};
use crate::failure::Failure;
use crate::follow::state_colour;
use crate::identity;
use crate::output::{Format, note};
use crate::show::{Cell, Colour, Table};
use crate::verb::job::Payload;
use crate::verb::{VerbResult, verbs};

verbs! {
    /// List effects of jobs that need attention, and resolve them
    #[command(before_help = "\
# What is in doubt, compensated, or of a superseded token
fencehold effect ls
# A person has looked: the card was not charged
fencehold effect resolve 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 charge \\
  --did-not-happen")]
    Verb:
    Ls = LsArgs,
    Resolve = ResolveArgs,
}

/// List effects in doubt, compensated or to be, or of a superseded token
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold effect ls
fencehold effect ls 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 -o json")]
#[command(after_help = "\
An effect is in doubt when an attempt began it and no attempt recorded what came of it. If its policy is manual, the job \
stops as in_doubt until `fencehold effect resolve` says what happened; then it goes on.")]
pub(crate) struct LsArgs {
    /// Only of this job
    #[arg(value_name = "JOB")]
    job: Option<JobId>,
}

impl LsArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let wanted = |effect: &EffectView| self.job.is_none_or(|job| effect.job_id == job);
        let mut effects = Vec::new();
        context
            .look(async |store| {
                pages(async |cursor| {
                    let request = ListEffectsRequest { cursor, limit: PAGE_MAX };
                    let page = store
                        .ask(async |jobs, call| jobs.list_effects(call, request.clone()).await)
                        .await?;
                    effects.extend(page.effects.into_iter().filter(wanted));
                    Ok(page.next_cursor)
                })
                .await
            })
            .await?;
        let page = EffectPage { effects, next_cursor: None };
        let effects = &page.effects;
        context.output.list(&page, effects, "no effect needs attention", table)?;
        let in_doubt = effects.iter().any(|effect| effect.finding == FindingKind::InDoubt);
        if in_doubt && context.output.format == Format::Table {
            note("resolve an effect in doubt with `fencehold effect resolve`");
        }
        Ok(())
    }
}

fn table(effects: &[EffectView]) -> Table {
    Table::of(["JOB", "JOB STATE", "EFFECT", "FINDING", "TOKEN"], effects, |effect| {
        let colour = match effect.finding {
            FindingKind::InDoubt | FindingKind::CompensationFailed => Colour::Bad,
            FindingKind::CompensationPending => Colour::Warning,
            _ => Colour::Plain,
        };
        [
            effect.job_id.into(),
            Cell::from(effect.job_state).in_colour(state_colour(effect.job_state)),
            effect.effect.as_str().into(),
            Cell::from(effect.finding.name()).in_colour(colour),
            effect.token.into(),
        ]
    })
}

/// Resolve an effect in doubt: it happened, or it did not
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold effect resolve 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 charge \\
  --happened '{\"receipt\":\"r-7\"}'
fencehold effect resolve 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 charge \\
  --did-not-happen")]
#[command(override_usage = "\
fencehold effect resolve [OPTIONS] <JOB> <EFFECT> --happened <JSON>
       fencehold effect resolve [OPTIONS] <JOB> <EFFECT> --did-not-happen")]
#[command(group = ArgGroup::new("resolution").required(true).args(["happened", "did_not_happen"]))]
pub(crate) struct ResolveArgs {
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

impl ResolveArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let by = self.by.map_or_else(identity::person, Ok)?;
        let resolution = match self.happened {
            Some(Payload(value)) => EffectResolution::Happened { value },
            None => EffectResolution::DidNotHappen {},
        };
        let request = ResolveEffectRequest { job_id: self.job, effect: self.effect, resolution, by };
        let resolved = context
            .ask(async |jobs, call| jobs.resolve_effect(call, request.clone()).await)
            .await?;
        resolved.map_err(|refusal| Failure::refused_change(request.job_id, refusal))?;
        context.output.done()
    }
}
