//! The thread behind a `file:` handle: it finds the owner of the directory, or becomes the owner itself, and carries
//! every question to an answer across owners that end, are killed or fall silent.

mod as_client;
mod as_owner;
mod find_owner;
mod pending_requests;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::operation::UndeliveredGrant;
use fencehold_contract::{KeepFinished, StoreError};
use fencehold_core::Namespace;
use fencehold_engine::Handle;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use self::find_owner::FindResult;
use super::FileOptions;
use super::directory::StoreDirectory;
use super::owner_connection::BEAT;

pub(super) use self::pending_requests::{Delivery, PendingRequest, or_unknown, owner_went};

/// What a handle asks of its thread.
pub(super) enum HandleCommand {
    Ask(u64, Box<PendingRequest>),
    Cancel(u64),
    /// A lease was granted to a caller that had gone.
    GiveBack(Namespace, Box<UndeliveredGrant>),
    Close,
}

/// What the handle and its thread share.
#[derive(Debug, Default)]
pub(super) struct ServiceShared {
    /// The engine, while this process owns the directory.
    pub(super) here: RwLock<Option<Handle>>,
    /// What stands in the way, for people.
    obstacle: Mutex<String>,
    /// The handle is being closed: a call that waits for another process stops.
    closing: AtomicBool,
    /// What the engine has measured, whenever it was this process's.
    pub(super) measures: Arc<StoreMetrics>,
    /// Those who listen for what others do to their holds, no matter which process serves.
    pub(super) hold_changes: Arc<HoldChanges>,
}

impl ServiceShared {
    fn set_here(&self, handle: Option<Handle>) {
        *self.here.write().unwrap_or_else(PoisonError::into_inner) = handle;
    }

    pub(super) fn here(&self) -> Option<Handle> {
        self.here.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_obstacle(&self, why: String) {
        *self.obstacle.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn obstacle(&self) -> String {
        let why = self.obstacle.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if why.is_empty() { "no process serves this directory yet".to_owned() } else { why }
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

/// Runs until the handle is closed.
pub(super) async fn run(
    place: Arc<StoreDirectory>,
    clock: Arc<dyn Clock>,
    options: FileOptions,
    shared: Arc<ServiceShared>,
    orders: mpsc::UnboundedReceiver<HandleCommand>,
) {
    let mut service = Service {
        place,
        clock,
        untold: options.keep_finished,
        options,
        shared,
        orders,
        pending: BTreeMap::new(),
        left: HashMap::new(),
        unclaimed: Vec::new(),
        closed: false,
    };
    let mut silent = None;
    loop {
        let next = match service.seek(silent.take()).await {
            FindResult::Owner(connection) => service.use_owner(*connection).await,
            FindResult::Own(ownership, socket_server) => service.own(*ownership, socket_server).await,
            FindResult::Unusable(error) => service.refuse_all(&error).await,
            FindResult::Closed => NextRole::Close,
        };
        match next {
            NextRole::Seek { silent: epoch } if !service.closed => silent = epoch,
            _ => return service.answer_all(&closed()),
        }
    }
}

/// What a handle says once it is closed.
pub(super) fn closed() -> StoreError {
    StoreError::Unavailable { message: "this store was closed".to_owned() }
}

/// What to do when a role has ended.
enum NextRole {
    /// Look for the owner. An epoch whose owner fell silent may be taken over.
    Seek {
        silent: Option<u64>,
    },
    Close,
}

struct Service {
    place: Arc<StoreDirectory>,
    clock: Arc<dyn Clock>,
    options: FileOptions,
    /// How long finished jobs are to be kept, until an owner has taken note of it: once, so that a process that opens the
    /// directory later and names another time has the last word.
    untold: KeepFinished,
    shared: Arc<ServiceShared>,
    orders: mpsc::UnboundedReceiver<HandleCommand>,
    pending: BTreeMap<u64, Box<PendingRequest>>,
    /// Those whose asker has gone while they were on their way to the owner: what they are granted is given back.
    left: HashMap<u64, Box<PendingRequest>>,
    /// Leases to give back, once there is an owner to give them to.
    unclaimed: Vec<(Namespace, UndeliveredGrant)>,
    /// Whether the handle has been closed: whatever goes on then comes to an end.
    closed: bool,
}

impl Service {
    /// Takes an order into the pending ones. `None`: the handle is closed.
    fn take(&mut self, order: Option<HandleCommand>) -> Option<TakenOver> {
        match order.unwrap_or(HandleCommand::Close) {
            HandleCommand::Ask(id, question) => {
                self.pending.insert(id, question);
                Some(TakenOver::Asked(id))
            }
            HandleCommand::Cancel(id) => Some(match self.pending.remove(&id) {
                Some(question) => TakenOver::Left(id, question),
                None => TakenOver::Nothing,
            }),
            HandleCommand::GiveBack(namespace, unclaimed) => {
                self.unclaimed.push((namespace, *unclaimed));
                Some(TakenOver::Nothing)
            }
            HandleCommand::Close => {
                self.closed = true;
                None
            }
        }
    }

    /// The store cannot be used: every caller gets the error. For later callers this process looks again: it may have been put
    /// right meanwhile.
    async fn refuse_all(&mut self, error: &StoreError) -> NextRole {
        self.answer_all(error);
        while self.pending.is_empty() {
            let order = self.orders.recv().await;
            if self.take(order).is_none() {
                return NextRole::Close;
            }
        }
        NextRole::Seek { silent: None }
    }
}

enum TakenOver {
    Asked(u64),
    /// Its asker has gone.
    Left(u64, Box<PendingRequest>),
    Nothing,
}

#[expect(clippy::disallowed_methods, reason = "other processes live in real time")]
fn beat() -> tokio::time::Interval {
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}
