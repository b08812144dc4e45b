//! A lane: so much work at once, and those who wait for room are let in fairly between tenants.
//!
//! Every tenant has a virtual time that moves on by the cost of what it was let in for; the one furthest behind comes
//! next. So the one that comes back with ten thousand requests at once waits for itself, and another tenant's single
//! request passes all of them. A tenant that was away does not save up for later: it starts at the lane's present.
//!
//! Deliberately absent: time. A waiter brings its own timeout, and leaves the line by being dropped.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use fencehold_core::Namespace;
use tokio::sync::oneshot;

use crate::locked;

/// How many tenants are remembered while none of theirs waits.
const TENANTS_MAX: usize = 4_096;

/// Work of one kind.
#[derive(Clone, Debug)]
pub(crate) struct FairQueue(Arc<FairQueueInner>);

#[derive(Debug)]
struct FairQueueInner {
    /// How much may be at work at once.
    room: u64,
    /// How many of one tenant may wait.
    line_max: usize,
    state: Mutex<FairQueueState>,
}

#[derive(Debug, Default)]
struct FairQueueState {
    used: u64,
    waiting: usize,
    /// The virtual time of the one that was let in last.
    present: u64,
    tenants: HashMap<Namespace, Tenant>,
    /// Tenants that wait, by their virtual time.
    order: BTreeSet<(u64, Namespace)>,
}

#[derive(Debug, Default)]
struct Tenant {
    at: u64,
    line: VecDeque<(u64, oneshot::Sender<FairQueuePermit>)>,
}

/// A tenant has too much waiting already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull {
    /// How many of it wait.
    pub(crate) waiting: usize,
}

/// Room in the lane, until it is dropped.
#[derive(Debug)]
pub(crate) struct FairQueuePermit {
    lane: FairQueue,
    cost: u64,
}

impl FairQueue {
    /// A lane with so much room, in which so many of one tenant may wait.
    pub(crate) fn new(room: u64, line_max: usize) -> Self {
        FairQueue(Arc::new(FairQueueInner { room: room.max(1), line_max, state: Mutex::default() }))
    }

    /// Waits for room. Cancel safe: a waiter that is dropped leaves the line, and leaves no room taken.
    pub(crate) async fn enter(&self, tenant: &Namespace, cost: u64) -> Result<FairQueuePermit, QueueFull> {
        match self.ask(tenant, cost)? {
            Ok(place) => Ok(place),
            // A place is sent to everybody in line sooner or later: the lane lives as long as this borrow of it.
            Err(line) => line.await.map_err(|_| QueueFull { waiting: 0 }),
        }
    }

    /// Takes room, or a place in line where there is none.
    fn ask(&self, tenant: &Namespace, cost: u64) -> Result<Result<FairQueuePermit, InLine>, QueueFull> {
        // More than all the room would never fit.
        let cost = cost.clamp(1, self.0.room);
        let mut state = self.state();
        if state.order.is_empty() && state.used + cost <= self.0.room {
            let present = state.present;
            let at = state.tenants.get(tenant).map_or(present, |tenant| tenant.at.max(present));
            state.charge(tenant, at, cost);
            return Ok(Ok(FairQueuePermit { lane: self.clone(), cost }));
        }
        let present = state.present;
        let known = state.tenants.entry(tenant.clone()).or_default();
        if known.line.len() >= self.0.line_max {
            return Err(QueueFull { waiting: known.line.len() });
        }
        let (sender, receiver) = oneshot::channel();
        known.line.push_back((cost, sender));
        if known.line.len() == 1 {
            known.at = known.at.max(present);
            let at = known.at;
            state.order.insert((at, tenant.clone()));
        }
        state.waiting += 1;
        Ok(Err(receiver))
    }

    /// How much is at work.
    pub(crate) fn used(&self) -> u64 {
        self.state().used
    }

    /// How much may be.
    pub(crate) fn room(&self) -> u64 {
        self.0.room
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Lets in those that there is room for. Those who have left are passed over.
    fn let_in(&self) {
        loop {
            let mut state = self.state();
            let Some((sender, cost)) = state.next(self.0.room) else { return };
            drop(state);
            // Outside of the lock: a place whose request has gone is dropped here, and makes room again.
            let _ = sender.send(FairQueuePermit { lane: self.clone(), cost });
        }
    }

    fn state(&self) -> MutexGuard<'_, FairQueueState> {
        locked(&self.0.state)
    }
}

/// A place in line, until there is room.
type InLine = oneshot::Receiver<FairQueuePermit>;

impl FairQueueState {
    /// Who comes next, if there is room for it.
    fn next(&mut self, room: u64) -> Option<(oneshot::Sender<FairQueuePermit>, u64)> {
        loop {
            let (at, name) = self.order.first()?.clone();
            let tenant = self.tenants.get_mut(&name)?;
            let gone = tenant.line.front().is_none_or(|(_, sender)| sender.is_closed());
            if !gone && tenant.line.front().is_some_and(|(cost, _)| self.used + cost > room) {
                return None;
            }
            self.order.pop_first();
            let first = tenant.line.pop_front();
            let more = !tenant.line.is_empty();
            self.waiting = self.waiting.saturating_sub(usize::from(first.is_some()));
            let let_in = first.filter(|(_, sender)| !sender.is_closed());
            let at = match &let_in {
                Some((cost, _)) => {
                    self.charge(&name, at, *cost);
                    at + cost
                }
                None => at,
            };
            if more {
                self.order.insert((at, name));
            } else {
                self.forget_if_idle(&name);
            }
            if let Some((cost, sender)) = let_in {
                return Some((sender, cost));
            }
        }
    }

    fn charge(&mut self, name: &Namespace, at: u64, cost: u64) {
        self.used += cost;
        self.present = self.present.max(at);
        if self.tenants.len() >= TENANTS_MAX {
            // A name is quickly made up. What those who have nothing waiting were let in for is forgiven.
            self.tenants.retain(|_, tenant| !tenant.line.is_empty());
        }
        self.tenants.entry(name.clone()).or_default().at = at + cost;
    }

    /// A tenant that is not ahead of the lane's present is as good as a new one.
    fn forget_if_idle(&mut self, name: &Namespace) {
        let present = self.present;
        if self
            .tenants
            .get(name)
            .is_some_and(|tenant| tenant.line.is_empty() && tenant.at <= present)
        {
            self.tenants.remove(name);
        }
    }

    fn tidy(&mut self) {
        // No request is at work or waits: the next tenant starts level with all others.
        if self.used == 0 && self.order.is_empty() {
            self.tenants.clear();
        }
    }
}

impl Drop for FairQueuePermit {
    fn drop(&mut self) {
        let mut state = self.lane.state();
        state.used = state.used.saturating_sub(self.cost);
        state.tidy();
        drop(state);
        self.lane.let_in();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Namespace {
        Namespace::new(name).unwrap()
    }

    /// In line, by name; polled by hand, so that who is let in when is known exactly.
    fn wait(lane: &FairQueue, name: &str, cost: u64) -> oneshot::Receiver<FairQueuePermit> {
        lane.ask(&tenant(name), cost).unwrap().expect_err("there was room")
    }

    fn enter(lane: &FairQueue, name: &str, cost: u64) -> FairQueuePermit {
        lane.ask(&tenant(name), cost).unwrap().expect("there was no room")
    }

    #[test]
    fn a_quiet_tenant_passes_the_thousands_of_a_loud_one() {
        let lane = FairQueue::new(1, 10_000);
        let at_work = enter(&lane, "loud", 1);
        let mut loud: Vec<_> = (0..10_000).map(|_| wait(&lane, "loud", 1)).collect();
        let mut quiet = wait(&lane, "quiet", 1);
        drop(at_work);
        // Level at first: one of the loud one may come before it, no more.
        let first = loud[0].try_recv();
        drop(first);
        assert!(quiet.try_recv().is_ok(), "it waits behind the loud one");
        assert!(loud[2].try_recv().is_err());
    }

    #[test]
    fn what_counts_is_the_work_and_not_the_number_of_requests() {
        let lane = FairQueue::new(100, 100);
        let at_work = enter(&lane, "heavy", 100);
        let mut heavy: Vec<_> = (0..3).map(|_| wait(&lane, "heavy", 100)).collect();
        let mut light: Vec<_> = (0..50).map(|_| wait(&lane, "light", 1)).collect();
        drop(at_work);
        let let_in = light.iter_mut().filter_map(|place| place.try_recv().ok()).count();
        assert_eq!(let_in, 50, "fifty small ones cost less than one large one");
        assert!(heavy[0].try_recv().is_ok());
    }

    #[test]
    fn one_tenant_alone_has_all_the_room_and_waits_in_order() {
        let lane = FairQueue::new(2, 10);
        let (one, two) = (enter(&lane, "a", 1), enter(&lane, "a", 1));
        let (mut three, mut four) = (wait(&lane, "a", 1), wait(&lane, "a", 1));
        drop(one);
        let three = three.try_recv().unwrap();
        assert!(four.try_recv().is_err());
        drop((two, three));
        assert!(four.try_recv().is_ok());
        assert_eq!((lane.used(), lane.waiting()), (0, 0));
    }

    #[test]
    fn whoever_leaves_the_line_takes_no_room() {
        let lane = FairQueue::new(1, 10);
        let at_work = enter(&lane, "a", 1);
        let gone = wait(&lane, "a", 1);
        let mut stays = wait(&lane, "b", 1);
        drop(gone);
        drop(at_work);
        let place = stays.try_recv().unwrap();
        let unseen = wait(&lane, "a", 1);
        drop(place);
        // Let in, but it left before it looked.
        drop(unseen);
        assert_eq!((lane.used(), lane.waiting()), (0, 0));
    }

    #[test]
    fn a_line_is_bounded_for_each_tenant_alone() {
        let lane = FairQueue::new(1, 2);
        let _at_work = enter(&lane, "loud", 1);
        let _line = [wait(&lane, "loud", 1), wait(&lane, "loud", 1)];
        assert_eq!(lane.ask(&tenant("loud"), 1).err(), Some(QueueFull { waiting: 2 }));
        let _quiet = wait(&lane, "quiet", 1);
    }

    #[test]
    fn made_up_tenants_are_not_remembered_for_ever() {
        let lane = FairQueue::new(2, 10);
        // The lane is never idle, or all of them would be forgotten.
        let _at_work = enter(&lane, "busy", 1);
        for nth in 0..3 * TENANTS_MAX {
            drop(enter(&lane, &format!("made-up-{nth}"), 1));
        }
        assert!(lane.state().tenants.len() <= TENANTS_MAX);
    }

    #[test]
    fn being_away_saves_nothing_up() {
        let lane = FairQueue::new(1, 1_000);
        // The busy one works alone for long, and is far ahead.
        let mut at_work = enter(&lane, "busy", 1);
        for _ in 0..100 {
            let mut next = wait(&lane, "busy", 1);
            drop(at_work);
            at_work = next.try_recv().unwrap();
        }
        let mut busy: Vec<_> = (0..10).map(|_| wait(&lane, "busy", 1)).collect();
        let mut newcomers: Vec<_> = (0..10).map(|_| wait(&lane, "late", 1)).collect();
        // From now on they take turns.
        for turn in 0..10 {
            drop(at_work);
            let place = |line: &mut Vec<oneshot::Receiver<FairQueuePermit>>| {
                line.get_mut(turn).and_then(|one| one.try_recv().ok())
            };
            let first = place(&mut newcomers).or_else(|| place(&mut busy)).unwrap();
            drop(first);
            at_work = place(&mut busy).or_else(|| place(&mut newcomers)).unwrap();
        }
    }
}
