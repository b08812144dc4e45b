//! Every queue: what it does, which of its jobs are ready, who works on them, how many there are.

use std::collections::{BTreeMap, BTreeSet};

use fencehold_contract::job::{JobCounts, QueueMode, QueueView};
use fencehold_core::Namespace;
use fencehold_core::job::{JobState, QueueName, ReadyQueue};
use hashbrown::HashMap;

use super::archive::StoredQueue;
use crate::table::NOWHERE;
use crate::waiters::Ticket;

#[derive(Debug)]
pub(super) struct QueueState {
    pub(super) space: u32,
    pub(super) name: QueueName,
    pub(super) mode: QueueMode,
    pub(super) ready: ReadyQueue<u32>,
    /// The jobs that are worked on, lowest priority first: who is asked to yield.
    pub(super) running: BTreeSet<(i16, u32)>,
    pub(super) counts: JobCounts,
    /// The claims that wait for jobs from here, first come first.
    pub(super) line: BTreeSet<(u64, Ticket)>,
    /// Whether it is kept: it has had a job, or its mode was set.
    pub(super) is_kept: bool,
}

impl QueueState {
    /// Whether it has nothing in it, serves no one, and no operator has set it to anything.
    pub(super) fn is_idle(&self) -> bool {
        self.is_kept
            && self.mode == QueueMode::Open
            && self.counts == JobCounts::default()
            && self.line.is_empty()
    }

    /// Whether there is a job to be had.
    pub(super) fn offers(&self) -> bool {
        self.mode != QueueMode::Paused && !self.ready.is_empty()
    }

    pub(super) fn view(&self) -> QueueView {
        QueueView {
            name: self.name.clone(),
            mode: self.mode,
            job_counts: self.counts,
            waiting_claim_count: self.line.len() as u64,
        }
    }
}

impl Default for QueueState {
    /// A number that no queue has.
    fn default() -> Self {
        QueueState {
            space: NOWHERE,
            name: QueueName::default(),
            mode: QueueMode::Open,
            ready: ReadyQueue::default(),
            running: BTreeSet::new(),
            counts: JobCounts::default(),
            line: BTreeSet::new(),
            is_kept: false,
        }
    }
}

/// How many forgotten queues keep their number.
const FORMER_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct QueueTable {
    /// By number. A queue that only claims have named is kept nowhere, and its number is free again with the last of them.
    all: Vec<QueueState>,
    vacant: Vec<u32>,
    by_name: HashMap<(u32, QueueName), u32>,
    /// The numbers of queues that were forgotten lately, kept for them: turns, and whose is first among equals, go by the number.
    former: BTreeMap<(u32, QueueName), u32>,
    /// Queues to which something has happened since claims were last served.
    pub(super) stirred: BTreeSet<u32>,
    /// Queues that may have become unused, to be looked at by the sweep.
    pub(super) idle: BTreeSet<u32>,
    /// Where a job stands whose queue is none of these: only damage can say so, and no namespace has it.
    nowhere: QueueState,
}

impl QueueTable {
    pub(super) fn find(&self, space: u32, name: &QueueName) -> Option<u32> {
        self.by_name.get(&(space, name.clone())).copied()
    }

    /// The number of a queue that is kept.
    pub(super) fn find_kept(&self, space: u32, name: &QueueName) -> Option<u32> {
        self.find(space, name).filter(|number| self.at(*number).is_kept)
    }

    /// The number of a queue; a new one gets a free one.
    pub(super) fn find_or_insert(&mut self, space: u32, name: &QueueName) -> u32 {
        if let Some(number) = self.find(space, name) {
            return number;
        }
        let own = self.former.remove(&(space, name.clone()));
        let number = own.or_else(|| self.vacant.pop()).unwrap_or_else(|| {
            self.all.push(QueueState::default());
            u32::try_from(self.all.len() - 1).expect("fewer than 2^32 queues")
        });
        self.all[number as usize] = QueueState { space, name: name.clone(), ..QueueState::default() };
        self.by_name.insert((space, name.clone()), number);
        number
    }

    /// Forgets a queue that only claims have named, with the last of them.
    pub(super) fn drop_if_unused(&mut self, number: u32) {
        let queue = self.at(number);
        if !queue.line.is_empty() || self.all.len() <= number as usize {
            return;
        }
        if queue.is_kept {
            self.may_be_idle(number);
            return;
        }
        self.forget(number);
    }

    /// Has the sweep look at a queue, if it is empty and as every queue is by itself.
    pub(super) fn may_be_idle(&mut self, number: u32) {
        if self.at(number).is_idle() {
            self.idle.insert(number);
        }
    }

    /// A schedule does not put its jobs into this queue any more.
    pub(super) fn is_left_by_schedule(&mut self, space: u32, name: &QueueName) {
        if let Some(number) = self.find(space, name) {
            self.may_be_idle(number);
        }
    }

    /// Takes a queue out of memory. Its number is free again, once many others have been forgotten since.
    pub(super) fn forget(&mut self, number: u32) {
        let queue = self.at(number);
        let name = (queue.space, queue.name.clone());
        self.by_name.remove(&name);
        self.stirred.remove(&number);
        self.idle.remove(&number);
        self.all[number as usize] = QueueState::default();
        self.former.insert(name, number);
        if self.former.len() > FORMER_MAX {
            self.vacant.extend(self.former.pop_first().map(|(_, number)| number));
        }
    }

    /// Puts a kept queue back under its number.
    pub(super) fn restore(&mut self, space: u32, kept: StoredQueue) {
        while self.all.len() <= kept.number as usize {
            self.vacant.extend(u32::try_from(self.all.len()));
            self.all.push(QueueState::default());
        }
        self.vacant.retain(|number| *number != kept.number);
        let number = kept.number;
        self.by_name.insert((space, kept.name.clone()), number);
        self.all[number as usize] = QueueState {
            space,
            name: kept.name,
            mode: kept.mode,
            counts: kept.finished,
            is_kept: true,
            ..QueueState::default()
        };
        // What is empty is looked at by the sweep: by then its live jobs are there.
        self.idle.insert(number);
    }

    /// Whether there is a queue of this number.
    pub(super) fn has(&self, number: u32) -> bool {
        self.all.get(number as usize).is_some_and(|queue| queue.is_kept)
    }

    pub(super) fn at(&self, number: u32) -> &QueueState {
        self.all.get(number as usize).unwrap_or(&self.nowhere)
    }

    pub(super) fn at_mut(&mut self, number: u32) -> &mut QueueState {
        self.all.get_mut(number as usize).unwrap_or(&mut self.nowhere)
    }

    pub(super) fn of_space(&self, space: u32) -> impl Iterator<Item = &QueueState> {
        self.all
            .iter()
            .filter(move |queue| queue.space == space && queue.space != NOWHERE)
    }

    pub(super) fn kept(&self, number: u32, namespace: Namespace) -> StoredQueue {
        let queue = self.at(number);
        let counts = queue.counts;
        let mut finished = JobCounts::default();
        for state in JobState::ALL.into_iter().filter(|state| state.is_final()) {
            *finished.get_mut(state) = counts.get(state);
        }
        StoredQueue { number, namespace, name: queue.name.clone(), mode: queue.mode, finished }
    }
}
