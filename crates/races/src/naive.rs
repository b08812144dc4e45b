//! The naive twin: the lock that everybody writes first. It reads, thinks, and then writes, in two messages; it knows
//! holders by their names; its sweeper acts on the list that it made; its line hands the key to the first,
//! and what it protects does as it is asked.
//!
//! It is wrong on purpose, in the well-known ways, and only a race uses it.

use std::collections::HashMap;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fencehold_contract::clock::{Clock, ManualClock};
use fencehold_core::Key;
use futures_channel::oneshot;

use crate::fenced_resource::{FencedResource, WriteResult};
use crate::gate::MessageGate;
use crate::protocol::{AcquireTerms, HeldLease, LeaseReply, Protocol};
use crate::trace::Trace;

#[derive(Clone)]
struct NaiveRow {
    owner: String,
    deadline_ms: u64,
    ttl_ms: u64,
}

#[derive(Default)]
struct NaiveTable {
    held: HashMap<Key, NaiveRow>,
    line: Vec<(AcquireTerms, oneshot::Sender<HeldLease>)>,
    /// How many grants there were. Shown as tokens, and never checked.
    grants: u64,
}

/// Actors that use the naive lock.
pub(crate) struct NaiveLock {
    pub(crate) clock: ManualClock,
    pub(crate) gate: Arc<MessageGate>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) resource: Arc<FencedResource>,
    rows: Mutex<NaiveTable>,
}

impl NaiveLock {
    pub(crate) fn new(
        clock: ManualClock,
        gate: Arc<MessageGate>,
        trace: Arc<Trace>,
        resource: Arc<FencedResource>,
    ) -> Self {
        NaiveLock { clock, gate, trace, resource, rows: Mutex::default() }
    }

    fn rows(&self) -> MutexGuard<'_, NaiveTable> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    fn look(&self, key: &Key) -> Option<NaiveRow> {
        self.rows().held.get(key).cloned()
    }

    /// Writes the row, whatever stands there.
    fn write(&self, wish: &AcquireTerms) -> HeldLease {
        let mut rows = self.rows();
        rows.grants += 1;
        let deadline_ms = self.now_ms() + wish.ttl_ms;
        let row = NaiveRow { owner: wish.owner.to_string(), deadline_ms, ttl_ms: wish.ttl_ms };
        rows.held.insert(wish.key.clone(), row);
        HeldLease {
            key: wish.key.clone(),
            hold: wish.hold,
            owner: wish.owner.clone(),
            token: rows.grants,
            remaining_ms: wish.ttl_ms,
            resumed: false,
        }
    }

    fn frees(&self, key: &Key) -> Ready<()> {
        self.free(key);
        ready(())
    }

    fn free(&self, key: &Key) {
        self.rows().held.remove(key);
        let next = {
            let mut rows = self.rows();
            let at = rows.line.iter().position(|(wish, _)| wish.key == *key);
            at.map(|at| rows.line.remove(at))
        };
        if let Some((wish, granted)) = next {
            let lease = self.write(&wish);
            let _ = granted.send(lease);
        }
    }

    /// How long the lease on a key still lasts.
    pub(crate) fn remaining_ms(&self, key: &Key) -> u64 {
        let row = self.look(key);
        row.map_or(0, |row| row.deadline_ms.saturating_sub(self.now_ms()))
    }
}

#[async_trait]
impl Protocol for NaiveLock {
    async fn acquire(&self, who: &str, wish: &AcquireTerms) -> LeaseReply {
        let found = self.look(&wish.key).filter(|row| self.now_ms() < row.deadline_ms);
        if let Some(row) = found {
            if wish.wait_ms == 0 {
                return LeaseReply::Held { owner: row.owner };
            }
            let (granted, turn) = oneshot::channel();
            self.rows().line.push((wish.clone(), granted));
            return turn.await.map_or(LeaseReply::Unheard, LeaseReply::Granted);
        }
        let carried = self.gate.carry(&self.trace, who, "acquire", || ready(self.write(wish))).await;
        carried.map_or(LeaseReply::Unheard, LeaseReply::Granted)
    }

    async fn renew(&self, who: &str, lease: &HeldLease) -> LeaseReply {
        let Some(row) = self.look(&lease.key).filter(|row| row.owner == lease.owner.as_str()) else {
            return LeaseReply::Lost { how: None, current: lease.token };
        };
        let carried = self.gate.carry(&self.trace, who, "renew", || {
            let deadline_ms = self.now_ms() + row.ttl_ms;
            self.rows()
                .held
                .insert(lease.key.clone(), NaiveRow { deadline_ms, ..row.clone() });
            ready(())
        });
        carried
            .await
            .map_or(LeaseReply::Unheard, |()| LeaseReply::Renewed { remaining_ms: row.ttl_ms })
    }

    async fn release(&self, who: &str, lease: &HeldLease) -> LeaseReply {
        if self.look(&lease.key).is_none_or(|row| row.owner != lease.owner.as_str()) {
            return LeaseReply::Lost { how: None, current: lease.token };
        }
        let carried = self.gate.carry(&self.trace, who, "release", || self.frees(&lease.key));
        carried.await.map_or(LeaseReply::Unheard, |()| LeaseReply::Released)
    }

    async fn revoke(&self, who: &str, key: &Key) -> LeaseReply {
        let carried = self.gate.carry(&self.trace, who, "revoke", || self.frees(key));
        carried
            .await
            .map_or(LeaseReply::Unheard, |()| LeaseReply::Revoked { consumed: 0 })
    }

    async fn sweep(&self, who: &str, key: &Key) -> LeaseReply {
        let listed = self.look(key);
        let carried = self.gate.carry(&self.trace, who, "sweep", || {
            if listed.as_ref().is_some_and(|row| row.deadline_ms <= self.now_ms()) {
                self.free(key);
            }
            ready(())
        });
        carried.await.map_or(LeaseReply::Unheard, |()| LeaseReply::Swept)
    }

    async fn complete(&self, who: &str, lease: &HeldLease, result: &str) -> LeaseReply {
        if self.look(&lease.key).is_none_or(|row| row.owner != lease.owner.as_str()) {
            return LeaseReply::Lost { how: None, current: lease.token };
        }
        let carried = self
            .gate
            .carry(&self.trace, who, "complete", || ready(self.resource.put_unfenced(lease.token, result)));
        match carried.await {
            None => LeaseReply::Unheard,
            Some(WriteResult::Done) => LeaseReply::Completed,
            Some(WriteResult::Stale { newest }) => LeaseReply::Stale { current: newest },
        }
    }

    async fn holder(&self, key: &Key) -> Option<String> {
        let live = self.look(key).filter(|row| self.now_ms() < row.deadline_ms);
        live.map(|row| row.owner)
    }

    async fn in_line(&self, key: &Key) -> u64 {
        self.rows().line.iter().filter(|(wish, _)| wish.key == *key).count() as u64
    }
}
