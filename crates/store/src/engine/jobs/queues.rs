//! Every queue: what it does, which of its jobs are ready, who works on them, how many there are.

use std::collections::{BTreeSet, HashMap};

use fencehold_core::Namespace;
use fencehold_core::job::{Queue, Ready, State};

use super::archive::KeptQueue;
use crate::engine::waiters::Ticket;
use crate::job::{Counts, QueueMode, QueueView};

#[derive(Debug)]
pub(super) struct QueueState {
    pub(super) space: u32,
    pub(super) name: Queue,
    pub(super) mode: QueueMode,
    pub(super) ready: Ready<u32>,
    /// The jobs that are worked on, lowest priority first: who is asked to yield.
    pub(super) running: BTreeSet<(i16, u32)>,
    pub(super) counts: Counts,
    /// The claims that wait for jobs from here, first come first.
    pub(super) line: BTreeSet<(u64, Ticket)>,
}

impl QueueState {
    /// Whether there is a job to be had.
    pub(super) fn offers(&self) -> bool {
        self.mode != QueueMode::Paused && !self.ready.is_empty()
    }

    pub(super) fn view(&self) -> QueueView {
        QueueView {
            queue: self.name.clone(),
            mode: self.mode,
            counts: self.counts,
            claimers: self.line.len() as u64,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    all: Vec<QueueState>,
    by_name: HashMap<(u32, Queue), u32>,
    /// Queues to which something has happened since claims were last served.
    pub(super) stirred: BTreeSet<u32>,
}

impl Queues {
    pub(super) fn find(&self, space: u32, name: &Queue) -> Option<u32> {
        self.by_name.get(&(space, name.clone())).copied()
    }

    /// The number of a queue; a new one gets the next.
    pub(super) fn find_or_insert(&mut self, space: u32, name: &Queue) -> (u32, bool) {
        if let Some(number) = self.find(space, name) {
            return (number, false);
        }
        let number = u32::try_from(self.all.len()).expect("fewer than 2^32 queues");
        self.all.push(QueueState {
            space,
            name: name.clone(),
            mode: QueueMode::Open,
            ready: Ready::default(),
            running: BTreeSet::new(),
            counts: Counts::default(),
            line: BTreeSet::new(),
        });
        self.by_name.insert((space, name.clone()), number);
        (number, true)
    }

    /// Puts a kept queue back under its number.
    #[cfg(feature = "file")]
    pub(super) fn restore(&mut self, space: u32, kept: KeptQueue) -> u32 {
        let (number, _) = self.find_or_insert(space, &kept.name);
        let queue = &mut self.all[number as usize];
        queue.mode = kept.mode;
        queue.counts = kept.finished;
        number
    }

    pub(super) fn at(&self, number: u32) -> &QueueState {
        &self.all[number as usize]
    }

    pub(super) fn at_mut(&mut self, number: u32) -> &mut QueueState {
        &mut self.all[number as usize]
    }

    pub(super) fn of_space(&self, space: u32) -> impl Iterator<Item = &QueueState> {
        self.all.iter().filter(move |queue| queue.space == space)
    }

    pub(super) fn kept(&self, number: u32, namespace: Namespace) -> KeptQueue {
        let queue = self.at(number);
        let mut counts = queue.counts;
        let mut finished = Counts::default();
        for state in State::ALL.into_iter().filter(|state| state.is_final()) {
            *finished.of(state) = *counts.of(state);
        }
        KeptQueue { number, namespace, name: queue.name.clone(), mode: queue.mode, finished }
    }
}
