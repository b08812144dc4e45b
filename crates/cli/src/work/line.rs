//! What is printed of a job, one line each.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use fencehold::job::JobKind;
use fencehold::{EndedAttempt, Job, JobId, Token};
use serde::Serialize;

use super::output_thread::Writer;
use crate::duration::show_ms;
use crate::output::{Format, Output};

/// The lines about jobs.
pub(super) struct Lines {
    output: Output,
    pub(super) writer: Writer,
    /// The exit codes of commands whose jobs have no line yet.
    codes: Mutex<HashMap<(JobId, Token), u8>>,
}

impl Lines {
    pub(super) fn new(output: Output, writer: Writer) -> Self {
        Lines { output, writer, codes: Mutex::default() }
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
        let line = Line::new(end, self.codes().remove(&(job.id(), job.token())));
        if let Some(refused) = &line.refused {
            self.note(&format!("job {}: what came of it was not taken: {refused}", job.id()));
        }
        match self.output.format {
            Format::Json | Format::Jsonl => {
                self.writer.line(&serde_json::to_string(&line).unwrap_or_default());
            }
            Format::Table | Format::Env => self.writer.line(&line.sentence()),
        }
    }

    fn codes(&self) -> std::sync::MutexGuard<'_, HashMap<(JobId, Token), u8>> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is printed of a job.
#[derive(Debug, Serialize)]
struct Line<'a> {
    job: JobId,
    kind: &'a JobKind,
    token: Token,
    attempt: u32,
    code: Option<u8>,
    took_ms: u64,
    /// What was said of it: completed, failed, snoozed, handed back, lost.
    said: String,
    /// How the job stands now.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    again_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

impl<'a> Line<'a> {
    fn new(end: &'a EndedAttempt, code: Option<u8>) -> Self {
        let answer = end.answer.as_ref().ok().copied().flatten();
        Line {
            job: end.job.id(),
            kind: end.job.kind(),
            token: end.job.token(),
            attempt: end.job.attempt(),
            code,
            took_ms: u64::try_from(end.took.as_millis()).unwrap_or(u64::MAX),
            said: end.reported.map_or("lost".to_owned(), |reported| reported.to_string()),
            state: answer.map(|answer| answer.state.name()),
            again_in_ms: answer.and_then(|answer| answer.retry_in_ms),
            refused: end.answer.as_ref().err().map(ToString::to_string),
        }
    }

    fn sentence(&self) -> String {
        let Line { job, kind, token, attempt, said, .. } = self;
        let took = show_ms(self.took_ms);
        let code = self
            .code
            .filter(|code| *code != 0)
            .map(|code| format!(" (exit code {code})"))
            .unwrap_or_default();
        let state = self
            .state
            .filter(|state| state != said)
            .map(|state| format!("; the job is {state}"))
            .unwrap_or_default();
        let again = self
            .again_in_ms
            .map(|ms| format!(", again in {}", show_ms(ms)))
            .unwrap_or_default();
        let refused = self
            .refused
            .as_ref()
            .map(|refused| format!("; not taken: {refused}"))
            .unwrap_or_default();
        format!(
            "{job} {kind} attempt {attempt} token {token} {said} after {took}{code}{state}{again}{refused}"
        )
    }
}
