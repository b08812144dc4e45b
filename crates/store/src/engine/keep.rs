//! What the engine hands over to be kept, as plain data, and who keeps it.

#[cfg(feature = "file")]
use std::collections::BTreeMap;
use std::sync::Arc;

use fencehold_core::lease::Record;
use fencehold_core::{Event, Key, Namespace, Stamp, Token};

#[cfg(feature = "file")]
use super::jobs::KeptJobs;
use fencehold_contract::Limits;

use super::jobs::{Archive, JobChange, MemoryArchive};

/// One change of one batch. Later changes of the same slot replace earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The whole of one key.
    Put { slot: u32, namespace: Namespace, key: Key, record: Record, deadline_ms: u64 },
    /// A renewal: only the deadline of the hold under this token moved.
    Term { slot: u32, token: Token, deadline_ms: u64 },
    /// A collected key.
    Drop { slot: u32 },
    /// A namespace's floor.
    Floor { namespace: Namespace, floor: Token },
    /// Nobody is granted anything before this moment; 0: the store is open.
    ClosedUntil { until_ms: u64 },
    /// The longest ttl that was ever granted: how long a rewound store must wait.
    LongestTtl { ttl_ms: u64 },
    /// What is kept of one namespace.
    Namespace(KeptNamespace),
    /// What a namespace may have; `None`: every one that has no limits of its own.
    Limits { namespace: Option<Namespace>, limits: Limits },
    /// For how long finished jobs are kept.
    KeepFinished { ms: u64 },
    /// The moment it is, on both clocks: store time goes on from it in another boot.
    Seen { now: Stamp },
}

/// The changes of one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) rows: Vec<Change>,
    pub(crate) jobs: Vec<JobChange>,
    pub(crate) events: Vec<Arc<Event>>,
    pub(crate) old_events: OldEvents,
    /// Whether an answer of this batch promises that they survive a power cut. A batch of renewals alone does
    /// not: losing one may only lengthen a lease.
    pub(crate) durable: bool,
}

/// What becomes of events that are no longer among the newest of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "file"), allow(dead_code, reason = "only a disk has to be told"))]
pub(crate) struct OldEvents {
    /// Their namespace keeps these.
    pub(crate) kept: Vec<Arc<Event>>,
    /// It kept these, and forgets them.
    pub(crate) forgotten: Vec<u64>,
    /// Up to where a namespace has lost events; `None`: each of which no event is kept.
    pub(crate) lost_until: Vec<(Option<Namespace>, u64)>,
}

/// Events as they were kept.
#[cfg(feature = "file")]
#[derive(Debug, Default)]
pub(crate) struct KeptEvents {
    /// The newest of the store, oldest first.
    pub(crate) recent: Vec<Event>,
    /// Those before them that were kept for their namespace, oldest first.
    pub(crate) old: Vec<Event>,
    /// Up to where these namespaces have lost events,
    pub(crate) lost: BTreeMap<Namespace, u64>,
    /// those of which no event is kept,
    pub(crate) lost_by_others: u64,
    /// and every one.
    pub(crate) lost_by_all: u64,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.jobs.is_empty() && self.events.is_empty()
    }
}

/// What was kept, as an engine starts from it.
#[cfg(feature = "file")]
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) leases: Vec<KeptLease>,
    pub(crate) floors: Vec<(Namespace, Token)>,
    pub(crate) namespaces: Vec<KeptNamespace>,
    pub(crate) limits: Vec<(Option<Namespace>, Limits)>,
    pub(crate) events: KeptEvents,
    pub(crate) last_seq: u64,
    pub(crate) closed_until_ms: u64,
    pub(crate) longest_ttl_ms: u64,
    pub(crate) set_aside: u64,
    /// `None`: they are read when they are needed.
    pub(crate) jobs: Option<KeptJobs>,
}

/// What is kept of one namespace beside its floor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptNamespace {
    pub(crate) namespace: Namespace,
    /// The longest ttl that was ever granted in it.
    pub(crate) longest_ttl_ms: u64,
    /// Nothing is granted in it before this moment. `None`: that of the whole store counts.
    pub(crate) closed_until_ms: Option<u64>,
}

/// One key, as it was kept.
#[cfg(feature = "file")]
#[derive(Debug)]
pub(crate) struct KeptLease {
    pub(crate) slot: u32,
    pub(crate) namespace: Namespace,
    pub(crate) key: Key,
    pub(crate) record: Record,
    pub(crate) deadline_ms: u64,
}

/// Why a batch was not kept. Its answers must not go out.
#[derive(Debug)]
#[cfg_attr(not(feature = "file"), expect(dead_code, reason = "memory: keeps nothing that could fail"))]
pub(crate) enum KeepError {
    /// Somebody else is in the middle of a write: nothing was done, and the same batch can be tried again.
    Busy(String),
    /// Somebody else serves this store now, or what was written is where nobody finds it.
    Superseded,
    /// The disk failed; what it holds is uncertain.
    Failed(String),
}

/// Whoever keeps the batches.
pub(crate) trait Keep: Send {
    /// Whether it keeps leases and events. Where it does, batches are worth gathering: one sync serves many.
    const KEEPS: bool;

    /// Keeps one batch, as durably as it asks.
    fn keep(&mut self, changes: &mut Changes) -> Result<(), KeepError>;

    /// How long the disk took to confirm the batch that was kept last, where that is known.
    fn disk_us(&self) -> Option<u64> {
        None
    }

    /// Makes sure that answers which change nothing still come from the one that serves this store.
    fn confirm(&mut self) -> Result<(), KeepError>;

    /// Called after the answers of a batch have gone, `idle` when nothing else waits.
    fn tidy(&mut self, idle: bool) -> Result<(), KeepError>;

    /// What is kept of jobs, for reading.
    fn archive(&mut self) -> &mut dyn Archive;
}

/// `memory:`: what the engine does not hold itself stays in this process.
#[derive(Debug, Default)]
pub(crate) struct KeepInMemory(MemoryArchive);

#[cfg(feature = "sim")]
impl KeepInMemory {
    /// Goes on from what was there.
    pub(crate) fn of(archive: MemoryArchive) -> Self {
        KeepInMemory(archive)
    }
}

impl Keep for KeepInMemory {
    const KEEPS: bool = false;

    fn keep(&mut self, changes: &mut Changes) -> Result<(), KeepError> {
        for change in changes.jobs.drain(..) {
            self.0.take(change);
        }
        Ok(())
    }

    fn confirm(&mut self) -> Result<(), KeepError> {
        Ok(())
    }

    fn tidy(&mut self, _: bool) -> Result<(), KeepError> {
        Ok(())
    }

    fn archive(&mut self) -> &mut dyn Archive {
        &mut self.0
    }
}
