//! What is printed of a job, one line each.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use fencehold::job::JobKind;
use fencehold::{CircuitBreakerState, CircuitBreakerStats, EndedAttempt, Job, JobId, Token};
use serde::Serialize;
use serde_json::value::RawValue;

use super::output_thread::OutputWriter;
use crate::duration::show_ms;
use crate::failure::Failure;
use crate::output::{Format, Output};

/// The lines about jobs.
pub(super) struct JobLines {
    output: Output,
    pub(super) writer: OutputWriter,
    /// The exit codes of commands whose jobs have no line yet.
    codes: Mutex<HashMap<(JobId, Token), u8>>,
}

impl JobLines {
    pub(super) fn new(output: Output, writer: OutputWriter) -> Self {
        JobLines { output, writer, codes: Mutex::default() }
    }

    /// Something that went wrong, for people.
    pub(super) fn note(&self, text: &str) {
        self.writer.note(text);
    }

    /// The command of a job has ended.
    pub(super) fn ended(&self, job: &Job, code: Option<u8>) {
        if let Some(code) = code {
            self.codes().insert((job.id(), job.token()), code);
        }
    }

    /// The attempt at a job has ended.
    pub(super) fn show(&self, end: &EndedAttempt) {
        let job = &end.job;
        let line = JobLine::new(end, self.codes().remove(&(job.id(), job.token())));
        if let Some(refused) = &line.refused {
            self.note(&format!("job {}: what came of it was not taken: {refused}", job.id()));
        }
        match self.output.format {
            Format::Json | Format::Jsonl => {
                self.writer.line(&serde_json::to_string(&line).unwrap_or_default());
            }
            Format::Table | Format::Env => self.writer.line(&self.output.style.wrap(&line.sentence(), 2)),
        }
    }

    /// The store is left alone for a while, or answers again.
    pub(super) fn show_breaker(&self, stats: &CircuitBreakerStats) {
        match (stats.state, stats.retry_in) {
            (CircuitBreakerState::Open, Some(retry_in)) => {
                let ms = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
                let CircuitBreakerStats { opened_in_a_row, failed_count, slow_count, .. } = stats;
                self.note(&format!(
                    "circuit breaker open (opening {opened_in_a_row} in a row; {failed_count} calls failed, {slow_count} were slow): \
                     no jobs are claimed for {}; what runs goes on",
                    show_ms(ms)
                ));
            }
            (CircuitBreakerState::Closed, _) => self.note("circuit breaker closed: the store answers again"),
            _ => {}
        }
    }

    fn codes(&self) -> std::sync::MutexGuard<'_, HashMap<(JobId, Token), u8>> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is printed of a job.
#[derive(Debug, Serialize)]
struct JobLine<'a> {
    job_id: JobId,
    kind: &'a JobKind,
    token: Token,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    duration_ms: u64,
    /// What was reported of it: completed, failed, snoozed, released, lost.
    outcome: String,
    /// How the job stands now.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in_ms: Option<u64>,
    /// Why the report was not taken: a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    report_error: Option<Box<RawValue>>,
    /// The same for people.
    #[serde(skip)]
    refused: Option<String>,
}

impl<'a> JobLine<'a> {
    fn new(end: &'a EndedAttempt, exit_code: Option<u8>) -> Self {
        let answer = end.response.as_ref().ok().copied().flatten();
        JobLine {
            job_id: end.job.id(),
            kind: end.job.kind(),
            token: end.job.token(),
            attempt: end.job.attempt(),
            exit_code,
            duration_ms: u64::try_from(end.duration.as_millis()).unwrap_or(u64::MAX),
            outcome: end.outcome.map_or("lost".to_owned(), |reported| reported.to_string()),
            state: answer.map(|answer| answer.state.name()),
            retry_in_ms: answer.and_then(|answer| answer.retry_in_ms),
            report_error: end
                .response
                .as_ref()
                .err()
                .and_then(|error| RawValue::from_string(Failure::of_library(error.clone(), "").json()).ok()),
            refused: end.response.as_ref().err().map(ToString::to_string),
        }
    }

    fn sentence(&self) -> String {
        let JobLine { job_id, kind, token, attempt, outcome, .. } = self;
        let took = show_ms(self.duration_ms);
        let mut text = format!("{job_id} {kind} attempt {attempt} token {token} {outcome} after {took}");
        if let Some(code) = self.exit_code.filter(|code| *code != 0) {
            let _ = write!(text, " (exit code {code})");
        }
        if let Some(state) = self.state.filter(|state| state != outcome) {
            let _ = write!(text, "; the job is {state}");
        }
        if let Some(ms) = self.retry_in_ms {
            let _ = write!(text, ", retry in {}", show_ms(ms));
        }
        if let Some(refused) = &self.refused {
            let _ = write!(text, "; not taken: {refused}");
        }
        text
    }
}
