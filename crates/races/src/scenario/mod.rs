//! The races, by subject, and one line each in the list.

mod clock;
mod identity;
mod job_end;
mod lost_message;
mod renewal;
mod retention;
mod takeover;
mod volume;

use std::fmt;

use fencehold_core::job::JobOptions;
use fencehold_test_store::TestCapability;

use crate::script::{Script, ScriptResult};

/// What scripts are made of.
mod prelude {
    pub(super) use fencehold_core::job::{JobId, JobOptions, JobState};
    pub(super) use fencehold_core::lease::LeaseOutcome;
    pub(super) use fencehold_core::ledger::InDoubtPolicy;
    pub(super) use fencehold_test_store::TestCapability::{
        Advances, Collects, MovesTime, MovesWall, NoticesLeaving, OwnClock, Restarts,
    };

    pub(super) use super::{JOB_RACE, LEASE_RACE, RACE_OF_JOBS, Race};
    pub(super) use crate::gate::MessageFate;
    pub(super) use crate::job::{JobCall, JobReply};
    pub(super) use crate::protocol::{AcquireTerms, HeldLease, LeaseCall, LeaseReply};
}

/// One race: the schedule, the promise at stake, and the script that arranges it.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Race {
    /// Its number in the catalogue, as in `R06`; a race of leases and of jobs has two, as in `R06-job`.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The promise at stake.
    pub promise: &'static str,
    /// Who does what, in which order.
    pub schedule: &'static str,
    /// What must hold in the end.
    pub must_hold: &'static str,
    /// How the naive twin breaks under the same schedule, where there is one.
    pub naive: Option<&'static str>,
    /// What the store must be able to show.
    needs: &'static [TestCapability],
    subject: RaceSubject,
    script: fn(&Script) -> ScriptResult,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RaceSubject {
    Leases,
    /// Jobs, which the script enqueues.
    Jobs,
    /// One job, which is there when the script begins.
    OneJob,
}

/// What races of leases have in common.
const LEASE_RACE: Race = Race {
    id: "",
    name: "",
    promise: "",
    schedule: "",
    must_hold: "",
    naive: None,
    needs: &[],
    subject: RaceSubject::Leases,
    script: |_| Ok(()),
};
/// What races of one job have in common.
const JOB_RACE: Race = Race { subject: RaceSubject::OneJob, ..LEASE_RACE };
/// What races of jobs have in common that their scripts enqueue.
const RACE_OF_JOBS: Race = Race { subject: RaceSubject::Jobs, ..LEASE_RACE };

impl Race {
    /// Whether it needs a store that keeps jobs.
    pub fn is_about_jobs(&self) -> bool {
        self.subject != RaceSubject::Leases
    }

    /// Arranges it, where it can be arranged.
    pub(crate) fn play(&self, script: &Script) -> ScriptResult {
        self.needs.iter().try_for_each(|capability| script.needs(*capability))?;
        if self.is_about_jobs() {
            script.keeps_jobs()?;
        }
        if self.subject == RaceSubject::OneJob {
            script.has_a_job(JobOptions::default())?;
        }
        (self.script)(script)
    }
}

impl fmt::Debug for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Race({})", self.id)
    }
}

/// Every race that can be arranged from outside a store.
pub const RACES: &[Race] = &[
    takeover::R01,
    takeover::R02,
    renewal::R03,
    renewal::R03_JOB,
    renewal::R04,
    takeover::R05,
    takeover::R06,
    takeover::R06_JOB,
    lost_message::R07,
    renewal::R08,
    renewal::R08_JOB,
    identity::R09,
    identity::R09_JOB,
    identity::R10,
    identity::R10_JOB,
    renewal::R11,
    renewal::R12,
    renewal::R12_JOB,
    lost_message::R13,
    lost_message::R13_JOB,
    lost_message::R14,
    lost_message::R15,
    lost_message::R15_JOB,
    lost_message::R16,
    job_end::R17,
    takeover::R18,
    lost_message::R19,
    clock::R20,
    clock::R21,
    retention::R23,
    retention::R23_JOB,
    retention::R24,
    takeover::R28,
    takeover::R28_JOB,
    volume::R29,
    job_end::R31,
    clock::R32,
    job_end::R33,
    identity::R34,
    retention::R36,
    job_end::R40,
    clock::R42,
    clock::R43,
    volume::R45,
    retention::R47,
];

/// The race of this number, in upper or lower case.
pub fn find(id: &str) -> Option<&'static Race> {
    RACES.iter().find(|race| race.id.eq_ignore_ascii_case(id))
}
