//! The races, one file each, and one line each in the list. A new one is its file and its two lines here.

mod r01_delete_after_reclaim;
mod r02_double_reclaim;
mod r03_job_renew_against_sweep;
mod r03_renew_against_sweep;
mod r04_renew_against_revoke;
mod r05_stale_sweeper;
mod r06_complete_after_takeover;
mod r06_job_complete_after_takeover;
mod r07_complete_after_expiry;
mod r08_job_steal_back;
mod r08_steal_back;
mod r09_job_same_worker_two_attempts;
mod r09_same_worker_two_attempts;
mod r10_job_reused_name;
mod r10_reused_name;
mod r11_revoke_against_renewal_in_flight;
mod r12_job_hand_back_against_own_heartbeat;
mod r12_release_against_own_heartbeat;
mod r13_job_lost_answer_of_claim;
mod r13_lost_answer_of_acquire;
mod r14_grant_for_nobody;
mod r15_complete_twice;
mod r15_job_complete_twice;
mod r16_complete_then_fail;
mod r17_crash_between_effect_and_record;
mod r18_fence_unseen;
mod r19_wait_then_grant;
mod r20_wall_clock_forward;
mod r21_wall_clock_back;
mod r23_job_restart;
mod r23_restart;
mod r24_backup_put_back;
mod r28_job_two_claimers_and_a_sweep;
mod r28_two_claimers_and_a_sweep;
mod r29_mass_expiry;
mod r31_poison_job;
mod r32_different_ttl;
mod r33_cancel_against_complete;
mod r34_other_tenants_hold;
mod r36_collected_key;
mod r40_cancel_in_the_middle;
mod r42_wall_clock_back_over_a_ready_job;
mod r43_clock_forward_while_a_claim_waits;
mod r45_answer_too_large;
mod r47_owners_that_live_for_a_second;

use std::fmt;

use crate::script::{Script, ScriptResult};

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
    pub(crate) script: fn(&Script) -> ScriptResult,
}

impl Race {
    /// Whether it needs a store that keeps jobs.
    pub fn is_about_jobs(&self) -> bool {
        self.id.ends_with("-job")
            || ["R07", "R16", "R17", "R31", "R33", "R40", "R42", "R43", "R45", "R47"].contains(&self.id)
    }
}

impl fmt::Debug for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Race({})", self.id)
    }
}

/// Every race that can be arranged from outside a store.
pub const RACES: &[Race] = &[
    r01_delete_after_reclaim::RACE,
    r02_double_reclaim::RACE,
    r03_renew_against_sweep::RACE,
    r03_job_renew_against_sweep::RACE,
    r04_renew_against_revoke::RACE,
    r05_stale_sweeper::RACE,
    r06_complete_after_takeover::RACE,
    r06_job_complete_after_takeover::RACE,
    r07_complete_after_expiry::RACE,
    r08_steal_back::RACE,
    r08_job_steal_back::RACE,
    r09_same_worker_two_attempts::RACE,
    r09_job_same_worker_two_attempts::RACE,
    r10_reused_name::RACE,
    r10_job_reused_name::RACE,
    r11_revoke_against_renewal_in_flight::RACE,
    r12_release_against_own_heartbeat::RACE,
    r12_job_hand_back_against_own_heartbeat::RACE,
    r13_lost_answer_of_acquire::RACE,
    r13_job_lost_answer_of_claim::RACE,
    r14_grant_for_nobody::RACE,
    r15_complete_twice::RACE,
    r15_job_complete_twice::RACE,
    r16_complete_then_fail::RACE,
    r17_crash_between_effect_and_record::RACE,
    r18_fence_unseen::RACE,
    r19_wait_then_grant::RACE,
    r20_wall_clock_forward::RACE,
    r21_wall_clock_back::RACE,
    r23_restart::RACE,
    r23_job_restart::RACE,
    r24_backup_put_back::RACE,
    r28_two_claimers_and_a_sweep::RACE,
    r28_job_two_claimers_and_a_sweep::RACE,
    r29_mass_expiry::RACE,
    r31_poison_job::RACE,
    r32_different_ttl::RACE,
    r33_cancel_against_complete::RACE,
    r34_other_tenants_hold::RACE,
    r36_collected_key::RACE,
    r40_cancel_in_the_middle::RACE,
    r42_wall_clock_back_over_a_ready_job::RACE,
    r43_clock_forward_while_a_claim_waits::RACE,
    r45_answer_too_large::RACE,
    r47_owners_that_live_for_a_second::RACE,
];

/// The race of this number, in upper or lower case.
pub fn find(id: &str) -> Option<&'static Race> {
    RACES.iter().find(|race| race.id.eq_ignore_ascii_case(id))
}
