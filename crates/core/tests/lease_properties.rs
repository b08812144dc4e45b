//! Random stories of one key, every answer held against a model that knows the promises and not the rules.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::prelude::*;

/// Whose hold id a command carries.
#[derive(Clone, Copy, Debug)]
enum CommandCaller {
    /// One that was never sent before, made this long ago.
    New { age_ms: u64 },
    /// The last one that was granted.
    Newest,
    /// Any one that was sent before.
    Earlier(u8),
}

/// Which token a command shows.
#[derive(Clone, Copy, Debug)]
enum ShownToken {
    /// The one that its hold id was granted.
    Own,
    /// The newest of the key.
    Current,
    /// One that was never given.
    Above(u64),
}

/// One step of a story.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    /// Waits until the last millisecond of the lease, or until it is just over.
    WaitToDeadline {
        past: bool,
    },
    Acquire {
        who: CommandCaller,
        ttl_ms: u64,
        max_age_ms: u64,
        priority: i16,
        seen: Option<ShownToken>,
    },
    Renew(CommandCaller, ShownToken),
    Release(CommandCaller, ShownToken),
    Abandon(CommandCaller),
    Revoke(Option<ShownToken>),
    Expire,
    Preempt {
        urgent: bool,
        yield_in_ms: u64,
    },
    Withdraw,
    Advance(u64),
    RaiseFloor(u64),
    Collect,
}

fn who() -> impl Strategy<Value = CommandCaller> {
    prop_oneof![
        3 => Just(CommandCaller::New { age_ms: 0 }),
        1 => (1..20_000_u64).prop_map(|age_ms| CommandCaller::New { age_ms }),
        4 => Just(CommandCaller::Newest),
        2 => any::<u8>().prop_map(CommandCaller::Earlier),
    ]
}

fn shown() -> impl Strategy<Value = ShownToken> {
    prop_oneof![
        16 => Just(ShownToken::Own),
        2 => Just(ShownToken::Current),
        1 => (1..5_u64).prop_map(ShownToken::Above),
    ]
}

fn acquire() -> impl Strategy<Value = Step> {
    let max_age_ms = prop_oneof![3 => Just(0), 1 => 1..20_000_u64];
    let seen = prop_oneof![3 => Just(None), 1 => shown().prop_map(Some)];
    (who(), 100..10_000_u64, max_age_ms, 0..3_i16, seen).prop_map(
        |(who, ttl_ms, max_age_ms, priority, seen)| Step::Acquire { who, ttl_ms, max_age_ms, priority, seen },
    )
}

/// One step of a brisk story, in which hold ids stay young enough to be sent again.
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..4_000_u64).prop_map(Step::Wait),
        4 => any::<bool>().prop_map(|past| Step::WaitToDeadline { past }),
        24 => acquire(),
        12 => (who(), shown()).prop_map(|(who, shown)| Step::Renew(who, shown)),
        10 => (who(), shown()).prop_map(|(who, shown)| Step::Release(who, shown)),
        2 => who().prop_map(Step::Abandon),
        2 => prop_oneof![Just(None), shown().prop_map(Some)].prop_map(Step::Revoke),
        4 => Just(Step::Expire),
        4 => (any::<bool>(), 0..8_000_u64)
            .prop_map(|(urgent, yield_in_ms)| Step::Preempt { urgent, yield_in_ms }),
        1 => Just(Step::Withdraw),
        1 => (1..1_000_u64).prop_map(Step::Advance),
        1 => (0..50_u64).prop_map(Step::RaiseFloor),
    ]
}

/// The counter that a key begins with, and what then happens to it.
fn story() -> impl Strategy<Value = (u64, Vec<Step>)> {
    // Some keys begin near the cap, where tokens run out.
    let counter = prop_oneof![8 => Just(0), 1 => TOKEN_MAX - 1_200..TOKEN_MAX];
    // And around some it is quiet for hours, so that hold ids grow too old and the key is collected.
    let slow = prop_oneof![
        20 => step(),
        1 => Just(Step::Wait(HOLD_AGE_MS_MAX)),
        1 => Just(Step::Collect),
    ];
    let steps = prop_oneof![
        3 => prop::collection::vec(step(), 1..160),
        1 => prop::collection::vec(slow, 1..80),
    ];
    (counter, steps)
}

/// A key, the model that watches it, and when each hold id was made.
struct Run {
    key: OneKey,
    model: LeaseModel,
    made_at_ms: Vec<u64>,
    replies: Vec<Result<LeaseCommandResult, Refusal>>,
}

impl Run {
    fn new(counter: u64) -> Self {
        let key = OneKey::with_counter(counter);
        let model = LeaseModel::new(key.record.counter);
        Run { key, model, made_at_ms: Vec::new(), replies: Vec::new() }
    }

    /// The hold id to use, and whether this is its first sending.
    fn id(&mut self, who: CommandCaller) -> (u8, bool) {
        let made = self.made_at_ms.len();
        let newest = self.model.lives.last().map(|life| life.ask.hash);
        let (found, age_ms) = match who {
            CommandCaller::New { age_ms } => (None, age_ms),
            CommandCaller::Newest => ((0..made).find(|id| newest == Some(hold(small(*id)))), 0),
            CommandCaller::Earlier(index) => (usize::from(index).checked_rem(made), 0),
        };
        if let Some(id) = found {
            return (small(id), false);
        }
        self.made_at_ms.push(self.key.now.store_ms - age_ms);
        (small(made), true)
    }

    fn token(&self, shown: ShownToken, id: u8) -> Token {
        let current = self.model.counter.max(self.model.floor);
        match shown {
            ShownToken::Own => {
                let own = self.model.lives.iter().find(|life| life.ask.hash == hold(id));
                own.map_or(current, |life| life.token)
            }
            ShownToken::Current => current,
            ShownToken::Above(by) => Token::new(current.get() + by),
        }
    }

    fn command(&mut self, step: Step) -> Option<LeaseCommand> {
        Some(match step {
            Step::Acquire { who, ttl_ms, max_age_ms, priority, seen } => {
                let (id, first) = self.id(who);
                // A repeat carries at least 1: only a first sending can have no age at all.
                let age_ms = self.key.now.store_ms - self.made_at_ms[usize::from(id)];
                let hold_age_ms = age_ms.max(u64::from(!first));
                if hold_age_ms > HOLD_AGE_MS_MAX {
                    return None;
                }
                LeaseCommand::Acquire(Acquire {
                    hold_age_ms,
                    task: id.is_multiple_of(2).then(|| task("even")),
                    ttl_ms,
                    max_age_ms: NonZeroU64::new(max_age_ms),
                    priority,
                    seen_token: seen.map(|seen| self.token(seen, id)),
                    ..ask(["a", "b", "c"][usize::from(id % 3)], id)
                })
            }
            Step::Renew(who, shown) => {
                let (id, _) = self.id(who);
                LeaseCommand::Renew { hash: hold(id), token: self.token(shown, id) }
            }
            Step::Release(who, shown) => {
                let (id, _) = self.id(who);
                LeaseCommand::Release { hash: hold(id), token: self.token(shown, id) }
            }
            Step::Abandon(who) => LeaseCommand::Abandon { hash: hold(self.id(who).0) },
            Step::Revoke(only) => revocation(only.map(|only| self.token(only, 0))),
            Step::Expire => LeaseCommand::Expire,
            Step::Preempt { urgent, yield_in_ms } => LeaseCommand::Preempt(PreemptRequest {
                contender: owner("contender"),
                task: None,
                priority: if urgent { 2 } else { 1 },
                yield_in_ms: if urgent { 0 } else { yield_in_ms },
            }),
            Step::Withdraw => LeaseCommand::Withdraw,
            Step::Advance(lift) => LeaseCommand::Advance { lift, by: owner("operator") },
            Step::Wait(_) | Step::WaitToDeadline { .. } | Step::RaiseFloor(_) | Step::Collect => return None,
        })
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Wait(ms) => self.key.pass(ms),
            Step::WaitToDeadline { past } => {
                let remaining_ms = self.key.remaining_ms().unwrap_or(1);
                self.key.pass(remaining_ms - u64::from(!past));
            }
            Step::RaiseFloor(by) => {
                self.model.floor = self.model.floor.lifted(by).unwrap_or(self.model.floor);
            }
            // Time enough for any key that is free.
            Step::Collect => self.key.pass(COLLECT_AFTER_FREE_MS),
            _ => {}
        }
        self.model.now_ms = self.key.now.store_ms;
        if matches!(step, Step::Collect) && self.model.collect() {
            self.key.record = LeaseRecord::default();
        }
        self.key.floor = self.model.floor;
        if let Some(command) = self.command(step) {
            let reply = self.key.ask(&command);
            self.model.hear(&command, &reply);
            self.replies.push(reply);
        }
        self.model.compare(&self.key);
    }
}

fn small(id: usize) -> u8 {
    u8::try_from(id).expect("a story has fewer than 256 hold ids")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_of_every_story_keeps_the_promises((counter, steps) in story()) {
        let mut run = Run::new(counter);
        for step in steps {
            run.take(step);
        }
        // Nothing to clean: whatever was held ends by itself, and is then on record.
        run.take(Step::WaitToDeadline { past: true });
        run.take(Step::Expire);
        prop_assert!(run.model.held().is_none());
    }

    #[test]
    fn the_wall_clock_decides_nothing(
        (counter, steps) in story(),
        jumps in prop::collection::vec(any::<u32>(), 1..20),
    ) {
        // R20 and R21
        let mut steady = Run::new(counter);
        let mut jumping = Run::new(counter);
        for (step, jump) in steps.into_iter().zip(jumps.into_iter().cycle()) {
            jumping.key.now.wall_ms = u64::from(jump);
            steady.take(step);
            jumping.take(step);
        }
        prop_assert_eq!(steady.replies, jumping.replies);
        prop_assert_eq!(steady.key.deadline_ms, jumping.key.deadline_ms);
    }

    #[test]
    fn a_holder_that_renews_in_time_never_loses(
        beats in prop::collection::vec((0..TTL_MS, 0..200_u8, 0..5_u8), 1..60),
    ) {
        let mut key = OneKey::new();
        let token = key.granted(ask("a", 255));
        for (gap_ms, other, deed) in beats {
            key.pass(gap_ms);
            // Whatever others do without force.
            let harmless = match deed {
                0 => key.acquire(ask("b", other)).is_err(),
                1 => key.renew(other, token).is_err(),
                2 => key.release(other, token).is_err(),
                3 => key.expire().is_err(),
                _ => key.abandon(other).is_ok(),
            };
            prop_assert!(harmless, "deed {} was done to a live lease", deed);
            let renewal = key.renew(255, token);
            prop_assert_eq!(renewal.map(|renewal| (renewal.token, renewal.remaining_ms)), Ok((token, TTL_MS)));
        }
    }
}

/// The name of an answer, with how a lease had ended where it tells.
fn kind(reply: &Result<LeaseCommandResult, Refusal>) -> String {
    let text = reply
        .as_ref()
        .map_or_else(|refusal| format!("{refusal:?}"), |outcome| format!("{outcome:?}"));
    let name = text.split([' ', '(']).next().unwrap_or_default();
    match reply {
        Ok(LeaseCommandResult::Expired { how, .. }) => format!("{name}: {how}"),
        Err(Refusal::HoldIdUsed { outcome: how, .. } | Refusal::Lost { outcome: how, .. }) => {
            format!("{name}: {}", how.map_or_else(|| "forgotten".to_owned(), |how| how.to_string()))
        }
        Ok(LeaseCommandResult::Granted(grant)) if grant.resumed => format!("{name} again"),
        _ => name.to_owned(),
    }
}

#[test]
fn the_stories_reach_every_kind_of_answer() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..400 {
        let (counter, steps) = story().new_tree(&mut runner).unwrap().current();
        let mut run = Run::new(counter);
        for step in steps {
            run.take(step);
        }
        seen.extend(run.replies.iter().map(kind));
    }
    let all = "Asked, Granted, Granted again, Held, NotHeld, PriorityTooLow, Nothing, Released, Renewed, Revoked, \
        NotExpired, StoreRewound, TokensExhausted, WrongHoldId, \
        Expired: aged out, Expired: expired, Expired: yielded, \
        HoldIdUsed: released, HoldIdUsed: expired, HoldIdUsed: revoked, HoldIdUsed: aged out, \
        HoldIdUsed: yielded, HoldIdUsed: abandoned, HoldIdUsed: ended by store advance, HoldIdUsed: forgotten, \
        Lost: released, Lost: expired, Lost: revoked, Lost: aged out, Lost: yielded, Lost: abandoned, \
        Lost: ended by store advance, Lost: forgotten";
    assert_eq!(seen, all.split(", ").map(str::to_owned).collect());
}
