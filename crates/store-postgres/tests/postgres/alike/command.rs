//! The commands, drawn by chance, and given to both stores.

use fencehold_contract::clock::Clock as _;
use fencehold_contract::{AcquireLeaseRequest, HoldRef, LeaseStore as _, RevokeLeasesRequest, RevokeTarget};
use fencehold_core::limits::HISTORY_MAX;
use fencehold_core::{HoldId, Key, Owner, Reason, Task, Token};
use fencehold_test_store::{TestStore as _, block_on};

use super::{LOOKS_MAX, StorePair, UsedHoldId, call};

impl StorePair {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.choices = self.choices.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.choices;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(super) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn fresh(&mut self, waits: bool) -> AcquireLeaseRequest {
        self.serial += 1;
        let mut bits = [0x11; 16];
        bits[..8].copy_from_slice(&self.serial.to_be_bytes());
        let owner = ["A", "B", "C"][usize::try_from(self.below(3)).unwrap()];
        let first = self.below(3);
        let mut request = AcquireLeaseRequest::new(
            key(first),
            HoldId::from_random(bits),
            Owner::new(owner).unwrap(),
            // No two alike, so that no two deadlines are.
            1_000 + self.below(20) * 1_000 + self.serial % 997,
        );
        if self.one_in(3) {
            request.any_of.push(key((first + 1 + self.below(2)) % 3));
        }
        let task = ["run-1", "run-1/a", "run-10"][usize::try_from(self.below(3)).unwrap()];
        request.task = self.one_in(2).then(|| Task::new(task).unwrap());
        request.max_age_ms = self.one_in(5).then(|| 3_000 + self.serial % 991);
        request.priority = i16::try_from(self.below(4)).unwrap() - 1;
        if waits {
            request.wait_ms = 2_000 + self.below(30) * 1_000 + self.serial % 983;
            request.preempt_within_ms = self.one_in(2).then_some(1_000 + self.serial % 4_001);
            request.waited_before_ms = if self.one_in(5) { 500 } else { 0 };
        }
        request
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    pub(super) fn acquire(&mut self, waits: bool) {
        let mut request = self.fresh(waits);
        if self.one_in(6) {
            request.seen_token = Some(Token::new(1 + self.below(12)));
        }
        let space = usize::from(self.one_in(6));
        self.used.push(UsedHoldId {
            space,
            request: request.clone(),
            made_at_ms: self.now_ms(),
            granted: None,
        });
        self.send(space, request);
    }

    /// The same hold id again.
    pub(super) fn repeat(&mut self) {
        let Some(used) = self.any_used(|_| true) else { return };
        let request = self.again(&used);
        self.send(used.space, request);
    }

    fn again(&mut self, used: &UsedHoldId) -> AcquireLeaseRequest {
        let hold_age_ms = (self.now_ms() - used.made_at_ms).max(1);
        let wait_ms = if self.one_in(2) { 0 } else { used.request.wait_ms };
        AcquireLeaseRequest { hold_id_age_ms: hold_age_ms, wait_ms, ..used.request.clone() }
    }

    fn any_used(&mut self, fits: impl Fn(&UsedHoldId) -> bool) -> Option<UsedHoldId> {
        let fitting: Vec<UsedHoldId> = self.used.iter().filter(|used| fits(used)).cloned().collect();
        if fitting.is_empty() {
            return None;
        }
        // The latest most of all.
        let back = self.below(fitting.len() as u64).min(self.below(fitting.len() as u64));
        fitting.get(fitting.len() - 1 - usize::try_from(back).unwrap()).cloned()
    }

    fn refs(&mut self) -> Option<(usize, Vec<HoldRef>)> {
        let first = self.any_used(|used| used.granted.is_some())?;
        let mut refs = vec![as_ref(&first)];
        for _ in 0..self.below(3) {
            refs.extend(
                self.any_used(|used| used.granted.is_some() && used.space == first.space)
                    .map(|u| as_ref(&u)),
            );
        }
        if self.one_in(8) {
            refs[0].token = Token::new(refs[0].token.get() + 1);
        }
        Some((first.space, refs))
    }

    pub(super) fn renew(&mut self) {
        let Some((space, refs)) = self.refs() else { return };
        self.say(format!("renew in {space} {refs:?}"));
        let memory = block_on(self.memory.renew(&call(space), refs.clone())).unwrap();
        let postgres = block_on(self.postgres.renew(&call(space), refs)).unwrap();
        assert_eq!(postgres, memory, "{}", self.story.join("\n"));
        self.collect();
    }

    pub(super) fn release(&mut self) {
        if let Some((space, refs)) = self.refs() {
            self.release_all(space, refs);
        }
    }

    fn release_all(&mut self, space: usize, refs: Vec<HoldRef>) {
        self.say(format!("release in {space} {refs:?}"));
        let memory = block_on(self.memory.release(&call(space), refs.clone()));
        let postgres = block_on(self.postgres.release(&call(space), refs));
        assert_eq!(postgres, memory, "{}", self.story.join("\n"));
        self.collect();
    }

    pub(super) fn revoke(&mut self) {
        let which = match self.below(7) {
            0 => RevokeTarget::Task(Task::new("run-1").unwrap()),
            1 => RevokeTarget::Owner(Owner::new("A").unwrap()),
            2 => RevokeTarget::Prefix("key/".to_owned()),
            3 => RevokeTarget::TaskPrefix(Task::new("run-1").unwrap()),
            4 => {
                RevokeTarget::Key { key: key(self.below(3)), only_token: Some(Token::new(1 + self.below(9))) }
            }
            _ => RevokeTarget::Key { key: key(self.below(3)), only_token: None },
        };
        let reason = Reason::new("it was stuck").unwrap();
        let request = RevokeLeasesRequest { target: which, by: Owner::new("P").unwrap(), reason };
        self.say(format!("revoke {request:?}"));
        let mut memory = block_on(self.memory.revoke(&call(0), request.clone()));
        let mut postgres = block_on(self.postgres.revoke(&call(0), request));
        // In the order of their slots, which are not the same.
        for ended in [&mut memory, &mut postgres].into_iter().flatten() {
            ended.sort_by(|one, other| one.key.cmp(&other.key));
        }
        assert_eq!(postgres, memory, "{}", self.story.join("\n"));
        self.collect();
    }

    /// One of those in line gives up.
    pub(super) fn leave(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let at = usize::try_from(self.below(self.pending.len() as u64)).unwrap();
        let gone = self.pending.remove(at);
        self.say(format!("leave {:?}", gone.request));
        drop(gone);
    }

    pub(super) fn advance(&mut self) {
        self.say("advance".to_owned());
        let by = || Owner::new("P").unwrap();
        let memory = block_on(self.memory.advance(&call(0), by(), 100)).unwrap();
        let postgres = block_on(self.postgres.advance(&call(0), by(), 100)).unwrap();
        assert_eq!(postgres, memory, "{}", self.story.join("\n"));
        self.collect();
        self.pass_for(memory.closed_for_ms);
    }

    /// Lets time pass, and stops wherever something is due: two things that are due at once may come in any order.
    pub(super) fn pass(&mut self) {
        let ms = match self.below(4) {
            0 => 1,
            1 => self.below(1_000),
            2 => self.below(8_000),
            _ => self.below(30_000),
        };
        self.pass_for(ms);
    }

    fn pass_for(&mut self, ms: u64) {
        self.say(format!("pass {ms}"));
        let mut left_ms = ms;
        let mut due_ms = self.sweep();
        while left_ms > 0 {
            let step_ms = due_ms.unwrap_or(left_ms).min(left_ms);
            left_ms -= step_ms;
            self.clock.advance_ms(step_ms);
            self.test_store.pass(step_ms);
            block_on(self.memory.status(&call(0))).unwrap();
            due_ms = self.sweep();
            self.collect();
        }
    }

    /// Sweeps what has run out, and says in how long the next thing is due.
    fn sweep(&self) -> Option<u64> {
        let schema = self.test_store.schema;
        let look = format!(
            "SELECT {schema}.lease_sweep(1000);
             SELECT coalesce(bool_and(due > 0), true), min(due) FROM (
                 SELECT deadline_ms - at_ms AS due FROM {schema}.lease_hold, {schema}.test_clock
                 UNION ALL SELECT until_ms - at_ms FROM {schema}.lease_line, {schema}.test_clock WHERE until_ms > at_ms
             ) AS all_due"
        );
        let swept = |_| {
            let row = self.test_store.admin(&look).pop().unwrap();
            (row[0].as_deref() == Some("t")).then(|| row[1].clone())
        };
        let due = (0..LOOKS_MAX).find_map(swept).expect("what has run out is swept");
        due.map(|ms| ms.parse().unwrap())
    }

    /// A key changes hands more often than is remembered, and hold ids from before are sent again.
    pub(super) fn churn(&mut self) {
        let worn = key(3);
        for _ in 0..HISTORY_MAX + 2 {
            let request =
                AcquireLeaseRequest { any_of: vec![worn.clone()], max_age_ms: None, ..self.fresh(false) };
            let used =
                UsedHoldId { space: 0, request: request.clone(), made_at_ms: self.now_ms(), granted: None };
            self.used.push(used);
            self.send(0, request);
            if self.one_in(4) {
                self.pass();
            }
            let last = self.used.last().and_then(|used| used.granted.is_some().then(|| as_ref(used)));
            if let Some(held) = last {
                self.release_all(0, vec![held]);
            }
        }
        for _ in 0..4 {
            let all: Vec<UsedHoldId> = self
                .used
                .iter()
                .filter(|used| used.request.any_of.contains(&worn))
                .cloned()
                .collect();
            let used = all[usize::try_from(self.below(all.len() as u64)).unwrap()].clone();
            let mut request = self.again(&used);
            if self.one_in(3) {
                request.any_of.push(key(0));
            }
            self.send(used.space, request);
        }
    }
}

fn as_ref(used: &UsedHoldId) -> HoldRef {
    let (key, token) = used.granted.clone().unwrap();
    HoldRef { key, hold_id: used.request.hold_id, token }
}

fn key(nth: u64) -> Key {
    Key::new(format!("key/{nth}")).unwrap()
}
