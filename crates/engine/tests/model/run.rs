//! Playing steps on a store and on the model at once, and comparing everything that can be seen.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use fencehold_contract::clock::{Clock, ManualClock};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, HoldRef, LeaseStore, RevokeLeasesRequest, RevokeTarget,
    StoreError,
};
use fencehold_core::lease::{LeaseOutcome, LeaseRenewal};
use fencehold_core::limits::HOLD_AGE_MS_MAX;
use fencehold_core::{HoldId, Key, Namespace, Owner, Reason, Refusal, Task, Token};
use fencehold_engine::MemoryStore;
use fencehold_test_store::block_on;

use super::state::{Model, State};
use super::step::{Step, Terms};
use crate::look;

type StoreResult = Result<AcquiredLease, StoreError>;
type PendingAcquire = Pin<Box<dyn Future<Output = StoreResult> + Send>>;

pub(crate) fn play(steps: &[Step]) {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::open(Arc::new(clock.clone())).unwrap());
    let model = Model::new(clock.now().store_ms);
    let call = CallContext::new(Namespace::default());
    let mut play = ModelRun { clock, store, call, model, under_way: BTreeMap::new() };
    for step in steps {
        play.step(step);
        play.serve();
        play.model.refresh_notices();
        play.compare();
    }
}

struct ModelRun {
    clock: ManualClock,
    store: Arc<MemoryStore>,
    call: CallContext,
    model: Model,
    /// The requests that have not been answered, by their number.
    under_way: BTreeMap<usize, PendingAcquire>,
}

impl ModelRun {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Take(terms) => {
                let ask = self.model.add(terms.clone());
                self.take(ask, 0);
            }
            Step::Again(nth) => self.nth_ask(*nth).map_or((), |ask| self.again(ask)),
            Step::AgainInLine(nth) => self.nth_in_line(*nth).map_or((), |ask| self.again(ask)),
            Step::Renew(nths) => self.renew(nths),
            Step::Release(nth) => self.release(*nth),
            Step::Revoke(key) => self.revoke(*key),
            Step::RevokeOwner(owner) => self.revoke_owner(*owner),
            Step::Leave(nth) => self.leave(*nth),
            Step::Pass(ms) => self.pass(*ms),
        }
    }

    /// A request that holds nothing and stands nowhere: granted, refused, or in line.
    fn take(&mut self, ask: usize, hold_age_ms: u64) {
        let terms = self.model.asks[ask].terms.clone();
        let answer = self.send(ask, hold_age_ms);
        if let Some(key) = self.model.first_free(&terms) {
            let acquired = answer.expect("an answer at once").expect("a free key");
            assert_eq!(acquired.key, key_of(key), "not the first that is free");
            assert_eq!(acquired.waited_ms, 0);
            self.grant(ask, &acquired);
        } else if terms.wait_ms == 0 {
            let shortest_ms = self.model.shortest_wait_ms(&terms);
            match answer.expect("an answer at once") {
                Err(StoreError::Refused {
                    refusal: Refusal::Held { remaining_ms: expires_in_ms, .. },
                    ..
                }) => {
                    assert_eq!(expires_in_ms, shortest_ms);
                }
                other => panic!("all its keys are held, but: {other:?}"),
            }
        } else {
            assert!(answer.is_none(), "it should stand in line, but: {answer:?}");
            self.model.stand_in_line(ask);
        }
    }

    /// The same request once more.
    fn again(&mut self, ask: usize) {
        let age_ms = (self.model.now_ms - self.model.asks[ask].made_at_ms).max(1);
        if age_ms > HOLD_AGE_MS_MAX {
            return;
        }
        match self.model.asks[ask].state {
            State::Gone => {}
            State::InLine(_) => {
                let mut earlier = self.under_way.remove(&ask).expect("one in line is under way");
                assert!(self.send(ask, age_ms).is_none(), "it stands in line already");
                let earlier = look(&mut earlier).expect("the earlier sending is answered");
                assert!(matches!(earlier, Err(StoreError::Unavailable { .. })), "{earlier:?}");
                self.model.stand_in_line(ask);
            }
            State::Granted { token, .. } => {
                let answer = self.send(ask, age_ms).expect("an answer at once");
                if let Some(key) = self.model.live_on(ask) {
                    let holder = self.model.keys[key].holder.as_ref().expect("a holder");
                    let grant = answer.expect("its own lease").grant;
                    assert_eq!((grant.token.get(), grant.resumed), (token, true));
                    assert_eq!(grant.remaining_ms, holder.deadline_ms - self.model.now_ms);
                    return;
                }
                let ending = self.model.recent_endings(ask);
                let ended = Refusal::HoldIdUsed {
                    token: ending.map(|ending| Token::new(ending.token)),
                    outcome: ending.map(|ending| ending.how),
                };
                assert_eq!(answer.map_err(refusal), Err(ended), "an ended hold id");
            }
        }
    }

    fn renew(&mut self, nths: &[usize]) {
        let asks: Vec<usize> = nths.iter().filter_map(|nth| self.nth_granted(*nth)).collect();
        let holds = asks.iter().map(|ask| self.hold(*ask)).collect();
        let renewed = block_on(self.store.renew(&self.call, holds)).unwrap();
        assert_eq!(renewed.results.len(), asks.len());
        for (ask, answer) in asks.into_iter().zip(renewed.results) {
            match self.model.live_on(ask) {
                None => self.assert_lost(ask, answer.map(|renewal| renewal.token)),
                Some(key) => self.assert_renewed(key, answer.expect("a live hold")),
            }
        }
    }

    fn assert_renewed(&mut self, key: usize, renewal: LeaseRenewal) {
        let remaining_ms = self.model.renew(key);
        assert_eq!((renewal.token.get(), renewal.remaining_ms), (self.model.keys[key].counter, remaining_ms));
        let notice = self.model.keys[key].holder.as_ref().and_then(|holder| holder.notice);
        let expected = notice
            .map(|notice| (Some(task_of(notice.ask)), notice.yield_at_ms.saturating_sub(self.model.now_ms)));
        assert_eq!(renewal.yield_request.map(|request| (request.task, request.yield_in_ms)), expected);
    }

    fn release(&mut self, nth: usize) {
        let Some(ask) = self.nth_granted(nth) else { return };
        let mut answers = block_on(self.store.release(&self.call, vec![self.hold(ask)])).unwrap();
        let answer = answers.remove(0).map(|released| {
            assert_eq!(released.key, self.hold(ask).key);
            released.token
        });
        let released = self.model.recent_endings(ask).is_some_and(|ending| ending.given_back);
        if let Some(key) = self.model.live_on(ask) {
            assert_eq!(answer, Ok(self.hold(ask).token));
            self.model.give_back(key);
        } else if released {
            assert_eq!(answer, Ok(self.hold(ask).token), "the same release, the same answer");
        } else {
            self.assert_lost(ask, answer);
        }
    }

    /// What a hold that is over gets, whatever it tries.
    fn assert_lost(&self, ask: usize, answer: Result<Token, Refusal>) {
        let State::Granted { key, token } = self.model.asks[ask].state else { panic!("never granted") };
        match answer {
            Err(Refusal::Lost { token: shown, outcome: how, current_token: current, .. }) => {
                assert_eq!(shown.get(), token);
                assert_eq!(how, self.model.recent_endings(ask).map(|ending| ending.how));
                assert_eq!(current.get(), self.model.keys[key].counter.max(token));
            }
            // Of a collected key only the floor is known: that this was its last token, not whose it was.
            Err(Refusal::WrongHoldId { .. }) if !self.model.keys[key].kept => {}
            other => panic!("a hold that is over got {other:?}"),
        }
    }

    fn revoke(&mut self, key: usize) {
        let which = RevokeTarget::Key { key: key_of(key), only_token: None };
        let answer = block_on(self.store.revoke(&self.call, force(which)));
        if self.model.keys[key].holder.is_none() {
            assert_eq!(answer.map_err(refusal), Err(Refusal::NotHeld));
            return;
        }
        let consumed = answer.unwrap()[0].revoked.consumed_token.get();
        self.end_by_force(key, consumed);
    }

    fn revoke_owner(&mut self, owner: usize) {
        let answer =
            block_on(self.store.revoke(&self.call, force(RevokeTarget::Owner(owner_of(owner))))).unwrap();
        let held_by = |key: &usize| {
            let holder = self.model.keys[*key].holder.as_ref();
            holder.is_some_and(|holder| self.model.asks[holder.ask].terms.owner == owner)
        };
        let keys: Vec<usize> = (0..self.model.keys.len()).filter(held_by).collect();
        assert_eq!(answer.len(), keys.len(), "exactly the holds of that owner");
        for key in keys {
            let revoked = answer.iter().find(|lease| lease.key == key_of(key));
            let revoked = revoked.expect("a hold of that owner");
            self.end_by_force(key, revoked.revoked.consumed_token.get());
        }
    }

    fn end_by_force(&mut self, key: usize, consumed: u64) {
        assert!(consumed > self.model.keys[key].counter, "force consumes a token");
        self.model.end(key, LeaseOutcome::Revoked);
        self.model.keys[key].counter = consumed;
    }

    fn leave(&mut self, nth: usize) {
        let Some(ask) = self.nth_in_line(nth) else { return };
        drop(self.under_way.remove(&ask));
        self.model.asks[ask].state = State::Gone;
    }

    fn pass(&mut self, ms: u64) {
        self.clock.advance_ms(ms);
        self.settle();
        for ask in self.model.pass(ms) {
            let mut asked = self.under_way.remove(&ask).expect("one in line is under way");
            let answer = look(&mut asked).expect("one whose time is up is answered");
            assert!(answer.is_err(), "granted after its time: {answer:?}");
        }
    }

    /// Everybody who was granted a key by this step must have been first in line for it, and no key that a caller
    /// waits for is left free. Who stood in several lines may have been granted any of the keys.
    fn serve(&mut self) {
        self.settle();
        let mut granted: Vec<(usize, AcquiredLease)> = Vec::new();
        for (ask, asked) in &mut self.under_way {
            if let Some(answer) = look(asked) {
                let acquired = answer.unwrap_or_else(|error| panic!("request {ask} in line got: {error}"));
                granted.push((*ask, acquired));
            }
        }
        while !granted.is_empty() {
            let model = &self.model;
            let first = |(ask, acquired): &(usize, AcquiredLease)| {
                model.line(key_number(&acquired.key)).first() == Some(ask)
            };
            let next = granted.iter().position(first);
            let next = next.expect("a key is granted to the first in line for it");
            let (ask, acquired) = granted.remove(next);
            let State::InLine(place) = self.model.asks[ask].state else { panic!("not in line") };
            assert_eq!(acquired.waited_ms, self.model.now_ms - place.arrived_ms);
            self.under_way.remove(&ask);
            self.grant(ask, &acquired);
        }
        for key in 0..self.model.keys.len() {
            let idle = self.model.keys[key].holder.is_none() && !self.model.line(key).is_empty();
            assert!(!idle, "key {key} is free, and a caller waits for it");
        }
    }

    fn grant(&mut self, ask: usize, acquired: &AcquiredLease) {
        let key = key_number(&acquired.key);
        self.model.grant(ask, key, acquired.grant.token.get());
        let holder = self.model.keys[key].holder.as_ref().expect("a holder");
        let remaining_ms = holder.deadline_ms - self.model.now_ms;
        assert_eq!((acquired.grant.resumed, acquired.grant.remaining_ms), (false, remaining_ms));
    }

    /// Everything that can be seen of every key.
    fn compare(&self) {
        for key in 0..self.model.keys.len() {
            let view = block_on(self.store.get(&self.call, key_of(key))).unwrap();
            let slot = &self.model.keys[key];
            assert_eq!(view.is_some(), slot.kept, "whether anything is kept of key {key}");
            let Some(view) = view else { continue };
            assert_eq!(
                (view.token.get(), view.waiter_count),
                (slot.counter, self.model.line(key).len() as u64)
            );
            let endings: Vec<_> =
                view.endings.iter().map(|ending| (ending.token.get(), ending.outcome)).collect();
            let recent_endings: Vec<_> =
                slot.recent_endings().iter().map(|ending| (ending.token, ending.how)).collect();
            assert_eq!(endings, recent_endings);
            let seen = view.holder.map(|holder| {
                (
                    holder.task,
                    holder.remaining_ms,
                    holder.yield_request.as_ref().map(|asked| asked.yield_in_ms),
                )
            });
            let expected = slot.holder.as_ref().map(|holder| {
                let yield_in_ms =
                    holder.notice.map(|notice| notice.yield_at_ms.saturating_sub(self.model.now_ms));
                (Some(task_of(holder.ask)), holder.deadline_ms - self.model.now_ms, yield_in_ms)
            });
            assert_eq!(seen, expected, "the holder of key {key}");
        }
        let status = block_on(self.store.status(&self.call)).unwrap();
        let held = self.model.keys.iter().filter(|key| key.holder.is_some()).count();
        let kept = self.model.keys.iter().filter(|key| key.kept).count();
        assert_eq!((status.held_count, status.key_count), (held as u64, kept as u64));
        assert_eq!(status.waiter_count, self.model.in_line().len() as u64);
    }

    /// Waits until the store has done all that follows from its input. The answers of a step have gone when the
    /// step after it is answered.
    fn settle(&self) {
        for _ in 0..2 {
            block_on(self.store.status(&self.call)).unwrap();
        }
    }

    /// Sends a request, and gives the answer if it comes at once.
    fn send(&mut self, ask: usize, hold_age_ms: u64) -> Option<StoreResult> {
        let Terms { keys, owner, ttl_ms, wait_ms, priority, yield_within_ms, max_age_ms } =
            self.model.asks[ask].terms.clone();
        let request = AcquireLeaseRequest {
            any_of: keys.into_iter().map(key_of).collect(),
            task: Some(task_of(ask)),
            hold_id_age_ms: hold_age_ms,
            wait_ms,
            priority,
            preempt_within_ms: yield_within_ms,
            max_age_ms,
            ..AcquireLeaseRequest::new(key_of(0), hold_of(ask), owner_of(owner), ttl_ms)
        };
        let (store, call) = (self.store.clone(), self.call.clone());
        let mut asked: PendingAcquire = Box::pin(async move { store.acquire(&call, request).await });
        // The first look sends it, and may be late enough to find the answer.
        let mut answer = look(&mut asked);
        if answer.is_none() {
            self.settle();
            answer = look(&mut asked);
        }
        if answer.is_none() {
            self.under_way.insert(ask, asked);
        }
        answer
    }

    /// The nth request, counted back from the newest.
    fn nth_ask(&self, nth: usize) -> Option<usize> {
        self.model.asks.len().checked_sub(nth + 1)
    }

    /// One of those in line.
    fn nth_in_line(&self, nth: usize) -> Option<usize> {
        let in_line = self.model.in_line();
        in_line.get(nth % in_line.len().max(1)).copied()
    }

    /// The nth request that was ever granted, counted back from the newest.
    fn nth_granted(&self, nth: usize) -> Option<usize> {
        let granted = |ask: &usize| matches!(self.model.asks[*ask].state, State::Granted { .. });
        (0..self.model.asks.len()).rev().filter(granted).nth(nth)
    }

    fn hold(&self, ask: usize) -> HoldRef {
        let State::Granted { key, token } = self.model.asks[ask].state else { panic!("never granted") };
        HoldRef { key: key_of(key), hold_id: hold_of(ask), token: Token::new(token) }
    }
}

fn refusal(error: StoreError) -> Refusal {
    match error {
        StoreError::Refused { refusal, .. } => refusal,
        other => panic!("not the rules' answer: {other}"),
    }
}

fn force(which: RevokeTarget) -> RevokeLeasesRequest {
    RevokeLeasesRequest {
        target: which,
        by: Owner::new("P").unwrap(),
        reason: Reason::new("because").unwrap(),
    }
}

fn key_of(number: usize) -> Key {
    Key::new(format!("k{number}")).unwrap()
}

fn key_number(key: &Key) -> usize {
    key.as_str()[1..].parse().unwrap()
}

fn owner_of(number: usize) -> Owner {
    Owner::new(format!("owner-{number}")).unwrap()
}

/// Every request has a task of its own, by which it is recognised.
fn task_of(ask: usize) -> Task {
    Task::new(format!("task-{ask}")).unwrap()
}

fn hold_of(ask: usize) -> HoldId {
    let mut bits = [3; 16];
    bits[..8].copy_from_slice(&ask.to_be_bytes());
    HoldId::from_random(bits)
}
