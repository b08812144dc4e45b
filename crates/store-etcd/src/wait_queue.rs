//! Standing in line: a key of one's own for every line, all on one etcd lease that only a living waiter keeps alive.
//!
//! The first in line watches the held key; everybody else watches only the one before them, so that a key that comes
//! free wakes one waiter and not all of them. Who comes first follows from etcd's revisions, never by a clock.

use std::collections::HashMap;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_core::Key;
use fencehold_core::limits::WAITERS_PER_KEY_MAX;
use fencehold_net::PendingCall;

use super::EtcdInner;
use super::acquire::Acquisition;
use super::codec::{StoredWaiter, encode};
use super::grpc_client::RequestError;
use super::key_names::{KeyRange, QueuePosition};
use super::messages::{Compare, RangeResponse};
use super::snapshot::{QueuedWaiter, Snapshot, changed_at, get, kept_by, put};

/// How long a place in line outlives its waiter.
const WAITER_TTL_MS: u64 = 10_000;
/// How often a waiter keeps its place, and looks for itself, should the watch have gone blind.
const BEAT: Duration = Duration::from_secs(3);
/// How many keys one registration takes: etcd allows 128 operations in a transaction.
const KEYS_PER_WRITE: usize = 60;

/// A place in line, as its waiter knows it.
pub(super) struct QueuePlace {
    /// What keeps it.
    pub(super) lease: i64,
    pub(super) place: QueuePosition,
    since: HashMap<Key, i64>,
}

/// What became of waiting for a while.
pub(super) enum WaitResult {
    LookAgain,
    TimeIsUp,
    /// The caller has gone.
    Gone,
}

impl QueuePlace {
    /// The revision at which it came to stand in line for a key.
    pub(super) fn since(&self, key: &Key) -> i64 {
        self.since.get(key).copied().unwrap_or(i64::MAX)
    }

    /// Leaves every line at once.
    pub(super) async fn leave(self, core: &EtcdInner) {
        let _ = core.wire.lease_revoke(self.lease).await;
    }
}

impl Acquisition<'_> {
    /// Whether its time to stand in line is up.
    pub(super) fn time_is_up(&self) -> bool {
        self.call.budget.elapsed_ms() >= self.request.wait_ms
    }

    /// Makes sure that what is in line under this hold id is this call's own. An earlier sending's place is taken over,
    /// and a later sending has taken over ours. True: something changed, so look again.
    pub(super) async fn adopt_or_yield(&mut self, snapshot: &Snapshot) -> Result<bool, StoreError> {
        match (&snapshot.waiting, &self.stand) {
            (None, None) => Ok(false),
            (Some(stood), Some(stand)) if stood.lease == stand.lease => Ok(false),
            (Some(_), Some(_)) => {
                let why = "the same request was sent again, and the later one stands in line".to_owned();
                Err(StoreError::Unavailable { message: why })
            }
            // Its etcd lease ended while it was cut off: the place is lost, and only a new one can be had.
            (None, Some(_)) => {
                self.stand = None;
                Ok(true)
            }
            (Some(QueuedWaiter { waiting, lease, revision }), None) => {
                let guard =
                    changed_at(self.call.core.names.waiting(&self.call.namespace, self.hash), *revision);
                if self.stand_in_line(waiting.clone(), guard).await? {
                    let _ = self.call.core.wire.lease_revoke(*lease).await;
                }
                Ok(true)
            }
        }
    }

    /// Waits until it may be worth looking again.
    pub(super) async fn wait(
        &mut self,
        snapshot: &Snapshot,
        caller: Option<&PendingCall>,
    ) -> Result<WaitResult, StoreError> {
        let (names, space) = (&self.call.core.names, &self.call.namespace);
        let mut spans = vec![exactly(names.mark())];
        let lasts = if self.time_is_up() {
            // A try never passes those in line: a key that is free is theirs, and who takes it is about to be seen.
            let passing_on: Vec<_> = snapshot.keys.iter().filter(|at| at.live().is_none()).collect();
            if self.request.wait_ms > 0 || passing_on.is_empty() {
                return Ok(WaitResult::TimeIsUp);
            }
            if self.call.budget.is_over() {
                return Err(self
                    .call
                    .budget
                    .unanswered("the key is free, and the first in line has not taken it"));
            }
            for at in passing_on {
                spans.extend([exactly(names.held(space, &at.key)), names.line(space, &at.key)]);
            }
            BEAT
        } else {
            let Some(stand) = &self.stand else {
                self.come_to_stand(snapshot).await?;
                return Ok(WaitResult::LookAgain);
            };
            match self.call.core.wire.keep_alive(&[stand.lease]).await {
                Ok(kept) if kept.iter().all(|kept| kept.ttl > 0) => {}
                Ok(_) => {
                    self.stand = None;
                    return Ok(WaitResult::LookAgain);
                }
                Err(fault) => {
                    self.call.budget.retry_or_fail(fault).await?;
                    return Ok(WaitResult::LookAgain);
                }
            }
            spans.push(exactly(names.waiting(space, self.hash)));
            for at in &snapshot.keys {
                match &at.ahead {
                    Some(name) => spans.push(exactly(name.clone())),
                    None => spans
                        .extend([exactly(names.held(space, &at.key)), exactly(names.age(space, &at.key))]),
                }
            }
            let left_ms = self.request.wait_ms.saturating_sub(self.call.budget.elapsed_ms());
            BEAT.min(Duration::from_millis(left_ms))
        };
        let mut watch = match self.call.core.wire.watch(spans, snapshot.revision).await {
            Ok(watch) => watch,
            Err(fault) => {
                self.call.budget.retry_or_fail(fault).await?;
                return Ok(WaitResult::LookAgain);
            }
        };
        let gone = async {
            if let Some(caller) = caller {
                caller.gone().await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(lasts, watch.changed()) => Ok(WaitResult::LookAgain),
            () = gone => Ok(WaitResult::Gone),
            () = self.call.core.closing.wait() => {
                Err(self.unknown_if_in_doubt(StoreError::Unavailable { message: "this store was closed".to_owned() }))
            }
        }
    }

    /// Takes a place at the end of every line.
    async fn come_to_stand(&mut self, snapshot: &Snapshot) -> Result<(), StoreError> {
        if let Some(at) = snapshot.keys.iter().find(|at| at.in_line >= WAITERS_PER_KEY_MAX as u64) {
            let what = format!("{}: requests in line for this key", at.key);
            return Err(StoreError::LimitReached { message: what, limit: WAITERS_PER_KEY_MAX as u64 });
        }
        let waiting = StoredWaiter {
            place: QueuePosition::new(self.request.priority, self.request.waited_before_ms),
            owner: self.request.owner.clone(),
            keys: self.request.any_of.clone(),
        };
        let nobody_yet = changed_at(self.call.core.names.waiting(&self.call.namespace, self.hash), 0);
        if self.stand_in_line(waiting, nobody_yet).await? {
            for at in &snapshot.keys {
                // With those that were seen there before it came.
                let waiter_count = at.in_line.saturating_add(1);
                self.call.core.contention.waits(&self.call.namespace, &at.key, waiter_count);
            }
        }
        Ok(())
    }

    /// Puts this hold id's keys into every line, on an etcd lease of this call's own. A key that is there already stays
    /// where it is in line. False: another with the same hold id was quicker, or it is not known.
    async fn stand_in_line(&mut self, waiting: StoredWaiter, guard: Compare) -> Result<bool, StoreError> {
        let stood = async {
            let lease = self.call.core.wire.lease_grant(WAITER_TTL_MS).await?;
            Ok::<_, RequestError>((lease, self.register(&waiting, guard, lease).await?))
        };
        match stood.await {
            Ok((lease, Some(since))) => {
                self.stand = Some(QueuePlace { lease, place: waiting.place, since });
                return Ok(true);
            }
            Ok((lease, None)) => drop(self.call.core.wire.lease_revoke(lease).await),
            // If it was carried out after all, the next look finds this hold id in line and takes its place over.
            Err(fault) => self.call.budget.retry_or_fail(fault).await?,
        }
        Ok(false)
    }

    async fn register(
        &self,
        waiting: &StoredWaiter,
        mut guard: Compare,
        lease: i64,
    ) -> Result<Option<HashMap<Key, i64>>, RequestError> {
        let (names, space) = (&self.call.core.names, &self.call.namespace);
        let own = names.waiting(space, self.hash);
        let mut since = HashMap::new();
        for some in waiting.keys.chunks(KEYS_PER_WRITE) {
            let mut success = vec![put(own.clone(), encode(waiting), lease)];
            for key in some {
                let name = names.in_line(space, key, &waiting.place, self.hash);
                success.extend([put(name.clone(), Vec::new(), lease), get(name)]);
            }
            let response = self.call.core.wire.txn(vec![guard], success, Vec::new()).await?;
            if !response.succeeded {
                return Ok(None);
            }
            let came = response.into_ranges().filter_map(RangeResponse::into_first);
            since.extend(some.iter().cloned().zip(came.map(|kv| kv.create_revision)));
            guard = kept_by(own.clone(), lease);
        }
        Ok(Some(since))
    }
}

fn exactly(key: Vec<u8>) -> KeyRange {
    KeyRange(key, Vec::new())
}
