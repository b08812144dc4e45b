//! The models hold, and each finds the damage when a safeguard is taken away.

use fencehold_proof::model::suite::{TWO, WORKERS};
use fencehold_proof::model::{job, lease, suite, takeover};

/// Few enough for a build without optimisation.
const STATES: usize = 40_000;
/// Enough to come to the first stale write, thirteen steps deep.
const STATES_TO_A_STALE_WRITE: usize = 400_000;

const LEASES: lease::LeaseBounds = lease::LeaseBounds { ticks: 2, revocations: 1, ..TWO };
const JOBS: job::JobBounds = job::JobBounds { cancels: 1, ..WORKERS };
const OWNERS: takeover::TakeoverBounds =
    takeover::TakeoverBounds { processes: 2, requests: 3, takeovers: 3, ..suite::OWNERS };

#[test]
fn the_lease_protocol_keeps_its_promises() {
    let outcome = lease::run(LEASES, STATES);
    assert!(outcome.as_it_should_be(), "{outcome}");
}

#[test]
fn without_a_fence_the_stale_write_is_found() {
    let outcome =
        lease::run(lease::LeaseBounds { fence: false, revocations: 0, ..LEASES }, STATES_TO_A_STALE_WRITE);
    assert!(outcome.as_it_should_be() && outcome.broken.len() == 1, "{outcome}");
}

#[test]
fn the_job_protocol_keeps_its_promises() {
    let outcome = job::run(JOBS, STATES);
    assert!(outcome.as_it_should_be(), "{outcome}");
}

#[test]
fn without_a_proof_the_stale_word_and_the_doubled_effect_are_found() {
    let bounds = job::JobBounds { proof: false, cancels: 0, ..JOBS };
    let outcome = job::run(bounds, 4 * STATES_TO_A_STALE_WRITE);
    assert!(outcome.as_it_should_be() && outcome.broken.len() == 2, "{outcome}");
}

#[test]
fn a_directory_has_one_owner_as_long_as_the_epoch_is_checked() {
    let outcome = takeover::run(OWNERS, STATES);
    assert!(outcome.as_it_should_be() && outcome.exhaustive, "{outcome}");
    for bounds in [
        takeover::TakeoverBounds { commit_checks: false, ..OWNERS },
        takeover::TakeoverBounds { answer_checks: false, ..OWNERS },
    ] {
        let outcome = takeover::run(bounds, STATES);
        assert!(outcome.as_it_should_be() && !outcome.broken.is_empty(), "{outcome}");
    }
}
