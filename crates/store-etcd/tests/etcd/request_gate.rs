//! A gate in front of the cluster: counts requests, holds a chosen one, loses the answer to a chosen one.

use std::pin::Pin;
use std::sync::{Condvar, Mutex, PoisonError};

use fencehold_store_etcd::{EtcdRequest, EtcdRequestHook};
use tokio::sync::Semaphore;

/// What a test does to the requests of one handle.
#[derive(Debug)]
pub(crate) struct TestGate {
    state: Mutex<State>,
    arrived: Condvar,
    open: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    seen: Vec<EtcdRequest>,
    /// The next request of this kind is held.
    holds: Option<EtcdRequest>,
    held: bool,
    /// The answer to the nth write from now on is lost; and whether that has happened.
    loses_write: Option<usize>,
    lost: bool,
}

impl TestGate {
    pub(crate) fn new() -> Self {
        TestGate { state: Mutex::default(), arrived: Condvar::new(), open: Semaphore::new(0) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has passed since this was asked last.
    pub(crate) fn taken(&self) -> Vec<EtcdRequest> {
        std::mem::take(&mut self.state().seen)
    }

    /// Holds the next request of this kind.
    pub(crate) fn hold_next(&self, request: EtcdRequest) {
        self.state().holds = Some(request);
    }

    /// Returns when a request stands at the gate.
    pub(crate) fn until_held(&self) {
        let state = self.state();
        let until = self.arrived.wait_while(state, |state| !state.held);
        drop(until.unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets the held request go on.
    pub(crate) fn let_go(&self) {
        self.state().held = false;
        self.open.add_permits(1);
    }

    /// Loses the answer to the nth write from now on, counted from 0.
    pub(crate) fn lose_write(&self, nth: usize) {
        let mut state = self.state();
        (state.loses_write, state.lost) = (Some(nth), false);
    }

    /// Whether there were so many writes that the answer of the chosen one was lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.state().lost
    }
}

impl EtcdRequestHook for TestGate {
    fn before(&self, request: EtcdRequest) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let held = {
            let mut state = self.state();
            state.seen.push(request);
            let held = state.holds.take_if(|holds| *holds == request).is_some();
            state.held |= held;
            held
        };
        self.arrived.notify_all();
        Box::pin(async move {
            if held {
                self.open.acquire().await.expect("never closed").forget();
            }
        })
    }

    fn loses(&self, request: EtcdRequest) -> bool {
        let writes = [EtcdRequest::Write, EtcdRequest::LeaseGrant, EtcdRequest::LeaseRevoke];
        let mut state = self.state();
        let Some(nth) = state.loses_write.filter(|_| writes.contains(&request)) else { return false };
        state.loses_write = nth.checked_sub(1);
        state.lost |= nth == 0;
        nth == 0
    }
}
