//! What is printed of a job, one line each.

use fencehold_contract::job::Word;
use fencehold_core::Token;
use fencehold_core::job::{JobId, Kind};
use serde::Serialize;

use crate::duration::show_ms;

/// What is printed of a job.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    pub(super) job: JobId,
    pub(super) kind: Kind,
    pub(super) token: Token,
    pub(super) attempt: u32,
    pub(super) code: Option<u8>,
    pub(super) took_ms: u64,
    /// What was said of it: completed, failed, snoozed, handed back, lost.
    pub(super) said: &'static str,
    /// How the job stands now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) again_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
}

impl Line {
    pub(super) fn sentence(&self) -> String {
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
            .map(|refused| format!("; refused: {refused}"))
            .unwrap_or_default();
        format!(
            "{job} {kind} attempt {attempt} token {token} {said} after {took}{code}{state}{again}{refused}"
        )
    }
}

pub(super) fn said(word: &Word) -> &'static str {
    match word {
        Word::Complete { .. } => "completed",
        Word::Fail { .. } => "failed",
        Word::Snooze { .. } => "snoozed",
        _ => "handed back",
    }
}
