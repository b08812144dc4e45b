//! What came of a test job.

use std::time::Duration;

use fencehold_contract::job::{ClaimedJob, Report};
use fencehold_core::BadInput;
use fencehold_core::job::EffectName;
use fencehold_core::ledger::Compensation;
use serde::de::DeserializeOwned;

use super::TestJob;
use super::fake_store::{FakeStore, FakeStoreState};
use crate::job::{Job, JobError, Outcome};
use crate::json;
use crate::worker::{RunEnd, report_of};

/// What a handler did with a [`TestJob`].
#[derive(Debug)]
pub struct TestResult {
    claimed: Option<ClaimedJob>,
    /// What was reported; an error: nothing, and why.
    ended: Result<Report, String>,
    state: FakeStoreState,
}

impl TestResult {
    pub(super) fn new(
        job: &Job,
        claimed: ClaimedJob,
        fake_store: &FakeStore,
        ended: RunEnd<Result<Outcome, JobError>>,
    ) -> Self {
        let no_report = match &ended {
            RunEnd::Ended(Err(error)) => error.to_string(),
            RunEnd::Lost(cause) => job.attempt.holding.error(cause.clone()).to_string(),
            RunEnd::Ended(Ok(_)) | RunEnd::Dropped => "the claim is left to expire".to_owned(),
        };
        let ended = report_of(ended, &job.attempt.holding).ok_or(no_report);
        TestResult { claimed: Some(claimed), ended, state: fake_store.take() }
    }

    pub(super) fn not_begun(bad: BadInput) -> Self {
        TestResult { claimed: None, ended: Err(bad.to_string()), state: FakeStoreState::default() }
    }

    /// The result, if the handler completed. `None` too where it does not fit.
    pub fn result<T: DeserializeOwned>(&self) -> Option<T> {
        match &self.ended {
            Ok(Report::Complete { result }) => {
                json::read("result", result.as_deref().unwrap_or(json::NOTHING)).ok()
            }
            _ => None,
        }
    }

    /// The error, if the handler failed.
    pub fn failure(&self) -> Option<&str> {
        match &self.ended {
            Ok(Report::Fail { error, .. }) => Some(error),
            _ => None,
        }
    }

    /// Whether it failed permanently: it is not tried again.
    pub fn failed_permanently(&self) -> bool {
        matches!(self.ended, Ok(Report::Fail { permanent: true, .. }))
    }

    /// After what time it asked to be tried again, if it failed and asked.
    pub fn retry_in(&self) -> Option<Duration> {
        match &self.ended {
            Ok(Report::Fail { retry_in_ms, .. }) => retry_in_ms.map(Duration::from_millis),
            _ => None,
        }
    }

    /// For how long the handler put the job off, if it did.
    pub fn snoozed(&self) -> Option<Duration> {
        match &self.ended {
            Ok(Report::Snooze { delay_ms: for_ms }) => Some(Duration::from_millis(*for_ms)),
            _ => None,
        }
    }

    /// Whether the handler released the job.
    pub fn released(&self) -> bool {
        matches!(self.ended, Ok(Report::Release {}))
    }

    /// Why there was nothing to report: the claim was lost, an effect was in doubt, or the test job itself was wrong.
    pub fn lost(&self) -> Option<&str> {
        self.ended.as_ref().err().map(String::as_str)
    }

    /// The names of the effects that this attempt recorded, in order.
    pub fn effects_recorded(&self) -> Vec<&str> {
        self.state.had.iter().map(EffectName::as_str).collect()
    }

    /// The names of the effects whose intent this attempt recorded, in order.
    pub fn effects_begun(&self) -> Vec<&str> {
        self.state.announced.iter().map(EffectName::as_str).collect()
    }

    /// The stored value of an effect, if it is recorded.
    pub fn effect<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let effect = self.state.effects.iter().find(|effect| effect.name.as_str() == name)?;
        json::read("stored value of an effect", effect.value.as_deref()?).ok()
    }

    /// The compensation of an effect, if it has one.
    pub fn compensation_of(&self, name: &str) -> Option<&Compensation> {
        let effect = self.state.effects.iter().find(|effect| effect.name.as_str() == name)?;
        effect.compensation.as_deref()
    }

    /// The newest checkpoint, if the handler kept one.
    pub fn checkpoint(&self) -> Option<&[u8]> {
        self.state.checkpoint.as_deref()
    }

    /// What the handler said of its progress, as JSON, in order.
    pub fn progress(&self) -> &[Box<str>] {
        &self.state.progress
    }

    /// The attempt that comes after this one: it finds what this one recorded and kept.
    pub fn next_attempt(self) -> TestJob {
        let Some(mut claimed) = self.claimed else {
            let bad = BadInput::new("test job", "never began, so it has no next attempt");
            return TestJob::from(Err(bad));
        };
        let attempt = claimed.attempt.saturating_add(1);
        claimed.effects = self.state.effects;
        claimed.checkpoint = self.state.checkpoint.or(claimed.checkpoint);
        TestJob::from(Ok(claimed)).attempt(attempt)
    }
}
