//! The engine for a simulation: the same machine that `memory:` and `file:` run, with its time, its requests and its
//! disk in the hands of whoever simulates. Not part of the public interface, and not of a shipped build.
//!
//! Nouns: a [`Machine`] is an engine; a [`Batch`] is what it hands over to be kept, with the answers that may go out only
//! afterwards; an [`Image`] is what a disk holds, as an owner finds it when it starts.

use std::collections::BTreeMap;

use fencehold_core::{Key, Namespace, Owner, Refusal, Stamp, Token};

use crate::engine::{
    Answer, Ask, Change, Changes, Engine, Granted, Keep as _, KeepInMemory, Kept, KeptJobs, KeptLease, Said,
};
use crate::error::StoreError;
use crate::file::{Trust, rebase};
use crate::lease::{
    AcquireRequest, Acquired, Advanced, HoldRef, LeaseView, Renewed, RevokeRequest, RevokedLease,
};

/// What can be asked of a machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Question {
    /// See [`LeaseStore::acquire`](crate::LeaseStore::acquire).
    Acquire(AcquireRequest),
    /// See [`LeaseStore::renew`](crate::LeaseStore::renew).
    Renew(Vec<HoldRef>),
    /// See [`LeaseStore::release`](crate::LeaseStore::release).
    Release(Vec<HoldRef>),
    /// See [`LeaseStore::revoke`](crate::LeaseStore::revoke).
    Revoke(RevokeRequest),
    /// See [`LeaseStore::get`](crate::LeaseStore::get).
    Get(Key),
    /// See [`LeaseStore::advance`](crate::LeaseStore::advance).
    Advance(Owner, u64),
}

/// What it answers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reply {
    /// To an acquire.
    Acquired(Acquired),
    /// To renewals.
    Renewed(Renewed),
    /// To releases.
    Released(Vec<Result<Token, Refusal>>),
    /// To a revocation.
    Revoked(Vec<RevokedLease>),
    /// To a look.
    Lease(Option<LeaseView>),
    /// To an advance.
    Advanced(Advanced),
    /// To anything else.
    Other,
}

/// An answer, to be given when its batch is kept.
#[derive(Debug)]
pub struct Given {
    /// Whose question.
    pub ticket: u64,
    /// The answer.
    pub result: Result<Reply, StoreError>,
    granted: Option<Granted>,
}

/// What the steps since the last batch changed and answered.
#[derive(Debug)]
pub struct Batch {
    changes: Changes,
    /// To go out when the changes are kept, and not before.
    pub answers: Vec<Given>,
}

impl Batch {
    /// Whether there is something to keep.
    pub fn changes_something(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Whether an answer of it promises that the changes survive a power cut.
    pub fn is_durable(&self) -> bool {
        self.changes.durable
    }

    /// How many pieces it is written in.
    pub fn pieces(&self) -> usize {
        self.changes.rows.len() + self.changes.events.len()
    }

    /// The changes, for the disk.
    pub fn record(&self) -> Record {
        Record(self.changes.clone())
    }
}

/// The changes of one batch, as a disk holds them.
#[derive(Clone, Debug)]
pub struct Record(Changes);

/// An engine.
#[derive(Debug)]
pub struct Machine {
    engine: Engine,
    /// Jobs that the engine does not hold itself. None are simulated yet.
    archive: KeepInMemory,
}

impl Default for Machine {
    fn default() -> Self {
        Machine { engine: Engine::new(), archive: KeepInMemory::default() }
    }
}

impl Machine {
    /// An engine that goes on from what a disk holds.
    pub fn from_image(image: &Image, now: Stamp, found: Found) -> Self {
        let engine = Engine::from_kept(now, image.kept(now, found));
        Machine { engine, archive: KeepInMemory::default() }
    }

    /// Takes one request. Returns how many answers are there by now.
    pub fn ask(&mut self, now: Stamp, ticket: u64, question: Question) -> usize {
        let ask = match question {
            Question::Acquire(request) => Ask::Acquire(request),
            Question::Renew(holds) => Ask::Renew(holds),
            Question::Release(holds) => Ask::Release(holds),
            Question::Revoke(request) => Ask::Revoke { request, from: 0 },
            Question::Get(key) => Ask::Get(key),
            Question::Advance(by, lift) => Ask::Advance { by, lift },
        };
        self.engine.ask(now, ticket, &Namespace::default(), ask, self.archive.archive());
        self.engine.answers_so_far()
    }

    /// The caller has gone.
    pub fn cancel(&mut self, now: Stamp, ticket: u64) {
        self.engine.cancel(now, ticket);
    }

    /// Notes what has run out. True: there is more.
    pub fn sweep(&mut self, now: Stamp, budget: usize) -> bool {
        self.engine.sweep(now, budget, self.archive.archive())
    }

    /// A fresh grant found nobody to take it.
    pub fn abandon(&mut self, now: Stamp, given: &Given) {
        if let Some(granted @ Granted::Lease { fresh: true, .. }) = &given.granted {
            self.engine.abandon(now, granted.clone(), self.archive.archive());
        }
    }

    /// Hands over what was changed and answered.
    pub fn take_batch(&mut self) -> Batch {
        let (changes, answers) = self.engine.take_batch(true);
        let answers = answers.into_iter().map(|answered| Given {
            ticket: answered.ticket,
            result: match answered.result {
                Said::Said(result) => result.map(reply),
                Said::ToRead(_) => Ok(Reply::Other),
            },
            granted: answered.granted,
        });
        Batch { changes, answers: answers.collect() }
    }

    /// When the engine must be woken although nobody asks anything.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.engine.next_due_ms()
    }
}

fn reply(answer: Answer) -> Reply {
    match answer {
        Answer::Acquired(acquired) => Reply::Acquired(acquired),
        Answer::Renewed(renewed) => Reply::Renewed(renewed),
        Answer::Released(released) => Reply::Released(released),
        Answer::Revoked { ended, .. } => Reply::Revoked(ended),
        Answer::Lease(lease) => Reply::Lease(lease),
        Answer::Advanced(advanced) => Reply::Advanced(advanced),
        _ => Reply::Other,
    }
}

/// What a new owner knows of the time before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The process died; the machine went on.
    SameBoot,
    /// The disk failed under the owner before.
    FailedDisk,
    /// The machine went down.
    NewBoot,
}

/// What a disk holds: the rows of every batch that was applied.
#[derive(Clone, Debug, Default)]
pub struct Image {
    rows: BTreeMap<u32, Row>,
    terms: BTreeMap<u32, (Token, u64)>,
    floors: BTreeMap<Namespace, Token>,
    last_seq: u64,
    closed_until_ms: u64,
    longest_ttl_ms: u64,
}

#[derive(Clone, Debug)]
struct Row {
    namespace: Namespace,
    key: Key,
    record: fencehold_core::lease::Record,
    deadline_ms: u64,
}

impl Image {
    /// Applies one batch, as a transaction does: all of it.
    pub fn apply(&mut self, record: &Record) {
        for change in &record.0.rows {
            match change.clone() {
                Change::Put { slot, namespace, key, record, deadline_ms } => {
                    self.rows.insert(slot, Row { namespace, key, record, deadline_ms });
                }
                Change::Term { slot, token, deadline_ms } => {
                    self.terms.insert(slot, (token, deadline_ms));
                }
                Change::Drop { slot } => {
                    self.rows.remove(&slot);
                    self.terms.remove(&slot);
                }
                Change::Floor { namespace, floor } => {
                    self.floors.insert(namespace, floor);
                }
                Change::ClosedUntil { until_ms } => self.closed_until_ms = until_ms,
                Change::LongestTtl { ttl_ms } => self.longest_ttl_ms = ttl_ms,
            }
        }
        if let Some(event) = record.0.events.last() {
            self.last_seq = event.seq;
        }
    }

    /// As an owner loads it, and keeps it anew where moments no longer mean what they did.
    fn kept(&self, now: Stamp, found: Found) -> Kept {
        let trust = match found {
            Found::SameBoot => Trust::Exact,
            Found::FailedDisk => Trust::Lengthen,
            Found::NewBoot => Trust::NewBoot,
        };
        let closed_until_ms = match found {
            Found::NewBoot if self.closed_until_ms > 0 => now.store_ms + self.longest_ttl_ms,
            _ => self.closed_until_ms,
        };
        let leases = self.rows.iter().map(|(slot, row)| {
            let renewed = self.terms.get(slot).filter(|(token, _)| *token == row.record.counter);
            let mut lease = KeptLease {
                slot: *slot,
                namespace: row.namespace.clone(),
                key: row.key.clone(),
                record: row.record.clone(),
                deadline_ms: row.deadline_ms.max(renewed.map_or(0, |(_, deadline_ms)| *deadline_ms)),
            };
            rebase(&mut lease, now, trust);
            lease
        });
        Kept {
            leases: leases.collect(),
            floors: self.floors.iter().map(|(name, floor)| (name.clone(), *floor)).collect(),
            events: Vec::new(),
            last_seq: self.last_seq,
            closed_until_ms,
            longest_ttl_ms: self.longest_ttl_ms,
            set_aside: 0,
            jobs: KeptJobs::default(),
        }
    }

    /// What an owner writes when it starts: every lease as it now stands.
    pub fn rebased(&self, now: Stamp, found: Found) -> Image {
        let kept = self.kept(now, found);
        let mut image = Image { terms: BTreeMap::new(), rows: BTreeMap::new(), ..self.clone() };
        image.closed_until_ms = kept.closed_until_ms;
        for KeptLease { slot, namespace, key, record, deadline_ms } in kept.leases {
            image.rows.insert(slot, Row { namespace, key, record, deadline_ms });
        }
        image
    }
}
