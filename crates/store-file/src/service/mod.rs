//! The thread behind a `file:` handle: it finds the owner of the directory, or becomes the owner itself, and carries
//! every question to an answer across owners that end, are killed or fall silent.

mod finding;
mod owning;
mod questions;
mod using;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::measure::Measures;
use fencehold_contract::operation::Unclaimed;
use fencehold_contract::{KeepFinished, StoreError};
use fencehold_core::Namespace;
use fencehold_engine::Handle;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use self::finding::Sought;
use self::questions::Pending;
use super::FileOptions;
use super::link::BEAT;
use super::place::Place;

pub(super) use self::questions::{Question, Told, or_unknown};

/// What a handle asks of its thread.
pub(super) enum Order {
    Ask(u64, Box<Question>),
    Cancel(u64),
    /// A lease was granted to a caller that had gone.
    GiveBack(Namespace, Box<Unclaimed>),
    Close,
}

/// What the handle and its thread share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The engine, while this process owns the directory.
    pub(super) here: RwLock<Option<Handle>>,
    /// What stands in the way, for people.
    obstacle: Mutex<String>,
    /// The handle is being closed: a call that waits for another process stops.
    closing: AtomicBool,
    /// What the engine has measured, whenever it was this process's.
    pub(super) measures: Arc<Measures>,
    /// Those who listen for what others do to their holds, no matter which process serves.
    pub(super) hold_changes: Arc<HoldChanges>,
}

impl Shared {
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
    place: Arc<Place>,
    clock: Arc<dyn Clock>,
    options: FileOptions,
    shared: Arc<Shared>,
    orders: mpsc::UnboundedReceiver<Order>,
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
            Sought::Owner(link) => service.use_owner(*link).await,
            Sought::Own(ownership, door) => service.own(*ownership, door).await,
            Sought::Unusable(error) => service.refuse_all(&error).await,
            Sought::Closed => Next::Close,
        };
        match next {
            Next::Seek { silent: epoch } if !service.closed => silent = epoch,
            _ => {
                return service
                    .answer_all(&StoreError::Unavailable { message: "this store was closed".to_owned() });
            }
        }
    }
}

/// What to do when a role has ended.
enum Next {
    /// Look for the owner. An epoch whose owner fell silent may be taken over.
    Seek {
        silent: Option<u64>,
    },
    Close,
}

struct Service {
    place: Arc<Place>,
    clock: Arc<dyn Clock>,
    options: FileOptions,
    /// How long finished jobs are to be kept, until an owner has taken note of it: once, so that a process that opens the
    /// directory later and names another time has the last word.
    untold: KeepFinished,
    shared: Arc<Shared>,
    orders: mpsc::UnboundedReceiver<Order>,
    pending: BTreeMap<u64, Pending>,
    /// Those whose asker has gone while they were on their way to the owner: what they are granted is given back.
    left: HashMap<u64, Box<Question>>,
    /// Leases to give back, once there is an owner to give them to.
    unclaimed: Vec<(Namespace, Unclaimed)>,
    /// Whether the handle has been closed: whatever goes on then comes to an end.
    closed: bool,
}

impl Service {
    /// Takes an order into the pending ones. `None`: the handle is closed.
    fn take(&mut self, order: Option<Order>) -> Option<Taken> {
        match order.unwrap_or(Order::Close) {
            Order::Ask(id, question) => {
                let sent_at_ms = question.asked_at_ms;
                self.pending.insert(id, Pending { question, sent_at_ms });
                Some(Taken::Asked(id))
            }
            Order::Cancel(id) => Some(match self.pending.remove(&id) {
                Some(pending) => Taken::Left(id, pending.question),
                None => Taken::Nothing,
            }),
            Order::GiveBack(namespace, unclaimed) => {
                self.unclaimed.push((namespace, *unclaimed));
                Some(Taken::Nothing)
            }
            Order::Close => {
                self.closed = true;
                None
            }
        }
    }

    /// The store cannot be used: every caller gets the error. For later callers this process looks again: it may have been put
    /// right meanwhile.
    async fn refuse_all(&mut self, error: &StoreError) -> Next {
        self.answer_all(error);
        while self.pending.is_empty() {
            let order = self.orders.recv().await;
            if self.take(order).is_none() {
                return Next::Close;
            }
        }
        Next::Seek { silent: None }
    }
}

enum Taken {
    Asked(u64),
    /// Its asker has gone.
    Left(u64, Box<Question>),
    Nothing,
}

#[expect(clippy::disallowed_methods, reason = "other processes live in real time")]
fn beat() -> tokio::time::Interval {
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}
