//! Whether a question about jobs can be answered at all, told from the question alone. A whole call is checked before it
//! travels, and again where it is decided; its items are checked where they are decided, each for itself.

use fencehold_core::job::{Due, JobId, QueueName};
use fencehold_core::limits::{
    CALL_BYTES_MAX, CHECKPOINT_BYTES_MAX, DELAY_MS_MAX, EFFECT_VALUE_BYTES_MAX, JOBS_PER_CALL_MAX,
    JSON_DEPTH_MAX, LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, PAGE_MAX, PAYLOAD_BYTES_MAX,
    PROGRESS_BYTES_MAX, QUEUES_PER_CLAIM_MAX, RUN_AT_WALL_MS_MAX, TRACE_BYTES_MAX, UNIQUE_WINDOW_MS_MAX,
    WAIT_MS_MAX, YIELD_MS_MAX,
};
use fencehold_core::{BadInput, Timestamp, ttl};
use serde::de::IgnoredAny;

use super::JobRequest;
use crate::job::{
    AttemptLedgerEntry, AttemptReport, BeginOperationRequest, ClaimJobsRequest, EffectResolution, JobFilter,
    JobSelector, LedgerEntry, NewJob, Report, ScheduleSpec, When,
};

impl JobRequest {
    /// Whether it can be answered at all.
    pub fn check(&self) -> Result<(), BadInput> {
        match self {
            JobRequest::Enqueue(jobs) => check_call("jobs", jobs, |job| job.payload.len()),
            JobRequest::Claim(request) => check_claim(request),
            JobRequest::Renew(attempts) => check_count("renewals", attempts.len()),
            JobRequest::Report(reports) => check_call("reports", reports, report_bytes),
            JobRequest::WriteEffects(entries) => check_call("entries", entries, entry_bytes),
            JobRequest::WaitFor(request) => check_wait(request.wait_ms),
            JobRequest::List(request) => check_limit(request.limit),
            JobRequest::Effects(request) => check_limit(request.limit),
            JobRequest::Change(request) => match &request.selector {
                JobSelector::Ids { job_ids } => check_count("job_ids", job_ids.len()),
                JobSelector::Filter { filter } if *filter == JobFilter::default() => Err(BadInput::new(
                    "selector",
                    "is a filter without a field; to mean every job, use the type `all`",
                )),
                JobSelector::Filter { .. } | JobSelector::All {} => check_limit(request.limit),
            },
            JobRequest::SetQueueMode(order) => order.queue.check_open(),
            JobRequest::DeleteQueue { queue, .. } => queue.check_open(),
            JobRequest::SetSchedule(spec) => check_schedule(spec),
            JobRequest::BeginOperation(request) => check_begin(request),
            JobRequest::ResolveEffect(request) => match &request.resolution {
                EffectResolution::Happened { value } => check_json("value", value, EFFECT_VALUE_BYTES_MAX),
                EffectResolution::DidNotHappen {} => Ok(()),
            },
            // The types of the others leave nothing to check.
            _ => Ok(()),
        }
    }
}

/// Only a server makes an id for a job that came without one.
fn check_id(id: JobId) -> Result<(), BadInput> {
    if id.is_nil() {
        return Err(BadInput::new("id", "is missing: make one for this job alone"));
    }
    Ok(())
}

/// Whether this many items, of this size, fit into one call. One that is too large by itself is refused by itself.
fn check_call<T>(what: &'static str, items: &[T], bytes: impl Fn(&T) -> usize) -> Result<(), BadInput> {
    check_count(what, items.len())?;
    let bytes: usize = items.iter().map(bytes).sum();
    if items.len() > 1 && bytes > CALL_BYTES_MAX || bytes > FRAME_ROOM {
        let problem = format!("have {bytes} bytes; the limit of one call is {CALL_BYTES_MAX}");
        return Err(BadInput::new(what, problem));
    }
    Ok(())
}

/// What a call of one item may have, so that it still travels to where it is refused.
const FRAME_ROOM: usize = 24 << 20;

fn check_limit(limit: usize) -> Result<(), BadInput> {
    if limit == 0 || limit > PAGE_MAX {
        return Err(BadInput::new("limit", format!("is {limit}; a page takes 1 to {PAGE_MAX}")));
    }
    Ok(())
}

fn check_wait(wait_ms: u64) -> Result<(), BadInput> {
    if wait_ms > WAIT_MS_MAX {
        return Err(BadInput::new("wait", format!("is {wait_ms} ms; the limit is {WAIT_MS_MAX} ms")));
    }
    Ok(())
}

fn check_schedule(spec: &ScheduleSpec) -> Result<(), BadInput> {
    spec.queue.check_open()?;
    spec.options.check()?;
    check_json("payload", &spec.payload, PAYLOAD_BYTES_MAX)?;
    check_labels(&spec.labels)
}

fn report_bytes(report: &AttemptReport) -> usize {
    match &report.report {
        Report::Complete { result } => result.as_ref().map_or(0, |text| text.len()),
        Report::Fail { error, .. } => error.len(),
        Report::Checkpoint { checkpoint: bytes } => bytes.len(),
        Report::Progress { progress: note } => note.len(),
        Report::Snooze { .. } | Report::Release {} => 0,
    }
}

fn entry_bytes(entry: &AttemptLedgerEntry) -> usize {
    match &entry.entry {
        LedgerEntry::Begin { .. } | LedgerEntry::Withdraw { .. } => 0,
        LedgerEntry::Record { value, compensation: undo, .. } => {
            value.len() + undo.as_ref().map_or(0, |undo| undo.payload.len())
        }
    }
}

/// Whether a claim can be served at all.
fn check_claim(request: &ClaimJobsRequest) -> Result<(), BadInput> {
    ttl::check(request.ttl_ms, fencehold_core::limits::TTL_MS_MIN)?;
    check_wait(request.wait_ms)?;
    if request.limit == 0 || request.limit > JOBS_PER_CALL_MAX {
        let problem = format!("is {}; one claim takes 1 to {JOBS_PER_CALL_MAX}", request.limit);
        return Err(BadInput::new("limit", problem));
    }
    let named = request.queues.len();
    if named == 0 || named > QUEUES_PER_CLAIM_MAX {
        let problem = format!("are {named}; one claim names 1 to {QUEUES_PER_CLAIM_MAX}");
        return Err(BadInput::new("queues", problem));
    }
    for (nth, (queue, weight)) in request.queues.iter().enumerate() {
        queue.check_open()?;
        check_weight(queue, *weight)?;
        if request.queues[..nth].iter().any(|(other, _)| other == queue) {
            return Err(BadInput::new("queues", format!("name {queue} twice")));
        }
    }
    Ok(())
}

/// A queue that is given no turns is one to leave out: to serve it all the same is not what was asked for.
fn check_weight(queue: &QueueName, weight: u32) -> Result<(), BadInput> {
    if weight == 0 {
        let problem =
            format!("of queue {queue} is 0; it takes 1 or more: leave out a queue that is not to be served");
        return Err(BadInput::new("weight", problem));
    }
    Ok(())
}

/// Whether a job can be enqueued at all; and when it is ready, where that is later than now.
pub fn check_job(job: &NewJob, now: Timestamp) -> Result<Due, BadInput> {
    check_id(job.id)?;
    job.queue.check_open()?;
    job.options.check()?;
    check_json("payload", &job.payload, PAYLOAD_BYTES_MAX)?;
    check_labels(&job.labels)?;
    if job.traceparent.as_ref().is_some_and(|trace| trace.len() > TRACE_BYTES_MAX) {
        return Err(BadInput::new("trace context", format!("has more than {TRACE_BYTES_MAX} bytes")));
    }
    if let Some(unique) = &job.unique
        && (unique.window_ms == 0 || unique.window_ms > UNIQUE_WINDOW_MS_MAX)
    {
        let problem = format!("is {} ms; it takes 1 to {UNIQUE_WINDOW_MS_MAX} ms (a year)", unique.window_ms);
        return Err(BadInput::new("dedup window", problem));
    }
    if job.preempt_within_ms.is_some_and(|ms| ms == 0 || ms > YIELD_MS_MAX) {
        return Err(BadInput::new("yield time", format!("takes 1 to {YIELD_MS_MAX} ms")));
    }
    match job.when {
        When::Now => Ok(Due::Now),
        When::At { wall_ms } => check_run_at(wall_ms).map(|()| Due::Wall(wall_ms)),
        When::After { delay_ms } if delay_ms > DELAY_MS_MAX => {
            let problem = format!("is {delay_ms} ms; the limit is {DELAY_MS_MAX} ms (365 days)");
            Err(BadInput::new("delay", problem))
        }
        // A delay is elapsed time, whatever the wall clock is set to.
        When::After { delay_ms } => Ok(Due::Store(now.store_ms.saturating_add(delay_ms))),
    }
}

fn check_run_at(wall_ms: u64) -> Result<(), BadInput> {
    if wall_ms > RUN_AT_WALL_MS_MAX {
        return Err(BadInput::new("run_at", "is after the year 9999"));
    }
    Ok(())
}

fn check_labels(labels: &[(Box<str>, Box<str>)]) -> Result<(), BadInput> {
    if labels.len() > LABELS_MAX {
        return Err(BadInput::new("labels", format!("are {}; the limit is {LABELS_MAX}", labels.len())));
    }
    for (nth, (name, value)) in labels.iter().enumerate() {
        if name.is_empty() || name.len() > LABEL_NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let problem =
                format!("{name:?} takes 1 to {LABEL_NAME_BYTES_MAX} bytes without control characters");
            return Err(BadInput::new("label name", problem));
        }
        if value.len() > LABEL_VALUE_BYTES_MAX || value.chars().any(char::is_control) {
            let problem =
                format!("of {name:?} takes up to {LABEL_VALUE_BYTES_MAX} bytes without control characters");
            return Err(BadInput::new("label", problem));
        }
        if labels[..nth].iter().any(|(other, _)| other == name) {
            return Err(BadInput::new("label", format!("{name:?} is there twice")));
        }
    }
    Ok(())
}

/// Whether a text is JSON, and not too much of it.
pub fn check_json(field: &'static str, text: &str, bytes_max: usize) -> Result<(), BadInput> {
    if text.len() > bytes_max {
        return Err(BadInput::new(field, format!("has {} bytes; the limit is {bytes_max}", text.len())));
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(IgnoredAny) if is_too_deep(text) => {
            Err(BadInput::new(field, format!("is nested more than {JSON_DEPTH_MAX} levels deep")))
        }
        Ok(IgnoredAny) => Ok(()),
        Err(error) => Err(BadInput::new(field, format!("is not JSON: {error}"))),
    }
}

/// Whether JSON is nested too deeply. The parser above does not nest, and so does not notice.
pub fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return true;
                }
            }
            // What is not JSON may close more than it opens.
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

fn check_count(what: &'static str, count: usize) -> Result<(), BadInput> {
    if count > JOBS_PER_CALL_MAX {
        return Err(BadInput::new(
            what,
            format!("are {count}; the limit of one call is {JOBS_PER_CALL_MAX}"),
        ));
    }
    Ok(())
}

/// Whether an attempt can be reported on like this.
pub fn check_word(word: &Report) -> Result<(), BadInput> {
    let delay = |field, ms: u64| {
        if ms > DELAY_MS_MAX {
            let problem = format!("is {ms} ms; the limit is {DELAY_MS_MAX} ms (365 days)");
            return Err(BadInput::new(field, problem));
        }
        Ok(())
    };
    match word {
        Report::Complete { result: Some(result) } => check_json("result", result, PAYLOAD_BYTES_MAX),
        Report::Fail { retry_in_ms, .. } => delay("retry delay", retry_in_ms.unwrap_or(0)),
        Report::Snooze { delay_ms: for_ms } => delay("snooze", *for_ms),
        Report::Checkpoint { checkpoint: bytes } if bytes.len() > CHECKPOINT_BYTES_MAX => {
            let problem = format!("has {} bytes; the limit is {CHECKPOINT_BYTES_MAX}", bytes.len());
            Err(BadInput::new("checkpoint", problem))
        }
        Report::Complete { result: None } | Report::Release {} | Report::Checkpoint { .. } => Ok(()),
        Report::Progress { progress: note } => check_json("progress", note, PROGRESS_BYTES_MAX),
    }
}

/// Whether an item cannot travel as JSON: it carries what is to be JSON and is not, or a moment that the calendar does not
/// have. Such an item is refused before it leaves.
pub mod unfit {
    use super::{
        AttemptLedgerEntry, AttemptReport, BadInput, EFFECT_VALUE_BYTES_MAX, LedgerEntry, NewJob,
        PAYLOAD_BYTES_MAX, When, check_id, check_json, check_run_at, check_word,
    };

    /// Whether a job is unfit.
    pub fn job(job: &NewJob) -> Result<(), BadInput> {
        check_id(job.id)?;
        if let When::At { wall_ms } = job.when {
            check_run_at(wall_ms)?;
        }
        check_json("payload", &job.payload, PAYLOAD_BYTES_MAX)
    }

    /// Whether a report is unfit.
    pub fn report(report: &AttemptReport) -> Result<(), BadInput> {
        check_word(&report.report)
    }

    /// Whether an entry of the ledger is unfit.
    pub fn entry(entry: &AttemptLedgerEntry) -> Result<(), BadInput> {
        let LedgerEntry::Record { value, compensation: undo, .. } = &entry.entry else { return Ok(()) };
        check_json("value of the effect", value, EFFECT_VALUE_BYTES_MAX)?;
        undo.as_ref()
            .map_or(Ok(()), |undo| check_json("payload of the undo job", &undo.payload, PAYLOAD_BYTES_MAX))
    }
}

fn check_begin(request: &BeginOperationRequest) -> Result<(), BadInput> {
    check_id(request.job_id)?;
    ttl::check(request.ttl_ms, fencehold_core::limits::TTL_MS_MIN)?;
    if request.idempotency_window_ms == 0 || request.idempotency_window_ms > UNIQUE_WINDOW_MS_MAX {
        let problem = format!(
            "is {} ms; it takes 1 to {UNIQUE_WINDOW_MS_MAX} ms (a year)",
            request.idempotency_window_ms
        );
        return Err(BadInput::new("dedup window", problem));
    }
    check_json("payload", &request.payload, PAYLOAD_BYTES_MAX)
}
