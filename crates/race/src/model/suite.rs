//! Which models are run, with which bounds: a small set for every change, a large one for now and then.

#![allow(clippy::print_stdout, reason = "a tool for the terminal: what it prints is what it is for")]

use super::{Outcome, job, lease, takeover};

/// A set of models.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    leases: &'static [lease::Bounds],
    jobs: &'static [job::Bounds],
    takeovers: &'static [takeover::Bounds],
    states_max: usize,
}

const TWO: lease::Bounds = lease::Bounds {
    clients: 2,
    acquisitions: 2,
    ticks: 3,
    doubled: 0,
    revocations: 0,
    restarts: 0,
    crashes: 0,
    fence: true,
};

const WORKERS: job::Bounds = job::Bounds {
    workers: 2,
    claims: 2,
    ticks: 3,
    doubled: 0,
    cancels: 0,
    crashes: 0,
    proof: true,
    asks: false,
};

const OWNERS: takeover::Bounds = takeover::Bounds {
    processes: 3,
    requests: 4,
    takeovers: 4,
    deaths: 1,
    commit_checks: true,
    answer_checks: true,
};

/// A million states: for every change.
pub const SMALL: Suite = Suite {
    leases: &[
        lease::Bounds { revocations: 1, ..TWO },
        lease::Bounds { restarts: 1, crashes: 1, ..TWO },
        lease::Bounds { doubled: 1, ..TWO },
        lease::Bounds { fence: false, ..TWO },
    ],
    jobs: &[
        job::Bounds { cancels: 1, ..WORKERS },
        job::Bounds { doubled: 1, crashes: 1, asks: true, ..WORKERS },
        job::Bounds { proof: false, ..WORKERS },
    ],
    takeovers: &[
        OWNERS,
        takeover::Bounds { commit_checks: false, ..OWNERS },
        takeover::Bounds { answer_checks: false, ..OWNERS },
    ],
    states_max: 800_000,
};

const SHORT: lease::Bounds = lease::Bounds { ticks: 2, ..TWO };

const BRIEF: job::Bounds = job::Bounds { ticks: 2, ..WORKERS };

/// Every state within the bounds: for now and then.
pub const LARGE: Suite = Suite {
    leases: &[
        lease::Bounds { revocations: 1, ..SHORT },
        lease::Bounds { restarts: 1, ..SHORT },
        lease::Bounds { crashes: 1, ..SHORT },
        lease::Bounds { doubled: 1, ..SHORT },
        lease::Bounds { fence: false, ..SHORT },
        TWO,
    ],
    jobs: &[
        job::Bounds { cancels: 1, ..BRIEF },
        job::Bounds { doubled: 1, ..BRIEF },
        job::Bounds { crashes: 1, asks: true, ..BRIEF },
        job::Bounds { proof: false, ..BRIEF },
    ],
    takeovers: &[
        takeover::Bounds { processes: 4, requests: 5, takeovers: 5, deaths: 2, ..OWNERS },
        takeover::Bounds { commit_checks: false, ..OWNERS },
        takeover::Bounds { answer_checks: false, ..OWNERS },
    ],
    states_max: 25_000_000,
};

/// Runs the set and says what became of it. False: something is not as it should be.
pub fn run(suite: Suite) -> bool {
    let mut states = 0;
    let mut went_well = true;
    let mut look = |outcome: Outcome| {
        print!("{outcome}");
        states += outcome.states;
        went_well &= outcome.as_it_should_be();
    };
    for bounds in suite.leases {
        look(lease::run(*bounds, suite.states_max));
    }
    for bounds in suite.jobs {
        look(job::run(*bounds, suite.states_max));
    }
    for bounds in suite.takeovers {
        look(takeover::run(*bounds, suite.states_max));
    }
    println!("{states} states in all: {}", if went_well { "as it should be" } else { "NOT as it should be" });
    went_well
}
