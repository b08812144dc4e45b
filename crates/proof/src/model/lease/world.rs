//! The world of the model at one moment, and what every arriving message does to it.

use fencehold_core::lease::{
    Acquire, DeadlineChange, HoldState, LeaseCommand, LeaseCommandResult as Ruled, LeaseRecord,
    LeaseStanding, decide,
};
use fencehold_core::{HoldHash, HoldId, Owner, Refusal, Timestamp, Token};

use super::{TICK_MS, TTL};

/// The whole world at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeaseWorld {
    pub(super) now: u8,
    /// What the store keeps.
    pub(super) record: LeaseRecord,
    pub(super) deadline_ms: u64,
    pub(super) clients: Vec<ModelClient>,
    /// Messages under way, in order of their content, so that the order of sending makes no new state.
    pub(super) network: Vec<LeaseMessage>,
    /// What was promised, by an account of its own.
    pub(super) ledger: Ledger,
    pub(super) downstream: Downstream,
    /// How much of each budget is used up.
    pub(super) begun: u8,
    pub(super) doubled: u8,
    pub(super) revoked: u8,
    pub(super) restarted: u8,
    pub(super) crashed: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelClient {
    Idle,
    /// Has asked, and may ask again.
    Asking {
        hold: u8,
        first_sent: u8,
        again: bool,
    },
    /// Believes in its lease until then.
    Holding {
        hold: u8,
        token: u64,
        until_ms: u64,
        wrote: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum LeaseMessage {
    Acquire { client: u8, hold: u8, sent: u8, again: bool },
    Granted { client: u8, hold: u8, token: u64, counted_from: u8, remaining_ms: u64 },
    Refused { client: u8, hold: u8 },
    Renew { client: u8, hold: u8, token: u64, sent: u8 },
    Renewed { client: u8, hold: u8, sent: u8, remaining_ms: u64 },
    Lost { client: u8, hold: u8 },
    Release { hold: u8, token: u64 },
    Write { token: u64 },
}

impl LeaseMessage {
    fn is_answer(self) -> bool {
        matches!(
            self,
            LeaseMessage::Granted { .. }
                | LeaseMessage::Refused { .. }
                | LeaseMessage::Renewed { .. }
                | LeaseMessage::Lost { .. }
        )
    }
}

/// What was acknowledged, as an observer of the answers would write it down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ledger {
    /// Leases that were granted and neither given back nor ended by force: token, hold, and until when.
    pub(super) promised: Vec<(u64, u8, u64)>,
    /// The largest token that was ever given or consumed.
    pub(super) newest: u64,
    pub(super) breach: Option<LeaseBreach>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LeaseBreach {
    TwoHolders,
    TokenDidNotGrow,
    Revived,
    Robbed,
    Stuck,
    BelievesTooLong,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Downstream {
    /// What the fence knows: the token of the last write that it let through.
    fence: u64,
    /// What an observer of the accepted writes would write down.
    newest: u64,
    pub(super) stale_write: bool,
}

impl Downstream {
    /// Takes a write, or refuses it by its token where there is a fence.
    fn write(&mut self, token: u64, fenced: bool) {
        if fenced {
            if token < self.fence {
                return;
            }
            self.fence = token;
        }
        self.stale_write |= token < self.newest;
        self.newest = self.newest.max(token);
    }
}

pub(super) fn hash_of(hold: u8) -> HoldHash {
    let mut bits = [0; 16];
    bits[0] = hold + 1;
    HoldId::from_random(bits).hash()
}

pub(super) fn owner() -> Owner {
    Owner::new("client").expect("a short name")
}

impl LeaseWorld {
    pub(super) fn now_ms(&self) -> u64 {
        u64::from(self.now) * TICK_MS
    }

    pub(super) fn send(&mut self, message: LeaseMessage) {
        let at = self.network.partition_point(|other| *other < message);
        // Nothing comes of the same answer twice: one of them stands for both, or renewing again and again would have no last state.
        if self.network.get(at) != Some(&message) || !message.is_answer() {
            self.network.insert(at, message);
        }
    }

    pub(super) fn take(&mut self, message: LeaseMessage) {
        if let Some(at) = self.network.iter().position(|other| *other == message) {
            self.network.remove(at);
        }
    }

    /// Has the product's rules decide, and carries it out as a store does.
    pub(super) fn rule(&mut self, command: &LeaseCommand) -> Result<Ruled, Refusal> {
        let now_ms = self.now_ms();
        let term = match (&self.record.hold, self.deadline_ms.checked_sub(now_ms).filter(|ms| *ms > 0)) {
            (None, _) => HoldState::Free,
            (Some(_), Some(remaining_ms)) => HoldState::Live { remaining_ms },
            (Some(_), None) => HoldState::Over { since_ms: now_ms - self.deadline_ms },
        };
        let now = Timestamp { store_ms: now_ms, wall_ms: 0 };
        let decision = decide(&LeaseStanding { now, floor: Token::NONE, term }, &self.record, command);
        if let Some(record) = decision.record {
            self.record = record;
        }
        match decision.deadline {
            DeadlineChange::Keep => {}
            DeadlineChange::LastsMs(lasts_ms) => self.deadline_ms = now_ms + lasts_ms,
            DeadlineChange::Clear => self.deadline_ms = 0,
        }
        decision.reply
    }

    /// A lease that was promised and is live by the ledger.
    pub(super) fn live(&self) -> impl Iterator<Item = &(u64, u8, u64)> {
        let now_ms = self.now_ms();
        self.ledger.promised.iter().filter(move |(_, _, until_ms)| now_ms < *until_ms)
    }

    pub(super) fn broke(&self, breach: LeaseBreach) -> bool {
        self.ledger.breach == Some(breach)
    }

    pub(super) fn breach(&mut self, breach: LeaseBreach) {
        self.ledger.breach.get_or_insert(breach);
    }

    pub(super) fn arrives(&mut self, message: LeaseMessage, fence: bool) {
        match message {
            LeaseMessage::Acquire { client, hold, sent, again } => self.asked(client, hold, sent, again),
            LeaseMessage::Renew { client, hold, token, sent } => self.renewal(client, hold, token, sent),
            LeaseMessage::Release { hold, token } => {
                let command = LeaseCommand::Release { hash: hash_of(hold), token: Token::new(token) };
                if self.rule(&command).is_ok() {
                    self.ledger.promised.retain(|(promised, ..)| *promised != token);
                }
            }
            LeaseMessage::Granted { client, hold, token, counted_from, remaining_ms } => {
                let at = usize::from(client);
                if matches!(self.clients[at], ModelClient::Asking { hold: asked, .. } if asked == hold) {
                    let until_ms = u64::from(counted_from) * TICK_MS + remaining_ms;
                    self.clients[at] = ModelClient::Holding { hold, token, until_ms, wrote: false };
                }
            }
            LeaseMessage::Renewed { client, hold, sent, remaining_ms } => {
                if let ModelClient::Holding { hold: held, until_ms, .. } =
                    &mut self.clients[usize::from(client)]
                    && *held == hold
                {
                    *until_ms = (*until_ms).max(u64::from(sent) * TICK_MS + remaining_ms);
                }
            }
            LeaseMessage::Refused { client, hold } | LeaseMessage::Lost { client, hold } => {
                let client = &mut self.clients[usize::from(client)];
                let about = match client {
                    ModelClient::Asking { hold: own, .. } | ModelClient::Holding { hold: own, .. } => {
                        *own == hold
                    }
                    ModelClient::Idle => false,
                };
                if about {
                    *client = ModelClient::Idle;
                }
            }
            LeaseMessage::Write { token } => self.downstream.write(token, fence),
        }
    }

    pub(super) fn asked(&mut self, client: u8, hold: u8, sent: u8, again: bool) {
        let live: Vec<u8> = self.live().map(|(_, hold, _)| *hold).collect();
        let command = LeaseCommand::Acquire(Acquire {
            hash: hash_of(hold),
            hold_age_ms: if again { (self.now_ms() - u64::from(sent) * TICK_MS).max(1) } else { 0 },
            owner: owner(),
            task: None,
            ttl_ms: u64::from(TTL) * TICK_MS,
            max_age_ms: None,
            priority: 0,
            seen_token: None,
        });
        match self.rule(&command) {
            Ok(Ruled::Granted(grant)) => {
                let token = grant.token.get();
                if !grant.resumed {
                    if !live.is_empty() {
                        self.breach(LeaseBreach::TwoHolders);
                    }
                    if token <= self.ledger.newest {
                        self.breach(LeaseBreach::TokenDidNotGrow);
                    }
                    self.ledger.newest = token;
                    self.ledger.promised.retain(|(_, promised, _)| *promised != hold);
                    let until_ms = self.now_ms() + grant.remaining_ms;
                    self.ledger.promised.push((token, hold, until_ms));
                } else if !live.contains(&hold) {
                    self.breach(LeaseBreach::Revived);
                }
                let (counted_from, remaining_ms) = (sent, grant.remaining_ms);
                self.send(LeaseMessage::Granted { client, hold, token, counted_from, remaining_ms });
            }
            Err(refusal) => {
                // A key without a live lease is there for a hold id that was never granted anything.
                if matches!(refusal, Refusal::Held { .. }) && live.is_empty() {
                    self.breach(LeaseBreach::Stuck);
                }
                self.send(LeaseMessage::Refused { client, hold });
            }
            Ok(_) => self.breach(LeaseBreach::Stuck),
        }
    }

    pub(super) fn renewal(&mut self, client: u8, hold: u8, token: u64, sent: u8) {
        let promised = self.live().any(|(live, ..)| *live == token);
        let command = LeaseCommand::Renew { hash: hash_of(hold), token: Token::new(token) };
        if let Ok(Ruled::Renewed(renewal)) = self.rule(&command) {
            if !promised || renewal.token.get() != token {
                self.breach(LeaseBreach::Revived);
            }
            let until_ms = self.now_ms() + renewal.remaining_ms;
            for (live, _, until) in &mut self.ledger.promised {
                if *live == token {
                    *until = (*until).max(until_ms);
                }
            }
            self.send(LeaseMessage::Renewed { client, hold, sent, remaining_ms: renewal.remaining_ms });
        } else {
            if promised {
                self.breach(LeaseBreach::Robbed);
            }
            self.send(LeaseMessage::Lost { client, hold });
        }
    }

    /// Forgets responses to requests that no client has any more: whenever they arrived, nothing would come of them.
    pub(super) fn forget_what_nobody_awaits(&mut self) {
        let clients = &self.clients;
        let awaited = |client: u8, about: u8| match clients[usize::from(client)] {
            ModelClient::Asking { hold, .. } | ModelClient::Holding { hold, .. } => hold == about,
            ModelClient::Idle => false,
        };
        let asked = |client: u8, about: u8| matches!(clients[usize::from(client)], ModelClient::Asking { hold, .. } if hold == about);
        self.network.retain(|message| match message {
            LeaseMessage::Granted { client, hold, .. } => asked(*client, *hold),
            LeaseMessage::Refused { client, hold }
            | LeaseMessage::Lost { client, hold }
            | LeaseMessage::Renewed { client, hold, .. } => awaited(*client, *hold),
            _ => true,
        });
    }

    /// Only force takes from a client what it may believe in.
    pub(super) fn look_at_beliefs(&mut self) {
        let now_ms = self.now_ms();
        let too_long = self.clients.iter().any(|client| match client {
            ModelClient::Holding { token, until_ms, .. } if now_ms < *until_ms => {
                let promised = self.ledger.promised.iter().find(|(promised, ..)| promised == token);
                promised.is_some_and(|(_, _, until)| until < until_ms)
            }
            _ => false,
        });
        if too_long {
            self.breach(LeaseBreach::BelievesTooLong);
        }
    }
}
