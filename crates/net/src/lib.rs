//! What stores over a network share: how long a call is tried, and the thread on which requests are made.

mod patience;
mod runtime;

pub use patience::Patience;
pub use runtime::Runtime;
