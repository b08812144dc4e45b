//! How often each thing happened: a fault that never occurred proves nothing.

use std::collections::BTreeMap;
use std::fmt;

use fencehold_contract::StoreError;
use fencehold_contract::job::{JobAction, LedgerResponse, QueueMode, Report};
use fencehold_core::job::JobState;

use super::mix::Ground;
use crate::simulated::{Question, Reply};

pub(super) const ON_SQLITE: &str = "history on SQLite";
/// An owner whose clock runs at another rate than the store's.
pub(super) const CLOCK_OFF: &str = "owner whose clock runs fast or slow";

/// How often each thing happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) operations: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn answer(&mut self, question: &Question, answer: &Result<Reply, StoreError>) {
        let what = match (question, answer) {
            (Question::Acquire(_), Ok(Reply::Acquired(acquired))) if acquired.grant.resumed => {
                "acquire: resumed"
            }
            (Question::Acquire(request), Ok(_)) if request.wait_ms > 0 => "acquire: granted in line",
            (Question::Acquire(_), Ok(_)) => "acquire: granted",
            (Question::Acquire(_), Err(_)) => "acquire: refused",
            (Question::Renew(_), Ok(Reply::Renewed(renewed)))
                if renewed.results.iter().all(Result::is_ok) =>
            {
                "renew: done"
            }
            (Question::Renew(_), _) => "renew: refused",
            (Question::Release(_), Ok(Reply::Released(answers))) if answers.iter().all(Result::is_ok) => {
                "release: done"
            }
            (Question::Release(_), _) => "release: refused",
            (Question::Revoke(_), Ok(_)) => "revoke: done",
            (Question::Revoke(_), Err(_)) => "revoke: not held",
            (Question::Get(_), _) => "look",
            (question, answer) => return self.job_answer(question, answer),
        };
        self.count(what);
    }

    fn job_answer(&mut self, question: &Question, answer: &Result<Reply, StoreError>) {
        let what = match (question, answer) {
            (Question::Enqueue(_), Ok(Reply::Enqueued(answers))) => match answers.first() {
                Some(Ok(enqueued)) if enqueued.existed => "enqueue: known already",
                Some(Ok(_)) => "enqueue: made",
                _ => "enqueue: conflict",
            },
            (Question::Claim(request), Ok(Reply::Claimed(claimed))) => {
                if claimed.jobs.iter().any(|job| job.compensates.is_some()) {
                    self.count("undo job given");
                }
                match (claimed.jobs.is_empty(), request.wait_ms) {
                    (true, _) => "claim: empty",
                    (false, 0) => "claim: given",
                    (false, _) => "claim: given in line",
                }
            }
            (Question::RenewClaims(_), Ok(Reply::RenewedClaims(renewed))) => match renewed.results.first() {
                Some(Ok(renewal)) if renewal.cancel_requested => "renew claim: called off",
                Some(Ok(_)) => "renew claim: done",
                _ => "renew claim: refused",
            },
            (Question::Report(reports), Ok(Reply::Reported(answers))) => {
                let late = answers.first().map(|answer| answer.as_ref().map(|reported| reported.late));
                match (reports.first().map(|report| &report.report), late) {
                    (Some(Report::Complete { .. }), Some(Ok(false))) => "complete: done",
                    (Some(Report::Complete { .. }), Some(Ok(true))) => "complete: late",
                    (Some(Report::Complete { .. }), _) => "complete: refused",
                    (Some(Report::Fail { .. }), Some(Ok(false))) => "fail: done",
                    (Some(Report::Fail { .. }), Some(Ok(true))) => "fail: late",
                    (Some(Report::Fail { .. }), _) => "fail: refused",
                    (Some(Report::Snooze { .. }), Some(Ok(_))) => "snooze: done",
                    (Some(Report::Release {}), Some(Ok(_))) => "hand back: done",
                    (Some(Report::Checkpoint { .. }), Some(Ok(_))) => "checkpoint: done",
                    (Some(Report::Progress { .. }), Some(Ok(_))) => "progress: done",
                    _ => "other words: refused",
                }
            }
            (Question::Ledger(_), Ok(Reply::Ledger(answers))) => match answers.first() {
                Some(Ok(LedgerResponse::Proceed {})) => "ledger: announced",
                Some(Ok(LedgerResponse::InDoubt {})) => "ledger: in doubt",
                Some(Ok(_)) => "ledger: recorded",
                _ => "ledger: refused",
            },
            (Question::Act(request), Ok(Reply::Acted(acted))) => {
                let outcome = acted.results.first().map(|item| &item.result);
                match (&request.action, outcome) {
                    (JobAction::Retry, Some(Ok(_))) => "start over: done",
                    (JobAction::Retry, _) => "start over: refused",
                    (_, Some(Ok(JobState::Cancelled))) => "cancel: done",
                    (_, Some(Ok(_))) => "cancel: asked for",
                    _ => "cancel: refused",
                }
            }
            (Question::SetQueue(order), _) if order.mode == QueueMode::Paused => "queue: paused",
            (Question::SetQueue(_), _) => "queue: opened",
            (Question::RemoveQueue(..), Ok(Reply::Removed(true))) => "queue: removed",
            (Question::RemoveQueue(..), _) => "queue: not removed",
            (Question::SetSchedule(_), Ok(_)) => "schedule: set",
            (Question::Job(_), _) => "look at a job",
            _ => "other",
        };
        self.count(what);
    }

    /// A history begins.
    pub(super) fn history(&mut self, ground: Ground) {
        self.count(match ground {
            Ground::Log => "history on a log",
            Ground::Sqlite => ON_SQLITE,
        });
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    pub(super) fn has(&self, what: &str) -> bool {
        self.of(what) > 0
    }

    pub(super) fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.counts {
            writeln!(f, "  {count:>10}  {what}")?;
        }
        Ok(())
    }
}

/// An answer in a few words.
pub(super) fn says(answer: &Result<Reply, StoreError>) -> String {
    match answer {
        Ok(Reply::Acquired(acquired)) => {
            let again = if acquired.grant.resumed { ", as before" } else { "" };
            format!("{} is yours under token {}{again}", acquired.key, acquired.grant.token)
        }
        Ok(Reply::Renewed(renewed)) => match renewed.results.first() {
            Some(Ok(renewal)) => format!("token {} is renewed", renewal.token),
            Some(Err(refusal)) => refusal.to_string(),
            None => "nothing".to_owned(),
        },
        Ok(Reply::Released(answers)) => match answers.first() {
            Some(Ok(token)) => format!("token {token} is given back"),
            Some(Err(refusal)) => refusal.to_string(),
            None => "nothing".to_owned(),
        },
        Ok(Reply::Revoked(revoked)) => format!("{} was revoked", revoked.len()),
        Ok(Reply::Lease(view)) => match view.as_ref().and_then(|view| view.holder.as_ref()) {
            Some(holder) => format!("held by {}", holder.owner),
            None => "free".to_owned(),
        },
        Ok(reply) => says_of_jobs(reply),
        Err(error) => error.to_string(),
    }
}

fn says_of_jobs(reply: &Reply) -> String {
    let refused = |refusal: &dyn fmt::Display| refusal.to_string();
    match reply {
        Reply::Enqueued(answers) => match answers.first() {
            Some(Ok(enqueued)) if enqueued.existed => "it is in its queue already".to_owned(),
            Some(Ok(_)) => "it is in its queue".to_owned(),
            Some(Err(refusal)) => refused(refusal),
            None => "nothing".to_owned(),
        },
        Reply::Claimed(claimed) => match claimed.jobs.first() {
            Some(job) => format!("a job is yours under token {}", job.token),
            None => "there is no job".to_owned(),
        },
        Reply::RenewedClaims(renewed) => match renewed.results.first() {
            Some(Ok(renewal)) if renewal.cancel_requested => {
                format!("the claim under token {} is renewed; its job was called off", renewal.token)
            }
            Some(Ok(renewal)) => format!("the claim under token {} is renewed", renewal.token),
            Some(Err(refusal)) => refused(refusal),
            None => "nothing".to_owned(),
        },
        Reply::Reported(answers) => match answers.first() {
            Some(Ok(reported)) if reported.late => format!("heard, late; the job is {}", reported.state),
            Some(Ok(reported)) => format!("heard; the job is {}", reported.state),
            Some(Err(refusal)) => refused(refusal),
            None => "nothing".to_owned(),
        },
        Reply::Ledger(answers) => match answers.first() {
            Some(Ok(LedgerResponse::Proceed {})) => "go ahead".to_owned(),
            Some(Ok(LedgerResponse::Recorded { recorded_effect: effect })) => {
                format!("{} is on record", effect.name)
            }
            Some(Ok(_)) => "in doubt: stop".to_owned(),
            Some(Err(refusal)) => refused(refusal),
            None => "nothing".to_owned(),
        },
        Reply::Acted(acted) => match acted.results.first().map(|item| &item.result) {
            Some(Ok(state)) => format!("the job is {state}"),
            Some(Err(refusal)) => refused(refusal),
            None => "nothing".to_owned(),
        },
        Reply::Job(Some(detail)) => format!("the job is {}", detail.job.state),
        Reply::Job(None) => "there is no such job".to_owned(),
        Reply::Queue(view) => format!("{} is {}", view.name, view.mode.name()),
        _ => "done".to_owned(),
    }
}
