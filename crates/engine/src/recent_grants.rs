//! Holds that were granted before, and to whom they were granted once more.
//!
//! A call is cut off, the same hold id is sent again, and that sending is answered: its caller works under the hold. When
//! the first call is found to be gone only after that, it has nothing to give back. The newest so many are remembered;
//! a call is found to be gone within moments.

use std::collections::VecDeque;

use fencehold_core::HoldHash;
use hashbrown::HashMap;

use super::waiters::Ticket;

/// How many are remembered.
const REMEMBERED: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct RecentGrants {
    to: HashMap<[u8; 16], Ticket>,
    /// The oldest first.
    order: VecDeque<[u8; 16]>,
}

impl RecentGrants {
    pub(super) fn note(&mut self, hash: HoldHash, ticket: Ticket) {
        let hash = *hash.as_bytes();
        if self.to.insert(hash, ticket).is_some() {
            return;
        }
        self.order.push_back(hash);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.to.remove(&oldest);
        }
    }

    /// Whether another call than this got the hold last.
    pub(super) fn to_another_than(&self, ticket: Ticket, hash: HoldHash) -> bool {
        self.to.get(hash.as_bytes()).is_some_and(|told| *told != ticket)
    }
}
