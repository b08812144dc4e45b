//! Which models are run, with which bounds: a small set for every change, a large one for now and then.

#![allow(clippy::print_stdout, reason = "a tool for the terminal: what it prints is what it is for")]

use super::{ModelResult, job, lease, takeover};

/// A set of models.
#[derive(Clone, Copy, Debug)]
pub struct ModelSuite {
    leases: &'static [lease::LeaseBounds],
    jobs: &'static [job::JobBounds],
    takeovers: &'static [takeover::TakeoverBounds],
    /// How far each model is followed.
    states_max: usize,
    /// So many different states there must be in all.
    states_min: usize,
    /// So many models must come to their last state.
    exhausted_min: usize,
    /// So many different states there must be in those.
    exhausted_states_min: usize,
}

/// Two clients, and nothing goes wrong.
pub const TWO: lease::LeaseBounds = lease::LeaseBounds {
    clients: 2,
    acquisitions: 2,
    ticks: 3,
    doubled: 0,
    revocations: 0,
    restarts: 0,
    crashes: 0,
    fence: true,
};

/// Two workers, and nothing goes wrong.
pub const WORKERS: job::JobBounds = job::JobBounds {
    workers: 2,
    claims: 2,
    ticks: 3,
    doubled: 0,
    cancels: 0,
    crashes: 0,
    proof: true,
    asks: false,
};

/// Three processes that take the directory over from each other.
pub const OWNERS: takeover::TakeoverBounds = takeover::TakeoverBounds {
    processes: 3,
    requests: 4,
    takeovers: 4,
    deaths: 1,
    commit_checks: true,
    answer_checks: true,
};

/// A million states: for every change.
pub const SMALL: ModelSuite = ModelSuite {
    leases: &[
        lease::LeaseBounds { revocations: 1, ..TWO },
        lease::LeaseBounds { restarts: 1, crashes: 1, ..TWO },
        lease::LeaseBounds { doubled: 1, ..TWO },
        lease::LeaseBounds { fence: false, ..TWO },
    ],
    jobs: &[
        job::JobBounds { cancels: 1, ..WORKERS },
        job::JobBounds { doubled: 1, crashes: 1, asks: true, ..WORKERS },
        job::JobBounds { proof: false, ..WORKERS },
    ],
    takeovers: &[
        OWNERS,
        takeover::TakeoverBounds { commit_checks: false, ..OWNERS },
        takeover::TakeoverBounds { answer_checks: false, ..OWNERS },
    ],
    states_max: 800_000,
    states_min: 1_000_000,
    exhausted_min: 3,
    exhausted_states_min: 10_000,
};

const SHORT: lease::LeaseBounds = lease::LeaseBounds { ticks: 2, ..TWO };

const BRIEF: job::JobBounds = job::JobBounds { ticks: 2, ..WORKERS };

/// Every state within the bounds: for now and then.
pub const LARGE: ModelSuite = ModelSuite {
    leases: &[
        lease::LeaseBounds { revocations: 1, ..SHORT },
        lease::LeaseBounds { restarts: 1, ..SHORT },
        lease::LeaseBounds { crashes: 1, ..SHORT },
        lease::LeaseBounds { doubled: 1, ..SHORT },
        lease::LeaseBounds { fence: false, ..SHORT },
        TWO,
    ],
    jobs: &[
        job::JobBounds { cancels: 1, ..BRIEF },
        job::JobBounds { doubled: 1, ..BRIEF },
        job::JobBounds { crashes: 1, asks: true, ..BRIEF },
        job::JobBounds { proof: false, ..BRIEF },
    ],
    takeovers: &[
        takeover::TakeoverBounds { processes: 4, requests: 5, takeovers: 5, deaths: 2, ..OWNERS },
        takeover::TakeoverBounds { commit_checks: false, ..OWNERS },
        takeover::TakeoverBounds { answer_checks: false, ..OWNERS },
    ],
    states_max: 60_000_000,
    states_min: 4_000_000,
    exhausted_min: 13,
    exhausted_states_min: 4_000_000,
};

/// What became of a set.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    states: usize,
    exhausted: usize,
    exhausted_states: usize,
}

impl ModelSuite {
    /// What there was too little of, each in a sentence.
    fn shortfalls(&self, extent: Extent) -> Vec<String> {
        let mut sentences = Vec::new();
        if extent.states < self.states_min {
            sentences.push(format!(
                "only {} different states were visited, and {} are the least",
                extent.states, self.states_min
            ));
        }
        if extent.exhausted < self.exhausted_min {
            sentences.push(format!(
                "only {} models came to their last state, and {} are the least",
                extent.exhausted, self.exhausted_min
            ));
        }
        if extent.exhausted_states < self.exhausted_states_min {
            sentences.push(format!(
                "those had only {} different states, and {} are the least",
                extent.exhausted_states, self.exhausted_states_min
            ));
        }
        sentences
    }
}

/// Runs the set and says what became of it. False: something is not as it should be, or there was too little of it.
pub fn run(suite: ModelSuite) -> bool {
    let mut extent = Extent::default();
    let mut went_well = true;
    let mut look = |outcome: ModelResult| {
        print!("{outcome}");
        extent.states += outcome.states;
        if outcome.exhaustive {
            extent.exhausted += 1;
            extent.exhausted_states += outcome.states;
        }
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
    let shortfalls = suite.shortfalls(extent);
    for sentence in &shortfalls {
        println!("TOO LITTLE: {sentence}");
    }
    went_well &= shortfalls.is_empty();
    println!(
        "{} states in all, {} of them in {} models that came to their last: {}",
        extent.states,
        extent.exhausted_states,
        extent.exhausted,
        if went_well { "as it should be" } else { "NOT as it should be" }
    );
    went_well
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some hundred states, and all of them.
    const FEW: ModelSuite = ModelSuite {
        leases: &[],
        jobs: &[],
        takeovers: &[takeover::TakeoverBounds { processes: 2, requests: 2, takeovers: 2, ..OWNERS }],
        states_max: 100_000,
        states_min: 100,
        exhausted_min: 1,
        exhausted_states_min: 100,
    };

    #[test]
    fn a_set_that_visits_too_little_is_not_as_it_should_be() {
        assert!(run(FEW));
        assert!(!run(ModelSuite { states_min: 1_000_000, ..FEW }), "too few states");
        assert!(!run(ModelSuite { exhausted_min: 2, ..FEW }), "too few models came to their end");
        assert!(
            !run(ModelSuite { exhausted_states_min: 1_000_000, ..FEW }),
            "they came to their end too soon"
        );
        assert!(!run(ModelSuite { states_max: 50, states_min: 0, ..FEW }), "it was broken off");
    }

    #[test]
    fn what_is_too_little_is_said_with_its_bound() {
        let said = SMALL.shortfalls(Extent { states: 999_999, exhausted: 2, exhausted_states: 10_000 });
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("only 999999 different states") && said[0].contains("1000000"), "{said:?}");
        assert!(said[1].contains("only 2 models came to their last state"), "{said:?}");
        let enough = Extent { states: 4_000_000, exhausted: 13, exhausted_states: 4_000_000 };
        assert_eq!(LARGE.shortfalls(enough), [""; 0]);
        let said = LARGE.shortfalls(Extent { exhausted_states: 3_999_999, ..enough });
        assert!(said[0].contains("those had only 3999999 different states"), "{said:?}");
    }
}
