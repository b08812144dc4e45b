//! The world of the model at one moment, and what every arriving message does to it.

use std::collections::BTreeSet;

use fencehold_core::job::{
    By, Command, Due, EffectName, JobOptions, JobState, Outcome as Ruled, Record, Refusal, Standing, Written,
    decide,
};
use fencehold_core::lease::{Change, Term};
use fencehold_core::ledger::{Begun, Effect, InDoubtPolicy, Outcome, begin, record};
use fencehold_core::{HoldHash, HoldId, Owner, Timestamp, Token};

use super::{Bounds, TICK_MS, TTL};

/// The whole world at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) now: u8,
    /// What the store keeps.
    record: Record,
    deadline_ms: u64,
    newest: Token,
    effect: Option<Effect>,
    pub(super) workers: Vec<Worker>,
    /// Messages under way, in order of their content, so that the order of sending makes no new state.
    pub(super) network: Vec<Message>,
    /// What was acknowledged, by an account of its own.
    account: Account,
    /// How much of each budget is used up.
    pub(super) begun: u8,
    pub(super) doubled: u8,
    pub(super) called_off: u8,
    pub(super) crashed: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Worker {
    Idle,
    Asking {
        hold: u8,
        sent: u8,
        again: bool,
    },
    /// Believes in its claim until then; goes on in any case.
    Working {
        hold: u8,
        token: u64,
        until_ms: u64,
        stage: Stage,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Fresh,
    Announced,
    MayAct,
    Recorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Message {
    Claim { worker: u8, hold: u8, sent: u8 },
    Given { worker: u8, hold: u8, token: u64, sent: u8, remaining_ms: u64 },
    NoJob { worker: u8, hold: u8 },
    Renew { worker: u8, hold: u8, token: u64, sent: u8 },
    Renewed { worker: u8, hold: u8, sent: u8, remaining_ms: u64 },
    Announce { worker: u8, hold: u8, token: u64 },
    Go { worker: u8, hold: u8 },
    KnownAlready { worker: u8, hold: u8 },
    Lost { worker: u8, hold: u8 },
    Record { hold: u8, token: u64 },
    Complete { hold: u8, token: u64 },
    Fail { hold: u8, token: u64 },
}

impl Message {
    fn is_answer(self) -> bool {
        matches!(
            self,
            Message::Given { .. }
                | Message::NoJob { .. }
                | Message::Renewed { .. }
                | Message::Go { .. }
                | Message::KnownAlready { .. }
                | Message::Lost { .. }
        )
    }
}

/// What was acknowledged, as an observer of the answers would write it down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Account {
    /// The newest attempt: its token, its hold, until when it is live, and whether it has ended by its own word.
    attempt: Option<(u64, u8, u64, bool)>,
    newest: u64,
    ended: Option<JobState>,
    cancel_asked: bool,
    recorded_by: Option<u64>,
    breach: BTreeSet<Breach>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Breach {
    TwoAttempts,
    TokenDidNotGrow,
    Revived,
    StaleWord,
    EndedTwice,
    EffectTwice,
    LateRefused,
    Robbed,
    Stuck,
}

fn hash_of(hold: u8) -> HoldHash {
    let mut bits = [0; 16];
    bits[0] = hold + 1;
    HoldId::from_random(bits).hash()
}

fn owner() -> Owner {
    Owner::new("worker").expect("a short name")
}

fn effect_name() -> EffectName {
    EffectName::new("effect").expect("a short name")
}

impl World {
    pub(super) fn new(workers: usize) -> World {
        let now = Timestamp { store_ms: 0, wall_ms: 0 };
        World {
            now: 0,
            record: Record::new(JobOptions::default(), None, now),
            deadline_ms: 0,
            newest: Token::NONE,
            effect: None,
            workers: vec![Worker::Idle; workers],
            network: Vec::new(),
            account: Account::default(),
            begun: 0,
            doubled: 0,
            called_off: 0,
            crashed: 0,
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::from(self.now) * TICK_MS
    }

    pub(super) fn broke(&self, breach: Breach) -> bool {
        self.account.breach.contains(&breach)
    }

    pub(super) fn is_claimed(&self) -> bool {
        self.record.claim.is_some()
    }

    pub(super) fn renews(&self, hold: u8) -> bool {
        self.network
            .iter()
            .any(|message| matches!(message, Message::Renew { hold: sent, .. } if *sent == hold))
    }

    pub(super) fn send(&mut self, message: Message) {
        let at = self.network.partition_point(|other| *other < message);
        // Nothing comes of the same answer twice: one of them stands for both, or renewing again and again would have no last state.
        if self.network.get(at) != Some(&message) || !message.is_answer() {
            self.network.insert(at, message);
        }
    }

    pub(super) fn take(&mut self, message: Message) {
        if let Some(at) = self.network.iter().position(|other| *other == message) {
            self.network.remove(at);
        }
    }

    /// Has the product's rules decide, and carries it out as a store does.
    fn rule(&mut self, command: &Command) -> Result<Ruled, Refusal> {
        let now_ms = self.now_ms();
        let term = match (&self.record.claim, self.deadline_ms.checked_sub(now_ms).filter(|ms| *ms > 0)) {
            (None, _) => Term::Free,
            (Some(_), Some(remaining_ms)) => Term::Live { remaining_ms },
            (Some(_), None) => Term::Over { since_ms: now_ms - self.deadline_ms },
        };
        let now = Timestamp { store_ms: now_ms, wall_ms: 0 };
        let decision = decide(&Standing { now, newest: self.newest, term }, &self.record, command);
        if let Some(record) = decision.record {
            self.newest = self.newest.max(record.token);
            self.record = record;
        }
        if let Change::LastsMs(lasts_ms) = decision.deadline {
            self.deadline_ms = now_ms + lasts_ms;
        }
        decision.reply
    }

    /// Who speaks: by hold id and token, or, without a proof, its holder.
    fn by(&self, hold: u8, token: u64, bounds: Bounds) -> By {
        match &self.record.claim {
            Some(claim) if !bounds.proof => By { hash: claim.hash, token: self.record.token },
            _ => By { hash: hash_of(hold), token: Token::new(token) },
        }
    }

    /// Whether an attempt is live by the account.
    fn is_live(&self, token: u64) -> bool {
        let live = |(newest, _, until_ms, over): (u64, u8, u64, bool)| {
            newest == token && !over && self.now_ms() < until_ms
        };
        self.account.attempt.is_some_and(live)
    }

    /// Whether no other attempt has had the job since, and no operator has decided about it.
    fn may_speak(&self, token: u64) -> bool {
        self.account
            .attempt
            .is_some_and(|(newest, _, _, over)| newest == token && !over)
    }

    fn breach(&mut self, breach: Breach) {
        self.account.breach.insert(breach);
    }

    pub(super) fn arrives(&mut self, message: Message, bounds: Bounds) {
        match message {
            Message::Claim { worker, hold, sent } => self.claim(worker, hold, sent),
            Message::Renew { worker, hold, token, sent } => self.renewal(worker, hold, token, sent, bounds),
            Message::Announce { worker, hold, token } => self.announcement(worker, hold, token, bounds),
            Message::Record { hold, token } => self.recording(hold, token, bounds),
            Message::Complete { hold, token } => {
                let command = Command::Complete(self.by(hold, token, bounds));
                self.last_word(token, &command, JobState::Completed);
            }
            Message::Fail { hold, token } => {
                let (by, error) = (self.by(hold, token, bounds), "modelled".into());
                let command = Command::Fail { by, error, retry_in_ms: Some(0), for_good: false, random: 0 };
                self.last_word(token, &command, JobState::Scheduled);
            }
            answer => self.answer(answer),
        }
    }

    /// An answer comes to a worker.
    fn answer(&mut self, message: Message) {
        match message {
            Message::Given { worker, hold, token, sent, remaining_ms } => {
                let worker = &mut self.workers[usize::from(worker)];
                if matches!(worker, Worker::Asking { hold: asked, .. } if *asked == hold) {
                    let until_ms = u64::from(sent) * TICK_MS + remaining_ms;
                    *worker = Worker::Working { hold, token, until_ms, stage: Stage::Fresh };
                }
            }
            Message::NoJob { worker, hold } | Message::Lost { worker, hold } => {
                let worker = &mut self.workers[usize::from(worker)];
                if worker.hold() == Some(hold) {
                    *worker = Worker::Idle;
                }
            }
            Message::Renewed { worker, hold, sent, remaining_ms } => {
                if let Worker::Working { hold: held, until_ms, .. } = &mut self.workers[usize::from(worker)]
                    && *held == hold
                {
                    *until_ms = (*until_ms).max(u64::from(sent) * TICK_MS + remaining_ms);
                }
            }
            Message::Go { worker, hold } | Message::KnownAlready { worker, hold } => {
                if let Worker::Working { hold: held, stage, .. } = &mut self.workers[usize::from(worker)]
                    && *held == hold
                    && *stage == Stage::Announced
                {
                    let goes = matches!(message, Message::Go { .. });
                    *stage = if goes { Stage::MayAct } else { Stage::Recorded };
                }
            }
            _ => {}
        }
    }

    fn claim(&mut self, worker: u8, hold: u8, sent: u8) {
        // The same claim again gets the job that it has, with the time that remains.
        let own = |(token, held, until_ms, over): (u64, u8, u64, bool)| {
            (held == hold && !over && self.now_ms() < until_ms).then_some((token, until_ms))
        };
        if let Some((token, until_ms)) = self.account.attempt.and_then(own) {
            let remaining_ms = until_ms - self.now_ms();
            return self.send(Message::Given { worker, hold, token, sent, remaining_ms });
        }
        let live = self.account.attempt.is_some_and(|(token, ..)| self.is_live(token));
        let ttl_ms = u64::from(TTL) * TICK_MS;
        let claim = Command::Claim { hash: hash_of(hold), owner: owner(), ttl_ms };
        if let Ok(Ruled::Claimed { token, remaining_ms, .. }) = self.rule(&claim) {
            let token = token.get();
            if live {
                self.breach(Breach::TwoAttempts);
            }
            if token <= self.account.newest {
                self.breach(Breach::TokenDidNotGrow);
            }
            if self.account.ended.is_some() || self.account.cancel_asked {
                self.breach(Breach::EndedTwice);
            }
            self.account.newest = token;
            self.account.attempt = Some((token, hold, self.now_ms() + remaining_ms, false));
            self.send(Message::Given { worker, hold, token, sent, remaining_ms });
        } else {
            // What is ready and wanted by no other claim is given: a claim that ran out has been noted by then.
            let ready = self.record.state == JobState::Queued
                || (self.record.state == JobState::Scheduled && self.record.due == Due::Now);
            if ready && !live {
                self.breach(Breach::Stuck);
            }
            self.send(Message::NoJob { worker, hold });
        }
    }

    fn renewal(&mut self, worker: u8, hold: u8, token: u64, sent: u8, bounds: Bounds) {
        let live = self.is_live(token);
        let by = self.by(hold, token, bounds);
        if let Ok(Ruled::Renewed(renewal)) = self.rule(&Command::Renew(by)) {
            if !live && bounds.proof {
                self.breach(Breach::Revived);
            }
            let until_ms = self.now_ms() + renewal.remaining_ms;
            if let Some((newest, _, until, _)) = &mut self.account.attempt
                && *newest == token
            {
                *until = (*until).max(until_ms);
            }
            self.send(Message::Renewed { worker, hold, sent, remaining_ms: renewal.remaining_ms });
        } else {
            if live {
                self.breach(Breach::Robbed);
            }
            self.send(Message::Lost { worker, hold });
        }
    }

    fn announcement(&mut self, worker: u8, hold: u8, token: u64, bounds: Bounds) {
        let live = self.is_live(token);
        let by = self.by(hold, token, bounds);
        let policy = if bounds.asks { InDoubtPolicy::Manual } else { InDoubtPolicy::Retry };
        let recorded = self.account.recorded_by.is_some();
        let what = if recorded { Written::Outcome } else { Written::Intent };
        if self.rule(&Command::Write { by, what }).is_err() {
            if live {
                self.breach(Breach::Robbed);
            }
            return self.send(Message::Lost { worker, hold });
        }
        match begin(self.effect.as_ref(), &effect_name(), policy, by.token, 0, 0) {
            Begun::Go(effect) => {
                if recorded || (!live && bounds.proof) {
                    self.breach(Breach::EffectTwice);
                }
                self.effect = Some(effect);
                self.send(Message::Go { worker, hold });
            }
            Begun::Recorded(_) => self.send(Message::KnownAlready { worker, hold }),
            Begun::InDoubt => {
                let _ = self.rule(&Command::StopAtIntent { by, effect: "effect".into() });
                self.ends_attempt();
                self.account.ended.get_or_insert(JobState::InDoubt);
                self.send(Message::Lost { worker, hold });
            }
        }
    }

    fn recording(&mut self, hold: u8, token: u64, bounds: Bounds) {
        let (live, may_speak) = (self.is_live(token), self.may_speak(token));
        let by = self.by(hold, token, bounds);
        if self.rule(&Command::Write { by, what: Written::Outcome }).is_err() {
            if live {
                self.breach(Breach::Robbed);
            }
            return;
        }
        let outcome = Outcome { name: effect_name(), value: "1".into(), compensation: None };
        if let Ok(effect) = record(self.effect.as_ref(), &outcome, by.token, 0, 0) {
            if self.account.recorded_by.is_some() || !may_speak {
                self.breach(Breach::EffectTwice);
            }
            self.account.recorded_by = Some(token);
            self.effect = Some(effect);
        }
    }

    /// An attempt says how it ended.
    fn last_word(&mut self, token: u64, command: &Command, state: JobState) {
        let (live, may_speak) = (self.is_live(token), self.may_speak(token));
        let open = self.account.ended.is_none();
        let before = self.record.clone();
        match self.rule(command) {
            // The same word again changes nothing.
            Ok(_) if self.record == before => {}
            Ok(_) => {
                if !may_speak {
                    self.breach(Breach::StaleWord);
                }
                if !open {
                    self.breach(Breach::EndedTwice);
                }
                self.ends_attempt();
                if state == JobState::Completed {
                    self.account.ended = Some(state);
                }
            }
            Err(_) if live && open => self.breach(Breach::Robbed),
            Err(_) if may_speak && open && !self.account.cancel_asked => self.breach(Breach::LateRefused),
            Err(_) => {}
        }
    }

    fn ends_attempt(&mut self) {
        if let Some((_, _, _, over)) = &mut self.account.attempt {
            *over = true;
        }
    }

    pub(super) fn sweeps(&mut self) {
        let live = self.account.attempt.is_some_and(|(token, ..)| self.is_live(token));
        if matches!(self.rule(&Command::Expire { random: 0 }), Ok(Ruled::Expired { .. })) && live {
            self.breach(Breach::Robbed);
        }
    }

    pub(super) fn is_called_off(&mut self, now: bool) {
        let live = self.account.attempt.is_some_and(|(token, ..)| self.is_live(token));
        match self.rule(&Command::Cancel { by: owner(), reason: None, now }) {
            Ok(Ruled::Cancelled { state: JobState::Cancelled }) => {
                if self.account.ended.is_some_and(|ended| ended == JobState::Completed) {
                    self.breach(Breach::EndedTwice);
                }
                if live && !now {
                    self.breach(Breach::Robbed);
                }
                self.account.ended = Some(JobState::Cancelled);
                self.ends_attempt();
            }
            Ok(_) => self.account.cancel_asked = true,
            Err(_) => {}
        }
    }

    /// Forgets responses to requests that no worker has any more: whenever they arrived, nothing would come of them.
    pub(super) fn forget_what_nobody_awaits(&mut self) {
        let workers = &self.workers;
        let awaited = |worker: u8, hold: u8| workers[usize::from(worker)].hold() == Some(hold);
        self.network.retain(|message| match message {
            Message::Given { worker, hold, .. } => {
                awaited(*worker, *hold) && matches!(workers[usize::from(*worker)], Worker::Asking { .. })
            }
            Message::NoJob { worker, hold }
            | Message::Lost { worker, hold }
            | Message::Go { worker, hold }
            | Message::KnownAlready { worker, hold }
            | Message::Renewed { worker, hold, .. } => awaited(*worker, *hold),
            _ => true,
        });
    }
}

impl Worker {
    fn hold(self) -> Option<u8> {
        match self {
            Worker::Idle => None,
            Worker::Asking { hold, .. } | Worker::Working { hold, .. } => Some(hold),
        }
    }
}
