//! What shows that Fencehold keeps its promises, and is never shipped.
//!
//! [`model`]: every state of the lease protocol, of a job's life and of the takeover, within bounds. [`sim`]: the engine and the `file:` store under
//! virtual time and seeded trouble, watched by an auditor that knows nothing of them. [`history`]: what real processes saw, and whether it can
//! be true. `layer` (a feature): the checks that `cargo xtask bugs` runs against each deliberate bug of the folder `bugs`.

pub mod history;
#[cfg(feature = "layers")]
pub mod layer;
pub mod model;
pub mod sim;
mod simulated;
