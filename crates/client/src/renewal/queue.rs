//! Which leases to renew when, and when to take them for lost. Times are arguments; nothing waits here.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use fencehold_core::limits::BATCH_MAX;
use fencehold_core::retry::full_jitter_ms;
use fencehold_core::ttl::GrantedTerm;

use crate::connection::ChangedHolds;
use crate::holding::{Holding, Renewed};

/// After a failed renewal the first pause is up to this part of the ttl,
const BACKOFF_PART: u64 = 60;
/// and none is longer than this part of it,
const BACKOFF_MAX_PART: u64 = 12;
/// nor longer than this.
const BACKOFF_MS_MAX: u64 = 10_000;

/// The leases of one handle.
#[derive(Default)]
pub(crate) struct RenewalQueue {
    entries: HashMap<u64, QueuedLease>,
    /// From when on a lease may be renewed together with others that are due.
    may: BTreeSet<(u64, u64)>,
    /// When a lease must be renewed.
    must: BTreeSet<(u64, u64)>,
    /// When a lease is lost.
    lost: BTreeSet<(u64, u64)>,
}

struct QueuedLease {
    holding: Arc<Holding>,
    /// `None`: a renewal is under way, or none is wanted any more.
    renew: Option<RenewalWindow>,
    lost_at_ms: u64,
    failures: u32,
    /// It is to be renewed once more, as soon as the renewal under way is answered.
    hurried: bool,
    /// It is being given back: a renewal under way must not bring it back here.
    leaving: bool,
}

/// How soon leases are renewed where the store may have missed that another caller acted on one.
const MISSED_MS: u64 = 1_000;

#[derive(Clone, Copy)]
struct RenewalWindow {
    may_ms: u64,
    must_ms: u64,
}

impl RenewalWindow {
    const NOW: RenewalWindow = RenewalWindow { may_ms: 0, must_ms: 0 };

    /// A third into the term, give or take 15 %. Who is due takes along everybody in the same handle who may: one call
    /// for many, while handles stay spread apart.
    fn after(term: GrantedTerm, random: u64) -> Self {
        RenewalWindow { may_ms: term.renew_at_ms(0), must_ms: term.renew_at_ms(random) }
    }
}

impl RenewalQueue {
    /// Begins to watch over a lease.
    pub(crate) fn add(&mut self, holding: Arc<Holding>, random: u64) {
        let (serial, term) = (holding.serial, holding.granted.term);
        let entry = QueuedLease {
            holding,
            renew: None,
            lost_at_ms: term.lost_at_ms(),
            failures: 0,
            hurried: false,
            leaving: false,
        };
        self.lost.insert((entry.lost_at_ms, serial));
        self.entries.insert(serial, entry);
        self.schedule(serial, Some(RenewalWindow::after(term, random)));
    }

    fn schedule(&mut self, serial: u64, renew: Option<RenewalWindow>) {
        let Some(entry) = self.entries.get_mut(&serial) else { return };
        if let Some(old) = std::mem::replace(&mut entry.renew, renew) {
            self.may.remove(&(old.may_ms, serial));
            self.must.remove(&(old.must_ms, serial));
        }
        if let Some(new) = renew {
            self.may.insert((new.may_ms, serial));
            self.must.insert((new.must_ms, serial));
        }
    }

    /// If a renewal is due: everybody whom it can take along, at most a full call of them.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Vec<Arc<Holding>> {
        if self.must.first().is_none_or(|(must_ms, _)| *must_ms > now_ms) {
            return Vec::new();
        }
        // Those who must go first, so that a full call never leaves them behind.
        let must = self.must.range(..=(now_ms, u64::MAX)).map(|(_, serial)| *serial);
        let mut serials: Vec<u64> = must.take(BATCH_MAX).collect();
        let may = self.may.range(..=(now_ms, u64::MAX)).map(|(_, serial)| *serial);
        let is_later = |serial: &u64| {
            let window = self.entries.get(serial).and_then(|entry| entry.renew);
            window.is_some_and(|window| window.must_ms > now_ms)
        };
        serials.extend(may.filter(is_later).take(BATCH_MAX - serials.len()));
        let mut due = Vec::with_capacity(serials.len());
        for serial in serials {
            self.schedule(serial, None);
            due.extend(self.entries.get(&serial).map(|entry| Arc::clone(&entry.holding)));
        }
        due
    }

    /// Has these leases renewed at once, and all of them soon where the store may have missed a change: many a lease is
    /// given back before that. Where a renewal is under way, once more after it: it may have been decided before.
    pub(crate) fn hurry(&mut self, changed: &ChangedHolds, now_ms: u64) {
        let soon_ms = now_ms.saturating_add(MISSED_MS);
        let soon = RenewalWindow { may_ms: soon_ms, must_ms: soon_ms };
        let mut earlier = Vec::new();
        for (serial, entry) in self.entries.iter_mut().filter(|(_, entry)| !entry.leaving) {
            let named = entry.holding.event_key().is_some_and(|key| changed.keys.contains(&key));
            match entry.renew {
                _ if !named && !changed.all => {}
                None => entry.hurried = true,
                Some(_) if named => earlier.push((*serial, RenewalWindow::NOW)),
                Some(window) if window.must_ms > soon_ms => earlier.push((*serial, soon)),
                Some(_) => {}
            }
        }
        for (serial, window) in earlier {
            self.schedule(serial, Some(window));
        }
    }

    /// A renewal came through.
    pub(crate) fn renewed(&mut self, serial: u64, renewed: Renewed, random: u64) {
        let Some(entry) = self.entries.get_mut(&serial) else { return };
        self.lost.remove(&(entry.lost_at_ms, serial));
        entry.lost_at_ms = renewed.lost_at_ms;
        entry.failures = 0;
        self.lost.insert((entry.lost_at_ms, serial));
        let hurried = std::mem::take(&mut entry.hurried);
        if !entry.leaving {
            let window =
                if hurried { RenewalWindow::NOW } else { RenewalWindow::after(renewed.term, random) };
            self.schedule(serial, Some(window));
        }
    }

    /// A renewal failed: the next try comes after a pause.
    pub(crate) fn failed(&mut self, serial: u64, now_ms: u64, random: u64) {
        let Some(entry) = self.entries.get_mut(&serial).filter(|entry| !entry.leaving) else { return };
        let ttl_ms = entry.holding.granted.ttl_ms;
        let cap_ms = (ttl_ms / BACKOFF_MAX_PART).min(BACKOFF_MS_MAX);
        let pause_ms = full_jitter_ms(ttl_ms / BACKOFF_PART, cap_ms, entry.failures, random).max(1);
        entry.failures = entry.failures.saturating_add(1);
        let at_ms = now_ms.saturating_add(pause_ms);
        self.schedule(serial, Some(RenewalWindow { may_ms: at_ms, must_ms: at_ms }));
    }

    /// Everybody whose time is up. They are no longer watched over.
    pub(crate) fn take_lost(&mut self, now_ms: u64) -> Vec<Arc<Holding>> {
        let mut lost = Vec::new();
        while let Some((_, serial)) =
            self.lost.first().filter(|(lost_at_ms, _)| *lost_at_ms <= now_ms).copied()
        {
            lost.extend(self.remove(serial));
        }
        lost
    }

    /// It is being given back: no more renewals, but its deadline is still watched.
    pub(crate) fn leave(&mut self, serial: u64) {
        self.schedule(serial, None);
        if let Some(entry) = self.entries.get_mut(&serial) {
            entry.leaving = true;
        }
    }

    /// Ends the watch over a lease.
    pub(crate) fn remove(&mut self, serial: u64) -> Option<Arc<Holding>> {
        self.schedule(serial, None);
        let entry = self.entries.remove(&serial)?;
        self.lost.remove(&(entry.lost_at_ms, serial));
        Some(entry.holding)
    }

    /// Ends the watch over everybody.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<Holding>> {
        let renewals = std::mem::take(self);
        renewals.entries.into_values().map(|entry| entry.holding).collect()
    }

    /// When there is something to do next.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let must = self.must.first().map(|(must_ms, _)| *must_ms);
        let lost = self.lost.first().map(|(lost_at_ms, _)| *lost_at_ms);
        must.into_iter().chain(lost).min()
    }
}

#[cfg(test)]
mod tests {
    use fencehold_contract::clock::ManualClock;
    use fencehold_core::lease::LeaseRenewal;
    use fencehold_core::{HoldId, Key, Owner, Token};

    use super::*;
    use crate::holding::{HoldGrant, HoldTarget};

    fn holding(serial: u64, from_ms: u64, ttl_ms: u64) -> Arc<Holding> {
        let granted = HoldGrant {
            held: HoldTarget::Key(Key::new(format!("k/{serial}")).expect("a key")),
            token: Token::new(1),
            owner: Owner::new("me").expect("an owner"),
            task: None,
            ttl_ms,
            max_age_ms: None,
            hold: HoldId::from_random([7; 16]),
            term: GrantedTerm::new(from_ms, 0, from_ms, ttl_ms),
        };
        // The renewals below are answered ten seconds later.
        let clock = ManualClock::new();
        clock.advance_ms(10_000);
        Arc::new(Holding::new(serial, granted, Arc::new(clock)))
    }

    fn serials(holdings: &[Arc<Holding>]) -> Vec<u64> {
        holdings.iter().map(|holding| holding.serial).collect()
    }

    /// The random bits that put a renewal at the end of its window.
    const LATEST: u64 = 3_000;

    #[test]
    fn who_is_due_takes_along_whoever_may_be_renewed() {
        let mut renewals = RenewalQueue::default();
        renewals.add(holding(1, 1_000_000, 30_000), 0);
        renewals.add(holding(2, 1_000_000, 30_000), LATEST);
        renewals.add(holding(3, 1_000_500, 30_000), LATEST);
        assert_eq!(renewals.next_ms(), Some(1_008_500));
        assert!(renewals.take_due(1_008_499).is_empty());
        assert_eq!(serials(&renewals.take_due(1_008_500)), [1, 2], "the third may not be renewed yet");
        assert!(renewals.take_due(1_008_500).is_empty(), "a renewal under way is not sent twice");
        assert_eq!(serials(&renewals.take_due(1_012_000)), [3]);
    }

    #[test]
    fn a_hanging_renewal_does_not_hide_the_moment_of_loss() {
        let mut renewals = RenewalQueue::default();
        renewals.add(holding(1, 1_000_000, 30_000), 0);
        assert_eq!(renewals.take_due(1_010_000).len(), 1);
        assert_eq!(renewals.next_ms(), Some(1_027_000));
        assert!(renewals.take_lost(1_026_999).is_empty());
        assert_eq!(serials(&renewals.take_lost(1_027_000)), [1]);
        assert!(renewals.entries.is_empty() && renewals.next_ms().is_none());
    }

    #[test]
    fn a_failed_renewal_is_tried_again_within_a_twelfth_of_the_ttl() {
        for failures in 0..20 {
            let mut renewals = RenewalQueue::default();
            renewals.add(holding(1, 1_000_000, 30_000), 0);
            (0..=failures).for_each(|_| renewals.failed(1, 1_010_000, u64::MAX));
            let next_ms = renewals.next_ms().expect("a next try");
            assert!((1_010_001..=1_012_500).contains(&next_ms), "{next_ms}");
        }
    }

    #[test]
    fn a_lease_on_which_somebody_acted_is_renewed_at_once_also_after_a_renewal_under_way() {
        let mut renewals = RenewalQueue::default();
        let (concerned, other) = (holding(1, 1_000_000, 30_000), holding(2, 1_000_000, 30_000));
        renewals.add(Arc::clone(&concerned), LATEST);
        renewals.add(other, LATEST);
        let keys = BTreeSet::from([Key::new("k/1").expect("a key")]);
        let changed = ChangedHolds { keys, all: false };
        renewals.hurry(&changed, 1_000_000);
        assert_eq!(serials(&renewals.take_due(1_000_001)), [1], "the other is not in a hurry");
        renewals.hurry(&changed, 1_000_000);
        assert!(renewals.take_due(1_000_001).is_empty(), "one is under way");
        let renewal = LeaseRenewal { token: Token::new(1), remaining_ms: 30_000, yield_request: None };
        let renewed = concerned.renewed(1_000_001, 0, &renewal).expect("in time");
        renewals.renewed(1, renewed, LATEST);
        assert_eq!(serials(&renewals.take_due(1_000_002)), [1], "what was under way may not have seen it");
    }

    #[test]
    fn every_lease_is_renewed_soon_where_a_change_may_have_been_missed() {
        let mut renewals = RenewalQueue::default();
        renewals.add(holding(1, 1_000_000, 30_000), LATEST);
        renewals.add(holding(2, 1_000_000, 30_000), LATEST);
        // Its renewal comes earlier anyway.
        renewals.add(holding(3, 1_000_000, 1_000), LATEST);
        renewals.hurry(&ChangedHolds { keys: BTreeSet::new(), all: true }, 1_000_000);
        // One that is given back at once is not renewed first.
        assert!(renewals.take_due(1_000_001).is_empty());
        assert_eq!(serials(&renewals.take_due(1_000_999)), [3]);
        let mut due = serials(&renewals.take_due(1_001_000));
        due.sort_unstable();
        assert_eq!(due, [1, 2]);
    }

    #[test]
    fn a_lease_that_is_being_given_back_is_never_renewed_again() {
        let mut renewals = RenewalQueue::default();
        let leaving = holding(1, 1_000_000, 30_000);
        renewals.add(Arc::clone(&leaving), 0);
        assert_eq!(renewals.take_due(1_010_000).len(), 1);
        renewals.leave(1);
        let renewal = LeaseRenewal { token: Token::new(1), remaining_ms: 30_000, yield_request: None };
        let renewed = leaving.renewed(1_010_000, 0, &renewal).expect("in time");
        renewals.renewed(1, renewed, 0);
        renewals.failed(1, 1_010_000, 0);
        assert!(renewals.take_due(u64::MAX - 1).is_empty());
        assert_eq!(renewals.next_ms(), Some(1_037_000), "its end is still watched");
    }
}
