//! Which ids were given to jobs lately, so that a new job does not have to be looked for in the archive.

use std::collections::BTreeSet;

use fencehold_core::job::JobId;

/// How many ids are remembered: more than the calls under way bring, which come in any order.
const IDS_MAX: usize = 8_192;

/// The latest ids of all jobs there have been since this engine began.
#[derive(Debug, Default)]
pub(super) struct KnownIds {
    /// Jobs with ids up to this one may be in the archive. `None`: there is none.
    forgotten: Option<JobId>,
    /// The ids after it, all of them. A job with one of them may have been deleted since.
    recent: BTreeSet<JobId>,
}

impl KnownIds {
    /// Of a store that has jobs up to this id.
    pub(super) fn up_to(last: Option<JobId>) -> Self {
        KnownIds { forgotten: last, recent: BTreeSet::new() }
    }

    /// Whether a job with this id may be there, in memory or in the archive.
    pub(super) fn may_have(&self, id: JobId) -> bool {
        self.forgotten.is_some_and(|last| id <= last) || self.recent.contains(&id)
    }

    /// A job is made.
    pub(super) fn add(&mut self, id: JobId) {
        if self.forgotten.is_none_or(|last| id > last) {
            self.recent.insert(id);
        }
        if self.recent.len() > IDS_MAX {
            self.forgotten = self.recent.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(at: u64) -> JobId {
        JobId::from_random(at, [7; 10])
    }

    #[test]
    fn an_id_that_was_given_or_forgotten_is_never_called_new() {
        let mut known = KnownIds::up_to(Some(id(100)));
        let given: Vec<u64> = (0..3 * IDS_MAX as u64).map(|nth| 101 + (nth ^ 1)).collect();
        for at in &given {
            assert!(!known.may_have(id(*at)), "{at} was not given yet");
            known.add(id(*at));
        }
        assert!(given.iter().all(|at| known.may_have(id(*at))));
        assert!(known.may_have(id(100)) && known.may_have(id(1)), "kept by an earlier owner");
        assert!(known.recent.len() <= IDS_MAX);
    }

    #[test]
    fn an_id_between_those_that_were_given_is_new() {
        let mut known = KnownIds::default();
        known.add(id(5));
        known.add(id(9));
        assert!(!known.may_have(id(7)) && !known.may_have(id(1)) && !known.may_have(id(10)));
    }
}
