//! What may be true. When a disk fails in the middle of a commit, the batch may or may not be there: then there are
//! two accounts, one for each, and every later answer must fit at least one of them.

use fencehold_core::Timestamp;

use super::audit::{Audit, Auditor, Outage, RequestAndResponse};
use super::store::ReturnedGrant;

/// With so many accounts, nothing more is thrown into doubt: each doubt doubles them.
const MANY: usize = 16;

/// The accounts that explain everything so far.
#[derive(Debug)]
pub(super) struct PossibleStates(Vec<Auditor>);

impl Default for PossibleStates {
    fn default() -> Self {
        PossibleStates(vec![Auditor::default()])
    }
}

/// What one step of the store did: what went back first, and then the answers in groups, each before the next.
pub(super) struct StoreStep<'a> {
    pub(super) now: Timestamp,
    pub(super) abandoned: &'a [ReturnedGrant],
    pub(super) groups: &'a [Vec<RequestAndResponse<'a>>],
}

impl PossibleStates {
    /// A step was kept.
    pub(super) fn happened(&mut self, step: &StoreStep<'_>) -> Audit {
        self.0 = step.explained_by(std::mem::take(&mut self.0))?;
        Ok(())
    }

    /// A step may have been kept, or not.
    pub(super) fn may_have_happened(&mut self, step: &StoreStep<'_>) -> Audit {
        let if_kept = step.explained_by(self.0.clone())?;
        let new: Vec<Auditor> = if_kept.into_iter().filter(|account| !self.0.contains(account)).collect();
        self.0.extend(new);
        Ok(())
    }

    pub(super) fn are_many(&self) -> bool {
        self.0.len() >= MANY
    }

    pub(super) fn restarted(&mut self, gap: &Outage) {
        self.0.iter_mut().for_each(|auditor| auditor.restarted(gap));
    }

    pub(super) fn awake_since(&mut self, now_ms: u64) {
        self.0.iter_mut().for_each(|auditor| auditor.awake_since_ms = now_ms);
    }

    pub(super) fn was_forced(&self, name: &str, token: u64) -> bool {
        self.0.iter().any(|auditor| auditor.was_forced(name, token))
    }

    pub(super) fn nothing_is_left(&self) -> Audit {
        let mut verdicts = self.0.iter().map(Auditor::nothing_is_left);
        let first = verdicts.next().unwrap_or(Ok(()));
        verdicts.fold(first, Result::or)
    }
}

impl StoreStep<'_> {
    /// The accounts that this step fits. None: an error says why it does not fit the last of them.
    fn explained_by(&self, mut accounts: Vec<Auditor>) -> Result<Vec<Auditor>, String> {
        let mut why = String::new();
        accounts.retain_mut(|auditor| match self.fits(auditor) {
            Ok(()) => true,
            Err(problem) => {
                why = problem;
                false
            }
        });
        if accounts.is_empty() { Err(why) } else { Ok(accounts) }
    }

    fn fits(&self, auditor: &mut Auditor) -> Audit {
        for abandoned in self.abandoned {
            match abandoned {
                ReturnedGrant::Lease(key, hold) => auditor.abandoned(key, *hold),
                ReturnedGrant::Jobs(jobs) => auditor.abandoned_jobs(self.now.store_ms, jobs),
            }
        }
        self.groups.iter().try_for_each(|pairs| auditor.step(self.now, pairs.clone()))
    }
}
