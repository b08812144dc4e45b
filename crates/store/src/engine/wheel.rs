//! A lazy timer wheel: it says which slots *may* be due. Whoever asks looks at the slot's real time and, where it
//! has moved on, puts it back. So a renewal never touches the wheel.

use std::collections::BTreeMap;

/// The moment of a slot that is not on the wheel.
pub(super) const NOT_SCHEDULED: u64 = u64::MAX;

/// Slots by the moment at which to look at them.
#[derive(Debug, Default)]
pub(super) struct Wheel {
    moments: BTreeMap<u64, Vec<u32>>,
}

impl Wheel {
    /// Puts a slot on the wheel, unless it is already there for that time or earlier. `scheduled` is the slot's own
    /// note of its moment; an entry that disagrees with it is out of date.
    pub(super) fn schedule(&mut self, slot: u32, due_ms: u64, scheduled: &mut u64) {
        if *scheduled <= due_ms {
            return;
        }
        *scheduled = due_ms;
        self.moments.entry(due_ms).or_default().push(slot);
    }

    /// A slot that may be due, with the moment under which it stood.
    pub(super) fn pop_due(&mut self, now_ms: u64) -> Option<(u32, u64)> {
        let mut first = self.moments.first_entry()?;
        let due_ms = *first.key();
        if due_ms > now_ms {
            return None;
        }
        let slot = first.get_mut().pop();
        if first.get().is_empty() {
            first.remove();
        }
        slot.map(|slot| (slot, due_ms))
    }

    /// When to look again.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.moments.first_key_value().map(|(due_ms, _)| *due_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_due_at_its_moment_and_not_before() {
        let mut wheel = Wheel::default();
        let mut scheduled = NOT_SCHEDULED;
        wheel.schedule(7, 1_001, &mut scheduled);
        assert_eq!(wheel.pop_due(1_000), None);
        assert_eq!(wheel.next_ms(), Some(1_001));
        assert_eq!(wheel.pop_due(1_001), Some((7, scheduled)));
        assert_eq!(wheel.pop_due(u64::MAX), None);
    }

    #[test]
    fn an_earlier_time_wins_and_the_later_entry_is_known_as_out_of_date() {
        let mut wheel = Wheel::default();
        let mut scheduled = NOT_SCHEDULED;
        wheel.schedule(1, 5_000, &mut scheduled);
        wheel.schedule(1, 9_000, &mut scheduled);
        wheel.schedule(1, 100, &mut scheduled);
        assert_eq!(wheel.pop_due(10_000), Some((1, scheduled)));
        let (slot, due_ms) = wheel.pop_due(10_000).expect("the out-of-date entry");
        assert!(slot == 1 && due_ms != scheduled);
        assert_eq!(wheel.pop_due(u64::MAX), None, "the later time was never put on the wheel");
    }
}
