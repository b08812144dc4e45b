//! A lazy timer wheel: it says which slots *may* be due. The caller looks at the slot's real time and, where it
//! has moved on, puts it back. So a renewal never touches the wheel.
//!
//! A slot is on the wheel at most once. The slots of one moment are a list through the wheel's own links, so that one is
//! taken off wherever it stands, and nothing out of date is left behind.

use std::collections::BTreeMap;

/// The moment of a slot that is not on the wheel.
const NOT_SCHEDULED: u64 = u64::MAX;
/// The end of a list. There are fewer slots than that.
const NONE: u32 = u32::MAX;

/// Slots by the moment at which to look at them.
#[derive(Debug, Default)]
pub(super) struct Wheel {
    /// The first slot of each moment.
    moments: BTreeMap<u64, u32>,
    /// By slot.
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    due_ms: u64,
    before: u32,
    after: u32,
}

const UNLINKED: Link = Link { due_ms: NOT_SCHEDULED, before: NONE, after: NONE };

impl Wheel {
    /// Makes sure that a slot is looked at by this time. One that is on the wheel for an earlier time stays there.
    pub(super) fn schedule(&mut self, slot: u32, due_ms: u64) {
        let at = slot as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, UNLINKED);
        }
        if self.links[at].due_ms <= due_ms {
            return;
        }
        self.take_off(slot);
        let after = self.moments.insert(due_ms, slot).unwrap_or(NONE);
        self.links[at] = Link { due_ms, before: NONE, after };
        if let Some(next) = self.links.get_mut(after as usize) {
            next.before = slot;
        }
    }

    /// Takes a slot off the wheel, if it is on it.
    pub(super) fn take_off(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize) else { return };
        let Link { due_ms, before, after } = std::mem::replace(link, UNLINKED);
        if due_ms == NOT_SCHEDULED {
            return;
        }
        if let Some(next) = self.links.get_mut(after as usize) {
            next.before = before;
        }
        match self.links.get_mut(before as usize) {
            Some(previous) => previous.after = after,
            None if after == NONE => drop(self.moments.remove(&due_ms)),
            None => drop(self.moments.insert(due_ms, after)),
        }
    }

    /// Takes off a slot that may be due.
    pub(super) fn pop_due(&mut self, now_ms: u64) -> Option<u32> {
        let (due_ms, slot) = self.moments.first_key_value()?;
        if *due_ms > now_ms {
            return None;
        }
        let slot = *slot;
        self.take_off(slot);
        Some(slot)
    }

    /// When to look again.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.moments.first_key_value().map(|(due_ms, _)| *due_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_slot_is_due_at_its_moment_and_not_before() {
        let mut wheel = Wheel::default();
        wheel.schedule(7, 1_001);
        assert_eq!(wheel.pop_due(1_000), None);
        assert_eq!(wheel.next_ms(), Some(1_001));
        assert_eq!(wheel.pop_due(1_001), Some(7));
        assert_eq!(wheel.pop_due(u64::MAX), None);
    }

    #[test]
    fn an_earlier_time_wins_and_leaves_nothing_behind() {
        let mut wheel = Wheel::default();
        wheel.schedule(1, 5_000);
        wheel.schedule(1, 9_000);
        wheel.schedule(1, 100);
        assert_eq!(wheel.next_ms(), Some(100));
        assert_eq!(wheel.pop_due(10_000), Some(1));
        assert_eq!(wheel.pop_due(u64::MAX), None);
        assert!(wheel.moments.is_empty());
    }

    proptest! {
        /// Against the plainest thing that could do the same: a set of pairs.
        #[test]
        fn it_does_what_a_set_of_moments_and_slots_would_do(
            steps in prop::collection::vec((0..8_u32, 0..6_u64, 0..4_u8), 0..200)
        ) {
            let mut wheel = Wheel::default();
            let mut set: BTreeSet<(u64, u32)> = BTreeSet::new();
            for (slot, moment, step) in steps {
                let stands = set.iter().find(|(_, other)| *other == slot).copied();
                match step {
                    0 => {
                        wheel.take_off(slot);
                        stands.map(|entry| set.remove(&entry));
                    }
                    1 => {
                        let due = wheel.pop_due(moment);
                        let first = set.first().map(|(due_ms, _)| *due_ms).filter(|due_ms| *due_ms <= moment);
                        prop_assert_eq!(due.is_some(), first.is_some());
                        if let (Some(slot), Some(due_ms)) = (due, first) {
                            prop_assert!(set.remove(&(due_ms, slot)));
                        }
                    }
                    _ => {
                        wheel.schedule(slot, moment);
                        if stands.is_none_or(|(due_ms, _)| moment < due_ms) {
                            stands.map(|entry| set.remove(&entry));
                            set.insert((moment, slot));
                        }
                    }
                }
                prop_assert_eq!(wheel.next_ms(), set.first().map(|(due_ms, _)| *due_ms));
            }
            while let Some(slot) = wheel.pop_due(u64::MAX) {
                prop_assert!(set.pop_first().is_some(), "{} stood on the wheel twice", slot);
            }
            prop_assert!(set.is_empty());
        }
    }
}
