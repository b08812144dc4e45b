//! Random stories of one job, every answer held against a model that knows the promises and not the rules.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::prelude::*;

/// Which attempt a command speaks for.
#[derive(Clone, Copy, Debug)]
enum CommandCaller {
    /// The newest one.
    Newest,
    /// Any one that there was.
    Earlier(u8),
    /// None: a hold id that was never used.
    Thief,
}

/// Which token a command shows.
#[derive(Clone, Copy, Debug)]
enum ShownToken {
    /// The attempt's own.
    Own,
    /// The newest of the job.
    Current,
    /// One near its own: of another job, or of no one.
    Near(u64),
    /// One that was never given.
    Above(u64),
}

/// What an attempt can say.
#[derive(Clone, Copy, Debug)]
enum AttemptCommand {
    Renew,
    Complete,
    Fail { retry_in_ms: Option<u64>, for_good: bool },
    Snooze(u64),
    HandBack,
    Abandon,
    Write(AttemptWrite),
    Stop,
}

/// One step of a story.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    /// Waits until the last millisecond of the claim, or until it is just over.
    WaitToDeadline {
        past: bool,
    },
    Claim {
        ttl_ms: u64,
    },
    Say(CommandCaller, ShownToken, AttemptCommand),
    Expire(u64),
    Cancel {
        now: bool,
    },
    EndByForce(ForcedState),
    Retry,
    Delete {
        force: bool,
    },
    Preempt {
        priority: i16,
        yield_in_ms: u64,
    },
    Withdraw,
    Advance(u64),
    OthersTake(u64),
}

fn said() -> impl Strategy<Value = AttemptCommand> {
    let written = prop_oneof![
        Just(AttemptWrite::Checkpoint),
        Just(AttemptWrite::Progress),
        Just(AttemptWrite::Intent),
        Just(AttemptWrite::Outcome)
    ];
    prop_oneof![
        4 => Just(AttemptCommand::Renew),
        2 => Just(AttemptCommand::Complete),
        4 => (prop::option::of(0..50_000_u64), prop::bool::weighted(0.1))
            .prop_map(|(retry_in_ms, for_good)| AttemptCommand::Fail { retry_in_ms, for_good }),
        2 => (0..50_000_u64).prop_map(AttemptCommand::Snooze),
        3 => Just(AttemptCommand::HandBack),
        1 => Just(AttemptCommand::Abandon),
        3 => written.prop_map(AttemptCommand::Write),
        1 => Just(AttemptCommand::Stop),
    ]
}

fn say() -> impl Strategy<Value = Step> {
    let who = prop_oneof![12 => Just(CommandCaller::Newest), 3 => any::<u8>().prop_map(CommandCaller::Earlier), 1 => Just(CommandCaller::Thief)];
    let shown = prop_oneof![
        16 => Just(ShownToken::Own),
        1 => Just(ShownToken::Current),
        1 => (1..4_u64).prop_map(ShownToken::Near),
        1 => (1..5_u64).prop_map(ShownToken::Above),
    ];
    (who, shown, said()).prop_map(|(who, shown, said)| Step::Say(who, shown, said))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..40_000_u64).prop_map(Step::Wait),
        5 => any::<bool>().prop_map(|past| Step::WaitToDeadline { past }),
        14 => (100..TTL_MS).prop_map(|ttl_ms| Step::Claim { ttl_ms }),
        20 => say(),
        6 => any::<u64>().prop_map(Step::Expire),
        1 => prop_oneof![
            3 => prop::bool::weighted(0.3).prop_map(|now| Step::Cancel { now }),
            1 => prop::sample::select(vec![ForcedState::Completed, ForcedState::Failed]).prop_map(Step::EndByForce),
        ],
        3 => Just(Step::Retry),
        1 => any::<bool>().prop_map(|force| Step::Delete { force }),
        2 => (0..4_i16, 0..50_000_u64).prop_map(|(priority, yield_in_ms)| Step::Preempt { priority, yield_in_ms }),
        1 => Just(Step::Withdraw),
        1 => (1..1_000_u64).prop_map(Step::Advance),
        2 => (1..4_u64).prop_map(Step::OthersTake),
    ]
}

/// The terms of a job, and what then happens.
fn story() -> impl Strategy<Value = (JobOptions, Vec<Step>)> {
    let limit_ms = prop_oneof![2 => Just(None), 1 => (1..60_000_u32).prop_map(NonZeroU32::new)];
    let terms = (limit_ms, 1..5_u16, 1..5_u16, 0..2_i16).prop_map(
        |(attempt_ms, max_attempts, max_crashes, priority)| JobOptions {
            attempt_timeout_ms: attempt_ms,
            max_failures: max_attempts,
            max_crashes,
            priority,
            ..terms()
        },
    );
    // Some jobs change hands so often that their first attempts are forgotten.
    let hand_over = prop_oneof![
        8 => Just(Step::Claim { ttl_ms: TTL_MS }),
        8 => Just(Step::Say(CommandCaller::Newest, ShownToken::Own, AttemptCommand::HandBack)),
        1 => any::<u8>().prop_map(|index| Step::Say(CommandCaller::Earlier(index), ShownToken::Own, AttemptCommand::Complete)),
    ];
    let steps = prop_oneof![
        9 => prop::collection::vec(step(), 1..160),
        1 => prop::collection::vec(hand_over, 60..160),
    ];
    (terms, steps)
}

/// A job and the model that watches it.
struct Run {
    job: OneJob,
    model: JobModel,
    replies: Vec<Result<JobCommandResult, JobRefusal>>,
}

impl Run {
    fn new(terms: JobOptions) -> Self {
        let job = OneJob::with(terms);
        let model = JobModel::new(terms, job.newest, job.now.store_ms);
        Run { job, model, replies: Vec::new() }
    }

    fn by(&self, who: CommandCaller, shown: ShownToken) -> AttemptProof {
        let life = match who {
            CommandCaller::Newest => self.model.lives.last(),
            CommandCaller::Earlier(index) => usize::from(index)
                .checked_rem(self.model.lives.len())
                .map(|at| &self.model.lives[at]),
            CommandCaller::Thief => None,
        };
        let own = life.map_or(self.model.token, |life| life.token);
        let token = match shown {
            ShownToken::Own => own,
            ShownToken::Current => self.model.token,
            ShownToken::Near(by) => Token::new(own.get().saturating_sub(by)),
            ShownToken::Above(by) => Token::new(self.model.newest.get() + by),
        };
        AttemptProof { hash: hold(life.map_or(u8::MAX, |life| life.id)), token }
    }

    fn command(&self, step: Step) -> Option<JobCommand> {
        Some(match step {
            Step::Claim { ttl_ms } => {
                let id = u8::try_from(self.model.lives.len()).expect("fewer attempts than hold ids");
                JobCommand::Claim { hash: hold(id), owner: owner("worker"), ttl_ms }
            }
            Step::Say(who, shown, said) => {
                let by = self.by(who, shown);
                match said {
                    AttemptCommand::Renew => JobCommand::Renew(by),
                    AttemptCommand::Complete => JobCommand::Complete(by),
                    AttemptCommand::Fail { retry_in_ms, for_good } => {
                        JobCommand::Fail { by, error: "it broke".into(), retry_in_ms, for_good, random: 7 }
                    }
                    AttemptCommand::Snooze(for_ms) => JobCommand::Snooze { by, for_ms },
                    AttemptCommand::HandBack => JobCommand::HandBack(by),
                    AttemptCommand::Abandon => JobCommand::Abandon(by),
                    AttemptCommand::Write(what) => JobCommand::Write { by, what },
                    AttemptCommand::Stop => JobCommand::StopAtIntent { by, effect: "charge".into() },
                }
            }
            Step::Expire(random) => JobCommand::Expire { random },
            Step::Cancel { now } => cancelling(now),
            Step::EndByForce(state) => JobCommand::EndByForce { state, by: operator(), reason: reason() },
            Step::Retry => JobCommand::Retry { by: operator() },
            Step::Delete { force } => JobCommand::Delete { force },
            Step::Preempt { priority, yield_in_ms } => preempting(priority, yield_in_ms),
            Step::Withdraw => JobCommand::Withdraw,
            Step::Advance(_) => JobCommand::Advance,
            Step::Wait(_) | Step::WaitToDeadline { .. } | Step::OthersTake(_) => return None,
        })
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Wait(ms) => self.job.pass(ms),
            Step::WaitToDeadline { past } => {
                let now_ms = self.job.now.store_ms;
                let remaining_ms =
                    self.job.deadline_ms.map_or(1, |at_ms| at_ms.saturating_sub(now_ms)).max(1);
                self.job.pass(remaining_ms - u64::from(!past));
            }
            // The store lifts its counter first.
            Step::OthersTake(by) | Step::Advance(by) => self.job.others_take(by),
            _ => {}
        }
        (self.model.now_ms, self.model.newest) = (self.job.now.store_ms, self.job.newest);
        self.model.wake();
        if let Some(command) = self.command(step) {
            let reply = self.job.ask(&command);
            self.model.hear(&command, &reply);
            self.replies.push(reply);
        }
        self.model.compare(&self.job);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_of_every_story_keeps_the_promises((terms, steps) in story()) {
        let mut run = Run::new(terms);
        for step in steps {
            run.take(step);
        }
        // Nothing to clean: whatever was held ends by itself, and is then on record.
        run.take(Step::WaitToDeadline { past: true });
        run.take(Step::Expire(0));
        prop_assert!(run.model.held().is_none());
    }

    #[test]
    fn the_wall_clock_decides_nothing_about_a_claim(
        (terms, steps) in story(),
        jumps in prop::collection::vec(any::<u32>(), 1..20),
    ) {
        // R20 and R21
        let mut steady = Run::new(terms);
        let mut jumping = Run::new(terms);
        for (step, jump) in steps.into_iter().zip(jumps.into_iter().cycle()) {
            jumping.job.now.wall_ms = u64::from(jump);
            steady.take(step);
            jumping.take(step);
        }
        prop_assert_eq!(steady.replies, jumping.replies);
    }
}

/// The name of an answer, with how an attempt had ended where it tells.
fn kind(reply: &Result<JobCommandResult, JobRefusal>) -> String {
    let text = reply
        .as_ref()
        .map_or_else(|refusal| format!("{refusal:?}"), |outcome| format!("{outcome:?}"));
    let name = text.split([' ', '(']).next().unwrap_or_default();
    match reply {
        Ok(JobCommandResult::Expired { how })
        | Err(JobRefusal::Over { outcome: how, .. } | JobRefusal::Stale { outcome: Some(how), .. }) => {
            format!("{name}: {how}")
        }
        Err(JobRefusal::Stale { outcome: None, .. }) => format!("{name}: forgotten"),
        Ok(JobCommandResult::Reported(reported)) => {
            format!("{name}: {}{}", reported.state, if reported.late { " late" } else { "" })
        }
        Err(JobRefusal::Finished { state }) => format!("{name}: {state}"),
        _ => name.to_owned(),
    }
}

#[test]
fn the_stories_reach_every_kind_of_answer() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..3_000 {
        let (terms, steps) = story().new_tree(&mut runner).unwrap().current();
        let mut run = Run::new(terms);
        for step in steps {
            run.take(step);
        }
        seen.extend(run.replies.iter().map(kind));
    }
    let all = "Cancelled, Claimed, Deleted, EndedByForce, MayWrite, PriorityTooLow, WrongState, Nothing, WrongJob, Renewed, Retried, \
        JobRunning, NotExpired, StoreRewound, WrongHoldId, \
        Expired: crashed, Expired: timed out, Expired: yielded, \
        Finished: cancelled, Finished: completed, Finished: failed, \
        Over: crashed, Over: timed out, Over: yielded, Over: failed, Over: failed late, Over: snoozed, \
        Over: released, Over: abandoned, Over: in doubt, \
        Reported: cancelled, Reported: cancelled late, Reported: completed, Reported: completed late, \
        Reported: failed, Reported: failed late, Reported: in_doubt, Reported: queued, Reported: queued late, \
        Reported: scheduled, Reported: scheduled late, Reported: in_doubt late, Reported: quarantined late, \
        Reported: running, Reported: running late, Reported: quarantined, \
        Stale: crashed, Stale: timed out, Stale: yielded, Stale: failed, Stale: failed late, Stale: snoozed, \
        Stale: released, Stale: abandoned, Stale: in doubt, Stale: revoked, Stale: ended by store advance, \
        Stale: forgotten";
    let all: BTreeSet<String> = all.split(", ").map(str::to_owned).collect();
    assert_eq!(all.difference(&seen).collect::<Vec<_>>(), Vec::<&String>::new(), "never reached");
    assert_eq!(seen.difference(&all).collect::<Vec<_>>(), Vec::<&String>::new(), "not in the list");
}
