//! Who is next: ready jobs in the order of their rank and their arrival, and queues in turn by their weights.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The jobs of one queue that are ready to be claimed. A job keeps the place of its arrival for life: put back, it stands
/// where it stood.
#[derive(Clone, Debug)]
pub struct ReadyQueue<T> {
    lines: BTreeMap<Reverse<i16>, PriorityQueue<T>>,
    len: usize,
}

impl<T> Default for ReadyQueue<T> {
    fn default() -> Self {
        ReadyQueue { lines: BTreeMap::new(), len: 0 }
    }
}

impl<T> ReadyQueue<T> {
    /// Puts a job in its place.
    pub fn insert(&mut self, priority: i16, arrival: u64, job: T) {
        let line = self.lines.entry(Reverse(priority)).or_default();
        self.len += usize::from(line.insert(arrival, job).is_none());
    }

    /// Takes a job out of its place.
    pub fn remove(&mut self, priority: i16, arrival: u64) -> Option<T> {
        let line = self.lines.get_mut(&Reverse(priority))?;
        let job = line.remove(arrival)?;
        if line.first().is_none() {
            self.lines.remove(&Reverse(priority));
        }
        self.len -= 1;
        Some(job)
    }

    /// The one that is next, with its priority.
    pub fn first(&self) -> Option<(i16, &T)> {
        let (priority, line) = self.lines.first_key_value()?;
        Some((priority.0, line.first()?))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The jobs of one rank. Nearly all come in the order of their arrival and leave from the front, so they stand in a ring,
/// which takes less than half the memory of a tree.
#[derive(Clone, Debug)]
struct PriorityQueue<T> {
    /// In the order of arrival. `None`: it left from the middle. Neither end is ever a gap.
    ring: VecDeque<(u64, Option<T>)>,
    gaps: usize,
    /// Those that came back after others had passed them.
    put_back: BTreeMap<u64, T>,
}

impl<T> Default for PriorityQueue<T> {
    fn default() -> Self {
        PriorityQueue { ring: VecDeque::new(), gaps: 0, put_back: BTreeMap::new() }
    }
}

impl<T> PriorityQueue<T> {
    /// What stood there before.
    fn insert(&mut self, arrival: u64, job: T) -> Option<T> {
        if let Some(before) = self.put_back.get_mut(&arrival) {
            return Some(std::mem::replace(before, job));
        }
        if self.ring.back().is_none_or(|(last, _)| *last < arrival) {
            self.ring.push_back((arrival, Some(job)));
            return None;
        }
        match self.find(arrival) {
            Some(at) => {
                let before = self.ring[at].1.replace(job);
                self.gaps -= usize::from(before.is_none());
                before
            }
            None => self.put_back.insert(arrival, job),
        }
    }

    fn remove(&mut self, arrival: u64) -> Option<T> {
        let Some(at) = self.find(arrival) else { return self.put_back.remove(&arrival) };
        let job = self.ring[at].1.take()?;
        self.gaps += 1;
        while let Some((_, None)) = self.ring.front() {
            self.ring.pop_front();
            self.gaps -= 1;
        }
        while let Some((_, None)) = self.ring.back() {
            self.ring.pop_back();
            self.gaps -= 1;
        }
        if self.gaps > self.ring.len() / 2 {
            self.ring.retain(|(_, job)| job.is_some());
            self.gaps = 0;
        }
        // A queue that was once long does not keep its memory for ever.
        if self.ring.len() < self.ring.capacity() / 8 {
            self.ring.shrink_to(self.ring.len() * 2);
        }
        Some(job)
    }

    fn first(&self) -> Option<&T> {
        let in_ring = self.ring.front().and_then(|(arrival, job)| Some((arrival, job.as_ref()?)));
        match (in_ring, self.put_back.first_key_value()) {
            (Some(one), Some(other)) => Some(if one.0 < other.0 { one.1 } else { other.1 }),
            (one, other) => one.or(other).map(|(_, job)| job),
        }
    }

    fn find(&self, arrival: u64) -> Option<usize> {
        if self.ring.front().is_some_and(|(first, _)| *first == arrival) {
            return Some(0);
        }
        self.ring.binary_search_by_key(&arrival, |(at, _)| *at).ok()
    }
}

/// Whose turn it is among queues of different weights. A queue of weight 3 gets three turns for every one of a queue of
/// weight 1, and none waits for ever: each turn moves a queue's own clock on by so much the more the less it weighs, and
/// the queue whose clock is furthest behind is next. A queue that had nothing to offer saves up nothing.
#[derive(Clone, Debug, Default)]
pub struct WeightedTurns {
    clocks: HashMap<u32, u64>,
    now: u64,
}

/// How far a turn moves the clock of a queue of weight 1.
const STRIDE: u64 = 1 << 20;

impl WeightedTurns {
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
        let mut ready = ReadyQueue::default();
        for (priority, arrival) in [(0, 1), (5, 3), (0, 2), (-1, 0), (5, 4)] {
            ready.insert(priority, arrival, arrival);
        }
        let mut order = Vec::new();
        while let Some((priority, arrival)) = ready.first().map(|(priority, arrival)| (priority, *arrival)) {
            order.extend(ready.remove(priority, arrival));
        }
        assert_eq!(order, [3, 4, 1, 2, 0]);
    }

    proptest::proptest! {
        /// Whatever comes, leaves and comes back: the same as in a plain sorted map.
        #[test]
        fn the_order_is_that_of_a_sorted_map(
            steps in proptest::collection::vec((proptest::bool::weighted(0.6), -1_i16..2, 0_u64..40), 0..400),
        ) {
            let mut ready = ReadyQueue::default();
            let mut sorted = BTreeMap::new();
            for (comes, priority, arrival) in steps {
                if comes {
                    ready.insert(priority, arrival, arrival);
                    sorted.insert((Reverse(priority), arrival), arrival);
                } else {
                    let removed = ready.remove(priority, arrival);
                    proptest::prop_assert_eq!(removed, sorted.remove(&(Reverse(priority), arrival)));
                }
                let first = sorted.first_key_value().map(|((priority, _), arrival)| (priority.0, arrival));
                proptest::prop_assert_eq!(ready.first(), first);
                for line in ready.lines.values() {
                    let gaps = line.ring.iter().filter(|(_, job)| job.is_none()).count();
                    proptest::prop_assert_eq!(line.gaps, gaps, "else it is cleared too often, or never");
                    proptest::prop_assert!(gaps <= line.ring.len() / 2, "{} gaps of {}", gaps, line.ring.len());
                }
                proptest::prop_assert_eq!((ready.len(), ready.is_empty()), (sorted.len(), sorted.is_empty()));
            }
        }
    }

    #[test]
    fn a_line_that_was_long_gives_its_memory_back_and_one_that_is_long_keeps_it() {
        const LONG: u64 = 10_000;
        let mut ready = ReadyQueue::default();
        for arrival in 0..LONG {
            ready.insert(0, arrival, arrival);
        }
        let capacity =
            |ready: &ReadyQueue<u64>| ready.lines.values().map(|line| line.ring.capacity()).sum::<usize>();
        let full = capacity(&ready);
        for arrival in 0..LONG / 4 {
            ready.remove(0, arrival);
        }
        assert_eq!(capacity(&ready), full, "it may grow again at any time");
        for arrival in LONG / 4..LONG - 10 {
            ready.remove(0, arrival);
        }
        assert!((10..200).contains(&capacity(&ready)), "{}", capacity(&ready));
    }

    #[test]
    fn a_job_that_is_put_back_stands_where_it_stood() {
        let mut ready = ReadyQueue::default();
        for arrival in 0..3 {
            ready.insert(0, arrival, arrival);
        }
        assert_eq!(ready.remove(0, 0), Some(0));
        ready.insert(0, 0, 0);
        assert_eq!(ready.first(), Some((0, &0)));
    }

    #[test]
    fn turns_go_by_weight_and_nobody_starves() {
        let mut turns = WeightedTurns::default();
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
        let mut turns = WeightedTurns::default();
        for _ in 0..1_000 {
            turns.next([(1, 1)].into_iter());
        }
        let taken: Vec<u32> = (0..6).filter_map(|_| turns.next([(1, 1), (2, 1)].into_iter())).collect();
        assert_eq!(taken.iter().filter(|queue| **queue == 2).count(), 3, "{taken:?}");
    }

    #[test]
    fn a_weight_of_nothing_and_a_weight_of_everything_still_take_turns() {
        let mut turns = WeightedTurns::default();
        let taken: Vec<u32> = (0..1_100_000)
            .filter_map(|_| turns.next([(1, 0), (2, u32::MAX)].into_iter()))
            .collect();
        assert!(taken.contains(&1) && taken.contains(&2));
    }
}
