//! A claim whose command runs, and what its command was told.

use fencehold_contract::job::AttemptRef;
use fencehold_core::job::{Kind, Refusal};
use fencehold_core::ttl::Deadlines;
use tokio::sync::watch;

use super::line::Line;
use crate::output::note;
use crate::process::{Tenure, boot_ms};

/// A claim whose command runs.
pub(super) struct Running {
    pub(super) attempt: AttemptRef,
    pub(super) kind: Kind,
    pub(super) nth: u32,
    pub(super) began_ms: u64,
    pub(super) tell: watch::Sender<Tenure>,
    pub(super) deadlines: Deadlines,
    pub(super) renew_at_ms: u64,
    /// Why the command was told to end.
    pub(super) told: Option<Told>,
}

/// Why a command was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Cancelled,
    Yield,
    ShiftOver,
    Lost,
}

impl Running {
    /// When the command must be gone.
    pub(super) fn kill_at_ms(&self) -> u64 {
        self.deadlines.lost_at_ms()
    }

    /// Tells the command to end, once.
    pub(super) fn end(&mut self, why: Told) {
        if self.told.is_none() {
            self.told = Some(why);
            self.tell.send_replace(Tenure::Unwanted { kill_at_ms: self.kill_at_ms() });
        }
    }

    /// The store will not renew: the claim is over, whatever else the command was told.
    pub(super) fn lose(&mut self, refusal: &Refusal) {
        self.told = Some(Told::Lost);
        let job = self.attempt.job;
        note(&format!("job {job}: {refusal}; its command is ended"));
        let ran_out = matches!(refusal, Refusal::Over { how, .. } if how.ran_out());
        self.tell.send_replace(if ran_out { Tenure::RanOut } else { Tenure::Taken });
    }

    pub(super) fn line(&self, code: Option<u8>, said: &'static str) -> Line {
        Line {
            job: self.attempt.job,
            kind: self.kind.clone(),
            token: self.attempt.token,
            attempt: self.nth,
            code,
            took_ms: boot_ms().saturating_sub(self.began_ms),
            said,
            state: None,
            again_in_ms: None,
            refused: None,
        }
    }
}
