//! The engine as a whole against a model of its own: random steps by several owners on a few keys, on `memory:` with a
//! clock that is moved by hand. The model is written from the contract and shares no code with the engine.
//!
//! Times are coarse, so that deadlines, waits and notices often fall on the same moment.

mod run;
mod state;
mod step;

use proptest::prelude::{ProptestConfig, prop};
use proptest::proptest;

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_does_what_the_model_says(steps in prop::collection::vec(step::any_step(), 1..90)) {
        run::play(&steps);
    }
}
