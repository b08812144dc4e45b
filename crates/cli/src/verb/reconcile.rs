//! `fencehold reconcile`: effects that people should know of, and what a person has to say of them.

use clap::ArgGroup;
use fencehold_contract::job::{EffectView, FindingKind, ListEffectsRequest, ResolveEffectRequest};
use fencehold_core::Owner;
use fencehold_core::job::{EffectName, JobId};
use fencehold_core::limits::PAGE_MAX;

use super::job::Payload;
use crate::context::{Context, Store};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::follow::state_colour;
use crate::identity;
use crate::output::{Format, note};
use crate::show::{Cell, Colour, Table, or_dash, utc};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  # What is open, undone, or of a superseded token
  fencehold reconcile

  # A person has looked: the card was charged, or it was not
  fencehold reconcile 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 charge --happened '{\"receipt\":\"r-7\"}'
  fencehold reconcile 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 charge --did-not-happen
";

const MORE: &str = "\
An effect that was begun and of which nobody said what came of it is an open intent. Where its policy is to ask, the \
job stops as indeterminate until a person says what happened; then it goes on.";

/// List effects in doubt, undone or not; say what became of one
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
#[command(group = ArgGroup::new("outcome").args(["happened", "did_not_happen"]).requires("effect"))]
pub(crate) struct Args {
    /// Only of this job
    #[arg(value_name = "JOB")]
    job: Option<JobId>,
    /// Which effect of it
    #[arg(value_name = "EFFECT", requires = "outcome")]
    effect: Option<EffectName>,
    /// It happened, and gave this
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    happened: Option<Payload>,
    /// It did not happen: the job may try it again
    #[arg(long)]
    did_not_happen: bool,
    /// Who says so [default: user@host]
    #[arg(long, value_name = "NAME")]
    by: Option<Owner>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open_to_look()?;
        store
            .closing(async |store| match (self.job, self.effect.clone()) {
                (Some(job), Some(effect)) => self.resolve(store, job, effect).await,
                (job, _) => list(context, store, job).await,
            })
            .await
    }

    async fn resolve(self, store: &Store, job: JobId, effect: EffectName) -> Outcome {
        let by = self.by.map_or_else(identity::person, Ok)?;
        let happened = self.happened.map(|Payload(value)| value);
        if happened.is_none() && !self.did_not_happen {
            return Err(Failure::new(Exit::Usage, "say what became of the effect")
                .with_next("Give --happened JSON, or --did-not-happen."));
        }
        let request = ResolveEffectRequest { job_id: job, effect, resolution: happened, by };
        store
            .ask(async |jobs, call| jobs.resolve_effect(call, request.clone()).await)
            .await?
            .map_err(|refusal| Failure::refused_job(job, refusal))?;
        Ok(DONE)
    }
}

async fn list(context: &Context, store: &Store, only: Option<JobId>) -> Outcome {
    let mut request = ListEffectsRequest { cursor: None, limit: PAGE_MAX };
    let mut findings = Vec::new();
    loop {
        let page = store
            .ask(async |jobs, call| jobs.list_effects(call, request.clone()).await)
            .await?;
        findings.extend(
            page.effects
                .into_iter()
                .filter(|finding| only.is_none_or(|job| finding.job_id == job)),
        );
        match page.next_cursor {
            Some(next) => request.cursor = Some(next),
            None => break,
        }
    }
    context.output.many(&findings, "nothing is in doubt", || table(&findings))?;
    let open = findings.iter().any(|finding| finding.finding == FindingKind::InDoubt);
    if open && context.output.format == Format::Table {
        note("a person can say what became of an open intent: see `fencehold reconcile --help`");
    }
    Ok(DONE)
}

fn table(findings: &[EffectView]) -> Table {
    let mut table =
        Table::new(["WHAT", "JOB", "QUEUE", "KIND", "STATE", "EFFECT", "TOKEN", "WHEN", "UNDO JOB"]);
    for finding in findings {
        let colour = match finding.finding {
            FindingKind::InDoubt | FindingKind::CompensationFailed => Colour::Bad,
            FindingKind::CompensationPending => Colour::Warning,
            _ => Colour::Plain,
        };
        table.row([
            Cell::from(finding.finding.name()).in_colour(colour),
            finding.job_id.into(),
            finding.queue.as_str().into(),
            finding.kind.as_str().into(),
            Cell::from(finding.job_state).in_colour(state_colour(finding.job_state)),
            finding.effect.as_str().into(),
            finding.token.into(),
            utc(finding.written_at_ms).into(),
            or_dash(finding.compensation_job_id),
        ]);
    }
    table
}
