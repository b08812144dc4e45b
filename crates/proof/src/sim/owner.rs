//! One who takes keys and jobs: asks, waits, asks again, holds, renews, gives back; crashes and oversleeps when it is
//! asked to.

use fencehold_contract::job::{AttemptRef, ClaimJobsRequest, NewJob};
use fencehold_contract::{AcquireLeaseRequest, HoldRef};
use fencehold_core::job::{EffectName, JobId};
use fencehold_core::{HoldId, Key, Owner as Name, Token};

use crate::simulated::MachineRequest;

/// How much of a term a holder trusts, in a thousand.
const TRUSTED: u64 = 900;

/// An owner and what it is about.
#[derive(Debug)]
pub(super) struct SimOwner {
    pub(super) name: String,
    /// How fast its clock runs, in a thousandth of the true rate.
    pub(super) rate: u64,
    pub(super) paused_until_ms: u64,
    /// Counts its lives: what was meant for an earlier one is dropped.
    pub(super) life: u32,
    pub(super) about: OwnerActivity,
    /// The job that it enqueued last: it may not know whether that was heard.
    pub(super) enqueued: Option<NewJob>,
    /// Counts its alarms: only the newest rings.
    pub(super) alarm: u64,
}

#[derive(Debug)]
pub(super) enum OwnerActivity {
    Nothing,
    Asking { request: AcquireLeaseRequest, first_sent_ms: u64, sendings: u32 },
    Holding(HeldLease),
    Claiming { request: ClaimJobsRequest, first_sent_ms: u64, sendings: u32 },
    Working(HeldJob),
}

/// A lease as its holder believes in it.
#[derive(Clone, Debug)]
pub(super) struct HeldLease {
    pub(super) key: Key,
    pub(super) hold: HoldId,
    pub(super) token: Token,
    pub(super) ttl_ms: u64,
    /// In true time: what its own clock makes of the term that it was given.
    pub(super) believes_until_ms: u64,
    pub(super) works_until_ms: u64,
    /// It has asked to give it back, and no longer believes in it.
    pub(super) gives_back: bool,
}

impl HeldLease {
    pub(super) fn as_ref(&self) -> HoldRef {
        HoldRef { key: self.key.clone(), hold_id: self.hold, token: self.token }
    }

    pub(super) fn renew(&self) -> MachineRequest {
        MachineRequest::Renew(vec![self.as_ref()])
    }

    pub(super) fn release(&self) -> MachineRequest {
        MachineRequest::Release(vec![self.as_ref()])
    }
}

/// A job in its worker's hands.
#[derive(Clone, Debug)]
pub(super) struct HeldJob {
    pub(super) job: JobId,
    pub(super) hold: HoldId,
    pub(super) token: Token,
    pub(super) ttl_ms: u64,
    pub(super) believes_until_ms: u64,
    /// What it has still to do before its last word.
    pub(super) effects: Vec<EffectName>,
    /// What it waits to be answered, and how often that was sent.
    pub(super) unanswered: Option<(MachineRequest, u32)>,
    /// It no longer believes in its claim, and says its last word all the same.
    pub(super) is_blind: bool,
}

impl HeldJob {
    pub(super) fn attempt(&self) -> AttemptRef {
        AttemptRef { job_id: self.job, hold_id: self.hold, token: self.token }
    }
}

impl SimOwner {
    pub(super) fn new(nth: usize, rate: u64) -> Self {
        SimOwner {
            name: format!("owner {nth}"),
            rate,
            paused_until_ms: 0,
            life: 0,
            about: OwnerActivity::Nothing,
            enqueued: None,
            alarm: 0,
        }
    }

    /// Until when, in true time, it believes in a term that it was given, counted from before it asked.
    pub(super) fn believes_until_ms(&self, sent_ms: u64, waited_ms: u64, remaining_ms: u64) -> u64 {
        sent_ms + (waited_ms + remaining_ms * TRUSTED / 1_000) * 1_000 / self.rate
    }

    /// Whether it works under what this would give back.
    pub(super) fn works_under(&self, gives_back: &MachineRequest) -> bool {
        match (&self.about, gives_back) {
            (OwnerActivity::Holding(held), MachineRequest::Release(holds)) => {
                !held.gives_back && holds.iter().any(|hold| *hold == held.as_ref())
            }
            (OwnerActivity::Working(work), MachineRequest::Report(reports)) => {
                reports.iter().any(|report| report.attempt == work.attempt())
            }
            _ => false,
        }
    }

    /// Dies, and starts again knowing nothing.
    pub(super) fn crash(&mut self) {
        self.life += 1;
        self.about = OwnerActivity::Nothing;
        self.enqueued = None;
    }

    /// The name under which the store knows it.
    pub(super) fn signs(&self) -> Name {
        Name::new(self.name.as_str()).expect("a short name")
    }
}

/// The terms of an acquisition.
pub(super) fn request(
    keys: Vec<Key>,
    hold: HoldId,
    name: &str,
    ttl_ms: u64,
    wait_ms: u64,
) -> AcquireLeaseRequest {
    let first = keys[0].clone();
    let owner = Name::new(name).expect("a short name");
    AcquireLeaseRequest { any_of: keys, wait_ms, ..AcquireLeaseRequest::new(first, hold, owner, ttl_ms) }
}
