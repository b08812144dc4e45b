//! What a simulated disk holds: the rows of every batch that was applied, as an owner finds them when it starts.

use std::collections::BTreeMap;

use fencehold_core::{Key, Namespace, Timestamp, Token};
use fencehold_engine::{Change, MemoryArchive, StoredEvents, StoredLease, StoredNamespace, StoredState};
use fencehold_store_file::sim::{NotedClock, Trust, rebase};

use super::BatchRecord;
use super::job_image::JobImage;

/// What a new owner knows of the time before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageState {
    /// The process died; the machine went on.
    SameBoot,
    /// The disk failed under the owner before.
    FailedDisk,
    /// The file system may have lost what was not synced; the machine went on.
    Unsynced,
    /// The machine went down.
    NewBoot,
}

/// What a disk holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    rows: BTreeMap<u32, ImageRow>,
    terms: BTreeMap<u32, (Token, u64)>,
    floors: BTreeMap<Namespace, Token>,
    jobs: JobImage,
    last_seq: u64,
    closed_until_ms: u64,
    longest_ttl_ms: u64,
    namespaces: BTreeMap<Namespace, StoredNamespace>,
    /// What is noted of the clock, as `file:` notes it.
    noted: Option<NotedClock>,
}

#[derive(Clone, Debug)]
struct ImageRow {
    namespace: Namespace,
    key: Key,
    record: fencehold_core::lease::LeaseRecord,
    deadline_ms: u64,
}

impl Image {
    /// Applies one batch, as a transaction does: all of it.
    pub(crate) fn apply(&mut self, record: &BatchRecord) {
        for change in &record.0.rows {
            match change.clone() {
                Change::Put { slot, namespace, key, record, deadline_ms } => {
                    self.rows.insert(slot, ImageRow { namespace, key, record, deadline_ms });
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
                Change::Namespace(kept) => drop(self.namespaces.insert(kept.namespace.clone(), kept)),
                // No other time is named here.
                Change::KeepFinished { .. } | Change::Limits { .. } => {}
                Change::Seen { now } => self.noted.iter_mut().for_each(|noted| noted.seen = now),
            }
        }
        for change in &record.0.jobs {
            self.jobs.apply(change);
        }
        if let Some(event) = record.0.events.last() {
            self.last_seq = event.seq;
        }
    }

    /// As an owner loads it.
    pub(super) fn kept(&self, now: Timestamp, found: ImageState) -> StoredState {
        let trust = match found {
            ImageState::SameBoot => Trust::Exact,
            ImageState::FailedDisk | ImageState::Unsynced => Trust::Lengthen,
            ImageState::NewBoot => Trust::Reboot,
        };
        let now = super::ahead(now, self.ahead_ms());
        let closed_until_ms = match found {
            ImageState::NewBoot if self.closed_until_ms > 0 => now.store_ms + self.longest_ttl_ms,
            _ => self.closed_until_ms,
        };
        let leases = self.rows.iter().map(|(slot, row)| {
            let renewed = self.terms.get(slot).filter(|(token, _)| *token == row.record.counter);
            let mut lease = StoredLease {
                slot: *slot,
                namespace: row.namespace.clone(),
                key: row.key.clone(),
                record: row.record.clone(),
                deadline_ms: row.deadline_ms.max(renewed.map_or(0, |(_, deadline_ms)| *deadline_ms)),
            };
            rebase(&mut lease, now, trust);
            lease
        });
        StoredState {
            leases: leases.collect(),
            floors: self.floors.iter().map(|(name, floor)| (name.clone(), *floor)).collect(),
            events: Some(StoredEvents::default()),
            last_seq: self.last_seq,
            namespaces: self.namespaces(now, found),
            limits: Vec::new(),
            closed_until_ms,
            longest_ttl_ms: self.longest_ttl_ms,
            set_aside: 0,
            jobs: Some(self.jobs.kept(now, trust)),
        }
    }

    fn namespaces(&self, now: Timestamp, found: ImageState) -> Vec<StoredNamespace> {
        let known = self.namespaces.values().cloned().map(|mut known| {
            if found == ImageState::NewBoot {
                let again = known.closed_until_ms.filter(|_| self.closed_until_ms > 0);
                known.closed_until_ms = again.map(|_| now.store_ms + known.longest_ttl_ms);
            }
            known
        });
        known.collect()
    }

    /// How far store time is ahead of the clock.
    pub(super) fn ahead_ms(&self) -> u64 {
        self.noted.as_ref().map_or(0, |noted| noted.ahead_ms)
    }

    /// What a new owner notes of the clock.
    fn followed(&self, now: Timestamp, found: ImageState) -> NotedClock {
        let text = self.noted.as_ref().map(NotedClock::text).unwrap_or_default();
        let boots = self.noted.as_ref().map_or(0, |noted| noted.identity.len());
        let identity = "|".repeat(boots + usize::from(found == ImageState::NewBoot || boots == 0));
        NotedClock::followed(&text, identity, now).0
    }

    /// What the owner reads when it needs it.
    pub(super) fn archive(&self) -> MemoryArchive {
        self.jobs.archive()
    }

    /// What an owner writes when it starts: every lease and every job as it now stands.
    pub(crate) fn rebased(&self, now: Timestamp, found: ImageState) -> Image {
        let mut image = Image { terms: BTreeMap::new(), rows: BTreeMap::new(), ..self.clone() };
        image.noted = Some(self.followed(now, found));
        let kept = Image { noted: image.noted.clone(), ..self.clone() }.kept(now, found);
        image.closed_until_ms = kept.closed_until_ms;
        for StoredLease { slot, namespace, key, record, deadline_ms } in kept.leases {
            image.rows.insert(slot, ImageRow { namespace, key, record, deadline_ms });
        }
        image.jobs.rebase(kept.jobs.unwrap_or_default().live);
        image
    }
}
