//! What the database's functions answer with, as JSON: types of their own, since the schema stays as it is while the types of
//! the contract change.

use fencehold_contract::{
    AcquiredLease, ClosedNamespace, EndingView, HolderView, LeaseView, QuotaUsage, RevokedLease,
};
use fencehold_core::lease::{LeaseOutcome, PendingYield, YieldRequest};
use fencehold_core::stored::NoticeV1;
use fencehold_core::{Key, Namespace, Owner, Reason, Task, Token};
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
struct AcquiredRow {
    key: Key,
    grant: Grant,
    waited_ms: u64,
}

#[derive(Deserialize)]
struct Grant {
    token: Token,
    remaining_ms: u64,
    resumed: bool,
}

/// Reads a granted lease.
pub(super) fn acquired<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AcquiredLease, D::Error> {
    let AcquiredRow { key, grant, waited_ms } = AcquiredRow::deserialize(deserializer)?;
    let Grant { token, remaining_ms, resumed } = grant;
    let grant = fencehold_core::lease::Grant { token, remaining_ms, resumed };
    Ok(AcquiredLease { key, grant, waited_ms })
}

#[derive(Deserialize)]
pub(super) struct RevokedRow {
    key: Key,
    revoked: Revoked,
}

#[derive(Deserialize)]
struct Revoked {
    token: Token,
    consumed: Token,
    owner: Owner,
    task: Option<Task>,
}

impl From<RevokedRow> for RevokedLease {
    fn from(RevokedRow { key, revoked }: RevokedRow) -> Self {
        let Revoked { token, consumed, owner, task } = revoked;
        RevokedLease {
            key,
            revoked: fencehold_core::lease::Revoked { token, consumed_token: consumed, owner, task },
        }
    }
}

#[derive(Deserialize)]
pub(super) struct LeaseRow {
    key: Key,
    token: Token,
    holder: Option<HolderRow>,
    waiters: u64,
    endings: Vec<EndingRow>,
}

#[derive(Deserialize)]
struct HolderRow {
    owner: Owner,
    task: Option<Task>,
    ttl_ms: u64,
    max_age_ms: Option<u64>,
    priority: i16,
    age_ms: u64,
    since_wall_ms: u64,
    remaining_ms: u64,
    renewed_ms_ago: Option<u64>,
    notice: Option<NoticeV1>,
    yield_in_ms: Option<u64>,
}

#[derive(Deserialize)]
struct EndingRow {
    token: Token,
    owner: Owner,
    task: Option<Task>,
    how: LeaseOutcome,
    at_wall_ms: u64,
    by: Option<Owner>,
    reason: Option<Reason>,
}

impl From<LeaseRow> for LeaseView {
    fn from(row: LeaseRow) -> Self {
        let holder = |row: HolderRow| HolderView {
            owner: row.owner,
            task: row.task,
            ttl_ms: row.ttl_ms,
            max_age_ms: row.max_age_ms,
            priority: row.priority,
            age_ms: row.age_ms,
            acquired_at_ms: row.since_wall_ms,
            remaining_ms: row.remaining_ms,
            renewed_ago_ms: row.renewed_ms_ago,
            yield_request: row.notice.map(|notice| YieldRequest {
                yield_in_ms: row.yield_in_ms.unwrap_or(0),
                ..PendingYield::from(notice).seen_at(0)
            }),
        };
        let ending = |row: EndingRow| EndingView {
            token: row.token,
            owner: row.owner,
            task: row.task,
            outcome: row.how,
            ended_at_ms: row.at_wall_ms,
            by: row.by,
            reason: row.reason,
        };
        LeaseView {
            key: row.key,
            token: row.token,
            holder: row.holder.map(holder),
            waiter_count: row.waiters,
            endings: row.endings.into_iter().map(ending).collect(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct ClosedRow {
    namespace: Namespace,
    closed_for_ms: u64,
}

impl From<ClosedRow> for ClosedNamespace {
    fn from(ClosedRow { namespace, closed_for_ms }: ClosedRow) -> Self {
        ClosedNamespace { namespace, closed_for_ms }
    }
}

#[derive(Deserialize)]
pub(super) struct UsedRow {
    queues: u64,
    keys: u64,
    jobs: u64,
    bytes: u64,
    schedules: u64,
}

impl From<UsedRow> for QuotaUsage {
    fn from(UsedRow { queues, keys, jobs, bytes, schedules }: UsedRow) -> Self {
        QuotaUsage {
            queue_count: queues,
            key_count: keys,
            job_count: jobs,
            payload_bytes: bytes,
            schedule_count: schedules,
        }
    }
}

/// Each row as the contract has it.
pub(super) fn each<Row, T: From<Row>>(rows: Vec<Row>) -> Vec<T> {
    rows.into_iter().map(T::from).collect()
}
