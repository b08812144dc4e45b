//! One key in the smallest store there can be: a record, a deadline, a floor and a clock that the test moves.

pub(crate) mod job;
pub(crate) mod job_model;
pub(crate) mod model;

use std::num::NonZeroU64;

use fencehold_core::lease::{
    Acquire, DeadlineChange, Ending, Grant, HoldState, LeaseCommand, LeaseCommandResult, LeaseDecision,
    LeaseOutcome, LeaseRecord, LeaseRenewal, LeaseStanding, PreemptRequest, Revoked, decide,
};
use fencehold_core::{EventData, HoldHash, HoldId, Owner, Reason, Refusal, Task, Timestamp, Token};

/// The ttl of every ask that names no other.
pub(crate) const TTL_MS: u64 = 30_000;

/// By how much the age of a hold id may be off, because two clocks were read in whole milliseconds.
pub(crate) const ROUNDING_MS: u64 = 2;

/// One key, as a store would keep it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OneKey {
    pub(crate) record: LeaseRecord,
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) floor: Token,
    pub(crate) now: Timestamp,
    /// What happened since the news were last read.
    pub(crate) facts: Vec<EventData>,
}

impl OneKey {
    /// A key that was never held, at a moment far from zero on both clocks.
    pub(crate) fn new() -> Self {
        let now = Timestamp { store_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
        OneKey { now, ..OneKey::default() }
    }

    /// A key whose last token was this one, free, with nothing remembered.
    pub(crate) fn with_counter(counter: u64) -> Self {
        let record = LeaseRecord { counter: Token::new(counter), ..LeaseRecord::default() };
        OneKey { record, ..OneKey::new() }
    }

    /// A key that A has just taken under hold id 1, and its token.
    pub(crate) fn held() -> (Self, Token) {
        let mut key = OneKey::new();
        let token = key.granted(ask("a", 1));
        (key, token)
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now.store_ms += ms;
        self.now.wall_ms += ms;
    }

    pub(crate) fn standing(&self) -> LeaseStanding {
        LeaseStanding { now: self.now, floor: self.floor, term: term(self.deadline_ms, self.now) }
    }

    /// What would follow, without carrying it out.
    pub(crate) fn decision(&self, command: &LeaseCommand) -> LeaseDecision {
        decide(&self.standing(), &self.record, command)
    }

    /// Carries a command out. A refusal changes nothing; it may only note that a lease has run out.
    pub(crate) fn ask(&mut self, command: &LeaseCommand) -> Result<LeaseCommandResult, Refusal> {
        let decision = self.decision(command);
        if decision.reply.is_err() && !matches!(self.standing().term, HoldState::Over { .. }) {
            let changes = (&decision.record, decision.deadline);
            assert_eq!(changes, (&None, DeadlineChange::Keep), "refused: {command:?}");
        }
        if let Some(record) = decision.record {
            self.record = record;
        }
        self.deadline_ms = changed(self.deadline_ms, decision.deadline, self.now);
        self.facts.extend(decision.facts);
        decision.reply
    }

    pub(crate) fn acquire(&mut self, ask: Acquire) -> Result<Grant, Refusal> {
        let answer = self.ask(&LeaseCommand::Acquire(ask))?;
        assert_matches!(answer, LeaseCommandResult::Granted(grant) => Ok(grant))
    }

    /// Acquires, and must be granted.
    pub(crate) fn granted(&mut self, ask: Acquire) -> Token {
        self.acquire(ask).expect("the key is free").token
    }

    pub(crate) fn renew(&mut self, id: u8, token: Token) -> Result<LeaseRenewal, Refusal> {
        let answer = self.ask(&LeaseCommand::Renew { hash: hold(id), token })?;
        assert_matches!(answer, LeaseCommandResult::Renewed(renewal) => Ok(renewal))
    }

    pub(crate) fn release(&mut self, id: u8, token: Token) -> Result<LeaseCommandResult, Refusal> {
        self.ask(&LeaseCommand::Release { hash: hold(id), token })
    }

    pub(crate) fn abandon(&mut self, id: u8) -> Result<LeaseCommandResult, Refusal> {
        self.ask(&LeaseCommand::Abandon { hash: hold(id) })
    }

    pub(crate) fn expire(&mut self) -> Result<LeaseCommandResult, Refusal> {
        self.ask(&LeaseCommand::Expire)
    }

    pub(crate) fn revoke(&mut self, only_token: Option<Token>) -> Result<Revoked, Refusal> {
        let answer = self.ask(&revocation(only_token))?;
        assert_matches!(answer, LeaseCommandResult::Revoked(revoked) => Ok(revoked))
    }

    pub(crate) fn advance(&mut self, lift: u64) -> Result<LeaseCommandResult, Refusal> {
        self.ask(&LeaseCommand::Advance { lift, by: owner("operator") })
    }

    pub(crate) fn preempt(
        &mut self,
        contender: &str,
        priority: i16,
        yield_in_ms: u64,
    ) -> Result<u64, Refusal> {
        let contender = owner(contender);
        let ask = PreemptRequest { contender, task: Some(task("urgent")), priority, yield_in_ms };
        let answer = self.ask(&LeaseCommand::Preempt(ask))?;
        assert_matches!(answer, LeaseCommandResult::Asked { free_in_ms } => Ok(free_in_ms))
    }

    pub(crate) fn withdraw(&mut self) -> Result<LeaseCommandResult, Refusal> {
        self.ask(&LeaseCommand::Withdraw)
    }

    /// Takes the key under this hold id and gives it back at once.
    pub(crate) fn one_life(&mut self, id: u8) -> Token {
        let token = self.granted(ask("passer-by", id));
        self.release(id, token).expect("it was just granted");
        token
    }

    /// How long the lease has left, if it is live.
    pub(crate) fn remaining_ms(&self) -> Option<u64> {
        self.deadline_ms
            .and_then(|at_ms| at_ms.checked_sub(self.now.store_ms))
            .filter(|ms| *ms > 0)
    }

    /// Whether nothing of a hold is left, neither the hold nor a deadline.
    pub(crate) fn is_free(&self) -> bool {
        self.record.hold.is_none() && self.deadline_ms.is_none()
    }

    pub(crate) fn last_ending(&self) -> &Ending {
        self.record.endings().last().expect("something has ended")
    }

    /// What happened since this was last asked.
    pub(crate) fn news(&mut self) -> Vec<EventData> {
        std::mem::take(&mut self.facts)
    }

    /// The record, the deadline and the floor: what a refusal must leave alone.
    pub(crate) fn state(&self) -> (LeaseRecord, Option<u64>, Token) {
        (self.record.clone(), self.deadline_ms, self.floor)
    }
}

/// What a deadline means at this moment.
pub(crate) fn term(deadline_ms: Option<u64>, now: Timestamp) -> HoldState {
    match deadline_ms {
        None => HoldState::Free,
        Some(at_ms) if now.store_ms < at_ms => HoldState::Live { remaining_ms: at_ms - now.store_ms },
        Some(at_ms) => HoldState::Over { since_ms: now.store_ms - at_ms },
    }
}

/// The deadline after a decision.
pub(crate) fn changed(deadline_ms: Option<u64>, change: DeadlineChange, now: Timestamp) -> Option<u64> {
    match change {
        DeadlineChange::Keep => deadline_ms,
        DeadlineChange::LastsMs(ms) => Some(now.store_ms + ms),
        DeadlineChange::Clear => None,
    }
}

/// The hash of the hold id with this number.
pub(crate) fn hold(id: u8) -> HoldHash {
    HoldId::from_random([id; 16]).hash()
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new(name).expect("a good owner")
}

pub(crate) fn task(name: &str) -> Task {
    Task::new(name).expect("a good task")
}

/// An ordinary ask: no task, no limits, a hold id made just now.
pub(crate) fn ask(name: &str, id: u8) -> Acquire {
    Acquire {
        hash: hold(id),
        hold_age_ms: 0,
        owner: owner(name),
        task: None,
        ttl_ms: TTL_MS,
        max_age_ms: None,
        priority: 0,
        seen_token: None,
    }
}

/// An ask with a limit on its whole age.
pub(crate) fn ask_with_max_age(name: &str, id: u8, max_age_ms: u64) -> Acquire {
    Acquire { max_age_ms: NonZeroU64::new(max_age_ms), ..ask(name, id) }
}

pub(crate) fn revocation(only_token: Option<Token>) -> LeaseCommand {
    let reason = Reason::new("stuck since noon").expect("a good reason");
    LeaseCommand::Revoke { by: owner("operator"), reason, only_token }
}

/// The answer to a sweep that has found a lease over.
pub(crate) fn expired(token: Token, how: LeaseOutcome) -> LeaseCommandResult {
    LeaseCommandResult::Expired { token, how }
}

/// What the holder of an ended lease learns, by whom included.
pub(crate) fn lost(token: Token, how: LeaseOutcome, current: Token) -> Refusal {
    let forced = matches!(how, LeaseOutcome::Revoked | LeaseOutcome::Advanced);
    let reason =
        (how == LeaseOutcome::Revoked).then(|| Reason::new("stuck since noon").expect("a good reason"));
    Refusal::Lost {
        token,
        outcome: Some(how),
        by: forced.then(|| owner("operator")),
        reason,
        current_token: current,
    }
}

/// What the holder of a lease learns that the record no longer remembers.
pub(crate) fn forgotten(token: Token, current: Token) -> Refusal {
    Refusal::Lost { token, outcome: None, by: None, reason: None, current_token: current }
}
