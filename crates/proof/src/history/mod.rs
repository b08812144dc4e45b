//! Histories of real processes, and whether they can be true.
//!
//! Nouns: a *participant* is a process that uses a store and writes two [`HistoryLine`]s for every call: what it asked, before
//! the request left, and what was answered. A process that is killed leaves a question without an answer, which may have been
//! carried out or not. A *reign* is all that was seen of one token. [`FinalState`] is what the store says when all is
//! over.
//!
//! Deliberately absent: the store's own rules. What is checked is what was promised to callers: one holder, tokens that
//! grow, an order of the calls on each key that explains every answer, a promise that lasts as long as it was given, nothing
//! acknowledged lost, no effect twice.

mod holder;
mod job;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One line of a participant's history. Times are of the machine's boot clock, so those of all participants compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistoryLine {
    /// Which participant.
    pub who: String,
    /// Its how manieth call.
    pub nth: u64,
    /// When, in milliseconds.
    pub at_ms: u64,
    /// What.
    pub what: CallHalf,
}

impl HistoryLine {
    /// A line.
    pub fn new(who: impl Into<String>, nth: u64, at_ms: u64, what: CallHalf) -> HistoryLine {
        HistoryLine { who: who.into(), nth, at_ms, what }
    }
}

/// Half of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallHalf {
    /// Before the request left.
    Asked(AskedCall),
    /// When its answer was there.
    Told(CallResult),
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "call")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields say what they are")]
pub enum AskedCall {
    /// For a key, without waiting.
    Acquire { key: String },
    /// To go on holding a key.
    Renew { key: String, token: u64 },
    /// To give a key back.
    Release { key: String, token: u64 },
    /// Who holds a key.
    Get { key: String },
    /// To end, by force, whatever hold there is on a key.
    Revoke { key: String },
    /// To keep a job.
    Enqueue { job: String },
    /// For a job.
    Claim,
    /// To record an effect; its value is the token.
    Record { job: String, token: u64 },
    /// To take a job for done.
    Complete { job: String, token: u64 },
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields say what they are")]
pub enum CallResult {
    /// The key is the caller's.
    Granted { token: u64, remaining_ms: u64 },
    /// It is held under this token.
    Held { token: u64 },
    /// It goes on.
    Renewed { remaining_ms: u64 },
    /// Given back.
    Released,
    /// It is free.
    Free,
    /// The hold, or the claim, that the caller speaks for is over or another's.
    Lost { why: String },
    /// Ended by force.
    Revoked,
    /// The job is kept.
    Enqueued,
    /// The job is the caller's.
    Claimed { job: String, token: u64, remaining_ms: u64 },
    /// No job is ready.
    Nothing,
    /// The effect is on record with this value.
    Recorded { value: String },
    /// The job is done.
    Completed,
    /// Not carried out, for sure.
    Refused { why: String },
    /// Carried out or not: it is not known.
    Unclear { why: String },
}

/// What the store says when all is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalState {
    /// The newest token of every key.
    pub keys: BTreeMap<String, u64>,
    /// Every job: whether it is completed, and the value of its effect.
    pub jobs: BTreeMap<String, (bool, Option<String>)>,
}

/// A call: the question, and its answer where one came.
#[derive(Clone, Debug)]
struct RecordedCall {
    who: String,
    sent_ms: u64,
    ask: AskedCall,
    /// When it was answered, and how.
    told: Option<(u64, CallResult)>,
}

impl RecordedCall {
    fn answer(&self) -> Option<&CallResult> {
        self.told.as_ref().map(|(_, tell)| tell)
    }

    /// Whether nothing of it can have happened at this moment or later. What was not clearly answered may still be under
    /// way.
    fn was_over_before(&self, at_ms: u64) -> bool {
        let answered = self
            .told
            .as_ref()
            .filter(|(_, tell)| !matches!(tell, CallResult::Unclear { .. }));
        answered.is_some_and(|(told_ms, _)| *told_ms < at_ms)
    }
}

/// What became of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judgement {
    /// How many calls there were.
    pub calls: usize,
    /// How many of them were never answered, or not clearly.
    pub unclear: usize,
    /// How many grants and claims.
    pub grants: usize,
    /// What cannot be true, or must not be.
    pub problems: Vec<String>,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls, {} grants, {} without a clear answer", self.calls, self.grants, self.unclear)?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// Checks the histories of all participants, each as JSON lines. A last line that was torn by a kill is left out.
pub fn check<'a>(histories: impl IntoIterator<Item = &'a str>, end: Option<&FinalState>) -> Judgement {
    let mut judgement = Judgement::default();
    let mut calls = Vec::new();
    for history in histories {
        match calls_of(history) {
            Ok(of_one) => calls.extend(of_one),
            Err(problem) => judgement.problems.push(problem),
        }
    }
    judgement.calls = calls.len();
    let unclear = |call: &&RecordedCall| matches!(call.answer(), None | Some(CallResult::Unclear { .. }));
    judgement.unclear = calls.iter().filter(unclear).count();
    let granted = |call: &&RecordedCall| {
        matches!(call.answer(), Some(CallResult::Granted { .. } | CallResult::Claimed { .. }))
    };
    judgement.grants = calls.iter().filter(granted).count();
    judgement.problems.extend(holder::problems(&calls, end));
    judgement.problems.extend(job::problems(&calls, end));
    judgement
}

fn calls_of(history: &str) -> Result<Vec<RecordedCall>, String> {
    let mut calls: BTreeMap<(String, u64), RecordedCall> = BTreeMap::new();
    let mut lines = history.lines().peekable();
    while let Some(text) = lines.next() {
        let line: HistoryLine = match serde_json::from_str(text) {
            Ok(line) => line,
            Err(_) if lines.peek().is_none() && !history.ends_with('\n') => break,
            Err(error) => return Err(format!("a line of a history that is none: {error}: {text}")),
        };
        let at = (line.who.clone(), line.nth);
        match line.what {
            CallHalf::Asked(ask) => {
                calls.insert(at, RecordedCall { who: line.who, sent_ms: line.at_ms, ask, told: None });
            }
            CallHalf::Told(tell) => match calls.get_mut(&at) {
                Some(call) => call.told = Some((line.at_ms, tell)),
                None => return Err(format!("an answer without a question: {text}")),
            },
        }
    }
    Ok(calls.into_values().collect())
}

#[cfg(test)]
mod tests;
