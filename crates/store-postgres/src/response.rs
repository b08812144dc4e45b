//! What the database's functions answer with, as JSON: types of their own, since the schema stays as it is while the types of
//! the contract change.

use std::collections::BTreeMap;

use fencehold_contract::operation::unexpected_response;
use fencehold_contract::stored::{HowV1, NoticeV1};
use fencehold_contract::{
    AcquiredLease, ClosedNamespace, EndingView, HolderView, LeaseView, QuotaUsage, RevokedLease, StoreError,
};
use fencehold_core::lease::{LeaseOutcome, LeaseRenewal, PendingYield, YieldRequest};
use fencehold_core::{BadInput, Key, Namespace, Owner, Reason, Refusal, Task, Token};
use serde::{Deserialize, Deserializer};

/// What an acquisition is answered with.
#[derive(Debug, Deserialize)]
pub(super) enum AcquireRow {
    Ok(#[serde(deserialize_with = "acquired")] AcquiredLease),
    Err(#[serde(deserialize_with = "error")] StoreError),
    Waiting {
        id: i64,
        due_in_ms: u64,
        /// When it came to stand there: how many stand in line for each of its keys.
        #[serde(default)]
        in_line: BTreeMap<Key, u64>,
    },
}

/// The errors that the functions answer with. Others are raised.
#[derive(Deserialize)]
pub(super) enum ErrorRow {
    BadInput { field: String, problem: String },
    Refused { key: Key, refusal: RefusalRow },
    Full { what: String, limit: u64 },
    Unavailable { why: String },
}

impl From<ErrorRow> for StoreError {
    fn from(row: ErrorRow) -> Self {
        match row {
            ErrorRow::BadInput { field, problem } => {
                BadInput { field: field.into(), message: problem }.into()
            }
            ErrorRow::Refused { key, refusal } => StoreError::Refused { key, refusal: refusal.into() },
            ErrorRow::Full { what, limit } => StoreError::LimitReached { message: what, limit },
            ErrorRow::Unavailable { why } => StoreError::Unavailable { message: why },
        }
    }
}

fn error<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StoreError, D::Error> {
    ErrorRow::deserialize(deserializer).map(StoreError::from)
}

/// Why the functions refuse something.
#[derive(Deserialize)]
pub(super) enum RefusalRow {
    Held { owner: Owner, task: Option<Task>, expires_in_ms: u64, token: Token },
    Ended { token: Option<Token>, how: Option<HowV1> },
    Lost { token: Token, how: Option<HowV1>, by: Option<Owner>, reason: Option<Reason>, current: Token },
    WrongHold { token: Token },
    NotHeld,
    StoreRewound { shown: Token, current: Token },
    TokensExhausted,
}

impl From<RefusalRow> for Refusal {
    fn from(row: RefusalRow) -> Self {
        match row {
            RefusalRow::Held { owner, task, expires_in_ms, token } => {
                Refusal::Held { owner, task, remaining_ms: expires_in_ms, token }
            }
            RefusalRow::Ended { token, how } => {
                Refusal::HoldIdUsed { token, outcome: how.map(LeaseOutcome::from) }
            }
            RefusalRow::Lost { token, how, by, reason, current } => Refusal::Lost {
                token,
                outcome: how.map(LeaseOutcome::from),
                by,
                reason,
                current_token: current,
            },
            RefusalRow::WrongHold { token } => Refusal::WrongHoldId { token },
            RefusalRow::NotHeld => Refusal::NotHeld,
            RefusalRow::StoreRewound { shown, current } => {
                Refusal::StoreRewound { token: shown, current_token: current }
            }
            RefusalRow::TokensExhausted => Refusal::TokensExhausted,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct RenewalRow {
    token: Token,
    remaining_ms: u64,
    notice: Option<NoticeV1>,
    yield_in_ms: Option<u64>,
}

impl From<RenewalRow> for LeaseRenewal {
    fn from(RenewalRow { token, remaining_ms, notice, yield_in_ms }: RenewalRow) -> Self {
        LeaseRenewal { token, remaining_ms, yield_request: yield_request(notice, yield_in_ms) }
    }
}

/// The functions say by when in store time, and how long that is from now.
pub(super) fn yield_request(notice: Option<NoticeV1>, yield_in_ms: Option<u64>) -> Option<YieldRequest> {
    let asked = PendingYield::from(notice?).seen_at(0);
    Some(YieldRequest { yield_in_ms: yield_in_ms.unwrap_or(0), ..asked })
}

#[derive(Deserialize)]
struct AcquiredRow {
    key: Key,
    grant: GrantRow,
    waited_ms: u64,
}

#[derive(Deserialize)]
struct GrantRow {
    token: Token,
    remaining_ms: u64,
    resumed: bool,
}

fn acquired<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AcquiredLease, D::Error> {
    let AcquiredRow { key, grant, waited_ms } = AcquiredRow::deserialize(deserializer)?;
    let GrantRow { token, remaining_ms, resumed } = grant;
    let grant = fencehold_core::lease::Grant { token, remaining_ms, resumed };
    Ok(AcquiredLease { key, grant, waited_ms })
}

#[derive(Deserialize)]
pub(super) struct RevokedRow {
    key: Key,
    revoked: RevokedHoldRow,
}

#[derive(Deserialize)]
struct RevokedHoldRow {
    token: Token,
    consumed: Token,
    owner: Owner,
    task: Option<Task>,
}

impl From<RevokedRow> for RevokedLease {
    fn from(RevokedRow { key, revoked }: RevokedRow) -> Self {
        let RevokedHoldRow { token, consumed, owner, task } = revoked;
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
    how: HowV1,
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
            yield_request: yield_request(row.notice, row.yield_in_ms),
        };
        let ending = |row: EndingRow| EndingView {
            token: row.token,
            owner: row.owner,
            task: row.task,
            outcome: row.how.into(),
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

#[derive(Debug, Deserialize)]
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

/// Those of the requests that have no response yet.
pub(super) fn unanswered<T: Clone, A>(requests: &[T], answers: &[Option<A>]) -> Vec<T> {
    let left = requests.iter().zip(answers).filter(|(_, answer)| answer.is_none());
    left.map(|(request, _)| request.clone()).collect()
}

/// All responses, where those that the first step left came in a second one, in the same order.
pub(super) fn completed<A>(first: Vec<Option<A>>, second: Vec<A>) -> Result<Vec<A>, StoreError> {
    let mut second = second.into_iter();
    let answers = first.into_iter().map(|answer| answer.or_else(|| second.next()));
    answers.map(|answer| answer.ok_or_else(unexpected_response)).collect()
}

/// Each row as the contract has it.
pub(super) fn each<Row, T: From<Row>>(rows: Vec<Row>) -> Vec<T> {
    rows.into_iter().map(T::from).collect()
}

#[cfg(test)]
mod tests {
    use fencehold_conformance::golden;
    use serde::de::DeserializeOwned;

    use super::*;

    const HERE: &str = env!("CARGO_MANIFEST_DIR");

    fn read<Row: DeserializeOwned + Into<T>, T>(bytes: &[u8]) -> Result<T, String> {
        serde_json::from_slice::<Row>(bytes)
            .map(Into::into)
            .map_err(|error| error.to_string())
    }

    fn token(number: u64) -> Token {
        Token::new(number)
    }

    fn owner(name: &str) -> Owner {
        Owner::new(name).unwrap()
    }

    fn notice() -> YieldRequest {
        YieldRequest { contender: owner("b"), task: Task::new("t").ok(), priority: 7, yield_in_ms: 30 }
    }

    #[test]
    fn errors_and_refusals_of_the_functions_are_read() {
        let key = Key::new("k").unwrap();
        let refused = |refusal| StoreError::Refused { key: key.clone(), refusal };
        let errors = [
            StoreError::BadInput(BadInput::new("ttl", "is too long")),
            StoreError::LimitReached { message: "keys".to_owned(), limit: 3 },
            StoreError::Unavailable { message: "closed".to_owned() },
            refused(Refusal::Held {
                owner: owner("a"),
                task: Task::new("t").ok(),
                remaining_ms: 90,
                token: token(4),
            }),
            refused(Refusal::HoldIdUsed { token: Some(token(4)), outcome: Some(LeaseOutcome::AgedOut) }),
            refused(Refusal::HoldIdUsed { token: None, outcome: None }),
            refused(Refusal::Lost {
                token: token(4),
                outcome: Some(LeaseOutcome::Revoked),
                by: Some(owner("op")),
                reason: Reason::new("stuck").ok(),
                current_token: token(5),
            }),
            refused(Refusal::WrongHoldId { token: token(4) }),
            refused(Refusal::NotHeld),
            refused(Refusal::StoreRewound { token: token(9), current_token: token(4) }),
            refused(Refusal::TokensExhausted),
        ];
        golden::earlier(HERE, "answer_error.v1.json", &errors, read::<ErrorRow, _>);
        let endings =
            LeaseOutcome::ALL.map(|how| refused(Refusal::HoldIdUsed { token: None, outcome: Some(how) }));
        golden::earlier(HERE, "answer_how.v1.json", &endings, read::<ErrorRow, _>);
    }

    #[test]
    fn leases_of_the_functions_are_read() {
        let plain = LeaseRenewal { token: token(4), remaining_ms: 90, yield_request: None };
        let asked = LeaseRenewal { yield_request: Some(notice()), ..plain.clone() };
        golden::earlier(HERE, "answer_renewal.v1.json", &[plain, asked], read::<RenewalRow, _>);
        let holder = HolderView {
            owner: owner("a"),
            task: None,
            ttl_ms: 1_000,
            max_age_ms: Some(9_000),
            priority: -1,
            age_ms: 20,
            acquired_at_ms: 500,
            remaining_ms: 980,
            renewed_ago_ms: Some(20),
            yield_request: Some(notice()),
        };
        let ending = EndingView {
            token: token(3),
            owner: owner("a"),
            task: Task::new("t").ok(),
            outcome: LeaseOutcome::Released,
            ended_at_ms: 400,
            by: None,
            reason: None,
        };
        let key = Key::new("k").unwrap();
        let held = LeaseView {
            key: key.clone(),
            token: token(4),
            holder: Some(holder),
            waiter_count: 2,
            endings: vec![ending],
        };
        let free = LeaseView { key, token: token(4), holder: None, waiter_count: 0, endings: Vec::new() };
        golden::earlier(HERE, "answer_lease.v1.json", &[held, free], read::<LeaseRow, _>);
        let used =
            QuotaUsage { queue_count: 1, key_count: 2, job_count: 3, payload_bytes: 4, schedule_count: 5 };
        golden::earlier(HERE, "answer_used.v1.json", &[used], read::<UsedRow, _>);
    }
}
