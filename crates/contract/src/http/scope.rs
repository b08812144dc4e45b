//! What a caller may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Makes a choice of things that have names: the same in JSON, on the command line and in a token's record.
macro_rules! named {
    ($(#[$meta:meta])* $Type:ident is $what:literal { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[non_exhaustive]
        pub enum $Type {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl $Type {
            /// Every one.
            pub const ALL: [$Type; [$($name),*].len()] = [$($Type::$variant),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $($Type::$variant => $name,)* }
            }
        }

        impl fmt::Display for $Type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $Type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $Type::ALL.into_iter().find(|one| one.name() == text).ok_or_else(|| {
                    let names = $Type::ALL.map($Type::name).join(", ");
                    format!("the {} {text:?} is not one of {names}", $what)
                })
            }
        }
    };
}

named! {
    /// What a token of access allows. Each operation asks for one.
    Scope is "scope" {
        /// To see leases and events.
        LeaseRead = "lease:read",
        /// To take, renew and give back leases.
        LeaseWrite = "lease:write",
        /// To end leases by force.
        LeaseRevoke = "lease:revoke",
        /// To enqueue jobs, and to see them.
        JobEnqueue = "job:enqueue",
        /// To claim jobs and to report on them.
        JobWork = "job:work",
        /// To cancel, retry and delete jobs; queues and schedules.
        JobAdmin = "job:admin",
        /// To see jobs, queues, schedules and findings, without what jobs are about.
        JobRead = "job:read",
        /// With `job:read`: to see what jobs are about too: payloads, results, checkpoints, effects.
        JobPayload = "job:payload",
        /// To read the page of metrics.
        MetricsRead = "metrics:read",
        /// Everything, and what concerns the store as a whole.
        Admin = "admin",
    }
}

named! {
    /// Scopes that go together: what a token is usually made for.
    Role is "role" {
        /// Looks at leases, jobs and metrics, and not at what jobs are about.
        Reader = "reader",
        /// Takes leases, enqueues jobs and works on them.
        Worker = "worker",
        /// Looks at everything, ends leases, acts on jobs, queues and schedules.
        Operator = "operator",
        /// Everything, tokens included.
        Admin = "admin",
    }
}

impl Role {
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
