//! What the engine hands over to be kept, as plain data, and who keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencehold_contract::Quota;
use fencehold_core::lease::LeaseRecord;
use fencehold_core::{Event, Key, Namespace, Timestamp, Token};

use super::jobs::{Archive, JobChange, MemoryArchive, StoredJobs};

/// One change of one batch. Later changes of the same slot replace earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The whole of one key.
    Put { slot: u32, namespace: Namespace, key: Key, record: LeaseRecord, deadline_ms: u64 },
    /// A renewal: only the deadline of the hold under this token moved.
    Term { slot: u32, token: Token, deadline_ms: u64 },
    /// A collected key.
    Drop { slot: u32 },
    /// A namespace's floor.
    Floor { namespace: Namespace, floor: Token },
    /// Nothing is granted before this moment; 0: the store is open.
    ClosedUntil { until_ms: u64 },
    /// The longest ttl that was ever granted: how long a rewound store must wait.
    LongestTtl { ttl_ms: u64 },
    /// What is kept of one namespace.
    Namespace(StoredNamespace),
    /// What a namespace may have; `None`: every one that has no limits of its own.
    Limits { namespace: Option<Namespace>, limits: Quota },
    /// For how long finished jobs are kept.
    KeepFinished { ms: u64 },
    /// The moment it is, on both clocks: store time goes on from it in another boot.
    Seen { now: Timestamp },
}

/// The changes of one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub rows: Vec<Change>,
    pub jobs: Vec<JobChange>,
    pub events: Vec<Arc<Event>>,
    pub old_events: OldEvents,
    /// Whether an answer of this batch promises that they survive a power cut. A batch of renewals alone does
    /// not: losing one may only lengthen a lease.
    pub durable: bool,
}

/// What becomes of events that are no longer among the newest of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OldEvents {
    /// Their namespace keeps these.
    pub kept: Vec<Arc<Event>>,
    /// It kept these, and forgets them.
    pub forgotten: Vec<u64>,
    /// Up to where a namespace has lost events; `None`: each of which no event is kept.
    pub lost_until: Vec<(Option<Namespace>, u64)>,
    /// Those that were kept have not been read: which of them their namespace keeps is not known, and none may be removed.
    pub unread: bool,
}

/// Events as they were kept.
#[derive(Debug, Default)]
pub struct StoredEvents {
    /// The newest of the store, oldest first.
    pub recent: Vec<Event>,
    /// Those before them that were kept for their namespace, oldest first.
    pub old: Vec<Event>,
    /// Up to where these namespaces have lost events,
    pub lost: BTreeMap<Namespace, u64>,
    /// those of which no event is kept,
    pub lost_by_others: u64,
    /// and every one.
    pub lost_by_all: u64,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.jobs.is_empty() && self.events.is_empty()
    }
}

/// What was kept, as an engine starts from it.
#[derive(Debug, Default)]
pub struct StoredState {
    pub leases: Vec<StoredLease>,
    pub floors: Vec<(Namespace, Token)>,
    pub namespaces: Vec<StoredNamespace>,
    pub limits: Vec<(Option<Namespace>, Quota)>,
    /// `None`: they are read when they are needed.
    pub events: Option<StoredEvents>,
    pub last_seq: u64,
    pub closed_until_ms: u64,
    pub longest_ttl_ms: u64,
    pub set_aside: u64,
    /// `None`: they are read when they are needed.
    pub jobs: Option<StoredJobs>,
}

/// What is kept of one namespace beside its floor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredNamespace {
    pub namespace: Namespace,
    /// The longest ttl that was ever granted in it.
    pub longest_ttl_ms: u64,
    /// Nothing is granted in it before this moment. `None`: that of the whole store counts.
    pub closed_until_ms: Option<u64>,
}

/// One key, as it was kept.
#[derive(Debug)]
pub struct StoredLease {
    pub slot: u32,
    pub namespace: Namespace,
    pub key: Key,
    pub record: LeaseRecord,
    pub deadline_ms: u64,
}

/// Why a batch was not kept. Its answers must not go out.
#[derive(Debug)]
pub enum PersistError {
    /// Another process is in the middle of a write: nothing was done, and the same batch can be tried again.
    Busy(String),
    /// Another process serves this store now, or what was written is where no one finds it.
    Superseded,
    /// The disk failed; what it holds is uncertain.
    Failed(String),
}

/// Keeps the batches.
pub trait Persistence: Send {
    /// Whether it keeps leases and events. Where it does, batches are worth gathering: one sync serves many.
    const KEEPS: bool;

    /// Keeps one batch, as durably as it asks.
    fn keep(&mut self, changes: &mut Changes) -> Result<(), PersistError>;

    /// How long the disk took to confirm the batch that was kept last, where that is known.
    fn disk_us(&self) -> Option<u64> {
        None
    }

    /// Makes sure that answers which change nothing still come from the one that serves this store.
    fn confirm(&mut self) -> Result<(), PersistError>;

    /// Called after the answers of a batch have gone, `idle` when nothing else waits.
    fn tidy(&mut self, idle: bool) -> Result<(), PersistError>;

    /// What is kept of jobs, for reading.
    fn archive(&mut self) -> &mut dyn Archive;
}

/// `memory:`: what the engine does not hold itself stays in this process.
#[derive(Debug, Default)]
pub struct MemoryPersistence(MemoryArchive);

impl MemoryPersistence {
    /// Goes on from what was there.
    pub fn of(archive: MemoryArchive) -> Self {
        MemoryPersistence(archive)
    }
}

impl Persistence for MemoryPersistence {
    const KEEPS: bool = false;

    fn keep(&mut self, changes: &mut Changes) -> Result<(), PersistError> {
        for change in changes.jobs.drain(..) {
            self.0.take(change);
        }
        Ok(())
    }

    fn confirm(&mut self) -> Result<(), PersistError> {
        Ok(())
    }

    fn tidy(&mut self, _: bool) -> Result<(), PersistError> {
        Ok(())
    }

    fn archive(&mut self) -> &mut dyn Archive {
        &mut self.0
    }
}
