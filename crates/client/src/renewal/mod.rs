//! The keeper: one thread of a handle's own that renews its leases, those on keys and those on jobs, watches their deadlines, wakes sleepers and runs
//! tasks in the background.
//!
//! It is a thread and not a task because an executor that is blocked, by a slow handler or a debugger, must not lose
//! leases. It is a small loop that polls the store's futures itself, so that one call that hangs holds up nothing else.

mod background;
mod queue;
mod renew;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

pub(crate) use background::{Background, free_unseen_claim, free_unseen_grant, give_back, hand_back};
pub(crate) use queue::RenewalQueue;

use crate::connection::{ChangedHolds, ConnectionInner};
use crate::wake::{WakeFlag, lock};

/// The longest sleep in one go while there is something to watch: after a machine was suspended, deadlines are looked at
/// no later than this.
const NAP_MAX: Duration = Duration::from_secs(1);

/// Keeps the thread going. When the last one of a hub is gone, the thread finishes its background tasks and ends.
pub(crate) struct RenewalHandle {
    pub(crate) connection: Arc<ConnectionInner>,
}

impl RenewalHandle {
    pub(crate) fn start(connection: Arc<ConnectionInner>) -> std::io::Result<Arc<Self>> {
        let thread = RenewalThread { connection: Arc::clone(&connection), tasks: Vec::new(), end_ms: None };
        let named = std::thread::Builder::new().name("fencehold-keeper".to_owned());
        named.spawn(move || thread.run())?;
        crate::process_exit::wait_at_exit_for(&connection);
        Ok(Arc::new(RenewalHandle { connection }))
    }
}

impl Drop for RenewalHandle {
    fn drop(&mut self) {
        self.connection.left.store(true, Ordering::SeqCst);
        self.connection.wake.ring();
    }
}

struct RenewalThread {
    connection: Arc<ConnectionInner>,
    tasks: Vec<RenewalTask>,
    /// When the last handle went.
    end_ms: Option<u64>,
}

impl RenewalThread {
    fn run(mut self) {
        loop {
            self.connection.timers.attend();
            let now_ms = self.connection.now_ms();
            self.take_lost(now_ms);
            self.hurry(now_ms);
            self.start_renewals(now_ms);
            self.connection.timers.fire(now_ms);
            let left = self.connection.left.load(Ordering::SeqCst);
            for task in self.connection.background.take() {
                self.tasks.push(RenewalTask::new(task, &self.connection.wake));
            }
            self.tasks.retain_mut(|task| !task.is_done());
            if left && self.may_end(now_ms) {
                // Whatever is left undone must not keep the store open.
                drop(self.connection.background.take());
                return;
            }
            self.connection.wake.wait(self.nap());
        }
    }

    /// First of all: holds that are over are reported, whatever else hangs.
    fn take_lost(&self, now_ms: u64) {
        let lost = lock(&self.connection.renewals).take_lost(now_ms);
        for holding in lost {
            holding.settle();
        }
    }

    /// What the store says that someone acted on is renewed at once.
    fn hurry(&self, now_ms: u64) {
        let changed = std::mem::take(&mut *lock(&self.connection.changed));
        if changed != ChangedHolds::default() {
            lock(&self.connection.renewals).hurry(&changed, now_ms);
        }
    }

    fn start_renewals(&mut self, now_ms: u64) {
        loop {
            let due = lock(&self.connection.renewals).take_due(now_ms);
            if due.is_empty() {
                return;
            }
            let (keys, jobs): (Vec<_>, Vec<_>) = due.into_iter().partition(|holding| holding.key().is_some());
            for due in [keys, jobs].into_iter().filter(|due| !due.is_empty()) {
                let renewal = Box::pin(renew::renew(Arc::clone(&self.connection), due));
                self.tasks.push(RenewalTask::new(renewal, &self.connection.wake));
            }
        }
    }

    /// No caller is left; background tasks get as long as a caller would have waited for them.
    fn may_end(&mut self, now_ms: u64) -> bool {
        let end_ms = *self.end_ms.get_or_insert(now_ms.saturating_add(self.connection.timeout_ms));
        self.connection.background.are_done() || now_ms >= end_ms
    }

    fn nap(&self) -> Option<Duration> {
        let renewals = lock(&self.connection.renewals).next_ms();
        let next_ms = renewals.into_iter().chain(self.end_ms).min();
        self.connection.timers.nap(next_ms, NAP_MAX)
    }
}

/// Something under way on the keeper's thread.
struct RenewalTask {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    woken: Arc<Woken>,
    waker: Waker,
}

struct Woken {
    woken: AtomicBool,
    wake: Arc<WakeFlag>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.wake.ring();
    }
}

impl RenewalTask {
    fn new(future: Pin<Box<dyn Future<Output = ()> + Send>>, wake: &Arc<WakeFlag>) -> Self {
        let woken = Arc::new(Woken { woken: AtomicBool::new(true), wake: Arc::clone(wake) });
        RenewalTask { future, waker: Arc::clone(&woken).into(), woken }
    }

    /// Goes on with it, if it was woken. A store's code that panics ends its own task and no other.
    fn is_done(&mut self) -> bool {
        if !self.woken.woken.swap(false, Ordering::SeqCst) {
            return false;
        }
        let mut context = Context::from_waker(&self.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(&mut context)));
        let Ok(polled) = polled else {
            tracing::error!("a call to the store panicked");
            return true;
        };
        polled.is_ready()
    }
}
