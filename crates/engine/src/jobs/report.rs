//! What attempts say: renewals, words about their jobs, checkpoints and progress.

use std::sync::Arc;

use fencehold_contract::job::{AttemptRef, AttemptReport, Report};
use fencehold_contract::operation::check_word;
use fencehold_core::job::{
    AttemptProof, AttemptRenewal, AttemptWrite, JobCommand, JobCommandResult, JobRefusal, JobState,
    ReportedAttempt,
};

use fencehold_core::{HoldHash, HoldId};

use super::ItemResult;
use super::archive::{JobChange, JobNote};
use super::canonical::same_json;
use crate::state::Engine;
use crate::step::Step;

impl Step<'_> {
    pub(super) fn renew_claim(
        &mut self,
        space: u32,
        attempt: &AttemptRef,
        hashes: &mut LastHash,
    ) -> ItemResult<AttemptRenewal> {
        let at = self.find_job(space, attempt.job_id)?;
        let deadline_ms = self.job(at).map_or(0, |slot| slot.deadline_ms);
        match self.apply_to_job(at, &JobCommand::Renew(hashes.proof(attempt)))? {
            JobCommandResult::Renewed(renewal) => {
                let left_ms = deadline_ms.saturating_sub(self.now.store_ms);
                self.measures.claim_renewed(left_ms, renewal.remaining_ms);
                Ok(renewal)
            }
            _ => Err(JobRefusal::JobNotFound),
        }
    }

    pub(super) fn report(
        &mut self,
        space: u32,
        report: AttemptReport,
        hashes: &mut LastHash,
    ) -> ItemResult<ReportedAttempt> {
        check_word(&report.report)?;
        let at = self.find_job(space, report.attempt.job_id)?;
        let speaker = hashes.proof(&report.attempt);
        let (command, note) = match report.report {
            Report::Complete { result } => {
                let result = result.map(|text| (JobNote::Result, Arc::from(text.into_boxed_bytes())));
                (JobCommand::Complete(speaker), result)
            }
            Report::Fail { error, retry_in_ms, permanent: for_good } => {
                let random = report.attempt.job_id.spread(speaker.token.get());
                let error = error.into_boxed_str();
                (JobCommand::Fail { by: speaker, error, retry_in_ms, for_good, random }, None)
            }
            Report::Snooze { delay_ms: for_ms } => (JobCommand::Snooze { by: speaker, for_ms }, None),
            Report::Release {} => (JobCommand::HandBack(speaker), None),
            Report::Checkpoint { checkpoint: bytes } => {
                let command = JobCommand::Write { by: speaker, what: AttemptWrite::Checkpoint };
                (command, Some((JobNote::Checkpoint, Arc::from(bytes))))
            }
            Report::Progress { progress: note } => {
                let command = JobCommand::Write { by: speaker, what: AttemptWrite::Progress };
                (command, Some((JobNote::Progress, Arc::from(note.into_boxed_bytes()))))
            }
        };
        let before = self.job(at).map(|slot| slot.record.state);
        let outcome = self.apply_to_job(at, &command)?;
        let state = self.job(at).map_or(JobState::Completed, |slot| slot.record.state);
        // A completion that is only repeated changes nothing, so its result is not kept either: the first one stands. One that
        // says something else learns so.
        let first = before != Some(state) || matches!(outcome, JobCommandResult::MayWrite);
        if !first
            && matches!(command, JobCommand::Complete(_))
            && self.has_another_result(at, note.as_ref().map(|(_, bytes)| &**bytes))
        {
            let (field, differs) = ("result".to_owned(), "result".to_owned());
            return Err(JobRefusal::Conflict { field, job_id: report.attempt.job_id, differs });
        }
        if let Some((what, bytes)) = note.filter(|_| first) {
            self.keep_note(at, what, bytes);
        }
        if let JobCommandResult::Reported(reported) = outcome {
            self.withdraw_operation(at);
            return Ok(reported);
        }
        // As it stands at this moment: that its time has come may not have been noticed yet.
        let state = self.job_state(at).unwrap_or(state);
        Ok(ReportedAttempt { state, retry_in_ms: None, late: false })
    }

    /// Whether a completed job has another result than this one.
    fn has_another_result(&mut self, at: u32, said: Option<&[u8]>) -> bool {
        let Some(slot) = self.job(at) else { return false };
        let arrival = slot.arrival;
        if !slot.record.notes.result {
            return said.is_some();
        }
        let of_this_batch = self.jobs.batch.others.iter().rev().find_map(|change| match change {
            JobChange::Note { arrival: of, what: JobNote::Result, bytes } if *of == arrival => {
                Some(Arc::clone(bytes))
            }
            _ => None,
        });
        let kept = match of_this_batch {
            Some(kept) => Some(kept),
            None => self.archived(|archive| archive.note(arrival, JobNote::Result)).flatten(),
        };
        // Where the result was not brought along, nothing can be said against it.
        let Some(kept) = kept else { return false };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        said.is_none_or(|said| !same_json(&text(said), &text(&kept)))
    }
}

impl Engine {
    pub(super) fn keep_note(&mut self, at: u32, what: JobNote, bytes: Arc<[u8]>) {
        let Some(slot) = self.jobs.table.at_mut(at) else { return };
        let notes = &mut slot.record.notes;
        let known = match what {
            JobNote::Checkpoint => &mut notes.checkpoint,
            JobNote::Progress => &mut notes.progress,
            JobNote::Result => &mut notes.result,
        };
        let (arrival, is_new) = (slot.arrival, !std::mem::replace(known, true));
        if is_new {
            self.jobs.touch(at);
        }
        self.jobs.batch.others.push(JobChange::Note { arrival, what, bytes });
        // How far a job has come is for people; everything else is promised.
        self.batch.durable |= what != JobNote::Progress;
    }
}

/// The hash of the hold id that was looked at last, while one request is decided: the jobs of one claim have the same.
#[derive(Default)]
pub(super) struct LastHash(Option<(HoldId, HoldHash)>);

impl LastHash {
    /// The attempt that speaks.
    fn proof(&mut self, attempt: &AttemptRef) -> AttemptProof {
        let hash = match self.0 {
            Some((hold_id, hash)) if hold_id == attempt.hold_id => hash,
            _ => attempt.hold_id.hash(),
        };
        self.0 = Some((attempt.hold_id, hash));
        AttemptProof { hash, token: attempt.token }
    }
}

/// The attempt that speaks.
pub(super) fn by(attempt: &AttemptRef) -> AttemptProof {
    AttemptProof { hash: attempt.hold_id.hash(), token: attempt.token }
}
