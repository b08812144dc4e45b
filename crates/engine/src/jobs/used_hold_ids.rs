//! Hold ids of claims that have had their jobs. A claim that is sent once more after all of them have ended gets nothing (R13):
//! its sender was given jobs before, and a new claim has a new hold id.
//!
//! Only the newest so many are remembered. A sender that comes back later than that is taken for new, and given tokens of its own:
//! nothing that it says under the old ones is heard.

use std::collections::VecDeque;

use hashbrown::HashSet;

/// A namespace, and what recognises a hold id in it.
pub(super) type NamespaceHold = (u32, [u8; 16]);

/// How many are remembered: a few megabytes.
const REMEMBERED: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct UsedHoldIds {
    known: HashSet<NamespaceHold>,
    /// The oldest first.
    order: VecDeque<NamespaceHold>,
}

impl UsedHoldIds {
    pub(super) fn add(&mut self, holder: NamespaceHold) {
        if !self.known.insert(holder) {
            return;
        }
        self.order.push_back(holder);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// A claim whose jobs no caller has seen, after all.
    pub(super) fn forget(&mut self, holder: &NamespaceHold) {
        self.known.remove(holder);
    }

    pub(super) fn has(&self, holder: &NamespaceHold) -> bool {
        self.known.contains(holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(nth: usize) -> NamespaceHold {
        let mut hash = [0; 16];
        hash[..8].copy_from_slice(&nth.to_le_bytes());
        (1, hash)
    }

    #[test]
    fn the_newest_are_remembered_and_no_more_than_there_is_room_for() {
        let mut past = UsedHoldIds::default();
        for nth in 0..REMEMBERED + 2 {
            past.add(holder(nth));
            past.add(holder(nth));
        }
        assert!(!past.has(&holder(0)) && !past.has(&holder(1)));
        assert!(past.has(&holder(2)) && past.has(&holder(REMEMBERED + 1)));
        assert_eq!((past.known.len(), past.order.len()), (REMEMBERED, REMEMBERED));
        assert!(!past.has(&(2, holder(2).1)), "another namespace's");
        past.forget(&holder(2));
        assert!(!past.has(&holder(2)));
    }
}
