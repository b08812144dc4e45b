//! The world of the model at one moment, and what every arriving message does to it.

use std::collections::BTreeSet;

use fencehold_core::job::{
    AttemptProof, AttemptWrite, Due, EffectName, JobCommand, JobCommandResult as Ruled, JobOptions,
    JobRecord, JobRefusal, JobStanding, JobState, decide,
};
use fencehold_core::lease::{DeadlineChange, HoldState};
use fencehold_core::ledger::{Effect, EffectOutcome, EffectStart, InDoubtPolicy, begin, record};
use fencehold_core::{HoldHash, HoldId, Owner, Timestamp, Token};

use super::{JobBounds, TICK_MS, TTL};

/// The whole world at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct JobWorld {
    pub(super) now: u8,
    /// What the store keeps.
    record: JobRecord,
    deadline_ms: u64,
    newest: Token,
    effect: Option<Effect>,
    pub(super) workers: Vec<ModelWorker>,
    /// Messages under way, in order of their content, so that the order of sending makes no new state.
    pub(super) network: Vec<JobMessage>,
    /// What was acknowledged, by an account of its own.
    account: Account,
    /// How much of each budget is used up.
    pub(super) begun: u8,
    pub(super) doubled: u8,
    pub(super) called_off: u8,
    pub(super) crashed: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelWorker {
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
        stage: WorkStage,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WorkStage {
    Fresh,
    Announced,
    MayAct,
    Recorded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum JobMessage {
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

impl JobMessage {
    fn is_answer(self) -> bool {
        matches!(
            self,
            JobMessage::Given { .. }
                | JobMessage::NoJob { .. }
                | JobMessage::Renewed { .. }
                | JobMessage::Go { .. }
                | JobMessage::KnownAlready { .. }
                | JobMessage::Lost { .. }
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
    breach: BTreeSet<JobBreach>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum JobBreach {
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

impl JobWorld {
    pub(super) fn new(workers: usize) -> JobWorld {
        let now = Timestamp { store_ms: 0, wall_ms: 0 };
        JobWorld {
            now: 0,
            record: JobRecord::new(JobOptions::default(), None, now),
            deadline_ms: 0,
            newest: Token::NONE,
            effect: None,
            workers: vec![ModelWorker::Idle; workers],
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

    pub(super) fn broke(&self, breach: JobBreach) -> bool {
        self.account.breach.contains(&breach)
    }

    pub(super) fn is_claimed(&self) -> bool {
        self.record.claim.is_some()
    }

    pub(super) fn renews(&self, hold: u8) -> bool {
        self.network
            .iter()
            .any(|message| matches!(message, JobMessage::Renew { hold: sent, .. } if *sent == hold))
    }

    pub(super) fn send(&mut self, message: JobMessage) {
        let at = self.network.partition_point(|other| *other < message);
        // Nothing comes of the same answer twice: one of them stands for both, or renewing again and again would have no last state.
        if self.network.get(at) != Some(&message) || !message.is_answer() {
            self.network.insert(at, message);
        }
    }

    pub(super) fn take(&mut self, message: JobMessage) {
        if let Some(at) = self.network.iter().position(|other| *other == message) {
            self.network.remove(at);
        }
    }

    /// Has the product's rules decide, and carries it out as a store does.
    fn rule(&mut self, command: &JobCommand) -> Result<Ruled, JobRefusal> {
        let now_ms = self.now_ms();
        let term = match (&self.record.claim, self.deadline_ms.checked_sub(now_ms).filter(|ms| *ms > 0)) {
            (None, _) => HoldState::Free,
            (Some(_), Some(remaining_ms)) => HoldState::Live { remaining_ms },
            (Some(_), None) => HoldState::Over { since_ms: now_ms - self.deadline_ms },
        };
        let now = Timestamp { store_ms: now_ms, wall_ms: 0 };
        let decision = decide(&JobStanding { now, newest: self.newest, term }, &self.record, command);
        if let Some(record) = decision.record {
            self.newest = self.newest.max(record.token);
            self.record = record;
        }
        if let DeadlineChange::LastsMs(lasts_ms) = decision.deadline {
            self.deadline_ms = now_ms + lasts_ms;
        }
        decision.reply
    }

    /// Who speaks: by hold id and token, or, without a proof, its holder.
    fn by(&self, hold: u8, token: u64, bounds: JobBounds) -> AttemptProof {
        match &self.record.claim {
            Some(claim) if !bounds.proof => AttemptProof { hash: claim.hash, token: self.record.token },
            _ => AttemptProof { hash: hash_of(hold), token: Token::new(token) },
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

    fn breach(&mut self, breach: JobBreach) {
        self.account.breach.insert(breach);
    }

    pub(super) fn arrives(&mut self, message: JobMessage, bounds: JobBounds) {
        match message {
            JobMessage::Claim { worker, hold, sent } => self.claim(worker, hold, sent),
            JobMessage::Renew { worker, hold, token, sent } => {
                self.renewal(worker, hold, token, sent, bounds);
            }
            JobMessage::Announce { worker, hold, token } => self.announcement(worker, hold, token, bounds),
            JobMessage::Record { hold, token } => self.recording(hold, token, bounds),
            JobMessage::Complete { hold, token } => {
                let command = JobCommand::Complete(self.by(hold, token, bounds));
                self.last_word(token, &command, JobState::Completed);
            }
            JobMessage::Fail { hold, token } => {
                let (by, error) = (self.by(hold, token, bounds), "modelled".into());
                let command =
                    JobCommand::Fail { by, error, retry_in_ms: Some(0), for_good: false, random: 0 };
                self.last_word(token, &command, JobState::Scheduled);
            }
            answer => self.answer(answer),
        }
    }

    /// An answer comes to a worker.
    fn answer(&mut self, message: JobMessage) {
        match message {
            JobMessage::Given { worker, hold, token, sent, remaining_ms } => {
                let worker = &mut self.workers[usize::from(worker)];
                if matches!(worker, ModelWorker::Asking { hold: asked, .. } if *asked == hold) {
                    let until_ms = u64::from(sent) * TICK_MS + remaining_ms;
                    *worker = ModelWorker::Working { hold, token, until_ms, stage: WorkStage::Fresh };
                }
            }
            JobMessage::NoJob { worker, hold } | JobMessage::Lost { worker, hold } => {
                let worker = &mut self.workers[usize::from(worker)];
                if worker.hold() == Some(hold) {
                    *worker = ModelWorker::Idle;
                }
            }
            JobMessage::Renewed { worker, hold, sent, remaining_ms } => {
                if let ModelWorker::Working { hold: held, until_ms, .. } =
                    &mut self.workers[usize::from(worker)]
                    && *held == hold
                {
                    *until_ms = (*until_ms).max(u64::from(sent) * TICK_MS + remaining_ms);
                }
            }
            JobMessage::Go { worker, hold } | JobMessage::KnownAlready { worker, hold } => {
                if let ModelWorker::Working { hold: held, stage, .. } = &mut self.workers[usize::from(worker)]
                    && *held == hold
                    && *stage == WorkStage::Announced
                {
                    let goes = matches!(message, JobMessage::Go { .. });
                    *stage = if goes { WorkStage::MayAct } else { WorkStage::Recorded };
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
            return self.send(JobMessage::Given { worker, hold, token, sent, remaining_ms });
        }
        let live = self.account.attempt.is_some_and(|(token, ..)| self.is_live(token));
        let ttl_ms = u64::from(TTL) * TICK_MS;
        let claim = JobCommand::Claim { hash: hash_of(hold), owner: owner(), ttl_ms };
        if let Ok(Ruled::Claimed { token, remaining_ms, .. }) = self.rule(&claim) {
            let token = token.get();
            if live {
                self.breach(JobBreach::TwoAttempts);
            }
            if token <= self.account.newest {
                self.breach(JobBreach::TokenDidNotGrow);
            }
            if self.account.ended.is_some() || self.account.cancel_asked {
                self.breach(JobBreach::EndedTwice);
            }
            self.account.newest = token;
            self.account.attempt = Some((token, hold, self.now_ms() + remaining_ms, false));
            self.send(JobMessage::Given { worker, hold, token, sent, remaining_ms });
        } else {
            // What is ready and wanted by no other claim is given: a claim that ran out has been noted by then.
            let ready = self.record.state == JobState::Queued
                || (self.record.state == JobState::Scheduled && self.record.due == Due::Now);
            if ready && !live {
                self.breach(JobBreach::Stuck);
            }
            self.send(JobMessage::NoJob { worker, hold });
        }
    }

    fn renewal(&mut self, worker: u8, hold: u8, token: u64, sent: u8, bounds: JobBounds) {
        let live = self.is_live(token);
        let by = self.by(hold, token, bounds);
        if let Ok(Ruled::Renewed(renewal)) = self.rule(&JobCommand::Renew(by)) {
            if !live && bounds.proof {
                self.breach(JobBreach::Revived);
            }
            let until_ms = self.now_ms() + renewal.remaining_ms;
            if let Some((newest, _, until, _)) = &mut self.account.attempt
                && *newest == token
            {
                *until = (*until).max(until_ms);
            }
            self.send(JobMessage::Renewed { worker, hold, sent, remaining_ms: renewal.remaining_ms });
        } else {
            if live {
                self.breach(JobBreach::Robbed);
            }
            self.send(JobMessage::Lost { worker, hold });
        }
    }

    fn announcement(&mut self, worker: u8, hold: u8, token: u64, bounds: JobBounds) {
        let live = self.is_live(token);
        let by = self.by(hold, token, bounds);
        let policy = if bounds.asks { InDoubtPolicy::Manual } else { InDoubtPolicy::Retry };
        let recorded = self.account.recorded_by.is_some();
        let what = if recorded { AttemptWrite::Outcome } else { AttemptWrite::Intent };
        if self.rule(&JobCommand::Write { by, what }).is_err() {
            if live {
                self.breach(JobBreach::Robbed);
            }
            return self.send(JobMessage::Lost { worker, hold });
        }
        match begin(self.effect.as_ref(), &effect_name(), policy, by.token, 0, 0) {
            EffectStart::Go(effect) => {
                if recorded || (!live && bounds.proof) {
                    self.breach(JobBreach::EffectTwice);
                }
                self.effect = Some(effect);
                self.send(JobMessage::Go { worker, hold });
            }
            EffectStart::Recorded(_) => self.send(JobMessage::KnownAlready { worker, hold }),
            EffectStart::InDoubt => {
                let _ = self.rule(&JobCommand::StopAtIntent { by, effect: "effect".into() });
                self.ends_attempt();
                self.account.ended.get_or_insert(JobState::InDoubt);
                self.send(JobMessage::Lost { worker, hold });
            }
        }
    }

    fn recording(&mut self, hold: u8, token: u64, bounds: JobBounds) {
        let (live, may_speak) = (self.is_live(token), self.may_speak(token));
        let by = self.by(hold, token, bounds);
        if self.rule(&JobCommand::Write { by, what: AttemptWrite::Outcome }).is_err() {
            if live {
                self.breach(JobBreach::Robbed);
            }
            return;
        }
        let outcome = EffectOutcome { name: effect_name(), value: "1".into(), compensation: None };
        if let Ok(effect) = record(self.effect.as_ref(), &outcome, by.token, 0, 0) {
            if self.account.recorded_by.is_some() || !may_speak {
                self.breach(JobBreach::EffectTwice);
            }
            self.account.recorded_by = Some(token);
            self.effect = Some(effect);
        }
    }

    /// An attempt says how it ended.
    fn last_word(&mut self, token: u64, command: &JobCommand, state: JobState) {
        let (live, may_speak) = (self.is_live(token), self.may_speak(token));
        let open = self.account.ended.is_none();
        let before = self.record.clone();
        match self.rule(command) {
            // The same word again changes nothing.
            Ok(_) if self.record == before => {}
            Ok(_) => {
                if !may_speak {
                    self.breach(JobBreach::StaleWord);
                }
                if !open {
                    self.breach(JobBreach::EndedTwice);
                }
                self.ends_attempt();
                if state == JobState::Completed {
                    self.account.ended = Some(state);
                }
            }
            Err(_) if live && open => self.breach(JobBreach::Robbed),
            Err(_) if may_speak && open && !self.account.cancel_asked => self.breach(JobBreach::LateRefused),
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
        if matches!(self.rule(&JobCommand::Expire { random: 0 }), Ok(Ruled::Expired { .. })) && live {
            self.breach(JobBreach::Robbed);
        }
    }

    pub(super) fn is_called_off(&mut self, now: bool) {
        let live = self.account.attempt.is_some_and(|(token, ..)| self.is_live(token));
        match self.rule(&JobCommand::Cancel { by: owner(), reason: None, now }) {
            Ok(Ruled::Cancelled { state: JobState::Cancelled }) => {
                if self.account.ended.is_some_and(|ended| ended == JobState::Completed) {
                    self.breach(JobBreach::EndedTwice);
                }
                if live && !now {
                    self.breach(JobBreach::Robbed);
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
            JobMessage::Given { worker, hold, .. } => {
                awaited(*worker, *hold) && matches!(workers[usize::from(*worker)], ModelWorker::Asking { .. })
            }
            JobMessage::NoJob { worker, hold }
            | JobMessage::Lost { worker, hold }
            | JobMessage::Go { worker, hold }
            | JobMessage::KnownAlready { worker, hold }
            | JobMessage::Renewed { worker, hold, .. } => awaited(*worker, *hold),
            _ => true,
        });
    }
}

impl ModelWorker {
    fn hold(self) -> Option<u8> {
        match self {
            ModelWorker::Idle => None,
            ModelWorker::Asking { hold, .. } | ModelWorker::Working { hold, .. } => Some(hold),
        }
    }
}
