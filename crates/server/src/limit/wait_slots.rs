//! How many requests may wait at once, of one caller and of all: for a lease, for a job, for events.
//!
//! A request that waits does no work, and so takes no room in a lane; but each keeps a connection. So all of them together have
//! fewer seats than there are connections: however many wait, there is a way in for those who renew and release.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use crate::locked;

/// The seats of every caller.
#[derive(Debug)]
pub(crate) struct WaitSlots<Who: Eq + Hash>(Arc<WaitSlotsInner<Who>>);

#[derive(Debug)]
struct WaitSlotsInner<Who: Eq + Hash> {
    each_max: usize,
    all_max: usize,
    taken: Mutex<UsedSlots<Who>>,
}

#[derive(Debug)]
struct UsedSlots<Who> {
    by: HashMap<Who, usize>,
    all: usize,
}

/// Why there is no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoWaitSlot {
    /// Whose seats are all taken: this caller's own, or those of all.
    pub(crate) of: &'static str,
    pub(crate) limit: usize,
}

/// A seat, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitSlot<Who: Eq + Hash> {
    seats: Arc<WaitSlotsInner<Who>>,
    who: Who,
}

impl<Who: Clone + Eq + Hash> WaitSlots<Who> {
    /// So many for each, and for all together.
    pub(crate) fn new(each_max: usize, all_max: usize) -> Self {
        let taken = Mutex::new(UsedSlots { by: HashMap::new(), all: 0 });
        WaitSlots(Arc::new(WaitSlotsInner { each_max, all_max, taken }))
    }

    /// Takes a seat.
    pub(crate) fn take(&self, who: &Who) -> Result<WaitSlot<Who>, NoWaitSlot> {
        let mut taken = locked(&self.0.taken);
        let of_caller = taken.by.get(who).copied().unwrap_or(0);
        if of_caller >= self.0.each_max {
            return Err(NoWaitSlot { of: "this token", limit: self.0.each_max });
        }
        if taken.all >= self.0.all_max {
            return Err(NoWaitSlot { of: "all tokens", limit: self.0.all_max });
        }
        taken.by.insert(who.clone(), of_caller + 1);
        taken.all += 1;
        Ok(WaitSlot { seats: Arc::clone(&self.0), who: who.clone() })
    }

    /// How many are taken, by all together, and by the one that has most.
    pub(crate) fn taken(&self) -> (usize, usize) {
        let taken = locked(&self.0.taken);
        (taken.all, taken.by.values().copied().max().unwrap_or(0))
    }

    /// How many there are.
    pub(crate) fn all_max(&self) -> usize {
        self.0.all_max
    }

    /// How many one caller may have.
    pub(crate) fn each_max(&self) -> usize {
        self.0.each_max
    }
}

impl<Who: Eq + Hash> Drop for WaitSlot<Who> {
    fn drop(&mut self) {
        let mut taken = locked(&self.seats.taken);
        taken.all = taken.all.saturating_sub(1);
        if let Some(count) = taken.by.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                taken.by.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_so_many_seats_and_gets_them_back() {
        let seats = WaitSlots::new(2, 10);
        let (one, _two) = (seats.take(&"a").unwrap(), seats.take(&"a").unwrap());
        assert_eq!(seats.take(&"a").err(), Some(NoWaitSlot { of: "this token", limit: 2 }));
        let _other = seats.take(&"b").unwrap();
        assert_eq!(seats.taken(), (3, 2));
        drop(one);
        assert!(seats.take(&"a").is_ok());
        assert_eq!(seats.taken(), (2, 1));
    }

    #[test]
    fn all_together_have_so_many_and_who_is_refused_takes_none() {
        let seats = WaitSlots::new(2, 3);
        let taken = ["a", "a", "b"].map(|who| seats.take(&who).unwrap());
        assert_eq!(seats.take(&"b").err(), Some(NoWaitSlot { of: "all tokens", limit: 3 }));
        assert_eq!(seats.take(&"c").err(), Some(NoWaitSlot { of: "all tokens", limit: 3 }));
        assert_eq!(seats.taken(), (3, 2));
        drop(taken);
        assert_eq!(seats.taken(), (0, 0));
        assert!(seats.take(&"c").is_ok());
    }
}
