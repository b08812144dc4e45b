//! Who is next: ready jobs in the order of their rank and their arrival, and queues in turn by their weights.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// The jobs of one queue that are ready to be claimed. A job keeps the place of its arrival for life: put back, it stands
/// where it stood.
#[derive(Clone, Debug)]
pub struct Ready<T> {
    places: BTreeMap<(Reverse<i16>, u64), T>,
}

impl<T> Default for Ready<T> {
    fn default() -> Self {
        Ready { places: BTreeMap::new() }
    }
}

impl<T> Ready<T> {
    /// Puts a job in its place.
    pub fn insert(&mut self, priority: i16, arrival: u64, job: T) {
        self.places.insert((Reverse(priority), arrival), job);
    }

    /// Takes a job out of its place.
    pub fn remove(&mut self, priority: i16, arrival: u64) -> Option<T> {
        self.places.remove(&(Reverse(priority), arrival))
    }

    /// The one that is next, with its priority.
    pub fn first(&self) -> Option<(i16, &T)> {
        self.places.first_key_value().map(|((priority, _), job)| (priority.0, job))
    }

    /// All of them, next one first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// Whose turn it is among queues of different weights. A queue of weight 3 gets three turns for every one of a queue of
/// weight 1, and none waits for ever: each turn moves a queue's own clock on by so much the more the less it weighs, and
/// the queue whose clock is furthest behind is next. A queue that had nothing to offer saves up nothing.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    clocks: HashMap<u32, u64>,
    now: u64,
}

/// How far a turn moves the clock of a queue of weight 1.
const STRIDE: u64 = 1 << 20;

impl Turns {
    /// The queue whose turn it is, and takes that turn. Candidates are queues that have something to offer, each with
    /// its weight; a weight of 0 counts as 1.
    pub fn next(&mut self, candidates: impl Iterator<Item = (u32, u32)>) -> Option<u32> {
        let clock_of = |queue| self.clocks.get(&queue).copied().unwrap_or(0).max(self.now);
        let (clock, queue, weight) =
            candidates.map(|(queue, weight)| (clock_of(queue), queue, weight)).min()?;
        self.now = clock;
        self.clocks.insert(queue, clock + STRIDE / u64::from(weight.max(1)).min(STRIDE));
        Some(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_priority_comes_first_and_then_who_came_first() {
        let mut ready = Ready::default();
        for (priority, arrival) in [(0, 1), (5, 3), (0, 2), (-1, 0), (5, 4)] {
            ready.insert(priority, arrival, arrival);
        }
        assert_eq!(ready.iter().copied().collect::<Vec<_>>(), [3, 4, 1, 2, 0]);
    }

    #[test]
    fn a_job_that_is_put_back_stands_where_it_stood() {
        let mut ready = Ready::default();
        for arrival in 0..3 {
            ready.insert(0, arrival, arrival);
        }
        assert_eq!(ready.remove(0, 0), Some(0));
        ready.insert(0, 0, 0);
        assert_eq!(ready.first(), Some((0, &0)));
    }

    #[test]
    fn turns_go_by_weight_and_nobody_starves() {
        let mut turns = Turns::default();
        let mut taken = HashMap::new();
        for _ in 0..1_000 {
            let queue = turns.next([(1, 1), (2, 3), (3, 96)].into_iter()).unwrap();
            *taken.entry(queue).or_insert(0) += 1;
        }
        for (queue, share) in [(1, 10), (2, 30), (3, 960)] {
            assert!((share - 1..=share + 1).contains(&taken[&queue]), "{taken:?}");
        }
    }

    #[test]
    fn a_queue_that_was_idle_does_not_take_all_the_next_turns() {
        let mut turns = Turns::default();
        for _ in 0..1_000 {
            turns.next([(1, 1)].into_iter());
        }
        let taken: Vec<u32> = (0..6).filter_map(|_| turns.next([(1, 1), (2, 1)].into_iter())).collect();
        assert_eq!(taken.iter().filter(|queue| **queue == 2).count(), 3, "{taken:?}");
    }

    #[test]
    fn a_weight_of_nothing_and_a_weight_of_everything_still_take_turns() {
        let mut turns = Turns::default();
        let taken: Vec<u32> = (0..1_100_000)
            .filter_map(|_| turns.next([(1, 0), (2, u32::MAX)].into_iter()))
            .collect();
        assert!(taken.contains(&1) && taken.contains(&2));
    }
}
