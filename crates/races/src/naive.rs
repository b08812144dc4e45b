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

use crate::gate::Gate;
use crate::protocol::{Lease, Protocol, Told, Wish};
use crate::shelf::{Put, Shelf};
use crate::trace::Trace;

#[derive(Clone)]
struct Row {
    owner: String,
    deadline_ms: u64,
    ttl_ms: u64,
}

#[derive(Default)]
struct Rows {
    held: HashMap<Key, Row>,
    line: Vec<(Wish, oneshot::Sender<Lease>)>,
    /// How many grants there were. Shown as tokens, and never checked.
    grants: u64,
}

/// Actors that use the naive lock.
pub(crate) struct Naive {
    pub(crate) clock: ManualClock,
    pub(crate) gate: Arc<Gate>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) shelf: Arc<Shelf>,
    rows: Mutex<Rows>,
}

impl Naive {
    pub(crate) fn new(clock: ManualClock, gate: Arc<Gate>, trace: Arc<Trace>, shelf: Arc<Shelf>) -> Self {
        Naive { clock, gate, trace, shelf, rows: Mutex::default() }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    fn look(&self, key: &Key) -> Option<Row> {
        self.rows().held.get(key).cloned()
    }

    /// Writes the row, whatever stands there.
    fn write(&self, wish: &Wish) -> Lease {
        let mut rows = self.rows();
        rows.grants += 1;
        let deadline_ms = self.now_ms() + wish.ttl_ms;
        let row = Row { owner: wish.owner.to_string(), deadline_ms, ttl_ms: wish.ttl_ms };
        rows.held.insert(wish.key.clone(), row);
        Lease {
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
impl Protocol for Naive {
    async fn acquire(&self, who: &str, wish: &Wish) -> Told {
        let found = self.look(&wish.key).filter(|row| self.now_ms() < row.deadline_ms);
        if let Some(row) = found {
            if wish.wait_ms == 0 {
                return Told::Held { owner: row.owner };
            }
            let (granted, turn) = oneshot::channel();
            self.rows().line.push((wish.clone(), granted));
            return turn.await.map_or(Told::Unheard, Told::Granted);
        }
        let carried = self.gate.carry(&self.trace, who, "acquire", || ready(self.write(wish))).await;
        carried.map_or(Told::Unheard, Told::Granted)
    }

    async fn renew(&self, who: &str, lease: &Lease) -> Told {
        let Some(row) = self.look(&lease.key).filter(|row| row.owner == lease.owner.as_str()) else {
            return Told::Lost { how: None, current: lease.token };
        };
        let carried = self.gate.carry(&self.trace, who, "renew", || {
            let deadline_ms = self.now_ms() + row.ttl_ms;
            self.rows().held.insert(lease.key.clone(), Row { deadline_ms, ..row.clone() });
            ready(())
        });
        carried
            .await
            .map_or(Told::Unheard, |()| Told::Renewed { remaining_ms: row.ttl_ms })
    }

    async fn release(&self, who: &str, lease: &Lease) -> Told {
        if self.look(&lease.key).is_none_or(|row| row.owner != lease.owner.as_str()) {
            return Told::Lost { how: None, current: lease.token };
        }
        let carried = self.gate.carry(&self.trace, who, "release", || self.frees(&lease.key));
        carried.await.map_or(Told::Unheard, |()| Told::Released)
    }

    async fn revoke(&self, who: &str, key: &Key) -> Told {
        let carried = self.gate.carry(&self.trace, who, "revoke", || self.frees(key));
        carried.await.map_or(Told::Unheard, |()| Told::Revoked { consumed: 0 })
    }

    async fn sweep(&self, who: &str, key: &Key) -> Told {
        let listed = self.look(key);
        let carried = self.gate.carry(&self.trace, who, "sweep", || {
            if listed.as_ref().is_some_and(|row| row.deadline_ms <= self.now_ms()) {
                self.free(key);
            }
            ready(())
        });
        carried.await.map_or(Told::Unheard, |()| Told::Swept)
    }

    async fn complete(&self, who: &str, lease: &Lease, result: &str) -> Told {
        if self.look(&lease.key).is_none_or(|row| row.owner != lease.owner.as_str()) {
            return Told::Lost { how: None, current: lease.token };
        }
        let carried = self
            .gate
            .carry(&self.trace, who, "complete", || ready(self.shelf.put_unfenced(lease.token, result)));
        match carried.await {
            None => Told::Unheard,
            Some(Put::Done) => Told::Completed,
            Some(Put::Stale { newest }) => Told::Stale { current: newest },
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
