//! Keys and jobs that a holder's open transaction has a fence on: they are not granted, and their hold cannot be ended, until
//! that transaction ends. A caller that finds one in the way learns who holds it.

use fencehold_contract::{RevokeTarget, StoreError};
use fencehold_core::job::JobId;
use fencehold_core::{HoldHash, Key, Refusal, Task};
use tokio_postgres::{Client, Row};

use super::ResendPolicy;
use super::fault::StatementError;
use super::response::RefusalRow;
use super::statement::Call;

/// A fence on a key that a contender wants.
#[derive(Debug)]
pub(super) struct FencedTarget {
    pub(super) key: Key,
    /// What a contender gets.
    pub(super) refusal: Refusal,
    /// Whether the hold, or one that ended on the key, is the asker's own.
    pub(super) own: bool,
}

/// What an act is about that a fence can be in the way of.
#[derive(Clone, Copy, Debug)]
pub(super) enum FencedAction<'a> {
    Keys(&'a [&'a str]),
    /// All that are meant by a revocation.
    Leases(&'a RevokeTarget),
    Jobs(&'a [JobId]),
    Everything,
}

/// A fence, and the transaction that it is in.
#[derive(Debug)]
struct OpenFence {
    namespace: String,
    key: Option<String>,
    owner: Option<String>,
    task: Option<Task>,
    job: Option<String>,
    pid: i32,
    /// For how long it has been open, where that can be seen.
    open_ms: Option<i64>,
}

impl OpenFence {
    /// Whether it is on what a call of a namespace wants.
    fn is_on(&self, namespace: &str, wanted: FencedAction<'_>) -> bool {
        match (wanted, self.key.as_deref()) {
            (FencedAction::Everything, _) => true,
            (FencedAction::Jobs(ids), None) => {
                ids.iter().any(|id| self.job.as_deref() == Some(id.to_string().as_str()))
            }
            (FencedAction::Keys(keys), Some(key)) => self.namespace == namespace && keys.contains(&key),
            (FencedAction::Leases(which), Some(key)) => {
                self.namespace == namespace
                    && match which {
                        RevokeTarget::Key { key: meant, .. } => meant.as_str() == key,
                        RevokeTarget::Task(task) => self.task.as_ref() == Some(task),
                        RevokeTarget::Owner(owner) => self.owner.as_deref() == Some(owner.as_str()),
                        RevokeTarget::Prefix(prefix) => key.starts_with(prefix.as_str()),
                        RevokeTarget::TaskPrefix(above) => {
                            self.task.as_ref().is_some_and(|task| above.covers(task))
                        }
                    }
            }
            _ => false,
        }
    }

    fn says(&self) -> String {
        let what = match (&self.key, &self.job) {
            (Some(key), _) => key.clone(),
            (None, Some(job)) => format!("job {job}"),
            (None, None) => "it".to_owned(),
        };
        let open = self
            .open_ms
            .map_or_else(String::new, |ms| format!("has been open for {ms} ms, and "));
        format!(
            "{what} has a fence on it: the transaction of backend {} {open}must end first \
             (SELECT pg_terminate_backend({}) ends it by force)",
            self.pid, self.pid
        )
    }
}

impl Call<'_> {
    /// Which of these keys have a fence on them.
    pub(super) async fn fenced(
        &mut self,
        keys: &[&str],
        hash: HoldHash,
    ) -> Result<Vec<FencedTarget>, StoreError> {
        let sql = "SELECT key, refusal, own FROM fencehold.fence_on($1, $2, $3)";
        let hash = hash.as_bytes().as_slice();
        let rows: Vec<(String, Option<String>, bool)> =
            self.rows(sql, &[&self.namespace(), &keys, &hash]).await?;
        let mut fenced = Vec::new();
        for (key, refusal, own) in rows {
            // None, where nothing is left of a hold: then nothing is in the way either.
            let Some(refusal) = refusal else { continue };
            let refusal = self.read::<RefusalRow>(&refusal)?.into();
            fenced.push(FencedTarget { key: Key::new(key)?, refusal, own });
        }
        Ok(fenced)
    }

    /// Whose fence is in the way of what is wanted, in words.
    async fn in_the_way(&mut self, wanted: FencedAction<'_>) -> Result<Option<String>, StoreError> {
        let sql = "SELECT f.*, f.job_id::text AS job FROM fencehold.open_fences() AS f";
        let rows: Vec<Row> = self.rows(sql, &[]).await?;
        let mut fences = rows.iter().map(|row| OpenFence {
            namespace: row.get("namespace"),
            key: row.get("key"),
            owner: row.get("owner"),
            task: row.get::<_, Option<String>>("task").and_then(|task| Task::new(task).ok()),
            job: row.get("job"),
            pid: row.get("pid"),
            open_ms: row.get("age_ms"),
        });
        Ok(fences
            .find(|fence| fence.is_on(self.namespace(), wanted))
            .map(|fence| fence.says()))
    }

    /// As [`Call::run`]; and if a fence on what it wants was in the way to the end, the error says whose.
    pub(super) async fn run_past_fences<T>(
        &mut self,
        repeat: ResendPolicy,
        wanted: FencedAction<'_>,
        work: impl AsyncFn(&mut Client, i64) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        loop {
            match self.send(async |client| work(client, self.lock_ms()).await).await {
                Ok(answer) => return Ok(answer),
                Err(StatementError::Locked(why)) => {
                    let why = self.in_the_way(wanted).await?.unwrap_or(why);
                    self.budget.retry_or_fail(StatementError::Locked(why)).await?;
                }
                Err(fault) => self.budget.retry_or_fail_as(repeat, fault).await?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_in_the_way_of_a_revocation_by_a_task_above_its_own() {
        let mut fence = OpenFence {
            namespace: "default".to_owned(),
            key: Some("k".to_owned()),
            owner: None,
            task: Task::new("run-42/a").ok(),
            job: None,
            pid: 42,
            open_ms: None,
        };
        let above = |task: &str| RevokeTarget::TaskPrefix(Task::new(task).unwrap());
        assert!(fence.is_on("default", FencedAction::Leases(&above("run-42"))));
        assert!(!fence.is_on("default", FencedAction::Leases(&above("run-4"))));
        assert!(!fence.is_on("other", FencedAction::Leases(&above("run-42"))));
        fence.task = None;
        assert!(!fence.is_on("default", FencedAction::Leases(&above("run-42"))));
    }

    #[test]
    fn for_how_long_a_transaction_has_been_open_is_said_only_where_it_can_be_seen() {
        let mut fence = OpenFence {
            namespace: "default".to_owned(),
            key: Some("k".to_owned()),
            owner: None,
            task: None,
            job: None,
            pid: 42,
            open_ms: None,
        };
        let said = "k has a fence on it: the transaction of backend 42 must end first \
                    (SELECT pg_terminate_backend(42) ends it by force)";
        assert_eq!(fence.says(), said);
        fence.open_ms = Some(7);
        assert!(fence.says().contains("backend 42 has been open for 7 ms, and must end first"));
    }
}
