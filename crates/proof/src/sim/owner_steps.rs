//! What owners do when they wake, and what they make of the answers.

use fencehold_contract::{HoldRef, RevokeLeasesRequest, RevokeTarget, StoreError};
use fencehold_core::{Key, Owner as Name, Reason};

use super::owner::{HeldLease, OwnerActivity, request};
use super::store::SimCaller;
use super::world::{SimEvent, SimResponse, Simulation, TIMEOUT_MS};
use crate::simulated::{MachineRequest, MachineResponse};

impl Simulation {
    /// Sets an owner's alarm. It has one: what was set before no longer rings.
    pub(super) fn wakes_in(&mut self, at: usize, after_ms: u64) {
        self.owners[at].alarm += 1;
        let alarm = self.owners[at].alarm;
        self.at(after_ms, SimEvent::Wakes(at, alarm));
    }

    pub(super) fn wakes(&mut self, at: usize, alarm: u64) {
        let owner = &self.owners[at];
        if owner.alarm != alarm {
            return;
        }
        if self.now_ms < owner.paused_until_ms {
            let after_ms = owner.paused_until_ms - self.now_ms;
            self.wakes_in(at, after_ms);
            return;
        }
        let after_ms = match &owner.about {
            OwnerActivity::Nothing if self.calm => return,
            OwnerActivity::Nothing => self.begins(at),
            OwnerActivity::Asking { .. } => self.asks_again(at),
            OwnerActivity::Holding(_) => self.keeps(at),
            OwnerActivity::Claiming { .. } => self.claims_again(at),
            OwnerActivity::Working(_) => self.works(at),
        };
        self.wakes_in(at, after_ms);
    }

    /// Begins something: mostly an acquisition.
    pub(super) fn begins(&mut self, at: usize) -> u64 {
        if self.random.per_mille(self.plan.jobs) {
            return self.begins_with_jobs(at);
        }
        let key = self.random.one_of(&(0..self.keys.len()).collect::<Vec<_>>());
        let key = self.keys[key].clone();
        let name = self.owners[at].name.clone();
        match self.random.draw() % 20 {
            0 => {
                self.tell(|| format!("{name} looks at {key}"));
                self.send(at, MachineRequest::Get(key));
            }
            1 => {
                self.tell(|| format!("{name} revokes {key}"));
                let by = Name::new(name).expect("a short name");
                let reason = Reason::new("simulated").expect("a short text");
                let which = RevokeTarget::Key { key, only_token: None };
                self.send(at, MachineRequest::Revoke(RevokeLeasesRequest { target: which, by, reason }));
            }
            _ => {
                let mut keys = vec![key];
                let other = self.random.one_of(&(0..self.keys.len()).collect::<Vec<_>>());
                if self.random.per_mille(150) && self.keys[other] != keys[0] {
                    keys.push(self.keys[other].clone());
                }
                let ttl_ms = self.random.one_of(&self.plan.ttls_ms.clone());
                let wait_ms = if self.random.per_mille(500) { self.random.between(1, 3_000) } else { 0 };
                let hold = self.fresh_hold();
                let request = request(keys, hold, &name, ttl_ms, wait_ms);
                let asked = request.any_of.iter().map(Key::as_str).collect::<Vec<_>>().join(" or ");
                self.tell(|| format!("{name} asks for {asked}: ttl {ttl_ms} ms, waits {wait_ms} ms"));
                self.send(at, MachineRequest::Acquire(request.clone()));
                self.owners[at].about =
                    OwnerActivity::Asking { request, first_sent_ms: self.now_ms, sendings: 1 };
                return TIMEOUT_MS + wait_ms;
            }
        }
        self.random.between(10, 400)
    }

    /// No answer has come: the same request again, some time older, or nothing more of it.
    pub(super) fn asks_again(&mut self, at: usize) -> u64 {
        let now_ms = self.now_ms;
        let OwnerActivity::Asking { request, first_sent_ms, sendings } = &mut self.owners[at].about else {
            return 1;
        };
        if *sendings >= 4 {
            self.owners[at].about = OwnerActivity::Nothing;
            return self.random.between(10, 400);
        }
        *sendings += 1;
        let mut again = request.clone();
        again.hold_id_age_ms = (now_ms - *first_sent_ms).max(1);
        let wait_ms = again.wait_ms;
        let name = self.owners[at].name.clone();
        self.tally.count("sent again");
        self.tell(|| format!("{name} asks once more with the same hold id"));
        self.send(at, MachineRequest::Acquire(again));
        TIMEOUT_MS + wait_ms
    }

    /// Renews, gives back, or notices that its time is up.
    pub(super) fn keeps(&mut self, at: usize) -> u64 {
        let now_ms = self.now_ms;
        let OwnerActivity::Holding(held) = &mut self.owners[at].about else { return 1 };
        let (token, ttl_ms) = (held.token, held.ttl_ms);
        if now_ms >= held.believes_until_ms {
            self.owners[at].about = OwnerActivity::Nothing;
            self.tally.count("taken for lost");
            let name = self.owners[at].name.clone();
            self.tell(|| format!("{name} takes token {token} for lost"));
            return self.random.between(10, 400);
        }
        let (question, what) = if held.gives_back || now_ms >= held.works_until_ms || self.calm {
            held.gives_back = true;
            (held.release(), "gives back")
        } else {
            (held.renew(), "renews")
        };
        let name = self.owners[at].name.clone();
        self.tell(|| format!("{name} {what} token {token}"));
        self.send(at, question);
        (ttl_ms / 3).max(1)
    }

    pub(super) fn told(
        &mut self,
        caller: SimCaller,
        question: MachineRequest,
        answer: SimResponse,
    ) -> Result<(), String> {
        let SimCaller { owner: at, life, sent_ms } = caller;
        if self.owners[at].life != life {
            return Ok(());
        }
        if self.now_ms < self.owners[at].paused_until_ms {
            let after_ms = self.owners[at].paused_until_ms - self.now_ms;
            self.at(after_ms, SimEvent::Told(caller, question, Box::new(answer)));
            return Ok(());
        }
        self.history.note(sent_ms, self.now_ms, &question, &answer);
        match (question, answer) {
            (MachineRequest::Acquire(asked), Ok(MachineResponse::Acquired(acquired))) => {
                let first_sent_ms = match &self.owners[at].about {
                    OwnerActivity::Asking { request, first_sent_ms, .. }
                        if request.hold_id == asked.hold_id =>
                    {
                        *first_sent_ms
                    }
                    OwnerActivity::Holding(held) if held.hold == asked.hold_id => return Ok(()),
                    _ => {
                        // It no longer wants it: what was granted is given back.
                        let hold = HoldRef {
                            key: acquired.key,
                            hold_id: asked.hold_id,
                            token: acquired.grant.token,
                        };
                        self.send(at, MachineRequest::Release(vec![hold]));
                        return Ok(());
                    }
                };
                // Which sending was answered can be known only if there was one.
                let from_ms = if acquired.grant.resumed { first_sent_ms } else { sent_ms };
                let owner = &self.owners[at];
                let believes_until_ms =
                    owner.believes_until_ms(from_ms, acquired.waited_ms, acquired.grant.remaining_ms);
                let works_until_ms = self.now_ms + self.random.between(10, 4_000);
                let held = HeldLease {
                    key: acquired.key,
                    hold: asked.hold_id,
                    token: acquired.grant.token,
                    ttl_ms: asked.ttl_ms,
                    believes_until_ms,
                    works_until_ms,
                    gives_back: false,
                };
                self.only_believer(at, &held)?;
                let name = self.owners[at].name.clone();
                self.tell(|| format!("{name} believes in {} under token {}", held.key, held.token));
                let after_ms = (held.ttl_ms / 3).min(works_until_ms - self.now_ms).max(1);
                self.owners[at].about = OwnerActivity::Holding(held);
                self.wakes_in(at, after_ms);
            }
            (MachineRequest::Acquire(asked), Err(StoreError::Refused { .. })) => {
                if matches!(&self.owners[at].about, OwnerActivity::Asking { request, .. } if request.hold_id == asked.hold_id)
                {
                    self.owners[at].about = OwnerActivity::Nothing;
                }
            }
            (MachineRequest::Renew(holds), Ok(MachineResponse::Renewed(renewed))) => {
                let until_ms = match renewed.results.first() {
                    Some(Ok(renewal)) => Some(self.owners[at].believes_until_ms(
                        sent_ms,
                        renewed.waited_ms,
                        renewal.remaining_ms,
                    )),
                    _ => None,
                };
                let about = &mut self.owners[at].about;
                if let OwnerActivity::Holding(held) = about
                    && holds.first().is_some_and(|hold| hold.hold_id == held.hold)
                {
                    match until_ms {
                        Some(until_ms) => held.believes_until_ms = held.believes_until_ms.max(until_ms),
                        None => *about = OwnerActivity::Nothing,
                    }
                }
            }
            (MachineRequest::Release(holds), Ok(MachineResponse::Released(_))) => {
                let about = &mut self.owners[at].about;
                if matches!(about, OwnerActivity::Holding(held) if holds.first().is_some_and(|hold| hold.hold_id == held.hold))
                {
                    *about = OwnerActivity::Nothing;
                }
            }
            (question, answer) => self.told_of_jobs(caller, question, answer),
        }
        Ok(())
    }

    /// No other owner believes in the key at this moment, unless force came between.
    pub(super) fn only_believer(&self, at: usize, new: &HeldLease) -> Result<(), String> {
        let forced = |held: &HeldLease| self.store.accounts.was_forced(held.key.as_str(), held.token.get());
        if self.now_ms >= new.believes_until_ms || forced(new) {
            return Ok(());
        }
        for (nth, owner) in self.owners.iter().enumerate() {
            if let OwnerActivity::Holding(held) = &owner.about
                && nth != at
                && held.key == new.key
                && !held.gives_back
                && self.now_ms < held.believes_until_ms
                && !forced(held)
            {
                return Err(format!(
                    "P1: {} believes in {} under token {} while {} does under token {}",
                    self.owners[at].name, new.key, new.token, owner.name, held.token
                ));
            }
        }
        Ok(())
    }
}
