//! Whether a question about jobs can be answered at all, told from the question alone. A whole call is checked before it
//! travels, and again where it is decided; its items are checked where they are decided, each for itself.

use fencehold_core::job::{Due, JobId};
use fencehold_core::limits::{
    CALL_BYTES_MAX, CHECKPOINT_BYTES_MAX, DELAY_MS_MAX, EFFECT_VALUE_BYTES_MAX, JOBS_PER_CALL_MAX,
    JSON_DEPTH_MAX, LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, PAYLOAD_BYTES_MAX,
    PROGRESS_BYTES_MAX, QUEUES_PER_CLAIM_MAX, RUN_AT_WALL_MS_MAX, TRACE_BYTES_MAX, TTL_MS_MIN,
    UNIQUE_WINDOW_MS_MAX, WAIT_MS_MAX, YIELD_MS_MAX,
};
use fencehold_core::{BadInput, Timestamp, ttl};
use serde::de::IgnoredAny;

use super::JobRequest;
use super::check::{check_count, check_limit, check_ms, ensure};
use crate::job::{
    AttemptLedgerEntry, AttemptReport, BeginOperationRequest, ClaimJobsRequest, EffectResolution, JobAction,
    JobFilter, JobSelector, LedgerEntry, NewJob, Report, ScheduleSpec, When,
};

impl JobRequest {
    /// Whether it can be answered at all.
    pub fn check(&self) -> Result<(), BadInput> {
        match self {
            JobRequest::Enqueue(jobs) => check_call("jobs", jobs, |job| job.payload.len()),
            JobRequest::Claim(request) => check_claim(request),
            JobRequest::Renew(attempts) => check_count("renewals", attempts.len(), JOBS_PER_CALL_MAX),
            JobRequest::Report(reports) => check_call("reports", reports, report_bytes),
            JobRequest::WriteEffects(entries) => check_call("entries", entries, entry_bytes),
            JobRequest::WaitFor(request) => check_ms("wait", request.wait_ms, WAIT_MS_MAX),
            JobRequest::List(request) => check_limit(request.limit),
            JobRequest::Effects(request) => check_limit(request.limit),
            JobRequest::Change(request) => {
                if let JobAction::Complete { result: Some(result), .. } = &request.action {
                    check_json("result", result, PAYLOAD_BYTES_MAX)?;
                }
                match &request.selector {
                    JobSelector::Ids { job_ids } => check_count("job_ids", job_ids.len(), JOBS_PER_CALL_MAX),
                    JobSelector::Filter { filter } if *filter == JobFilter::default() => Err(BadInput::new(
                        "selector",
                        "is a filter without a field; to mean every job, use the type `all`",
                    )),
                    JobSelector::Filter { .. } | JobSelector::All {} => check_limit(request.limit),
                }
            }
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
    ensure(!id.is_nil(), "id", || "is missing: make one for this job alone".to_owned())
}

/// Whether this many items, of this size, fit into one call. One that is too large by itself is refused by itself.
fn check_call<T>(what: &'static str, items: &[T], bytes: impl Fn(&T) -> usize) -> Result<(), BadInput> {
    check_count(what, items.len(), JOBS_PER_CALL_MAX)?;
    let bytes: usize = items.iter().map(bytes).sum();
    let room = if items.len() > 1 { CALL_BYTES_MAX } else { FRAME_ROOM };
    ensure(bytes <= room, what, || format!("have {bytes} bytes; the limit of one call is {CALL_BYTES_MAX}"))
}

/// What a call of one item may have, so that it still travels to where it is refused.
const FRAME_ROOM: usize = 24 << 20;

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
    ttl::check(request.ttl_ms, TTL_MS_MIN)?;
    check_ms("wait", request.wait_ms, WAIT_MS_MAX)?;
    ensure((1..=JOBS_PER_CALL_MAX).contains(&request.limit), "limit", || {
        format!("is {}; one claim takes 1 to {JOBS_PER_CALL_MAX}", request.limit)
    })?;
    let named = request.queues.len();
    ensure((1..=QUEUES_PER_CLAIM_MAX).contains(&named), "queues", || {
        format!("are {named}; one claim names 1 to {QUEUES_PER_CLAIM_MAX}")
    })?;
    for (nth, (queue, weight)) in request.queues.iter().enumerate() {
        queue.check_open()?;
        // A queue that is given no turns is one to leave out: to serve it all the same is not what was asked for.
        ensure(*weight > 0, "weight", || {
            format!("of queue {queue} is 0; it takes 1 or more: leave out a queue that is not to be served")
        })?;
        let is_twice = request.queues[..nth].iter().any(|(other, _)| other == queue);
        ensure(!is_twice, "queues", || format!("name {queue} twice"))?;
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
    let is_long = job.traceparent.as_ref().is_some_and(|trace| trace.len() > TRACE_BYTES_MAX);
    ensure(!is_long, "trace context", || format!("has more than {TRACE_BYTES_MAX} bytes"))?;
    if let Some(unique) = &job.unique {
        check_window(unique.window_ms)?;
    }
    let yields_in_time = job.preempt_within_ms.is_none_or(|ms| (1..=YIELD_MS_MAX).contains(&ms));
    ensure(yields_in_time, "yield time", || format!("takes 1 to {YIELD_MS_MAX} ms"))?;
    match job.when {
        When::Now => Ok(Due::Now),
        When::At { wall_ms } => check_run_at(wall_ms).map(|()| Due::Wall(wall_ms)),
        When::After { delay_ms } => {
            check_delay("delay", delay_ms)?;
            // A delay is elapsed time, whatever the wall clock is set to.
            Ok(Due::Store(now.store_ms.saturating_add(delay_ms)))
        }
    }
}

fn check_window(ms: u64) -> Result<(), BadInput> {
    let problem = || format!("is {ms} ms; it takes 1 to {UNIQUE_WINDOW_MS_MAX} ms (a year)");
    ensure((1..=UNIQUE_WINDOW_MS_MAX).contains(&ms), "dedup window", problem)
}

fn check_delay(field: &'static str, ms: u64) -> Result<(), BadInput> {
    ensure(ms <= DELAY_MS_MAX, field, || format!("is {ms} ms; the limit is {DELAY_MS_MAX} ms (365 days)"))
}

fn check_run_at(wall_ms: u64) -> Result<(), BadInput> {
    ensure(wall_ms <= RUN_AT_WALL_MS_MAX, "run_at", || "is after the year 9999".to_owned())
}

fn check_labels(labels: &[(Box<str>, Box<str>)]) -> Result<(), BadInput> {
    let count = labels.len();
    ensure(count <= LABELS_MAX, "labels", || format!("are {count}; the limit is {LABELS_MAX}"))?;
    let is_plain = |text: &str, bytes_max| text.len() <= bytes_max && !text.chars().any(char::is_control);
    for (nth, (name, value)) in labels.iter().enumerate() {
        ensure(!name.is_empty() && is_plain(name, LABEL_NAME_BYTES_MAX), "label name", || {
            format!("{name:?} takes 1 to {LABEL_NAME_BYTES_MAX} bytes without control characters")
        })?;
        ensure(is_plain(value, LABEL_VALUE_BYTES_MAX), "label", || {
            format!("of {name:?} takes up to {LABEL_VALUE_BYTES_MAX} bytes without control characters")
        })?;
        let is_twice = labels[..nth].iter().any(|(other, _)| other == name);
        ensure(!is_twice, "label", || format!("{name:?} is there twice"))?;
    }
    Ok(())
}

fn check_bytes(field: &'static str, bytes: usize, max: usize) -> Result<(), BadInput> {
    ensure(bytes <= max, field, || format!("has {bytes} bytes; the limit is {max}"))
}

/// Whether a text is JSON, and not too much of it.
pub fn check_json(field: &'static str, text: &str, bytes_max: usize) -> Result<(), BadInput> {
    check_bytes(field, text.len(), bytes_max)?;
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
    // Few texts open so many levels at all, and counting takes a fraction of following them: the two differ in one bit, and a sum of
    // bytes is made many bytes at a time.
    let opened = |part: &[u8]| part.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>();
    let parts = json.as_bytes().chunks(usize::from(u8::MAX));
    parts.map(|part| usize::from(opened(part))).sum::<usize>() > JSON_DEPTH_MAX && is_nested_too_deeply(json)
}

fn is_nested_too_deeply(json: &str) -> bool {
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

/// Whether an attempt can be reported on like this.
pub fn check_word(word: &Report) -> Result<(), BadInput> {
    match word {
        Report::Complete { result: Some(result) } => check_json("result", result, PAYLOAD_BYTES_MAX),
        Report::Fail { retry_in_ms, .. } => check_delay("retry delay", retry_in_ms.unwrap_or(0)),
        Report::Snooze { delay_ms: for_ms } => check_delay("snooze", *for_ms),
        Report::Checkpoint { checkpoint } => {
            check_bytes("checkpoint", checkpoint.len(), CHECKPOINT_BYTES_MAX)
        }
        Report::Complete { result: None } | Report::Release {} => Ok(()),
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
    ttl::check(request.ttl_ms, TTL_MS_MIN)?;
    check_window(request.idempotency_window_ms)?;
    check_json("payload", &request.payload, PAYLOAD_BYTES_MAX)
}
