//! The contract of a store of leases.
//!
//! It is about meaning (acquire, renew, revoke), not about keys and values: each store keeps the promises with
//! the strongest primitive that it has. Every answer that grants time says how long that request stood in line,
//! so that the holder can count from before it asked.

use std::collections::BTreeMap;

use fencehold_core::job::JobId;
use fencehold_core::lease::{Ending, Grant, LeaseOutcome, LeaseRenewal, Revoked, YieldRequest};
use fencehold_core::limits::STATS_STEP_MS_MIN;
use fencehold_core::wire::AsMoment;
use fencehold_core::{BlockedAction, Event, HoldId, Key, Namespace, Owner, Reason, Refusal, Task, Token};

use serde::{Deserialize, Serialize};

use crate::event::AsEvents;
use crate::job::{JobRequest, JobResponse, JobStore};
use crate::json::{AsCursor, AsKeys, AsOptionalCursor, AsResults, is_default, page};
use crate::metrics::StoreMetrics;
use crate::operation::{StoreBackend, calls, plain, revoke_all};
use crate::{
    Capabilities, ContentionList, HoldListener, ListContentionRequest, QuotaRequest, QuotaView, StoreError,
    Subscription,
};

calls! {
    /// A place where leases live.
    ///
    /// Dropping the future of a waiting call leaves the line. Sending the same request again is always safe.
    trait LeaseStore {
        /// What this store can do.
        fn capabilities(&self) -> Capabilities;

        /// The jobs of this store, if they live here too.
        fn jobs(&self) -> Option<&dyn JobStore>;

        /// The schema of the PostgreSQL database that has the store, where this process reaches it directly.
        fn postgres_schema(&self) -> Option<&str>;

        /// How many requests this handle has sent over a network so far, where the store can tell: what things cost.
        fn requests_sent(&self) -> Option<u64>;

        /// Ends holds by force.
        async fn revoke(
            &self,
            call: &CallContext,
            request: RevokeLeasesRequest,
        ) -> Result<Vec<RevokedLease>, StoreError>;

        /// For how long nothing is granted after `advance`; 0: the store grants. It is asked often, so it counts nothing.
        async fn closed_for_ms(&self, call: &CallContext) -> Result<u64, StoreError>;

        /// Checks that the store is reachable and can be used.
        async fn ping(&self, call: &CallContext) -> Result<(), StoreError>;

        /// Has a listener called with each key on whose hold another caller acted: ended it, asked it to yield, called its job off. Every
        /// store says what was revoked through this handle; of other handles, holders learn by their next renewal where the store cannot
        /// tell. A hint without a promise: a holder renews to learn what is true. `None`: this store says nothing.
        fn on_hold_change(&self, listener: HoldListener) -> Option<Subscription>;

        /// Ends this handle's part in the store in good order. Later calls get `Unavailable`.
        async fn close(&self);

        /// What was counted and measured of this store. `None`: nothing is known in this process.
        fn metrics(&self) -> Option<&StoreMetrics>;

        /// Brings the counts of `metrics` up to date where the store itself keeps them. Elsewhere they always are.
        async fn refresh_metrics(&self, call: &CallContext) -> Result<(), StoreError>;
    }
    impl {
        fn capabilities(&self) -> Capabilities {
            StoreBackend::capabilities(self)
        }

        fn jobs(&self) -> Option<&dyn JobStore> {
            let jobs: &dyn JobStore = self;
            StoreBackend::capabilities(self).supports_jobs.then_some(jobs)
        }

        fn postgres_schema(&self) -> Option<&str> {
            StoreBackend::postgres_schema(self)
        }

        fn requests_sent(&self) -> Option<u64> {
            StoreBackend::requests_sent(self)
        }

        async fn revoke(
            &self,
            call: &CallContext,
            request: RevokeLeasesRequest,
        ) -> Result<Vec<RevokedLease>, StoreError> {
            revoke_all(self, call, request).await
        }

        async fn closed_for_ms(&self, call: &CallContext) -> Result<u64, StoreError> {
            StoreBackend::closed_for_ms(self, call).await
        }

        async fn ping(&self, call: &CallContext) -> Result<(), StoreError> {
            StoreBackend::ping(self, call).await
        }

        fn on_hold_change(&self, listener: HoldListener) -> Option<Subscription> {
            self.hold_changes().map(|changes| changes.subscribe(listener))
        }

        async fn close(&self) {
            StoreBackend::close(self).await;
        }

        fn metrics(&self) -> Option<&StoreMetrics> {
            StoreBackend::metrics(self)
        }

        async fn refresh_metrics(&self, call: &CallContext) -> Result<(), StoreError> {
            StoreBackend::refresh_metrics(self, call).await
        }
    }
    /// A call of the contract: what is asked for.
    enum StoreRequest {
        /// From a slot on: a revocation of many is asked for page by page.
        Revoke {
            /// What is asked for.
            request: RevokeLeasesRequest,
            /// The slot.
            from: u32,
        },
        /// About jobs.
        Job(JobRequest),
        /// How long finished jobs are to be kept, by the last process that opened the store and named a time.
        KeepFinished {
            /// For so long.
            ms: u64,
        },
    }
    /// What a call of the contract is answered with, if it is not an error.
    enum StoreResponse {
        /// Where to go on, if there may be more.
        Revoked {
            ended: Vec<RevokedLease>,
            next: Option<u32>,
        },
        Job(JobResponse),
        KeepsFinished,
    }
    calls {
        /// Takes one of the keys, waiting in line for up to `wait_ms`.
        acquire: Acquire(request: AcquireLeaseRequest) -> Acquired(AcquiredLease) [LeasesAlone];
        /// Renews many holds in one call; one answer for each, in order.
        renew: Renew(holds: Vec<HoldRef>) -> Renewed(RenewLeaseBatchResponse) [LeasesAlone];
        /// Gives many holds back in one call; one answer for each, in order.
        release: Release(holds: Vec<HoldRef>) -> Released(Vec<Result<ReleasedLease, Refusal>>) [LeasesAlone];
        /// How one key stands. `None`: nothing is kept of it.
        get: Get(key: Key) -> Lease(Option<LeaseView>) [Reads, LeasesAlone];
        /// Keys and how they stand, a page at a time, in no particular order.
        list: List(request: ListLeasesRequest) -> Leases(LeasePage) [Reads, LeasesAlone];
        /// What happened after a cursor, waiting up to `wait_ms` for something to happen.
        list_events: Events(request: ListEventsRequest) -> Events(EventPage) [Reads];
        /// After a restore or a lossy failover: ends every lease of every namespace, raises every counter and floor
        /// by `increment`, and returns for how long nothing may be granted, which is the longest ttl there was.
        advance: Advance { by: Owner, increment: u64 } -> Advanced(AdvancedStore) [Once];
        /// Looks at the limits of the caller's namespace, or sets them.
        quota: Quota(request: QuotaRequest) -> Quota(QuotaView);
        /// Opens a store that an advance has closed, at once. A holder from before the advance may still believe in its lease, so there can
        /// be two until its ttl is over: only what checks tokens keeps the old one out.
        reopen: Reopen { by: Owner } -> Reopened(()) [LeasesAlone];
        /// Who serves, and how much there is.
        status: Status -> Status(StoreStatus) [Reads];
        /// How the leases of the caller's namespace ended lately, as far back as the store can tell.
        stats: Stats(request: LeaseStatsRequest) -> Stats(LeaseStats) [Reads, LeasesAlone];
        /// Records that a stale write was refused elsewhere: in a transaction of the caller's own, which is rolled back, or at a fence. Of a
        /// token under which the key, or the job, is held, nothing is recorded. One that is sent again may be recorded twice.
        report_blocked_write: ReportBlockedWrite(request: BlockedWrite) -> BlockedWriteRecorded(RecordedBlockedWrite);
        /// The keys of the caller's namespace that callers contended for lately, and how: as far as the store, or this handle, remembers it.
        list_contention: Contention(request: ListContentionRequest) -> Contention(ContentionList) [Reads, LeasesAlone];
    }
}

/// What every call carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallContext {
    /// The namespace.
    pub namespace: Namespace,
    /// How long to retry while the store is unreachable, on top of any waiting in line.
    pub timeout_ms: u64,
    /// Whether the request came from another process, which may have sent it before and been answered.
    pub relayed: bool,
}

impl CallContext {
    /// A call in a namespace, with a timeout of ten seconds.
    pub fn new(namespace: Namespace) -> Self {
        CallContext { namespace, timeout_ms: 10_000, relayed: false }
    }

    /// The same call, on behalf of another process.
    pub fn relayed(self) -> Self {
        CallContext { relayed: true, ..self }
    }

    /// The same call with another timeout.
    pub fn with_timeout_ms(self, timeout_ms: u64) -> Self {
        CallContext { timeout_ms, ..self }
    }
}

wire! {
    /// The terms on which keys are asked for.
    #[serde(deny_unknown_fields)]
    pub struct AcquireLeaseRequest {
        /// Any one of these; the first that is free.
        #[serde(flatten, with = "AsKeys")]
        pub any_of: Vec<Key>,
        /// The hold id: 128 random bits, made for this acquisition alone. A secret.
        pub hold_id: HoldId,
        /// How long ago the hold id was made. 0: just now, and it was never sent before; a repeat carries at least 1.
        #[serde(default)]
        #[schemars(range(max = fencehold_core::limits::HOLD_AGE_MS_MAX))]
        pub hold_id_age_ms: u64,
        /// Who asks.
        pub owner: Owner,
        /// What for.
        pub task: Option<Task> = None,
        /// How long a grant or a renewal lasts.
        #[schemars(range(min = fencehold_core::limits::TTL_MS_MIN, max = fencehold_core::limits::TTL_MS_MAX))]
        pub ttl_ms: u64,
        /// How long it may be held in all.
        #[schemars(range(min = 1, max = fencehold_core::limits::MAX_AGE_MS_MAX))]
        pub max_age_ms: Option<u64> = None,
        /// How long to stand in line; 0: not at all.
        #[serde(default)]
        #[schemars(range(max = fencehold_core::limits::WAIT_MS_MAX))]
        pub wait_ms: u64,
        /// How long this request has stood in line already, at a server that has since gone.
        #[serde(default)]
        pub waited_before_ms: u64,
        /// Its rank: higher stands further ahead.
        #[serde(default)]
        pub priority: i16,
        /// Ask holders of lower priority to yield within this time.
        pub preempt_within_ms: Option<u64> = None,
        /// The largest token that the asker has ever seen for the first key.
        pub seen_token: Option<Token> = None,
    }
}

impl AcquireLeaseRequest {
    /// An acquisition of one key that does not wait, by a hold id that was made just now.
    pub fn new(key: Key, hold: HoldId, owner: Owner, ttl_ms: u64) -> Self {
        AcquireLeaseRequest {
            any_of: vec![key],
            hold_id: hold,
            hold_id_age_ms: 0,
            owner,
            task: None,
            ttl_ms,
            max_age_ms: None,
            wait_ms: 0,
            waited_before_ms: 0,
            priority: 0,
            preempt_within_ms: None,
            seen_token: None,
        }
    }

    /// Whether its caller asks for the first time: it was not sent before, nor refused or waiting before.
    pub fn is_first_sending(&self) -> bool {
        self.hold_id_age_ms == 0 && self.waited_before_ms == 0
    }
}

wire! {
    /// A granted lease.
    pub struct AcquiredLease {
        /// Which of the keys.
        pub key: Key,
        /// The grant: its fields stand beside the others.
        #[serde(flatten)]
        pub grant: Grant,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
    }

    /// A hold, as its holder names it.
    #[serde(deny_unknown_fields)]
    pub struct HoldRef {
        /// The key.
        pub key: Key,
        /// The proof.
        pub hold_id: HoldId,
        /// The token that was granted.
        pub token: Token,
    }

    /// The answers to many renewals, in order.
    pub struct RenewLeaseBatchResponse {
        /// One for each.
        #[serde(with = "AsResults")]
        #[schemars(with = "Vec<crate::json::ItemResult<LeaseRenewal>>")]
        pub results: Vec<Result<LeaseRenewal, Refusal>>,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
    }
}

/// Whose holds to end by force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeLeasesRequest {
    /// Which ones.
    pub target: RevokeTarget,
    /// Who uses force.
    pub by: Owner,
    /// Why.
    pub reason: Reason,
}

/// A choice of holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RevokeTarget {
    /// The hold on one key.
    Key {
        /// The key.
        key: Key,
        /// Only if this is its token.
        only_token: Option<Token>,
    },
    /// All that serve a task.
    Task(Task),
    /// All of an owner.
    Owner(Owner),
    /// All whose key starts with this text.
    Prefix(String),
    /// All that serve a task or one below it: see [`Task::covers`].
    TaskPrefix(Task),
}

wire! {
    /// A lease that was released.
    pub struct ReleasedLease {
        /// The key.
        pub key: Key,
        /// The token that it had.
        pub token: Token,
    }

    /// A hold that was ended by force.
    pub struct RevokedLease {
        /// The key.
        pub key: Key,
        /// The hold: its fields stand beside the others.
        #[serde(flatten)]
        pub revoked: Revoked,
    }

    /// How a key stands.
    pub struct LeaseView {
        /// The key.
        pub key: Key,
        /// Its newest token.
        pub token: Token,
        /// Who holds it.
        pub holder: Option<HolderView> = None,
        /// How many stand in line.
        pub waiter_count: u64,
        /// How the last holds ended, oldest first.
        pub endings: Vec<EndingView>,
    }

    /// A live hold, without its secret.
    pub struct HolderView {
        /// Who.
        pub owner: Owner,
        /// What for.
        pub task: Option<Task> = None,
        /// The ttl it chose.
        pub ttl_ms: u64,
        /// How long it may be held in all.
        pub max_age_ms: Option<u64> = None,
        /// Its rank.
        pub priority: i16,
        /// For how long it has been held.
        pub age_ms: u64,
        /// Since when.
        #[serde(rename = "acquired_at", with = "AsMoment")]
        pub acquired_at_ms: u64,
        /// How long it has left unless it renews.
        pub remaining_ms: u64,
        /// How long ago it was granted or last renewed; missing where the store cannot tell.
        pub renewed_ago_ms: Option<u64> = None,
        /// Who asks it to yield.
        pub yield_request: Option<YieldRequest> = None,
    }

    /// How a hold ended, without its secret.
    pub struct EndingView {
        /// Its token.
        pub token: Token,
        /// Who had it.
        pub owner: Owner,
        /// What for.
        pub task: Option<Task> = None,
        /// How it ended.
        pub outcome: LeaseOutcome,
        /// When.
        #[serde(rename = "ended_at", with = "AsMoment")]
        pub ended_at_ms: u64,
        /// Who ended it, where somebody did.
        pub by: Option<Owner> = None,
        /// Why, if someone did.
        pub reason: Option<Reason> = None,
    }
}

impl EndingView {
    /// What people may see of an ending.
    #[doc(hidden)]
    pub fn of(ending: &Ending) -> Self {
        EndingView {
            token: ending.token,
            owner: ending.owner.clone(),
            task: ending.task.clone(),
            outcome: ending.outcome,
            ended_at_ms: ending.at.wall_ms,
            by: ending.by.clone(),
            reason: ending.reason.clone(),
        }
    }
}

wire! {
    /// Which keys to list.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct ListLeasesRequest {
        /// Only keys that start with this text.
        pub prefix: Option<String> = None,
        /// Only holds of this owner.
        pub owner: Option<Owner> = None,
        /// Only holds that serve this task.
        pub task: Option<Task> = None,
        /// Only holds that serve this task or one below it: `run-42` covers `run-42/a`, and not `run-420`.
        pub task_prefix: Option<Task> = None,
        /// Free keys too.
        #[serde(default)]
        pub include_free: bool,
        /// Where the page before ended.
        #[serde(with = "AsOptionalCursor")]
        pub cursor: Option<u64> = None,
        /// At most this many.
        #[serde(default = "page")]
        #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
        pub limit: usize,
    }

    /// One page of a list. It may be short, or even empty, and still not be the last.
    pub struct LeasePage {
        /// The keys.
        pub leases: Vec<LeaseView>,
        /// Where the next page starts; missing: this was the last.
        #[serde(with = "AsOptionalCursor")]
        pub next_cursor: Option<u64> = None,
    }

    /// Which events to read.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct ListEventsRequest {
        /// Those after this one; missing: from the oldest that is kept.
        #[serde(with = "AsOptionalCursor")]
        pub cursor: Option<u64> = None,
        /// Only of keys that start with this text; a job's is `job/ID`.
        pub prefix: Option<String> = None,
        /// Only those that name this task or one below it: `run-42` covers `run-42/a`, and not `run-420`. Leases that are acquired or
        /// end name the holder's task, requests to yield the contender's; other events name none.
        pub task_prefix: Option<Task> = None,
        /// At most this many.
        #[serde(default = "page")]
        #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
        pub limit: usize,
        /// How long to wait for the first one; more than an hour counts as that.
        #[serde(default)]
        pub wait_ms: u64,
    }

    /// One page of events.
    pub struct EventPage {
        /// The events, oldest first.
        #[serde(with = "AsEvents")]
        pub events: Vec<Event>,
        /// The cursor to go on from.
        #[serde(with = "AsCursor")]
        pub next_cursor: u64,
    }

    /// What an advance did.
    #[derive(Default)]
    pub struct AdvancedStore {
        /// How many keys were lifted.
        pub key_count: u64,
        /// How many leases were ended.
        pub ended_count: u64,
        /// For how long nobody is granted anything: in a namespace that is not among those below.
        pub closed_for_ms: u64,
        /// Namespaces that open by themselves, each after the longest ttl that was ever granted in it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub namespaces: Vec<ClosedNamespace>,
    }

    /// For how long a namespace is closed after an advance.
    pub struct ClosedNamespace {
        /// Which.
        pub namespace: Namespace,
        /// For how long nothing is granted in it.
        pub closed_for_ms: u64,
    }

    /// Who serves, and how much there is.
    #[derive(Default)]
    pub struct StoreStatus {
        /// The store behind the server, as in its URL.
        pub store: String,
        /// The process that owns the store, where one does.
        pub owner_pid: Option<u32> = None,
        /// The owner's epoch, where there is one.
        pub epoch: Option<u64> = None,
        /// How many keys are kept.
        pub key_count: u64,
        /// How many of them are held.
        pub held_count: u64,
        /// How many requests stand in line.
        pub waiter_count: u64,
        /// How many jobs have not come to their end.
        pub job_count: u64,
        /// The newest event.
        pub newest_event_seq: u64,
        /// Rows that could not be read and were set aside.
        pub unreadable_row_count: u64,
        /// Parts of the maintenance that fail at present, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub maintenance_errors: Vec<String>,
        /// For how long nobody is granted anything, after an advance.
        #[serde(default, skip_serializing_if = "is_default")]
        pub closed_for_ms: u64,
        /// The counts are of all namespaces together, and were left out: this token is not `admin` for all of them.
        #[serde(default, skip_serializing_if = "is_default")]
        pub counts_hidden: bool,
    }
}

wire! {
    /// For how far back to count.
    #[serde(deny_unknown_fields)]
    pub struct LeaseStatsRequest {
        /// What ended no longer ago than this.
        #[schemars(range(min = 1, max = fencehold_core::limits::STATS_MS_MAX))]
        pub since_ms: u64,
        /// Count also in steps of this length, the oldest first. PostgreSQL counts by whole minutes.
        #[schemars(range(min = fencehold_core::limits::STATS_STEP_MS_MIN, max = fencehold_core::limits::STATS_MS_MAX))]
        pub step_ms: Option<u64> = None,
    }

    /// How many leases ended which way in a part of the time.
    pub struct LeaseStatsStep {
        /// When it begins. It lasts until the next one begins, or until now.
        #[serde(rename = "begins_at", with = "AsMoment")]
        pub begins_at_ms: u64,
        /// How many leases ended each way. A way in which none ended is left out.
        #[schemars(with = "BTreeMap<String, u64>")]
        pub ended_counts: BTreeMap<LeaseOutcome, u64>,
    }

    /// How leases ended, and how many of them each way.
    #[derive(Default)]
    pub struct LeaseStats {
        /// From when on they are counted: later than asked for where the store does not know what was before.
        #[serde(rename = "begins_at", with = "AsMoment")]
        pub begins_at_ms: u64,
        /// Whether all that ended in the time that was asked for is counted. Otherwise there were at least as many.
        pub complete: bool,
        /// Holders gave them back.
        pub released_count: u64,
        /// Their time ran out: holders died, stalled, or could not reach the store.
        pub expired_count: u64,
        /// They were ended by force.
        pub revoked_count: u64,
        /// They were held for their whole `max_age`.
        pub aged_out_count: u64,
        /// They ended because a contender asked for it.
        pub yielded_count: u64,
        /// They were granted to waiters that had already gone.
        pub abandoned_count: u64,
        /// `store advance` ended them.
        pub advanced_count: u64,
        /// The newest event that is counted: a replay of the events up to it gives the same counts. Left out by stores that keep no
        /// events, and where events with lower numbers are still to come from transactions under way.
        pub event_seq: Option<u64> = None,
        /// The same counts in steps, the oldest first, where the request asks for them. Steps in which no lease ended are there, too.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub steps: Vec<LeaseStatsStep>,
    }
}

impl LeaseStats {
    /// Counts so many endings at a moment.
    #[doc(hidden)]
    pub fn add(&mut self, outcome: LeaseOutcome, at_ms: u64, count: u64) {
        let step = self.steps.partition_point(|step| step.begins_at_ms <= at_ms);
        if let Some(step) = step.checked_sub(1).and_then(|at| self.steps.get_mut(at)) {
            *step.ended_counts.entry(outcome).or_default() += count;
        }
        let counted = match outcome {
            LeaseOutcome::Released => &mut self.released_count,
            LeaseOutcome::Expired => &mut self.expired_count,
            LeaseOutcome::Revoked => &mut self.revoked_count,
            LeaseOutcome::AgedOut => &mut self.aged_out_count,
            LeaseOutcome::Yielded => &mut self.yielded_count,
            LeaseOutcome::Abandoned => &mut self.abandoned_count,
            LeaseOutcome::Advanced => &mut self.advanced_count,
            // There is none yet.
            _ => return,
        };
        *counted += count;
    }

    /// How many leases ended, whichever way.
    pub fn total(&self) -> u64 {
        [
            self.released_count,
            self.expired_count,
            self.revoked_count,
            self.aged_out_count,
            self.yielded_count,
            self.abandoned_count,
            self.advanced_count,
        ]
        .iter()
        .sum()
    }

    /// Nothing yet, from a moment on that lies as far back as was asked for.
    #[doc(hidden)]
    pub fn of(request: LeaseStatsRequest, now_ms: u64) -> Self {
        let begins_at_ms = now_ms.saturating_sub(request.since_ms);
        LeaseStats { begins_at_ms, complete: true, ..LeaseStats::default() }.in_steps(request, now_ms)
    }

    /// With the steps that were asked for, from where it begins until now.
    #[doc(hidden)]
    pub fn in_steps(mut self, request: LeaseStatsRequest, now_ms: u64) -> Self {
        let Some(step_ms) = request.step_ms.map(|step_ms| step_ms.max(STATS_STEP_MS_MIN)) else {
            return self;
        };
        let mut begins_at_ms = self.begins_at_ms;
        while begins_at_ms <= now_ms {
            self.steps.push(LeaseStatsStep { begins_at_ms, ended_counts: BTreeMap::new() });
            begins_at_ms += step_ms;
        }
        self
    }

    /// Counts what is on record of a key, for stores that keep no events. A key has the last few of its endings: where all of them are
    /// of the time that is counted, there may have been more.
    #[doc(hidden)]
    pub fn count_key(&mut self, endings: &[Ending]) {
        let begins_at_ms = self.begins_at_ms;
        let counted = endings.iter().filter(|ending| ending.at.wall_ms >= begins_at_ms);
        let count = counted.clone().count();
        self.complete &= count < fencehold_core::limits::HISTORY_MAX;
        for ending in counted {
            self.add(ending.outcome, ending.at.wall_ms, 1);
        }
    }
}

wire! {
    /// A stale write that was refused outside the store.
    #[serde(deny_unknown_fields)]
    pub struct BlockedWrite {
        /// The key; of a job `job/ID`.
        pub key: Key,
        /// The token that was shown.
        #[schemars(range(min = 1, max = fencehold_core::limits::TOKEN_MAX))]
        pub token: Token,
        /// What was tried.
        pub action: BlockedAction,
    }

    /// What came of the report of a stale write.
    #[derive(Default)]
    pub struct RecordedBlockedWrite {
        /// Whether it was recorded. False: the token is that of a live holder, and is not stale here.
        pub recorded: bool,
    }
}

impl BlockedWrite {
    /// The job that it is about, if it is about one.
    pub fn job_id(&self) -> Option<JobId> {
        self.key.as_str().strip_prefix("job/")?.parse().ok()
    }
}
