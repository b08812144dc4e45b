//! `fencehold explain JOB`: attempt by attempt, how it stands, what happens next and when.

use fencehold_contract::FlatEvent;
use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::job::{JobDetail, JobView, QueueMode, QueueView, RunnerView};
use fencehold_core::job::{AttemptOutcome, CompensationState, JobId, JobState, QueueName};
use fencehold_core::ledger::EffectState;
use fencehold_core::{Event, Key};
use serde::Serialize;

use super::JOB_KEY;
use crate::context::{Context, OpenStore};
use crate::duration::{show_exact_ms, show_ms};
use crate::follow;
use crate::shell;
use crate::show::utc;
use crate::verb::VerbResult;
use crate::verb::job::attempts;

/// All that can be said of a job.
#[derive(Debug, Serialize)]
struct JobExplanation<'a> {
    job_id: JobId,
    state: JobState,
    /// In one sentence: how it stands.
    summary: String,
    /// In one sentence: what happens next, and when.
    next: String,
    /// What to notice.
    notes: Vec<String>,
    job: &'a JobDetail,
    /// Late writes that were refused, and worse.
    alarms: Vec<FlatEvent<&'a Event>>,
}

pub(super) async fn explain(context: &Context, store: &OpenStore, detail: &JobDetail) -> VerbResult {
    let key = Key::new(format!("{JOB_KEY}{}", detail.job.id))?;
    let (alarms, cancelled_wall_ms) = super::alarms(store, &key).await?;
    let queues = store.ask(async |jobs, call| jobs.list_queues(call).await).await?.queues;
    let queue = queues.iter().find(|view| view.name == detail.job.queue);
    let now_wall_ms = SystemClock.now().wall_ms;
    let explanation = JobExplanation {
        job_id: detail.job.id,
        state: detail.job.state,
        summary: summary(&detail.job),
        next: next(detail, queue, now_wall_ms),
        notes: notes(detail, cancelled_wall_ms.map(|at_ms| now_wall_ms.saturating_sub(at_ms))),
        job: detail,
        alarms: alarms.iter().map(FlatEvent).collect(),
    };
    context.output.one(&explanation, |style| {
        let head = super::head(&explanation.summary, &explanation.next, &explanation.notes, style);
        head + &attempts(detail).below(style) + &follow::table(&alarms).below(style)
    })
}

fn summary(job: &JobView) -> String {
    let JobView { id, kind, queue, state, .. } = job;
    let since = utc(job.state_changed_at_ms);
    match &job.runner {
        Some(runner) => format!(
            "Job {id} ({kind} in queue {queue}) is running: {} works on it under token {}, attempt {}, for {} so far.",
            runner.owner,
            job.token,
            job.attempt_count,
            show_ms(runner.age_ms)
        ),
        None => format!("Job {id} ({kind} in queue {queue}) is {state} since {since}, after {}.", tries(job)),
    }
}

fn tries(job: &JobView) -> String {
    let attempts = match job.attempt_count {
        0 => return "no attempt".to_owned(),
        1 => "1 attempt".to_owned(),
        many => format!("{many} attempts"),
    };
    format!(
        "{attempts} ({} of {} failures, {} of {} crashes)",
        job.failure_count, job.options.max_failures, job.crash_count, job.options.max_crashes
    )
}

fn next(detail: &JobDetail, queue: Option<&QueueView>, now_wall_ms: u64) -> String {
    let job = &detail.job;
    let id = job.id;
    let retry = format!("`fencehold job retry {id}` has it start over");
    let is_operation = job.queue == QueueName::operations();
    match job.state {
        JobState::Queued | JobState::Scheduled if is_operation => in_doubt(detail).unwrap_or_else(|| {
            "Nothing by itself: the next request with its idempotency key carries it out.".to_owned()
        }),
        JobState::Queued => queued(job, queue),
        JobState::Scheduled => {
            let due_in_ms = job.due_in_ms.unwrap_or(0);
            let at = utc(now_wall_ms.saturating_add(due_in_ms));
            let why = match detail.attempts.last().map(|attempt| attempt.outcome) {
                Some(AttemptOutcome::Crashed) => "its holder died",
                Some(AttemptOutcome::Failed | AttemptOutcome::FailedLate | AttemptOutcome::TimedOut) => {
                    "it failed"
                }
                Some(AttemptOutcome::Snoozed) => "it was put off",
                _ => "it was enqueued for then",
            };
            format!("It is ready in {}, at {at}, since {why}; then it is claimed.", show_ms(due_in_ms))
        }
        JobState::Running => job.runner.as_ref().map_or_else(String::new, |runner| running(job, runner)),
        JobState::Completed => "Nothing: it is done. It is forgotten after its time.".to_owned(),
        JobState::Failed => format!("Nothing by itself: it failed permanently. {retry}.{}", undoing(job)),
        JobState::Cancelled => format!("Nothing: it was cancelled. {retry}.{}", undoing(job)),
        JobState::Quarantined => format!(
            "Nothing by itself: it was the end of {} holders, and is kept from others. Find out why; then {retry}.",
            job.crash_count
        ),
        JobState::InDoubt => in_doubt(detail).unwrap_or_else(|| format!("A person must look. Then {retry}.")),
        _ => String::new(),
    }
}

/// What to do about the effect that is in doubt, if one is.
fn in_doubt(detail: &JobDetail) -> Option<String> {
    let open = detail
        .effects
        .iter()
        .find(|effect| matches!(effect.state, EffectState::Intended(_)))?;
    let (id, effect) = (detail.job.id, shell::word(open.name.as_str()));
    Some(format!(
        "A person must look: effect {effect} was begun, and it is not known whether it happened. Then \
         `fencehold effect resolve {id} {effect} --happened JSON` or `--did-not-happen`."
    ))
}

fn queued(job: &JobView, queue: Option<&QueueView>) -> String {
    let name = shell::word(job.queue.as_str());
    match queue {
        Some(view) if view.mode == QueueMode::Paused => format!(
            "It waits: queue {name} is paused. `fencehold queue resume {name}` has it hand out jobs again."
        ),
        Some(view) if view.waiting_claim_count == 0 => format!(
            "It waits for a worker: none waits for jobs of queue {name} at the moment ({} are queued, {} running).",
            view.job_counts.queued, view.job_counts.running
        ),
        _ => format!("The next worker that asks queue {name} and has its turn gets it."),
    }
}

fn running(job: &JobView, runner: &RunnerView) -> String {
    let left = show_ms(runner.remaining_ms);
    if let Some(by) = &runner.cancel_requested_by {
        return format!(
            "{by} has cancelled it: its holder learns at its next renewal and ends it, or the claim runs out in \
             {left}; then it is cancelled."
        );
    }
    if let Some(notice) = &runner.yield_request {
        return format!(
            "{} (priority {}) waits for its place: its holder is asked to release it; then it is queued again.",
            notice.contender, notice.priority
        );
    }
    let crashes_left = job.options.max_crashes.saturating_sub(job.crash_count);
    let then = if crashes_left <= 1 { "it is quarantined" } else { "it is tried again within 5 s" };
    let limit = job
        .options
        .attempt_timeout_ms
        .map(|ms| format!(" One attempt may take {}.", show_exact_ms(ms.get().into())))
        .unwrap_or_default();
    format!(
        "It goes on for as long as its holder renews. If the holder is gone, the claim ends in {left}, and {then}.{limit}"
    )
}

fn undoing(job: &JobView) -> &'static str {
    match job.compensation_state {
        CompensationState::Running => " Its effects are being compensated, last one first.",
        CompensationState::Done => " Its effects were compensated.",
        CompensationState::Stopped => " The compensation of an effect failed: see `fencehold effect ls`.",
        _ => "",
    }
}

fn notes(detail: &JobDetail, cancelled_for_ms: Option<u64>) -> Vec<String> {
    let job = &detail.job;
    let mut notes = Vec::new();
    if let Some(runner) = &job.runner
        && runner.cancel_requested_by.is_some()
        && let Some(cancelled_for_ms) = cancelled_for_ms.filter(|ms| *ms > runner.ttl_ms / 2)
    {
        notes.push(format!(
            "{} has renewed and worked on for {} since it was cancelled: its handler ignores that. `fencehold job cancel {} \
             --force` ends the attempt without it.",
            runner.owner,
            show_ms(cancelled_for_ms),
            job.id
        ));
    }
    if let Some(runner) = &job.runner
        && runner.yield_request.is_none()
        && runner.ttl_ms.saturating_sub(runner.remaining_ms) > runner.ttl_ms / 3 * 2
    {
        let silent = show_ms(runner.ttl_ms.saturating_sub(runner.remaining_ms));
        let beat = show_exact_ms(runner.ttl_ms / 3);
        notes.push(format!(
            "The holder has been silent for {silent}, although it should renew every {beat}: it may be gone."
        ));
    }
    if let Some(error) = detail.attempts.iter().rev().find_map(|attempt| attempt.error.as_deref()) {
        notes.push(format!("The last error: {}", error.trim_end()));
    }
    if job.crash_count > 0 {
        notes.push(format!("{} of its holders died, stalled or lost the store.", job.crash_count));
    }
    notes
}
