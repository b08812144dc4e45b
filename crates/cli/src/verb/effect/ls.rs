//! `fencehold effect ls`: effects that a person should know of.

use fencehold_contract::job::{EffectPage, EffectView, FindingKind, ListEffectsRequest};
use fencehold_core::job::JobId;
use fencehold_core::limits::PAGE_MAX;

use crate::context::{Context, OpenStore};
use crate::failure::Failure;
use crate::follow::state_colour;
use crate::output::{Format, note};
use crate::show::{Cell, Colour, Table};
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold effect ls
  fencehold effect ls 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 -o json
";

const MORE: &str = "\
An effect is in doubt when an attempt began it and no attempt recorded what came of it. If its policy is manual, the job \
stops as in_doubt until `fencehold effect resolve` says what happened; then it goes on.";

/// List effects in doubt, compensated or to be, or of a superseded token
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// Only of this job
    #[arg(value_name = "JOB")]
    job: Option<JobId>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        let effects = store.closing(async |store| self.effects(store).await).await?;
        let page = EffectPage { effects, next_cursor: None };
        let effects = &page.effects;
        context
            .output
            .list(&page, effects, "no effect needs attention", || table(effects))?;
        let in_doubt = effects.iter().any(|effect| effect.finding == FindingKind::InDoubt);
        if in_doubt && context.output.format == Format::Table {
            note("resolve an effect in doubt with `fencehold effect resolve`");
        }
        Ok(DONE)
    }

    async fn effects(&self, store: &OpenStore) -> Result<Vec<EffectView>, Failure> {
        let mut request = ListEffectsRequest { cursor: None, limit: PAGE_MAX };
        let mut effects = Vec::new();
        loop {
            let page = store
                .ask(async |jobs, call| jobs.list_effects(call, request.clone()).await)
                .await?;
            let wanted = |effect: &EffectView| self.job.is_none_or(|job| effect.job_id == job);
            effects.extend(page.effects.into_iter().filter(wanted));
            match page.next_cursor {
                Some(next) => request.cursor = Some(next),
                None => return Ok(effects),
            }
        }
    }
}

fn table(effects: &[EffectView]) -> Table {
    let mut table = Table::new(["JOB", "JOB STATE", "EFFECT", "FINDING", "TOKEN"]);
    for effect in effects {
        let colour = match effect.finding {
            FindingKind::InDoubt | FindingKind::CompensationFailed => Colour::Bad,
            FindingKind::CompensationPending => Colour::Warning,
            _ => Colour::Plain,
        };
        table.row([
            effect.job_id.into(),
            Cell::from(effect.job_state).in_colour(state_colour(effect.job_state)),
            effect.effect.as_str().into(),
            Cell::from(effect.finding.name()).in_colour(colour),
            effect.token.into(),
        ]);
    }
    table
}
