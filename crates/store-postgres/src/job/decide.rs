//! What the fast statements leave undecided: one transaction that locks the jobs it is about, has the rules of the core decide,
//! and keeps what they decided. So every refusal is the core's own.

use std::collections::{HashSet, VecDeque};

use fencehold_contract::StoreError;
use fencehold_core::job::{JobId, QueueName};
use fencehold_core::{Namespace, Token};
use fencehold_engine::{Replay, ReplayInput, ReplayOutput, StoredSchedule};
use serde::de::DeserializeOwned;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, Row, Transaction};

use super::columns::mode_of;
use super::load::{JobRow, LoadedHead};
use super::save::{LoadedVersions, changes_to_keep};
use crate::fenced::FencedAction;
use crate::statement::{Call, Parameter, query, query_one};
use crate::value::{Json, Uuid128, from_sql, limit_to_sql, stamp};
use crate::{PostgresInner, ResendPolicy};

/// How long a decision waits at a time for what another session has locked, such as by a fence: the others, which it has locked by then, cannot
/// be renewed meanwhile, and the one with the fence may be about to wait for one of them. Then it lets all of them go, and comes again.
const LOCK_MS: i64 = 250;

/// What a decision is about.
#[derive(Clone, Debug)]
pub(super) struct DecisionScope {
    pub(super) namespace: Namespace,
    pub(super) jobs: Vec<JobId>,
    /// Unique keys, by their digests.
    pub(super) keys: Vec<[u8; 16]>,
    /// Queues whose state matters although none of the jobs is in them.
    pub(super) queues: Vec<QueueName>,
    /// Whether what holders left behind must be read: checkpoints, progress, results.
    pub(super) notes: bool,
    /// Whether what a queue does is decided.
    pub(super) sets_queue: bool,
    /// Whether claims may be ended: a fence is then in the way.
    pub(super) ends: bool,
}

impl DecisionScope {
    pub(super) fn jobs(namespace: &Namespace, jobs: impl IntoIterator<Item = JobId>) -> Self {
        DecisionScope {
            namespace: namespace.clone(),
            jobs: jobs.into_iter().collect(),
            keys: Vec::new(),
            queues: Vec::new(),
            notes: false,
            sets_queue: false,
            ends: false,
        }
    }

    /// The same for what may end their claims.
    pub(super) fn ending(self) -> Self {
        DecisionScope { ends: true, ..self }
    }

    pub(super) fn with_notes(self) -> Self {
        DecisionScope { notes: true, ..self }
    }
}

/// What a transaction of the rules came to.
pub(super) enum DecisionResult<T> {
    /// It was kept.
    Kept(T),
    /// Another session came in between: all must be decided again.
    Again,
    /// What is kept cannot be read.
    Damaged(String),
}

impl Call<'_> {
    /// Decides until it is kept. `act` may be called many times, and only what it did last counts.
    pub(super) async fn decide<T>(
        &mut self,
        repeat: ResendPolicy,
        about: &DecisionScope,
        act: impl Fn(&mut Replay) -> T,
    ) -> Result<T, StoreError> {
        loop {
            let core = self.core;
            let wanted = FencedAction::Jobs(&about.jobs);
            let decided = self
                .run_past_fences(repeat, wanted, async |client, lock_ms| {
                    let lock_ms = lock_ms.min(LOCK_MS);
                    let transaction = client.transaction().await?;
                    match decide_in(core, transaction, about, lock_ms, None, &act).await {
                        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                            Ok(DecisionResult::Again)
                        }
                        decided => decided,
                    }
                })
                .await?;
            if let Some(answer) = self.kept(decided)? {
                return Ok(answer);
            }
            if self.budget.is_over() {
                return Err(self.budget.unanswered("others changed the same jobs again and again"));
            }
        }
    }

    /// What was decided and kept. `None`: another session came in between, and it was rolled back.
    pub(super) fn kept<T>(&self, decided: DecisionResult<T>) -> Result<Option<T>, StoreError> {
        match decided {
            DecisionResult::Kept(answer) => Ok(Some(answer)),
            DecisionResult::Again => Ok(None),
            DecisionResult::Damaged(why) => Err(self.unusable(why)),
        }
    }

    /// What a decision about these jobs of the caller's namespace is about.
    pub(super) fn scope(&self, jobs: impl IntoIterator<Item = JobId>) -> DecisionScope {
        DecisionScope::jobs(&self.about.namespace, jobs)
    }

    /// Looks at jobs, and changes nothing.
    pub(super) async fn look<T>(
        &mut self,
        about: &DecisionScope,
        act: impl Fn(&mut Replay) -> T,
    ) -> Result<T, StoreError> {
        let ids: Vec<Uuid128> = about.jobs.iter().copied().map(Uuid128::from).collect();
        let sql = "SELECT * FROM fencehold.job_look($1, $2, $3)";
        let rows = self.rows(sql, &[&ids, &about.namespace.as_str(), &about.notes]).await?;
        let brought = read_all(about, &rows).map_err(|why| self.unusable(why))?;
        Ok(act(&mut Replay::new(brought)))
    }
}

/// Decides within a transaction that is under way, and ends it: what was not decided to its end is rolled back, all of it.
pub(super) async fn decide_in<T>(
    core: &PostgresInner,
    transaction: Transaction<'_>,
    about: &DecisionScope,
    lock_ms: i64,
    schedule: Option<StoredSchedule>,
    act: impl Fn(&mut Replay) -> T,
) -> Result<DecisionResult<T>, Error> {
    let decided = decide_and_write(core, &transaction, about, lock_ms, schedule, act).await;
    if let Ok(DecisionResult::Kept(_)) = decided {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    decided
}

async fn decide_and_write<T>(
    core: &PostgresInner,
    transaction: &Transaction<'_>,
    about: &DecisionScope,
    lock_ms: i64,
    schedule: Option<StoredSchedule>,
    act: impl Fn(&mut Replay) -> T,
) -> Result<DecisionResult<T>, Error> {
    let mut about = about.clone();
    let mut tokens = VecDeque::new();
    loop {
        let mut brought = match load(core, transaction, &about, lock_ms).await? {
            Ok(brought) => brought,
            Err(why) => return Ok(DecisionResult::Damaged(why)),
        };
        brought.tokens.clone_from(&tokens);
        brought.schedules = schedule.iter().cloned().collect();
        let newest = brought.newest;
        let loaded = LoadedVersions::of(&brought, about.sets_queue);
        let mut replay = Replay::new(brought);
        let answer = act(&mut replay);
        let ReplayOutput { changes, events, missed, consumed } = replay.into_replayed();
        if !missed.is_empty() {
            about.jobs.extend(missed);
            continue;
        }
        if consumed > tokens.len() {
            // Tokens that are given only once.
            let sql = core.sql("SELECT * FROM fencehold.job_draw($1)");
            let drawn: Vec<(i64,)> =
                query(transaction, &sql, &[&limit_to_sql(consumed - tokens.len())]).await?;
            let drawn: Vec<u64> = drawn.into_iter().map(|(token,)| from_sql(token)).collect();
            // Drawn in a row from where the rules counted on, they are the ones that were used.
            let next = newest.get() + 1;
            let in_a_row = tokens.is_empty() && drawn.iter().copied().eq(next..next + drawn.len() as u64);
            tokens.extend(drawn.into_iter().map(Token::new));
            if !in_a_row {
                continue;
            }
        }
        if !changes.is_empty() || !events.is_empty() {
            let sql = core.sql("SELECT fencehold.job_keep($1)");
            let kept = changes_to_keep(&changes, &events, &loaded);
            let (kept,): (bool,) = query_one(transaction, &sql, &[&kept]).await?;
            if !kept {
                return Ok(DecisionResult::Again);
            }
        }
        return Ok(DecisionResult::Kept(answer));
    }
}

/// A call that leaves rows locked while the rules decide, with a bound on how long: a process that is stopped there, or has vanished, keeps
/// no one from them for long.
pub(super) fn locking(call: &str) -> String {
    format!(
        "SELECT o.* FROM fencehold.job_idle_limit() LEFT JOIN fencehold.{call} AS o ON true WHERE o IS DISTINCT FROM NULL"
    )
}

/// A call that waits for locks for so long at most: no backend goes on waiting for what its caller has given up.
pub(super) fn within(lock_ms: i64, call: &str) -> String {
    format!(
        "SELECT o.* FROM set_config('lock_timeout', '{}', true) AS bound LEFT JOIN fencehold.{call} AS o ON true \
         WHERE o IS DISTINCT FROM NULL",
        lock_ms.max(1)
    )
}

/// All that a decision may look at, locked. The inner error: what is kept cannot be read.
async fn load(
    core: &PostgresInner,
    transaction: &Transaction<'_>,
    about: &DecisionScope,
    lock_ms: i64,
) -> Result<Result<ReplayInput, String>, Error> {
    let ids: Vec<Uuid128> = about.jobs.iter().copied().map(Uuid128::from).collect();
    let keys: Vec<Uuid128> = about.keys.iter().copied().map(Uuid128).collect();
    let queues: Vec<&str> = about.queues.iter().map(QueueName::as_str).collect();
    let namespace = about.namespace.as_str();
    let sql = core.sql(&locking("job_load($1, $2, $3, $4, $5, $6, $7)"));
    let asked: [&dyn Parameter; 7] = [&ids, &namespace, &keys, &queues, &about.notes, &about.ends, &lock_ms];
    Ok(read_all(about, &query(transaction, &sql, &asked).await?))
}

/// Jobs as they were loaded, after the row that comes before them.
fn read_all(about: &DecisionScope, rows: &[Row]) -> Result<ReplayInput, String> {
    let mut texts = rows.iter().map(|row| row.get::<_, &str>(0));
    let head: LoadedHead = read("moment", texts.next().unwrap_or(""))?;
    let mut brought = ReplayInput {
        now: stamp(head.now_ms),
        newest: Token::new(head.newest),
        closed_ms: head.closed_ms,
        known: about.jobs.iter().copied().collect::<HashSet<_>>(),
        uniques: head
            .uniques
            .unwrap_or_default()
            .iter()
            .map(|row| row.kept(&about.namespace))
            .collect(),
        ..ReplayInput::default()
    };
    let unused = head.room.as_ref().map(|room| room.unused.clone()).unwrap_or_default();
    brought.room = head
        .room
        .map(|room| (about.namespace.clone(), room.limits.into(), room.used.into()));
    for queue in head.queues.unwrap_or_default() {
        if unused.contains(&queue.name) {
            continue;
        }
        brought.queues.push((queue.namespace, queue.name, mode_of(queue.mode)));
    }
    for text in texts {
        let job: JobRow = read("job", text)?;
        brought
            .queues
            .push((job.namespace.clone(), job.queue.clone(), mode_of(job.mode)));
        brought.jobs.push(job.brought());
    }
    Ok(brought)
}

/// Reads what was kept as JSON, or says what is wrong with it.
pub(super) fn read<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("a {what} that is kept there cannot be read: {error}"))
}

/// As the database takes it.
pub(super) fn json<T: serde::Serialize>(value: &T) -> Json {
    Json(serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned()))
}
