//! What the lease protects: a register that refuses any token smaller than the largest it has seen.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fencehold_core::Token;

#[derive(Default)]
pub(crate) struct Register {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    newest: Token,
    /// Every token that was granted.
    granted: HashSet<Token>,
    /// The largest of them.
    largest: Token,
    written: usize,
    refused: usize,
}

impl Register {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The largest token that anybody was granted so far.
    pub(crate) fn largest(&self) -> Token {
        self.state().largest
    }

    /// This token was granted to a holder that asked when `before` was the largest.
    pub(crate) fn granted(&self, token: Token, before: Token) {
        let mut state = self.state();
        assert!(token > before, "token {token} was granted after {before}");
        assert!(state.granted.insert(token), "token {token} was granted twice");
        state.largest = state.largest.max(token);
    }

    /// A write, checked and made in one step. False: refused.
    pub(crate) fn write(&self, token: Token) -> bool {
        let mut state = self.state();
        let accepted = token >= state.newest;
        if accepted {
            state.newest = token;
            state.written += 1;
        } else {
            state.refused += 1;
        }
        self.changed.notify_all();
        accepted
    }

    /// Returns when another has written under a larger token, or when it is time to go home.
    pub(crate) fn until_overtaken(&self, token: Token, go_home: impl Fn() -> bool) -> bool {
        let mut state = self.state();
        while state.newest <= token {
            if go_home() {
                return false;
            }
            // The end of the test writes nothing, so look up now and then.
            let tick = std::time::Duration::from_millis(100);
            state = self.changed.wait_timeout(state, tick).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Returns when there have been so many writes.
    pub(crate) fn until_written(&self, count: usize) {
        let state = self.state();
        let timeout = std::time::Duration::from_secs(60);
        let (state, late) = self
            .changed
            .wait_timeout_while(state, timeout, |state| state.written < count)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!late.timed_out(), "only {} writes in a minute: the holders are stuck", state.written);
    }

    pub(crate) fn written(&self) -> usize {
        self.state().written
    }

    pub(crate) fn refused(&self) -> usize {
        self.state().refused
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let (granted, written, refused) = (state.granted.len(), state.written, state.refused);
        write!(f, "{granted} grants, {written} writes, {refused} late writes refused")
    }
}
