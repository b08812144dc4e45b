//! `fencehold job get`: everything about one job.

use std::fmt::Write as _;

use fencehold_contract::job::{AttemptView, JobDetail, JobView};
use fencehold_core::Token;
use fencehold_core::job::{EffectName, JobId, Refusal};
use fencehold_core::ledger::Effect;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::context::{Context, Store};
use crate::duration::{show_exact_ms, show_ms};
use crate::failure::Failure;
use crate::follow::{ended_colour, state_colour};
use crate::show::{Cell, Colour, Palette, Table, facts, or_dash, utc};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold job get 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55
  fencehold job get 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 -o json | jq .result
";

/// Show everything about a job
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which job
    #[arg(value_name = "JOB")]
    job: JobId,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open_to_look()?;
        store.closing(async |store| self.get(context, store).await).await
    }

    async fn get(self, context: &Context, store: &Store) -> Outcome {
        let detail = store.ask(async |jobs, call| jobs.get_job(call, self.job).await).await?;
        let detail = detail.ok_or_else(|| Failure::refused_job(self.job, Refusal::JobNotFound))?;
        context.output.one(&Document::from(&detail), |palette| text(&detail, palette))?;
        Ok(DONE)
    }
}

/// A job as programs read it: what is JSON stands there as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    #[serde(flatten)]
    job: &'a JobView,
    payload: Box<RawValue>,
    result: Option<Box<RawValue>>,
    progress: Option<Box<RawValue>>,
    checkpoint_bytes: Option<usize>,
    trace: Option<&'a str>,
    ended_attempts: &'a [AttemptView],
    effects: Vec<EffectLine<'a>>,
}

#[derive(Debug, Serialize)]
struct EffectLine<'a> {
    name: &'a EffectName,
    state: String,
    token: Token,
    at_wall_ms: u64,
    value: Option<Box<RawValue>>,
    undo_job: Option<JobId>,
}

impl<'a> From<&'a JobDetail> for Document<'a> {
    fn from(detail: &'a JobDetail) -> Self {
        let optional = |text: &Option<Box<str>>| text.as_deref().map(raw);
        let effect = |effect: &'a Effect| EffectLine {
            name: &effect.name,
            state: effect.state.to_string(),
            token: effect.token,
            at_wall_ms: effect.written_at_ms,
            value: optional(&effect.value),
            undo_job: effect.compensation_job_id,
        };
        Document {
            job: &detail.job,
            payload: raw(&detail.payload),
            result: optional(&detail.result),
            progress: optional(&detail.progress),
            checkpoint_bytes: detail.checkpoint.as_ref().map(Vec::len),
            trace: detail.traceparent.as_deref(),
            ended_attempts: &detail.attempts,
            effects: detail.effects.iter().map(effect).collect(),
        }
    }
}

/// JSON as it was kept. What is not JSON after all is a text.
pub(crate) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned())
        .or_else(|_| serde_json::value::to_raw_value(text))
        .unwrap_or_default()
}

fn text(detail: &JobDetail, palette: Palette) -> String {
    let mut text = facts(palette, lines(detail, palette));
    let attempts = attempts(detail);
    if !attempts.is_empty() {
        let _ = write!(text, "\n{}", attempts.render(palette));
    }
    let effects = effects(detail);
    if !effects.is_empty() {
        let _ = write!(text, "\n{}", effects.render(palette));
    }
    text
}

fn lines(detail: &JobDetail, palette: Palette) -> Vec<(&'static str, String)> {
    let JobDetail { job, payload, result, progress, checkpoint, traceparent: trace, .. } = detail;
    let terms = &job.options;
    let mut lines = vec![
        ("job", job.id.to_string()),
        ("queue", job.queue.to_string()),
        ("kind", job.kind.to_string()),
        ("state", palette.paint(job.state.name(), state_colour(job.state))),
        ("since", utc(job.state_changed_at_ms)),
        ("enqueued", utc(job.enqueued_at_ms)),
        ("priority", terms.priority.to_string()),
        ("failures", format!("{} of {}", job.failure_count, terms.max_failures)),
        ("crashes", format!("{} of {}", job.crash_count, terms.max_crashes)),
        ("retry", terms.retry.to_string()),
    ];
    let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    add("time limit", terms.attempt_timeout_ms.map(|ms| show_exact_ms(ms.get().into())));
    add("due in", job.due_in_ms.map(show_ms));
    add("token", (job.attempt_count > 0).then(|| job.token.to_string()));
    if let Some(runner) = &job.runner {
        add("owner", Some(runner.owner.to_string()));
        add("works for", Some(show_ms(runner.age_ms)));
        add("left", Some(show_ms(runner.remaining_ms)));
        add("cancelled by", runner.cancel_requested_by.as_ref().map(ToString::to_string));
        add("asked to yield by", runner.yield_request.as_ref().map(|notice| notice.contender.to_string()));
    }
    add("unique key", job.unique_key.as_ref().map(ToString::to_string));
    let labels: Vec<String> = job.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    add("labels", (!labels.is_empty()).then(|| labels.join(", ")));
    add(
        "undoes",
        job.compensates
            .as_ref()
            .map(|of| format!("effect {} of job {}", of.effect, of.job_id)),
    );
    add("trace", trace.as_deref().map(str::to_owned));
    add("payload", Some(payload.to_string()));
    add("progress", progress.as_deref().map(str::to_owned));
    add("checkpoint", checkpoint.as_ref().map(|bytes| format!("{} bytes", bytes.len())));
    add("result", result.as_deref().map(str::to_owned));
    lines
}

/// The attempts that ended, one a line.
pub(crate) fn attempts(detail: &JobDetail) -> Table {
    let mut table = Table::new(["TOKEN", "OWNER", "BEGAN", "ENDED", "HOW", "ERROR"]);
    for attempt in &detail.attempts {
        // The end of an error says most, and a line break would tear the table.
        let error = attempt.error.as_deref().and_then(|error| error.trim_end().lines().last());
        table.row([
            attempt.token.into(),
            attempt.owner.as_str().into(),
            utc(attempt.started_at_ms).into(),
            utc(attempt.ended_at_ms).into(),
            Cell::from(attempt.outcome).in_colour(ended_colour(attempt.outcome)),
            or_dash(error),
        ]);
    }
    table
}

fn effects(detail: &JobDetail) -> Table {
    let mut table = Table::new(["EFFECT", "STATE", "TOKEN", "WHEN", "VALUE", "UNDO JOB"]);
    for effect in &detail.effects {
        table.row([
            effect.name.as_str().into(),
            Cell::from(effect.state).in_colour(Colour::Strong),
            effect.token.into(),
            utc(effect.written_at_ms).into(),
            or_dash(effect.value.as_deref()),
            or_dash(effect.compensation_job_id),
        ]);
    }
    table
}
