//! The budget of one call to the database.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use fencehold_net::CallBudget;

use super::pool::PoolLane;

/// The least that a statement gets, however little time is left: a request that was never sent says nothing to anyone.
const STATEMENT_MIN: Duration = Duration::from_millis(100);

/// The time that a call has for its statements, and which connections they use.
#[derive(Debug)]
pub(super) struct StatementBudget {
    call: CallBudget,
    pub(super) lane: PoolLane,
}

impl StatementBudget {
    pub(super) fn new(call: CallBudget) -> Self {
        StatementBudget { call, lane: PoolLane::default() }
    }

    /// How long a statement may take.
    pub(super) fn statement_limit(&self) -> Duration {
        self.left().max(STATEMENT_MIN)
    }
}

impl Deref for StatementBudget {
    type Target = CallBudget;

    fn deref(&self) -> &CallBudget {
        &self.call
    }
}

impl DerefMut for StatementBudget {
    fn deref_mut(&mut self) -> &mut CallBudget {
        &mut self.call
    }
}
