//! What a store supports.

use serde::{Deserialize, Serialize};

/// What a store can do. A caller that asks for more gets `Unsupported`, naming the store and the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, answered yes or no")]
pub struct Capabilities {
    /// The store's name, as in its URL. A server has a text for that of its own store.
    #[serde(skip)]
    pub store: &'static str,
    /// Waiters are served first come, first served.
    pub supports_fair_waiting: bool,
    /// Waiting costs no polling.
    pub supports_waiting: bool,
    /// Contenders of higher priority can ask a holder to yield.
    pub supports_preemption: bool,
    /// Jobs live here too.
    pub supports_jobs: bool,
    /// What is acknowledged survives the process.
    pub durable: bool,
    /// The shortest ttl.
    pub min_ttl_ms: u64,
}
