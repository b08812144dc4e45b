//! What a caller may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a token of access allows. Each operation asks for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "document", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum Scope {
    /// To see leases and events.
    #[serde(rename = "lease:read")]
    LeaseRead,
    /// To take, renew and give back leases.
    #[serde(rename = "lease:write")]
    LeaseWrite,
    /// To end leases by force.
    #[serde(rename = "lease:revoke")]
    LeaseRevoke,
    /// To enqueue jobs, and to see them.
    #[serde(rename = "job:enqueue")]
    JobEnqueue,
    /// To claim jobs and to report on them.
    #[serde(rename = "job:work")]
    JobWork,
    /// To cancel, retry and delete jobs; queues and schedules.
    #[serde(rename = "job:admin")]
    JobAdmin,
    /// Everything, and what concerns the store as a whole.
    #[serde(rename = "admin")]
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 7] = [
        Scope::LeaseRead,
        Scope::LeaseWrite,
        Scope::LeaseRevoke,
        Scope::JobEnqueue,
        Scope::JobWork,
        Scope::JobAdmin,
        Scope::Admin,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::LeaseRead => "lease:read",
            Scope::LeaseWrite => "lease:write",
            Scope::LeaseRevoke => "lease:revoke",
            Scope::JobEnqueue => "job:enqueue",
            Scope::JobWork => "job:work",
            Scope::JobAdmin => "job:admin",
            Scope::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Scope::ALL.into_iter().find(|scope| scope.name() == text).ok_or_else(|| {
            let names = Scope::ALL.map(Scope::name).join(", ");
            format!("the scope {text:?} is not one of {names}")
        })
    }
}
