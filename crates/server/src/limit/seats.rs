//! How many requests of one caller may wait at once: for a lease, for a job, for events.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The seats of every caller.
#[derive(Debug)]
pub(crate) struct Seats<Who: Eq + Hash>(Arc<Inner<Who>>);

#[derive(Debug)]
struct Inner<Who: Eq + Hash> {
    each_max: usize,
    taken: Mutex<HashMap<Who, usize>>,
}

/// A seat, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat<Who: Eq + Hash> {
    seats: Arc<Inner<Who>>,
    who: Who,
}

impl<Who: Clone + Eq + Hash> Seats<Who> {
    /// So many for each.
    pub(crate) fn new(each_max: usize) -> Self {
        Seats(Arc::new(Inner { each_max, taken: Mutex::default() }))
    }

    /// Takes a seat. `None`: all of this caller's are taken.
    pub(crate) fn take(&self, who: &Who) -> Option<Seat<Who>> {
        let mut taken = self.0.taken();
        let count = taken.entry(who.clone()).or_insert(0);
        if *count >= self.0.each_max {
            return None;
        }
        *count += 1;
        Some(Seat { seats: Arc::clone(&self.0), who: who.clone() })
    }

    /// How many are taken, by all together, and by whoever has most.
    pub(crate) fn taken(&self) -> (usize, usize) {
        let taken = self.0.taken();
        (taken.values().sum(), taken.values().copied().max().unwrap_or(0))
    }

    /// How many one caller may have.
    pub(crate) fn each_max(&self) -> usize {
        self.0.each_max
    }
}

impl<Who: Eq + Hash> Inner<Who> {
    fn taken(&self) -> MutexGuard<'_, HashMap<Who, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Who: Eq + Hash> Drop for Seat<Who> {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(count) = taken.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_so_many_seats_and_gets_them_back() {
        let seats = Seats::new(2);
        let (one, _two) = (seats.take(&"a").unwrap(), seats.take(&"a").unwrap());
        assert!(seats.take(&"a").is_none());
        let _other = seats.take(&"b").unwrap();
        assert_eq!(seats.taken(), (3, 2));
        drop(one);
        assert!(seats.take(&"a").is_some());
        assert_eq!(seats.taken(), (2, 1));
    }
}
