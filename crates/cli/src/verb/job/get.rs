//! `fencehold job get`: everything about one job.

use fencehold_contract::job::JobDetail;
use fencehold_core::job::{JobId, JobRefusal};

use crate::context::Context;
use crate::duration::{show_exact_ms, show_ms};
use crate::failure::Failure;
use crate::follow::{ended_colour, state_colour};
use crate::show::{Cell, Colour, Style, Table, facts, labels, or_dash, utc};
use crate::verb::VerbResult;

/// Show everything about a job
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold job get 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55
fencehold job get 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 -o json | jq .state")]
pub(crate) struct Args {
    /// The job
    #[arg(value_name = "JOB")]
    job: JobId,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let detail = context.ask(async |jobs, call| jobs.get_job(call, self.job).await).await?;
        let detail = detail.ok_or_else(|| Failure::refused_job(self.job, JobRefusal::JobNotFound))?;
        context.output.one(&detail, |style| {
            facts(style, lines(&detail, style))
                + &attempts(&detail).below(style)
                + &effects(&detail).below(style)
        })
    }
}

fn lines(detail: &JobDetail, style: Style) -> Vec<(&'static str, String)> {
    let JobDetail { job, payload, result, progress, checkpoint, traceparent, .. } = detail;
    let options = &job.options;
    let mut lines = vec![
        ("job", job.id.to_string()),
        ("queue", job.queue.to_string()),
        ("kind", job.kind.to_string()),
        ("state", style.paint(job.state.name(), state_colour(job.state))),
        ("since", utc(job.state_changed_at_ms)),
        ("enqueued", utc(job.enqueued_at_ms)),
        ("priority", options.priority.to_string()),
        ("failures", format!("{} of {}", job.failure_count, options.max_failures)),
        ("crashes", format!("{} of {}", job.crash_count, options.max_crashes)),
        ("retry", options.retry.to_string()),
    ];
    let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    add("attempt timeout", options.attempt_timeout_ms.map(|ms| show_exact_ms(ms.get().into())));
    add("due in", job.due_in_ms.map(show_ms));
    add("token", (job.attempt_count > 0).then(|| job.token.to_string()));
    if let Some(runner) = &job.runner {
        add("owner", Some(runner.owner.to_string()));
        add("running for", Some(show_ms(runner.age_ms)));
        add("left", Some(show_ms(runner.remaining_ms)));
        add("cancel requested by", runner.cancel_requested_by.as_ref().map(ToString::to_string));
        add("must yield to", runner.yield_request.as_ref().map(|request| request.contender.to_string()));
    }
    add("unique key", job.unique_key.as_ref().map(ToString::to_string));
    add("labels", labels(&job.labels));
    add(
        "compensates",
        job.compensates
            .as_ref()
            .map(|of| format!("effect {} of job {}", of.effect, of.job_id)),
    );
    add("traceparent", traceparent.as_deref().map(str::to_owned));
    add("payload", Some(payload.to_string()));
    add("progress", progress.as_deref().map(str::to_owned));
    add("checkpoint", checkpoint.as_ref().map(|bytes| format!("{} bytes", bytes.len())));
    add("result", result.as_deref().map(str::to_owned));
    lines
}

/// The attempts that ended, one a line.
pub(crate) fn attempts(detail: &JobDetail) -> Table {
    Table::of(["TOKEN", "OWNER", "STARTED", "ENDED", "OUTCOME", "ERROR"], &detail.attempts, |attempt| {
        // The end of an error says most, and a line break would tear the table.
        let error = attempt.error.as_deref().and_then(|error| error.trim_end().lines().last());
        [
            attempt.token.into(),
            attempt.owner.as_str().into(),
            utc(attempt.started_at_ms).into(),
            utc(attempt.ended_at_ms).into(),
            Cell::from(attempt.outcome).in_colour(ended_colour(attempt.outcome)),
            or_dash(error),
        ]
    })
}

fn effects(detail: &JobDetail) -> Table {
    let header = ["EFFECT", "STATE", "TOKEN", "WRITTEN", "VALUE", "COMPENSATION"];
    Table::of(header, &detail.effects, |effect| {
        [
            effect.name.as_str().into(),
            Cell::from(effect.state).in_colour(Colour::Strong),
            effect.token.into(),
            utc(effect.written_at_ms).into(),
            or_dash(effect.value.as_deref()),
            or_dash(effect.compensation_job_id),
        ]
    })
}
