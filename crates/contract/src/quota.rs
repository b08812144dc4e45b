//! What one namespace may have at most: so that no tenant of a store uses up what is there for all.

use std::fmt;

use fencehold_core::limits::{
    BYTES_PER_NAMESPACE, JOBS_PER_NAMESPACE, KEYS_PER_NAMESPACE, QUEUES_PER_NAMESPACE,
    SCHEDULES_PER_NAMESPACE, TTL_MS_MAX, TTL_MS_MIN,
};
use fencehold_core::{BadInput, Namespace, Owner};
use serde::{Deserialize, Serialize};

use crate::StoreError;

wire! {
    /// What a namespace may have at most.
    #[derive(Copy, Default)]
    #[serde(deny_unknown_fields)]
    pub struct Quota {
        /// How many queues.
        #[schemars(range(max = u64::MAX))]
        pub max_queues: Option<u64> = None,
        /// How many lease keys.
        #[schemars(range(max = u64::MAX))]
        pub max_keys: Option<u64> = None,
        /// How many jobs that have not come to their end.
        #[schemars(range(max = u64::MAX))]
        pub max_jobs: Option<u64> = None,
        /// How many bytes the payloads of those jobs have together.
        #[schemars(range(max = u64::MAX))]
        pub max_bytes: Option<u64> = None,
        /// How many schedules.
        #[schemars(range(max = u64::MAX))]
        pub max_schedules: Option<u64> = None,
        /// The longest ttl of a lease or a claim.
        #[schemars(range(min = 100, max = 86_400_000))]
        pub max_ttl_ms: Option<u64> = None,
    }
}

impl Quota {
    /// Those that count where nothing was set.
    pub const USUAL: Quota = Quota {
        max_queues: Some(QUEUES_PER_NAMESPACE),
        max_keys: Some(KEYS_PER_NAMESPACE),
        max_jobs: Some(JOBS_PER_NAMESPACE),
        max_bytes: Some(BYTES_PER_NAMESPACE),
        max_schedules: Some(SCHEDULES_PER_NAMESPACE),
        max_ttl_ms: Some(TTL_MS_MAX),
    };

    /// These, and the others' where these say nothing.
    #[must_use]
    pub fn or(self, others: Quota) -> Quota {
        Quota {
            max_queues: self.max_queues.or(others.max_queues),
            max_keys: self.max_keys.or(others.max_keys),
            max_jobs: self.max_jobs.or(others.max_jobs),
            max_bytes: self.max_bytes.or(others.max_bytes),
            max_schedules: self.max_schedules.or(others.max_schedules),
            max_ttl_ms: self.max_ttl_ms.or(others.max_ttl_ms),
        }
    }

    /// Whether they can be set.
    pub fn check(&self) -> Result<(), BadInput> {
        match self.max_ttl_ms {
            Some(ms) if !(TTL_MS_MIN..=TTL_MS_MAX).contains(&ms) => {
                let problem = format!("is {ms} ms; it takes {TTL_MS_MIN} to {TTL_MS_MAX} ms");
                Err(BadInput::new("longest ttl", problem))
            }
            _ => Ok(()),
        }
    }

    /// Whether a store that has only leases can keep these.
    pub fn check_of_leases(&self, store: &str, ttl_ms_min: u64) -> Result<(), StoreError> {
        self.check()?;
        let of_jobs = [self.max_queues, self.max_jobs, self.max_bytes, self.max_schedules];
        if of_jobs.iter().any(Option::is_some) {
            let what =
                "limit queues, jobs, bytes or schedules: it has only leases, so set --max-keys and --max-ttl";
            return Err(StoreError::Unsupported { store: store.to_owned(), message: what.to_owned() });
        }
        match self.max_ttl_ms {
            Some(ms) if ms < ttl_ms_min => {
                let problem = format!("is {ms} ms; the shortest ttl of {store} is {ttl_ms_min} ms");
                Err(BadInput::new("longest ttl", problem).into())
            }
            _ => Ok(()),
        }
    }

    /// Whether a lease or a claim in a namespace may have this ttl.
    pub fn check_ttl(&self, namespace: &Namespace, ttl_ms: u64) -> Result<(), BadInput> {
        match self.max_ttl_ms {
            Some(most_ms) if ttl_ms > most_ms => {
                let problem = format!(
                    "is {ttl_ms} ms; the longest in namespace {namespace} is {most_ms} ms: renew a shorter one, or ask an \
                     operator (`fencehold quota set`)"
                );
                Err(BadInput::new("ttl", problem))
            }
            _ => Ok(()),
        }
    }
}

wire! {
    /// What a namespace has.
    #[derive(Copy, Default)]
    pub struct QuotaUsage {
        /// How many queues.
        pub queue_count: u64,
        /// How many lease keys.
        pub key_count: u64,
        /// How many jobs that have not come to their end.
        pub job_count: u64,
        /// How many bytes their payloads have.
        pub payload_bytes: u64,
        /// How many schedules.
        pub schedule_count: u64,
    }
}

/// What is limited, as errors call it.
#[derive(Clone, Copy, Debug)]
pub enum Limited {
    /// Its queues.
    Queues,
    /// Its keys.
    Keys,
    /// Its jobs that are not done.
    Jobs,
    /// The payloads of those.
    Bytes,
    /// Its schedules.
    Schedules,
}

impl Limited {
    const ALL: [Limited; 5] =
        [Limited::Queues, Limited::Keys, Limited::Jobs, Limited::Bytes, Limited::Schedules];

    /// What it is called, the member of a quota that bounds it, and what helps where it is used up.
    const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Limited::Queues => ("queues", "max_queues", "remove queues"),
            Limited::Keys => ("lease keys", "max_keys", "use fewer, or wait until free ones are collected"),
            Limited::Jobs => ("jobs that are not done", "max_jobs", "have jobs worked on, or delete some"),
            Limited::Bytes => ("bytes of payload", "max_bytes", "have jobs worked on, or delete some"),
            Limited::Schedules => ("schedules", "max_schedules", "remove schedules"),
        }
    }

    /// The member of a quota that bounds it.
    pub const fn quota(self) -> &'static str {
        self.words().1
    }

    /// What a message of [`full`] is about; `None`: of another limit than a namespace's.
    pub(crate) fn named_in(message: &str) -> Option<Self> {
        Limited::ALL
            .into_iter()
            .find(|limited| message.starts_with(&format!("{limited} of namespace ")))
    }

    /// What is said where the limit is reached.
    pub fn of(self, namespace: &Namespace) -> String {
        self.of_with(namespace, self.words().2)
    }

    fn of_with(self, namespace: &Namespace, next: &str) -> String {
        let option = self.quota().replace('_', "-");
        format!(
            "{self} of namespace {namespace} ({next}; an operator can set --{option} by `fencehold quota set`)"
        )
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words().0)
    }
}

/// Looks at the limits of the caller's namespace, or sets them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaRequest {
    /// What to set. Missing: only look.
    pub quota: Option<Quota>,
    /// Set them for every namespace that has none of its own.
    pub all_namespaces: bool,
    /// Who sets them.
    pub by: Option<Owner>,
}

wire! {
    /// The limits of a namespace that are in force, and what it has.
    #[derive(Copy)]
    pub struct QuotaView {
        /// Each is there.
        pub quota: Quota,
        /// What it has.
        pub usage: QuotaUsage,
    }
}

/// The same for lease keys, in a store that keeps each key for good.
pub fn full_of_kept_keys(namespace: &Namespace, limit: u64) -> StoreError {
    let next = "use the same keys again: each key that was ever held counts";
    StoreError::LimitReached { message: Limited::Keys.of_with(namespace, next), limit }
}

/// The error for a namespace at its limit.
pub fn full(limited: Limited, namespace: &Namespace, limit: u64) -> StoreError {
    StoreError::LimitReached { message: limited.of(namespace), limit }
}
