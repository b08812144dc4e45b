//! The naive twin: the lock that everybody writes first. It reads, thinks, and then writes, in two messages; it knows
//! holders by their names; its sweeper acts on the list that it made; its line hands the key to the first,
//! and what it protects does as it is asked.
//!
//! It is wrong on purpose, in the well-known ways, and only a race uses it.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fencehold_contract::clock::{Clock, ManualClock};
use fencehold_core::Key;
use futures_channel::oneshot;

use crate::fenced_resource::FencedResource;
use crate::gate::MessageGate;
use crate::protocol::{AcquireTerms, HeldLease, LeaseCall, LeaseProtocol, LeaseReply, RaceCall, SeenLease};

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
    clock: ManualClock,
    gate: Arc<MessageGate>,
    resource: Arc<FencedResource>,
    rows: Mutex<NaiveTable>,
}

impl NaiveLock {
    pub(crate) fn new(clock: ManualClock, gate: Arc<MessageGate>, resource: Arc<FencedResource>) -> Self {
        NaiveLock { clock, gate, resource, rows: Mutex::default() }
    }

    fn rows(&self) -> MutexGuard<'_, NaiveTable> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    /// Writes the row, whatever stands there.
    fn grant(&self, wish: &AcquireTerms) -> HeldLease {
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

    fn free(&self, key: &Key) {
        let mut rows = self.rows();
        rows.held.remove(key);
        let at = rows.line.iter().position(|(wish, _)| wish.key == *key);
        let next = at.map(|at| rows.line.remove(at));
        drop(rows);
        if let Some((wish, granted)) = next {
            let _ = granted.send(self.grant(&wish));
        }
    }

    /// Does what the caller made of the row that it read, whatever stands there by now.
    fn write(&self, act: &LeaseCall, read: Option<&NaiveRow>) -> LeaseReply {
        match act {
            LeaseCall::Acquire(wish) => LeaseReply::Granted(self.grant(wish)),
            LeaseCall::Renew(lease) => {
                let ttl_ms = read.map_or(0, |row| row.ttl_ms);
                let row =
                    NaiveRow { owner: lease.owner.to_string(), deadline_ms: self.now_ms() + ttl_ms, ttl_ms };
                self.rows().held.insert(lease.key.clone(), row);
                LeaseReply::Renewed { remaining_ms: ttl_ms }
            }
            LeaseCall::Release(lease) => {
                self.free(&lease.key);
                LeaseReply::Released
            }
            LeaseCall::Revoke(key) => {
                self.free(key);
                LeaseReply::Revoked { consumed: 0 }
            }
            LeaseCall::Sweep(key) => {
                if read.is_some_and(|row| row.deadline_ms <= self.now_ms()) {
                    self.free(key);
                }
                LeaseReply::Swept
            }
            LeaseCall::Complete(lease, result) => {
                self.resource.put_unfenced(lease.token, result);
                LeaseReply::Completed
            }
        }
    }
}

#[async_trait]
impl LeaseProtocol for NaiveLock {
    async fn perform(&self, who: &str, act: &LeaseCall) -> LeaseReply {
        let read = self.rows().held.get(act.key()).cloned();
        if let Some(lease) = act.lease()
            && read.as_ref().is_none_or(|row| row.owner != lease.owner.as_str())
        {
            return LeaseReply::Lost { how: None, current: lease.token };
        }
        if let LeaseCall::Acquire(wish) = act
            && let Some(row) = read.as_ref().filter(|row| self.now_ms() < row.deadline_ms)
        {
            if wish.wait_ms == 0 {
                return LeaseReply::Held { owner: row.owner.clone() };
            }
            let (granted, turn) = oneshot::channel();
            self.rows().line.push((wish.clone(), granted));
            return turn.await.map_or(LeaseReply::Unheard, LeaseReply::Granted);
        }
        let write = || ready(self.write(act, read.as_ref()));
        let carried = self.gate.carry(who, act.message(), act.message(), write);
        carried.await.unwrap_or(LeaseReply::Unheard)
    }

    async fn look(&self, key: &Key) -> SeenLease {
        let (rows, now_ms) = (self.rows(), self.now_ms());
        let live = rows.held.get(key).filter(|row| now_ms < row.deadline_ms);
        SeenLease {
            holder: live.map(|row| row.owner.clone()),
            remaining_ms: live.map_or(0, |row| row.deadline_ms - now_ms),
            in_line: rows.line.iter().filter(|(wish, _)| wish.key == *key).count() as u64,
        }
    }
}
