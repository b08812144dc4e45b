//! The store that is simulated: the real engine, one batch after the other on a simulated disk, and the auditor beside
//! it. It does what the engine's own thread does: decide, keep, and only then answer.

use std::collections::BTreeMap;

use fencehold_core::Stamp;
use fencehold_store::StoreError;
use fencehold_store::sim::{Found, Given, Machine, Question, Reply};

use super::audit::{Asked, Auditor, Pair};
use super::chance::Chance;
use super::disk::Disk;

/// The most slots of one sweep: few, so that a sweep does not always come to its end.
const SWEEP_MAX: usize = 3;

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) owner: usize,
    pub(super) life: u32,
    pub(super) sent_ms: u64,
}

pub(super) struct Store {
    machine: Option<Machine>,
    pub(super) disk: Disk,
    pub(super) auditor: Auditor,
    pending: BTreeMap<u64, (Caller, Asked)>,
    next_ticket: u64,
    pub(super) decided: u64,
}

/// What a step came to.
pub(super) enum Stepped {
    /// These answers may go out.
    Kept(Vec<(Caller, Question, Result<Reply, StoreError>)>),
    /// The disk failed: nobody is told anything, and the owner stops.
    Stopped,
}

impl Store {
    pub(super) fn new() -> Self {
        Store {
            machine: Some(Machine::default()),
            disk: Disk::default(),
            auditor: Auditor::default(),
            pending: BTreeMap::new(),
            next_ticket: 1,
            decided: 0,
        }
    }

    pub(super) fn serves(&self) -> bool {
        self.machine.is_some()
    }

    /// The process is gone, and with it everything that it did not keep.
    pub(super) fn stops(&mut self) {
        self.machine = None;
        self.pending.clear();
    }

    /// A new process starts from what the disk holds.
    pub(super) fn starts(&mut self, stopped_ms: u64, now: Stamp, found: Found) {
        let image = self.disk.open();
        *image = image.rebased(now, found);
        self.machine = Some(Machine::from_image(image, now, Found::SameBoot));
        self.auditor.restarted(stopped_ms, now.store_ms, found);
    }

    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.machine.as_ref()?.next_due_ms()
    }

    /// Decides what has come, notes what has run out, keeps it all, and audits every answer. `is_there` says whether
    /// somebody still waits for an answer: what was granted to nobody is given back at once.
    pub(super) fn step(
        &mut self,
        now: Stamp,
        arrived: Vec<(Caller, Question)>,
        chance: &mut Chance,
        is_there: impl Fn(&Caller) -> bool,
    ) -> Result<Stepped, String> {
        let Some(machine) = &mut self.machine else { return Ok(Stepped::Stopped) };
        let mut ends = Vec::with_capacity(arrived.len());
        for (caller, question) in arrived {
            let ticket = self.next_ticket;
            self.next_ticket += 1;
            self.decided += 1;
            let asked = Asked { question: question.clone(), arrived_ms: now.store_ms };
            self.pending.insert(ticket, (caller, asked));
            ends.push(machine.ask(now, ticket, question));
        }
        machine.sweep(now, SWEEP_MAX);
        let mut told = Vec::new();
        loop {
            let batch = machine.take_batch();
            let kept = if batch.changes_something() { self.disk.keep(&batch, chance) } else { Ok(()) };
            if !kept.as_ref().map_or_else(|failed| failed.landed, |()| true) {
                return Ok(Stepped::Stopped);
            }
            let mut from = 0;
            ends.push(batch.answers.len());
            for end in ends.drain(..) {
                audit(&mut self.auditor, &self.pending, now, &batch.answers[from..end])?;
                from = end;
            }
            if kept.is_err() {
                return Ok(Stepped::Stopped);
            }
            let mut abandoned = false;
            for given in batch.answers {
                let Some((caller, asked)) = self.pending.remove(&given.ticket) else { continue };
                if let (Ok(Reply::Acquired(acquired)), Question::Acquire(request)) =
                    (&given.result, &asked.question)
                    && !acquired.grant.resumed
                    && !is_there(&caller)
                {
                    machine.abandon(now, &given);
                    self.auditor.abandoned(acquired.key.as_str(), request.hold.hash());
                    abandoned = true;
                }
                told.push((caller, asked.question, given.result));
            }
            if !abandoned {
                return Ok(Stepped::Kept(told));
            }
        }
    }
}

fn audit<'a>(
    auditor: &mut Auditor,
    pending: &'a BTreeMap<u64, (Caller, Asked)>,
    now: Stamp,
    answers: &'a [Given],
) -> Result<(), String> {
    let pair = |given: &'a Given| {
        let Given { ticket, result, .. } = given;
        pending.get(ticket).map(|(_, asked)| Pair { asked, result })
    };
    auditor.step(now.store_ms, answers.iter().filter_map(pair).collect())
}
