//! What a caller may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a token of access allows. Each operation asks for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// To see jobs, queues, schedules and findings, without what jobs are about.
    #[serde(rename = "job:read")]
    JobRead,
    /// With `job:read`: to see what jobs are about too: payloads, results, checkpoints, effects.
    #[serde(rename = "job:payload")]
    JobPayload,
    /// To read the page of metrics.
    #[serde(rename = "metrics:read")]
    MetricsRead,
    /// Everything, and what concerns the store as a whole.
    #[serde(rename = "admin")]
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 10] = [
        Scope::LeaseRead,
        Scope::LeaseWrite,
        Scope::LeaseRevoke,
        Scope::JobEnqueue,
        Scope::JobWork,
        Scope::JobAdmin,
        Scope::JobRead,
        Scope::JobPayload,
        Scope::MetricsRead,
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
            Scope::JobRead => "job:read",
            Scope::JobPayload => "job:payload",
            Scope::MetricsRead => "metrics:read",
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

/// Scopes that go together: what a token is usually made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Looks at leases, jobs and metrics, and not at what jobs are about.
    Reader,
    /// Takes leases, enqueues jobs and works on them.
    Worker,
    /// Looks at everything, ends leases, acts on jobs, queues and schedules.
    Operator,
    /// Everything, tokens included.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 4] = [Role::Reader, Role::Worker, Role::Operator, Role::Admin];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Reader => "reader",
            Role::Worker => "worker",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// What it stands for.
    pub const fn scopes(self) -> &'static [Scope] {
        match self {
            Role::Reader => &[Scope::LeaseRead, Scope::JobRead, Scope::MetricsRead],
            Role::Worker => &[Scope::LeaseRead, Scope::LeaseWrite, Scope::JobEnqueue, Scope::JobWork],
            Role::Operator => &[
                Scope::LeaseRead,
                Scope::LeaseRevoke,
                Scope::JobEnqueue,
                Scope::JobAdmin,
                Scope::JobRead,
                Scope::JobPayload,
                Scope::MetricsRead,
            ],
            Role::Admin => &[Scope::Admin],
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Role::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| {
            let names = Role::ALL.map(Role::name).join(", ");
            format!("the role {text:?} is not one of {names}")
        })
    }
}
