//! The promises once more, told another way: the whole story of one key with nothing forgotten. It hears every
//! command and its answer, and objects to an answer that breaks a promise. It shares no code with the rules.

use fencehold_core::lease::{
    Acquire, Grant, LeaseCommand, LeaseCommandResult, LeaseOutcome, PreemptRequest, Revoked,
};
use fencehold_core::limits::{COLLECT_AFTER_FREE_MS, HISTORY_MAX, TOKEN_MAX};
use fencehold_core::{HoldHash, Refusal, Token};

use crate::support::{OneKey, ROUNDING_MS};

type Reply = Result<LeaseCommandResult, Refusal>;

/// One grant and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct HoldLife {
    pub(crate) ask: Acquire,
    pub(crate) token: Token,
    since_ms: u64,
    /// Until when the holder may believe that it holds.
    deadline_ms: u64,
    /// By when it should yield, and to which priority.
    yield_at: Option<(u64, i16)>,
    /// How and when it ended, once that was noted.
    end: Option<(LeaseOutcome, u64)>,
    /// Its holder gave it back.
    given_back: bool,
}

/// The whole story of one key.
#[derive(Debug, Default)]
pub(crate) struct LeaseModel {
    /// When the store was last advanced: what ended in the time that it lost is unknown.
    advanced_at_ms: Option<u64>,
    pub(crate) lives: Vec<HoldLife>,
    /// The largest token ever given or consumed.
    spent: Token,
    /// The newest token that the record shows.
    pub(crate) counter: Token,
    /// Below every token to come.
    pub(crate) floor: Token,
    /// The lives before this one went with a record that was collected.
    kept_from: usize,
    pub(crate) now_ms: u64,
}

impl HoldLife {
    fn is(&self, hash: HoldHash, token: Token) -> bool {
        self.ask.hash == hash && self.token == token
    }

    /// How it ended if its time just ran out.
    fn how_time_ran_out(&self) -> LeaseOutcome {
        let aged_out = |max_age_ms| self.deadline_ms >= self.since_ms + max_age_ms;
        if self.ask.max_age_ms.is_some_and(|max_age_ms| aged_out(max_age_ms.get())) {
            LeaseOutcome::AgedOut
        } else if self.yield_at.is_some_and(|(at_ms, _)| at_ms <= self.deadline_ms) {
            LeaseOutcome::Yielded
        } else {
            LeaseOutcome::Expired
        }
    }

    /// The deadline that a renewal at this moment earns: a ttl, but not past its age or its yield time, and
    /// never earlier than promised before.
    fn renewed_deadline_ms(&self, now_ms: u64) -> u64 {
        let age_ends_ms = self
            .ask
            .max_age_ms
            .map_or(u64::MAX, |max_age_ms| self.since_ms + max_age_ms.get());
        let yield_at_ms = self.yield_at.map_or(u64::MAX, |(at_ms, _)| at_ms);
        (now_ms + self.ask.ttl_ms)
            .min(age_ends_ms)
            .min(yield_at_ms)
            .max(self.deadline_ms)
    }
}

impl LeaseModel {
    /// A free key of which this was the last token.
    pub(crate) fn new(counter: Token) -> Self {
        LeaseModel { counter, spent: counter, ..LeaseModel::default() }
    }

    /// Hears one command and its answer.
    pub(crate) fn hear(&mut self, command: &LeaseCommand, reply: &Reply) {
        match command {
            LeaseCommand::Acquire(ask) => self.acquire(ask, reply),
            LeaseCommand::Renew { hash, token } => self.renew(*hash, *token, reply),
            LeaseCommand::Release { hash, token } => self.release(*hash, *token, reply),
            LeaseCommand::Abandon { hash } => {
                assert_eq!(*reply, Ok(LeaseCommandResult::Nothing));
                if self.live().is_some_and(|life| life.ask.hash == *hash) {
                    self.end(LeaseOutcome::Abandoned);
                }
            }
            LeaseCommand::Revoke { only_token, .. } => self.revoke(*only_token, reply),
            LeaseCommand::Expire => self.expire(reply),
            LeaseCommand::Preempt(ask) => self.preempt(ask, reply),
            LeaseCommand::Withdraw => {
                assert_eq!(*reply, Ok(LeaseCommandResult::Nothing));
                if self.live().is_some() {
                    self.newest().yield_at = None;
                }
            }
            LeaseCommand::Advance { lift, .. } => self.advance(*lift, reply),
            other => panic!("a new command wants its promise here: {other:?}"),
        }
    }

    /// Whether the store may drop the record of this key now. If so it does, and raises the floor in the same step.
    pub(crate) fn collect(&mut self) -> bool {
        let free = self.held().is_none() && self.counter > Token::NONE;
        let last_end_ms = self.noted().last().map_or(0, |(_, _, at_ms)| *at_ms);
        let may = free && self.now_ms >= last_end_ms + COLLECT_AFTER_FREE_MS;
        if may {
            self.floor = self.floor.max(self.counter);
            self.counter = Token::NONE;
            self.kept_from = self.lives.len();
        }
        may
    }

    /// What the store keeps must tell the same story.
    pub(crate) fn compare(&self, key: &OneKey) {
        let held = self.held().map(|life| life.ask.hash);
        assert_eq!(key.record.hold.as_ref().map(|hold| hold.hash), held, "who holds it");
        assert_eq!(key.deadline_ms, self.held().map(|life| life.deadline_ms), "until when");
        assert_eq!(key.record.counter, self.counter, "counter");
        let endings = key.record.endings().iter();
        let endings: Vec<_> = endings
            .map(|ending| (ending.token, ending.outcome, ending.at.store_ms))
            .collect();
        let noted = self.noted();
        assert_eq!(endings, noted[noted.len().saturating_sub(HISTORY_MAX)..], "every end is on record");
    }

    fn acquire(&mut self, ask: &Acquire, reply: &Reply) {
        if ask.seen_token.is_some_and(|seen| self.is_alarm(seen, reply)) {
            return;
        }
        if let Some(life) = self.live() {
            let remaining_ms = life.deadline_ms - self.now_ms;
            let held = Refusal::Held {
                owner: life.ask.owner.clone(),
                task: life.ask.task.clone(),
                remaining_ms,
                token: life.token,
            };
            if life.ask.hash == ask.hash {
                let grant = Grant { token: life.token, remaining_ms, resumed: true };
                assert_eq!(*reply, Ok(LeaseCommandResult::Granted(grant)));
            } else if let Some(ended) = self.remembers(ask.hash) {
                assert_eq!(*reply, Err(ended));
            } else if *reply == Err(held) {
                assert!(!self.had(ask.hash), "a hold id that ended would stand in line");
            } else {
                self.must_be_excused(ask, reply);
            }
            return;
        }
        self.note();
        if let Some(ended) = self.remembers(ask.hash) {
            assert_eq!(*reply, Err(ended));
            return;
        }
        let Ok(LeaseCommandResult::Granted(grant)) = reply else {
            let used_up = self.counter.max(self.floor).get() >= TOKEN_MAX - 1;
            if !(used_up && *reply == Err(Refusal::TokensExhausted)) {
                self.must_be_excused(ask, reply);
            }
            return;
        };
        assert!(!self.had(ask.hash), "a hold id was granted twice");
        assert!(
            self.lives.iter().all(|life| life.end.is_some_and(|end| end.1 <= self.now_ms)),
            "two holders"
        );
        assert!(grant.token > self.spent && grant.token > self.floor, "{} did not grow", grant.token);
        assert!(grant.token.get() < TOKEN_MAX, "no token is left to fence this holder out");
        let lasts_ms = ask.max_age_ms.map_or(ask.ttl_ms, |max_age_ms| max_age_ms.get().min(ask.ttl_ms));
        assert_eq!((grant.remaining_ms, grant.resumed), (lasts_ms, false));
        self.spend(grant.token);
        let (token, since_ms, deadline_ms) = (grant.token, self.now_ms, self.now_ms + lasts_ms);
        self.lives.push(HoldLife {
            ask: ask.clone(),
            token,
            since_ms,
            deadline_ms,
            yield_at: None,
            given_back: false,
            end: None,
        });
    }

    /// A hold id that has not ended may be answered so only if it is old enough to have ended and been forgotten.
    fn must_be_excused(&self, ask: &Acquire, reply: &Reply) {
        assert_eq!(*reply, Err(Refusal::HoldIdUsed { token: None, outcome: None }));
        let noted = self.noted();
        let forgotten_at_ms = noted.len().checked_sub(HISTORY_MAX + 1).map(|newest| noted[newest].2);
        let forgotten_at_ms = forgotten_at_ms.max(self.advanced_at_ms);
        let made_at_ms = self.now_ms - ask.hold_age_ms;
        let old = forgotten_at_ms.is_some_and(|at_ms| at_ms + ROUNDING_MS >= made_at_ms);
        assert!(old && ask.hold_age_ms > 0, "a fresh hold id was refused");
    }

    fn renew(&mut self, hash: HoldHash, token: Token, reply: &Reply) {
        if self.is_alarm(token, reply) {
            return;
        }
        if !self.live().is_some_and(|life| life.is(hash, token)) {
            return self.must_be_stale(hash, token, reply);
        }
        let Ok(LeaseCommandResult::Renewed(renewal)) = reply else {
            panic!("a live holder lost its lease: {reply:?}")
        };
        let now_ms = self.now_ms;
        let life = self.newest();
        life.deadline_ms = life.renewed_deadline_ms(now_ms);
        let yield_in_ms = life.yield_at.map(|(at_ms, _)| at_ms.saturating_sub(now_ms));
        assert_eq!((renewal.token, renewal.remaining_ms), (token, life.deadline_ms - now_ms));
        assert_eq!(renewal.yield_request.as_ref().map(|asked| asked.yield_in_ms), yield_in_ms);
        assert_eq!(
            renewal.yield_request.as_ref().map(|notice| notice.priority),
            life.yield_at.map(|asked| asked.1)
        );
    }

    fn release(&mut self, hash: HoldHash, token: Token, reply: &Reply) {
        if self.is_alarm(token, reply) {
            return;
        }
        let mut recent = self.recent_lives().iter();
        let released = recent.any(|life| life.is(hash, token) && life.given_back);
        let live = self.live().is_some_and(|life| life.is(hash, token));
        if !live && !released {
            return self.must_be_stale(hash, token, reply);
        }
        assert_eq!(*reply, Ok(LeaseCommandResult::Released { token }));
        if live {
            let asked = self.newest().yield_at.is_some();
            self.end(if asked { LeaseOutcome::Yielded } else { LeaseOutcome::Released });
            self.newest().given_back = true;
        }
    }

    /// Who is not the live holder is refused, and told what is known of the hold that it speaks for.
    fn must_be_stale(&mut self, hash: HoldHash, token: Token, reply: &Reply) {
        if self.held().is_some_and(|life| life.is(hash, token)) {
            self.note();
        }
        let life = self.recent_lives().iter().find(|life| life.is(hash, token));
        let given_back = life.is_some_and(|life| life.given_back);
        let known = life.and_then(|life| life.end);
        match reply {
            Err(Refusal::Lost { token: shown, outcome: how, by, reason, current_token: current }) => {
                assert_eq!((*shown, *how), (token, known.map(|end| end.0)));
                let by_somebody = !given_back
                    && matches!(
                        how,
                        Some(LeaseOutcome::Revoked | LeaseOutcome::Advanced | LeaseOutcome::Yielded)
                    );
                assert_eq!(
                    (by.is_some(), reason.is_some()),
                    (by_somebody, *how == Some(LeaseOutcome::Revoked))
                );
                let newest = self.counter.max(self.floor);
                assert!(*current >= self.counter && *current >= token && *current <= newest);
                assert!(known.is_some() || token != self.counter, "the hold under that token is not over");
            }
            Err(Refusal::WrongHoldId { token: shown }) => {
                assert!(known.is_none() && *shown == token && token == self.counter, "stale, not wrong");
            }
            other => panic!("not the holder, yet answered {other:?}"),
        }
    }

    fn revoke(&mut self, only_token: Option<Token>, reply: &Reply) {
        if only_token.is_some_and(|only| self.is_alarm(only, reply)) {
            return;
        }
        let Some(life) = self.held().cloned() else { return assert_eq!(*reply, Err(Refusal::NotHeld)) };
        if let Some(only) = only_token.filter(|only| *only != life.token) {
            let known = self.recent_lives().iter().find(|life| life.token == only);
            let how = known.and_then(|life| life.end).map(|end| end.0);
            let Err(Refusal::Lost { token, outcome: told, current_token: current, .. }) = reply else {
                panic!("another hold was meant, yet answered {reply:?}")
            };
            return assert_eq!((*token, *told, *current), (only, how, life.token));
        }
        let Ok(LeaseCommandResult::Revoked(Revoked { token, consumed_token: consumed, owner, task })) = reply
        else {
            panic!("a hold withstood force: {reply:?}")
        };
        assert_eq!((*token, owner, task), (life.token, &life.ask.owner, &life.ask.task));
        assert!(*consumed > self.spent && consumed.get() <= TOKEN_MAX, "force consumed no token");
        self.end(LeaseOutcome::Revoked);
        self.spend(*consumed);
    }

    fn expire(&mut self, reply: &Reply) {
        if let Some(life) = self.live() {
            let remaining_ms = life.deadline_ms - self.now_ms;
            assert_eq!(*reply, Err(Refusal::NotExpired { remaining_ms }));
        } else if let Some(life) = self.held() {
            assert_eq!(
                *reply,
                Ok(LeaseCommandResult::Expired { token: life.token, how: life.how_time_ran_out() })
            );
            self.note();
        } else {
            assert_eq!(*reply, Ok(LeaseCommandResult::Nothing));
        }
    }

    fn preempt(&mut self, ask: &PreemptRequest, reply: &Reply) {
        let Some(life) = self.live() else { return assert_eq!(*reply, Err(Refusal::NotHeld)) };
        if ask.priority <= life.ask.priority {
            return assert_eq!(*reply, Err(Refusal::PriorityTooLow { priority: life.ask.priority }));
        }
        let asked = (self.now_ms + ask.yield_in_ms, ask.priority);
        // A higher one takes a notice over, but not to a later time than was promised.
        let earliest = life.yield_at.map_or(asked, |standing| (asked.0.min(standing.0), asked.1));
        let stands = life.yield_at.filter(|standing| standing.1 >= ask.priority).unwrap_or(earliest);
        let free_in_ms = stands.0.max(life.deadline_ms) - self.now_ms;
        assert_eq!(*reply, Ok(LeaseCommandResult::Asked { free_in_ms }));
        self.newest().yield_at = Some(stands);
    }

    fn advance(&mut self, lift: u64, reply: &Reply) {
        let newest = self.counter.max(self.floor).get();
        let has_tokens = newest + 1 < TOKEN_MAX;
        if newest + lift > TOKEN_MAX && has_tokens {
            return assert_eq!(*reply, Err(Refusal::TokensExhausted));
        }
        assert_eq!(*reply, Ok(LeaseCommandResult::Nothing));
        self.end(LeaseOutcome::Advanced);
        self.advanced_at_ms = Some(self.now_ms);
        self.spend(Token::new((newest + lift).min(TOKEN_MAX)));
    }

    /// A token that was never given is an alarm, and the only thing that is.
    fn is_alarm(&self, shown: Token, reply: &Reply) -> bool {
        let current = self.counter.max(self.floor);
        let alarm = Err(Refusal::StoreRewound { token: shown, current_token: current });
        assert_eq!(*reply == alarm, shown > current, "{shown} was shown: {reply:?}");
        shown > current
    }

    /// The life whose end is not noted yet.
    pub(crate) fn held(&self) -> Option<&HoldLife> {
        self.lives.last().filter(|life| life.end.is_none())
    }

    fn live(&self) -> Option<&HoldLife> {
        self.held().filter(|life| self.now_ms < life.deadline_ms)
    }

    fn newest(&mut self) -> &mut HoldLife {
        self.lives.last_mut().expect("the key is held")
    }

    /// Whether this hold id was ever granted.
    fn had(&self, hash: HoldHash) -> bool {
        self.lives.iter().any(|life| life.ask.hash == hash)
    }

    /// Ends the hold now, if there is one.
    fn end(&mut self, how: LeaseOutcome) {
        let now_ms = self.now_ms;
        if self.held().is_some() {
            self.newest().end = Some((how, now_ms));
        }
    }

    /// Notes a hold whose time is up, at the moment when it was.
    fn note(&mut self) {
        if self.held().is_some() && self.live().is_none() {
            let life = self.newest();
            life.end = Some((life.how_time_ran_out(), life.deadline_ms));
        }
    }

    fn spend(&mut self, token: Token) {
        (self.spent, self.counter) = (self.spent.max(token), token);
    }

    /// Every ending since the record was last collected.
    fn noted(&self) -> Vec<(Token, LeaseOutcome, u64)> {
        let ended = self.lives[self.kept_from..].iter();
        ended
            .filter_map(|life| life.end.map(|(how, at_ms)| (life.token, how, at_ms)))
            .collect()
    }

    /// The lives whose ending a record still shows.
    fn recent_lives(&self) -> &[HoldLife] {
        let ended = self.lives.len() - usize::from(self.held().is_some());
        &self.lives[self.kept_from.max(ended.saturating_sub(HISTORY_MAX))..ended]
    }

    /// The answer to a hold id whose ending a record still shows.
    fn remembers(&self, hash: HoldHash) -> Option<Refusal> {
        let life = self.recent_lives().iter().find(|life| life.ask.hash == hash)?;
        life.end.map(|(how, _)| ended(life.token, how))
    }
}

fn ended(token: Token, how: LeaseOutcome) -> Refusal {
    Refusal::HoldIdUsed { token: Some(token), outcome: Some(how) }
}
