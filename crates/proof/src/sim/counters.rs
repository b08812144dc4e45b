//! How often each thing happened: a fault that never occurred proves nothing.

use std::collections::BTreeMap;
use std::fmt;

use fencehold_contract::StoreError;
use fencehold_contract::job::{JobAction, LedgerResponse, QueueMode, Report};
use fencehold_core::job::JobState;

use super::plan::StorageKind;
use crate::simulated::{MachineRequest, MachineResponse};

pub(super) const ON_SQLITE: &str = "history on SQLite";
/// An owner whose clock runs at another rate than the store's.
pub(super) const CLOCK_OFF: &str = "owner whose clock runs fast or slow";

/// How often each thing happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) operations: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl Counters {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn answer(&mut self, question: &MachineRequest, answer: &Result<MachineResponse, StoreError>) {
        let what = match (question, answer) {
            (MachineRequest::Acquire(_), Ok(MachineResponse::Acquired(acquired)))
                if acquired.grant.resumed =>
            {
                "acquire: resumed"
            }
            (MachineRequest::Acquire(request), Ok(_)) if request.wait_ms > 0 => "acquire: granted in line",
            (MachineRequest::Acquire(_), Ok(_)) => "acquire: granted",
            (MachineRequest::Acquire(_), Err(_)) => "acquire: refused",
            (MachineRequest::Renew(_), Ok(MachineResponse::Renewed(renewed)))
                if renewed.results.iter().all(Result::is_ok) =>
            {
                "renew: done"
            }
            (MachineRequest::Renew(_), _) => "renew: refused",
            (MachineRequest::Release(_), Ok(MachineResponse::Released(answers)))
                if answers.iter().all(Result::is_ok) =>
            {
                "release: done"
            }
            (MachineRequest::Release(_), _) => "release: refused",
            (MachineRequest::Revoke(_), Ok(_)) => "revoke: done",
            (MachineRequest::Revoke(_), Err(_)) => "revoke: not held",
            (MachineRequest::Get(_), _) => "look",
            (question, answer) => return self.job_answer(question, answer),
        };
        self.count(what);
    }

    fn job_answer(&mut self, question: &MachineRequest, answer: &Result<MachineResponse, StoreError>) {
        let what = match (question, answer) {
            (MachineRequest::Enqueue(_), Ok(MachineResponse::Enqueued(answers))) => match answers.first() {
                Some(Ok(enqueued)) if enqueued.existed => "enqueue: known already",
                Some(Ok(_)) => "enqueue: made",
                _ => "enqueue: conflict",
            },
            (MachineRequest::Claim(request), Ok(MachineResponse::Claimed(claimed))) => {
                if claimed.jobs.iter().any(|job| job.compensates.is_some()) {
                    self.count("undo job given");
                }
                match (claimed.jobs.is_empty(), request.wait_ms) {
                    (true, _) => "claim: empty",
                    (false, 0) => "claim: given",
                    (false, _) => "claim: given in line",
                }
            }
            (MachineRequest::RenewClaims(_), Ok(MachineResponse::RenewedClaims(renewed))) => {
                match renewed.results.first() {
                    Some(Ok(renewal)) if renewal.cancel_requested => "renew claim: called off",
                    Some(Ok(_)) => "renew claim: done",
                    _ => "renew claim: refused",
                }
            }
            (MachineRequest::Report(reports), Ok(MachineResponse::Reported(answers))) => {
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
            (MachineRequest::Ledger(_), Ok(MachineResponse::Ledger(answers))) => match answers.first() {
                Some(Ok(LedgerResponse::Proceed {})) => "ledger: announced",
                Some(Ok(LedgerResponse::InDoubt {})) => "ledger: in doubt",
                Some(Ok(_)) => "ledger: recorded",
                _ => "ledger: refused",
            },
            (MachineRequest::Act(request), Ok(MachineResponse::Acted(acted))) => {
                let outcome = acted.results.first().map(|item| &item.result);
                match (&request.action, outcome) {
                    (JobAction::Retry, Some(Ok(_))) => "start over: done",
                    (JobAction::Retry, _) => "start over: refused",
                    (JobAction::Complete { .. } | JobAction::Fail { .. }, Some(Ok(_))) => {
                        "end by force: done"
                    }
                    (JobAction::Complete { .. } | JobAction::Fail { .. }, _) => "end by force: refused",
                    (_, Some(Ok(JobState::Cancelled))) => "cancel: done",
                    (_, Some(Ok(_))) => "cancel: asked for",
                    _ => "cancel: refused",
                }
            }
            (MachineRequest::SetQueue(order), _) if order.mode == QueueMode::Paused => "queue: paused",
            (MachineRequest::SetQueue(_), _) => "queue: opened",
            (MachineRequest::RemoveQueue(..), Ok(MachineResponse::Removed(true))) => "queue: removed",
            (MachineRequest::RemoveQueue(..), _) => "queue: not removed",
            (MachineRequest::SetSchedule(_), Ok(_)) => "schedule: set",
            (MachineRequest::Job(_), _) => "look at a job",
            _ => "other",
        };
        self.count(what);
    }

    /// A history begins.
    pub(super) fn history(&mut self, storage: StorageKind) {
        self.count(match storage {
            StorageKind::Log => "history on a log",
            StorageKind::Sqlite => ON_SQLITE,
        });
    }

    pub(super) fn add(&mut self, other: &Counters) {
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

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.counts {
            writeln!(f, "  {count:>10}  {what}")?;
        }
        Ok(())
    }
}

/// An answer in a few words.
pub(super) fn says(answer: &Result<MachineResponse, StoreError>) -> String {
    match answer {
        Ok(MachineResponse::Acquired(acquired)) => {
            let again = if acquired.grant.resumed { ", as before" } else { "" };
            format!("{} is yours under token {}{again}", acquired.key, acquired.grant.token)
        }
        Ok(MachineResponse::Renewed(renewed)) => {
            first(&renewed.results, |renewal| format!("token {} is renewed", renewal.token))
        }
        Ok(MachineResponse::Released(answers)) => {
            first(answers, |token| format!("token {token} is given back"))
        }
        Ok(MachineResponse::Revoked(revoked)) => format!("{} was revoked", revoked.len()),
        Ok(MachineResponse::Lease(view)) => match view.as_ref().and_then(|view| view.holder.as_ref()) {
            Some(holder) => format!("held by {}", holder.owner),
            None => "free".to_owned(),
        },
        Ok(reply) => says_of_jobs(reply),
        Err(error) => error.to_string(),
    }
}

/// What the first of several answers says.
fn first<T, E: fmt::Display>(answers: &[Result<T, E>], says: impl FnOnce(&T) -> String) -> String {
    match answers.first() {
        Some(Ok(answer)) => says(answer),
        Some(Err(refusal)) => refusal.to_string(),
        None => "nothing".to_owned(),
    }
}

fn says_of_jobs(reply: &MachineResponse) -> String {
    match reply {
        MachineResponse::Enqueued(answers) => first(answers, |enqueued| {
            if enqueued.existed { "it is in its queue already" } else { "it is in its queue" }.to_owned()
        }),
        MachineResponse::Claimed(claimed) => match claimed.jobs.first() {
            Some(job) => format!("a job is yours under token {}", job.token),
            None => "there is no job".to_owned(),
        },
        MachineResponse::RenewedClaims(renewed) => first(&renewed.results, |renewal| {
            let called_off = if renewal.cancel_requested { "; its job was called off" } else { "" };
            format!("the claim under token {} is renewed{called_off}", renewal.token)
        }),
        MachineResponse::Reported(answers) => first(answers, |reported| {
            let late = if reported.late { ", late" } else { "" };
            format!("heard{late}; the job is {}", reported.state)
        }),
        MachineResponse::Ledger(answers) => first(answers, |answer| match answer {
            LedgerResponse::Proceed {} => "go ahead".to_owned(),
            LedgerResponse::Recorded { recorded_effect } => format!("{} is on record", recorded_effect.name),
            _ => "in doubt: stop".to_owned(),
        }),
        MachineResponse::Acted(acted) => match acted.results.first().map(|item| &item.result) {
            Some(Ok(state)) => format!("the job is {state}"),
            Some(Err(refusal)) => refusal.to_string(),
            None => "nothing".to_owned(),
        },
        MachineResponse::Job(Some(detail)) => format!("the job is {}", detail.job.state),
        MachineResponse::Job(None) => "there is no such job".to_owned(),
        MachineResponse::Queue(view) => format!("{} is {}", view.name, view.mode.name()),
        _ => "done".to_owned(),
    }
}
