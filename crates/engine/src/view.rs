//! What people may see of a key: everything but the proof of a hold.

use fencehold_contract::{EndingView, HolderView, LeasePage, LeaseView, ListLeasesRequest};
use fencehold_core::{Key, Namespace, Timestamp};

use super::state::Engine;
use super::table::LeaseSlot;

/// How many slots one page looks at, so that going through a million keys never holds up a renewal.
pub(super) const LOOK_AT_MAX: u32 = 10_000;

impl Engine {
    pub(super) fn view(&self, namespace: &Namespace, key: &Key) -> Option<LeaseView> {
        let at = self.table.find(self.table.find_space(namespace)?, key)?;
        self.table.at(at).map(|slot| self.view_slot(at, slot))
    }

    pub(super) fn list(&self, namespace: &Namespace, request: &ListLeasesRequest) -> LeasePage {
        let Some(space) = self.table.find_space(namespace) else {
            return LeasePage { leases: Vec::new(), next_cursor: None };
        };
        // The cursor is a slot: a key keeps its slot for as long as it is kept, so nothing is skipped or seen twice.
        let from = u32::try_from(request.cursor.unwrap_or(0)).unwrap_or(u32::MAX);
        let to = from.saturating_add(LOOK_AT_MAX).min(self.table.len());
        let mut page =
            LeasePage { leases: Vec::new(), next_cursor: (to < self.table.len()).then_some(u64::from(to)) };
        for at in from..to {
            let Some(slot) = self.table.at(at).filter(|slot| slot.space == space) else { continue };
            if !matches(slot, self.now, request) {
                continue;
            }
            if page.leases.len() == request.limit {
                page.next_cursor = Some(u64::from(at));
                break;
            }
            page.leases.push(self.view_slot(at, slot));
        }
        page
    }

    fn view_slot(&self, at: u32, slot: &LeaseSlot) -> LeaseView {
        let hold = slot.record.hold.as_ref().filter(|_| slot.is_live(self.now.store_ms));
        let holder = hold.map(|hold| HolderView {
            owner: hold.owner.clone(),
            task: hold.task.clone(),
            ttl_ms: hold.ttl_ms,
            max_age_ms: hold.max_age_ms.map(std::num::NonZeroU64::get),
            priority: hold.priority,
            age_ms: self.now.store_ms.saturating_sub(hold.since.store_ms),
            acquired_at_ms: hold.since.wall_ms,
            remaining_ms: slot.deadline_ms.saturating_sub(self.now.store_ms),
            renewed_ago_ms: slot.renewed_ms_ago(self.now.store_ms),
            yield_request: hold.yield_request.as_ref().map(|asked| asked.seen_at(self.now.store_ms)),
        });
        LeaseView {
            key: slot.key.clone(),
            token: slot.record.counter,
            holder,
            waiter_count: self.waiters.in_line_count(at) as u64,
            endings: slot.record.endings().iter().map(EndingView::of).collect(),
        }
    }
}

fn matches(slot: &LeaseSlot, now: Timestamp, request: &ListLeasesRequest) -> bool {
    let ListLeasesRequest { owner, task, task_prefix, prefix, include_free, .. } = request;
    let hold = slot.record.hold.as_ref().filter(|_| slot.is_live(now.store_ms));
    (hold.is_some() || *include_free)
        && (owner.is_none() || hold.map(|hold| &hold.owner) == owner.as_ref())
        && (task.is_none() || hold.and_then(|hold| hold.task.as_ref()) == task.as_ref())
        && task_prefix.as_ref().is_none_or(|above| {
            hold.and_then(|hold| hold.task.as_ref()).is_some_and(|task| above.covers(task))
        })
        && prefix
            .as_ref()
            .is_none_or(|prefix| slot.key.as_str().starts_with(prefix.as_str()))
}
