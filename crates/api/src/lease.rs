//! Leases: taking, keeping, giving back, ending by force, looking.

use fencehold_core::lease::{How, Notice};
use fencehold_core::{HoldId, Key, Namespace, Owner, Reason, Task, Token};

use crate::{Moment, Outcome, wire};

/// How many rows a page has unless the request says otherwise.
pub(crate) const fn page() -> usize {
    100
}

wire! {
    /// The terms on which keys are asked for.
    #[serde(deny_unknown_fields)]
    pub struct AcquireRequest {
        /// Any one of these; the first that is free.
        #[cfg_attr(feature = "document", schemars(length(min = 1, max = fencehold_core::limits::KEYS_PER_ACQUIRE_MAX)))]
        pub keys: Vec<Key>,
        /// The hold id: 128 random bits, made for this acquisition alone. A secret.
        pub hold: HoldId,
        /// How long ago the hold id was made. 0: just now, and it was never sent before; a repeat carries at least 1.
        #[serde(default)]
        #[cfg_attr(feature = "document", schemars(range(max = fencehold_core::limits::HOLD_AGE_MS_MAX)))]
        pub hold_age_ms: u64,
        /// Who asks.
        pub owner: Owner,
        /// What for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task: Option<Task>,
        /// How long a grant or a renewal lasts.
        #[cfg_attr(feature = "document", schemars(range(min = fencehold_core::limits::TTL_MS_MIN, max = fencehold_core::limits::TTL_MS_MAX)))]
        pub ttl_ms: u64,
        /// How long it may be held in all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "document", schemars(range(min = 1, max = fencehold_core::limits::MAX_AGE_MS_MAX)))]
        pub max_age_ms: Option<u64>,
        /// How long to stand in line; 0: not at all.
        #[serde(default)]
        #[cfg_attr(feature = "document", schemars(range(max = fencehold_core::limits::WAIT_MS_MAX)))]
        pub wait_ms: u64,
        /// How long this request has stood in line already, at a server that has since gone.
        #[serde(default)]
        pub waited_before_ms: u64,
        /// Its rank: higher stands further ahead.
        #[serde(default)]
        pub priority: i16,
        /// Ask holders of lower priority to yield within this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub yield_within_ms: Option<u64>,
        /// The largest token that the asker has ever seen for the first key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub seen_token: Option<Token>,
    }

    /// A granted lease.
    pub struct Acquired {
        /// Which of the keys.
        pub key: Key,
        /// The fencing token.
        pub token: Token,
        /// How long it lasts from the deciding moment.
        pub remaining_ms: u64,
        /// Whether this hold id had the lease already, from an earlier sending of the same request.
        pub resumed: bool,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
    }

    /// A hold, as its holder names it.
    #[serde(deny_unknown_fields)]
    pub struct HoldRef {
        /// The key.
        pub key: Key,
        /// The proof.
        pub hold: HoldId,
        /// The token that was granted.
        pub token: Token,
    }

    /// Holds to renew or to give back.
    #[serde(deny_unknown_fields)]
    pub struct Holds {
        /// One answer for each, in order.
        #[cfg_attr(feature = "document", schemars(length(max = fencehold_core::limits::BATCH_MAX)))]
        #[serde(deserialize_with = "crate::value::items")]
        pub holds: Vec<HoldRef>,
    }

    /// The answers to many renewals, in order.
    pub struct Renewed {
        /// One for each.
        pub answers: Vec<Outcome<Renewal>>,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
    }

    /// A renewed lease.
    pub struct Renewal {
        /// The same token as before.
        pub token: Token,
        /// How long it lasts from the deciding moment.
        pub remaining_ms: u64,
        /// Somebody asks the holder to yield.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub notice: Option<Notice>,
        /// In how many milliseconds it should be gone, where somebody asks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub yield_in_ms: Option<u64>,
    }

    /// The answers to many releases, in order.
    pub struct Released {
        /// One for each: the token that it had.
        pub answers: Vec<Outcome<Token>>,
    }

    /// Whose holds to end by force: exactly one of `key`, `task`, `owner` and `prefix`.
    #[serde(deny_unknown_fields)]
    pub struct RevokeRequest {
        /// Which ones.
        pub which: Which,
        /// Who uses force.
        pub by: Owner,
        /// Why.
        pub reason: Reason,
    }

    /// A choice of holds.
    #[serde(rename_all = "snake_case", deny_unknown_fields)]
    pub enum Which {
        /// The hold on one key.
        Key {
            /// The key.
            key: Key,
            /// Only if this is its token.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            only_token: Option<Token>,
        },
        /// All that serve a task.
        Task(Task),
        /// All of an owner.
        Owner(Owner),
        /// All whose key starts with this text.
        Prefix(String),
    }

    /// Holds that were ended by force.
    pub struct RevokedLeases {
        /// Each of them.
        pub revoked: Vec<RevokedLease>,
    }

    /// A hold that was ended by force.
    pub struct RevokedLease {
        /// The key.
        pub key: Key,
        /// The token that it had.
        pub token: Token,
        /// The token that was consumed: nobody gets it, and fences that know it refuse the old holder.
        pub consumed: Token,
        /// Who had it.
        pub owner: Owner,
        /// What for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task: Option<Task>,
    }

    /// Which key to look at.
    #[serde(deny_unknown_fields)]
    pub struct GetRequest {
        /// The key.
        pub key: Key,
    }

    /// How a key stands.
    pub struct LeaseView {
        /// The key.
        pub key: Key,
        /// Its newest token.
        pub token: Token,
        /// Who holds it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub holder: Option<HolderView>,
        /// How many stand in line.
        pub waiters: u64,
        /// How the last holds ended, oldest first.
        pub endings: Vec<EndingView>,
    }

    /// A live hold, without its secret.
    pub struct HolderView {
        /// Who.
        pub owner: Owner,
        /// What for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task: Option<Task>,
        /// The ttl it chose.
        pub ttl_ms: u64,
        /// How long it may be held in all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_age_ms: Option<u64>,
        /// Its rank.
        pub priority: i16,
        /// For how long it has been held.
        pub age_ms: u64,
        /// Since when.
        pub since: Moment,
        /// How long it has left unless it renews.
        pub remaining_ms: u64,
        /// How long ago it was granted or last renewed; missing where the store cannot tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub renewed_ms_ago: Option<u64>,
        /// Who asks it to yield.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub notice: Option<Notice>,
        /// In how many milliseconds it should be gone, where somebody asks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub yield_in_ms: Option<u64>,
    }

    /// How a hold ended, without its secret.
    pub struct EndingView {
        /// Its token.
        pub token: Token,
        /// Who had it.
        pub owner: Owner,
        /// What for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task: Option<Task>,
        /// How it ended.
        pub how: How,
        /// When.
        pub at: Moment,
        /// Who ended it, where somebody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub by: Option<Owner>,
        /// Why, where somebody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<Reason>,
    }

    /// Which keys to list.
    #[serde(deny_unknown_fields)]
    pub struct ListRequest {
        /// Only keys that start with this text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub prefix: Option<String>,
        /// Only holds of this owner.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub owner: Option<Owner>,
        /// Only holds that serve this task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub task: Option<Task>,
        /// Free keys too.
        #[serde(default)]
        pub include_free: bool,
        /// Where the page before ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cursor: Option<u64>,
        /// At most this many.
        #[serde(default = "page")]
        #[cfg_attr(feature = "document", schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX)))]
        pub limit: usize,
    }

    /// One page of a list. It may be short, or even empty, and still not be the last.
    pub struct LeasePage {
        /// The keys.
        pub leases: Vec<LeaseView>,
        /// Where the next page starts; missing: this was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next: Option<u64>,
    }

    /// After a restore or a lossy failover.
    #[serde(deny_unknown_fields)]
    pub struct AdvanceRequest {
        /// Who does it.
        pub by: Owner,
        /// By how much every counter rises.
        #[serde(default = "advance_by")]
        #[cfg_attr(feature = "document", schemars(range(min = 1)))]
        pub lift: u64,
    }

    /// What an advance did.
    pub struct Advanced {
        /// How many keys were lifted.
        pub keys: u64,
        /// How many leases were ended.
        pub ended: u64,
        /// For how long nobody is granted anything: in a namespace that is not among those below.
        pub closed_for_ms: u64,
        /// Namespaces that open by themselves, each after the longest ttl that was ever granted in it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub namespaces: Vec<NamespaceClosed>,
    }

    /// What a namespace may have at most.
    #[serde(deny_unknown_fields)]
    pub struct Limits {
        /// How many queues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "document", schemars(range(max = u64::MAX)))]
        pub queues: Option<u64>,
        /// How many lease keys.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "document", schemars(range(max = u64::MAX)))]
        pub keys: Option<u64>,
        /// How many jobs that have not come to their end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "document", schemars(range(max = u64::MAX)))]
        pub jobs: Option<u64>,
        /// How many bytes the payloads of those jobs have together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "document", schemars(range(max = u64::MAX)))]
        pub bytes: Option<u64>,
        /// How many schedules.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "document", schemars(range(max = u64::MAX)))]
        pub schedules: Option<u64>,
        /// The longest ttl of a lease or a claim.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "document", schemars(range(min = 100, max = 86_400_000)))]
        pub ttl_ms: Option<u64>,
    }

    /// Looks at the limits of the caller's namespace, or sets them.
    #[serde(deny_unknown_fields)]
    pub struct LimitsRequest {
        /// What to set. Missing: only look.
        #[serde(
            default,
            deserialize_with = "crate::value::from_object_if_any",
            skip_serializing_if = "Option::is_none"
        )]
        pub set: Option<Limits>,
        /// Set them for every namespace that has none of its own.
        #[serde(default, skip_serializing_if = "is_false")]
        pub every_namespace: bool,
        /// Who.
        pub by: Owner,
    }

    /// What a namespace has.
    pub struct Used {
        /// How many queues.
        pub queues: u64,
        /// How many lease keys.
        pub keys: u64,
        /// How many jobs that have not come to their end.
        pub jobs: u64,
        /// How many bytes their payloads have.
        pub bytes: u64,
        /// How many schedules.
        pub schedules: u64,
    }

    /// The limits of a namespace that are in force, and what it has.
    pub struct LimitsView {
        /// Each is there.
        pub limits: Limits,
        /// What it has.
        pub used: Used,
    }

    /// For how long a namespace is closed after an advance.
    pub struct NamespaceClosed {
        /// Which.
        pub namespace: Namespace,
        /// For how long nothing is granted in it.
        pub closed_for_ms: u64,
    }

    /// Who opens the store.
    #[serde(deny_unknown_fields)]
    pub struct OpenNowRequest {
        /// Who.
        pub by: Owner,
    }

    /// The store was opened.
    pub struct Opened {}

    /// What the server's store can do.
    #[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, answered yes or no")]
    pub struct Capabilities {
        /// The store behind the server, as in its URL.
        pub store: String,
        /// Waiters are served first come, first served.
        pub fair: bool,
        /// Waiting costs no polling.
        pub waits: bool,
        /// Contenders of higher priority can ask a holder to yield.
        pub preempts: bool,
        /// Jobs live here too.
        pub jobs: bool,
        /// What is acknowledged survives the process.
        pub durable: bool,
        /// The shortest ttl.
        pub ttl_ms_min: u64,
    }

    /// Who serves, and how much there is.
    pub struct StoreStatus {
        /// The store behind the server, as in its URL.
        pub store: String,
        /// The process that owns the store, where one does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub owner_pid: Option<u32>,
        /// The owner's epoch, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub epoch: Option<u64>,
        /// How many keys are kept.
        pub keys: u64,
        /// How many of them are held.
        pub held: u64,
        /// How many requests stand in line.
        pub waiters: u64,
        /// How many jobs have not come to their end.
        pub jobs: u64,
        /// The newest event.
        pub last_event: u64,
        /// Rows that could not be read and were set aside.
        pub set_aside: u64,
        /// Parts of the maintenance that fail at present, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub maintenance: Vec<String>,
        /// For how long nobody is granted anything, after an advance.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub closed_for_ms: u64,
        /// The counts are of all namespaces together, and were left out: this token is not `admin` for all of them.
        #[serde(default, skip_serializing_if = "is_false")]
        pub counts_hidden: bool,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "that is how serde calls it")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "that is how serde calls it")]
const fn is_false(truth: &bool) -> bool {
    !*truth
}

const fn advance_by() -> u64 {
    fencehold_core::limits::ADVANCE_BY
}
