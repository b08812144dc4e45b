//! Contention: gathered in memory by each handle, and added to a table now and then, so that no refusal writes anything.

use std::rc::Rc;
use std::time::Duration;

use fencehold_contract::contention::GatheredContention;
use fencehold_contract::{ContentionList, KeyContention, ListContentionRequest, RefusedAcquire, StoreError};
use fencehold_core::{Key, Namespace, Owner, Task, Timestamp};
use fencehold_net::sleep;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use super::PostgresInner;
use super::fault::StatementError;
use super::statement::{Call, query};
use super::value::Json;

/// How often a handle adds what it has gathered, if it has gathered anything. A process that is killed loses no more than that.
const EVERY: Duration = Duration::from_secs(5);
const TIMEOUT_MS: u64 = 5_000;

/// What a handle has gathered of a key, as the database takes it: all times are before now, since the clocks differ.
#[derive(Debug, Serialize)]
struct GatheredRow<'a> {
    namespace: &'a Namespace,
    key: &'a Key,
    begins_ago_ms: u64,
    last_ago_ms: u64,
    refused_count: u64,
    refused_owner: Option<&'a Owner>,
    refused_task: Option<&'a Task>,
    refused_ago_ms: Option<u64>,
    max_waiter_count: u64,
}

impl<'a> GatheredRow<'a> {
    fn new(namespace: &'a Namespace, gathered: &'a GatheredContention, now: Timestamp) -> Self {
        let ago_ms = |at_ms: u64| now.wall_ms.saturating_sub(at_ms);
        let GatheredContention { seen, last_at, .. } = gathered;
        let refused = seen.last_refused.as_ref();
        GatheredRow {
            namespace,
            key: &seen.key,
            begins_ago_ms: ago_ms(seen.begins_at_ms),
            last_ago_ms: now.store_ms.saturating_sub(last_at.store_ms),
            refused_count: seen.refused_count,
            refused_owner: refused.map(|refused| &refused.owner),
            refused_task: refused.and_then(|refused| refused.task.as_ref()),
            refused_ago_ms: refused.map(|refused| ago_ms(refused.refused_at_ms)),
            max_waiter_count: seen.max_waiter_count,
        }
    }
}

/// What the database has of a key.
#[derive(Debug, Deserialize)]
struct ContentionRow {
    key: Key,
    begins_ms: u64,
    refused_count: u64,
    refused_owner: Option<Owner>,
    refused_task: Option<Task>,
    refused_ms: Option<u64>,
    max_waiter_count: u64,
}

impl From<ContentionRow> for KeyContention {
    fn from(row: ContentionRow) -> Self {
        let refused = row.refused_owner.zip(row.refused_ms);
        KeyContention {
            key: row.key,
            begins_at_ms: row.begins_ms,
            refused_count: row.refused_count,
            last_refused: refused.map(|(owner, refused_at_ms)| RefusedAcquire {
                owner,
                task: row.refused_task,
                refused_at_ms,
            }),
            max_waiter_count: row.max_waiter_count,
        }
    }
}

impl PostgresInner {
    /// For as long as the handle is open.
    pub(super) async fn keep_adding_contention(self: Rc<Self>) {
        loop {
            sleep(EVERY).await;
            let added = self.own_call(TIMEOUT_MS).add_contention().await;
            self.maintained("contention", added.as_ref().err()).await;
        }
    }
}

impl Call<'_> {
    /// Adds what this handle has gathered: one statement for all keys.
    pub(super) async fn add_contention(&mut self) -> Result<(), StoreError> {
        if self.contention.is_empty() || self.begin_nothing_outdated().is_err() {
            return Ok(());
        }
        let _turn = self.core.adding_contention.lock().await;
        let gathered = self.contention.take();
        let now = self.clock.now();
        let rows: Vec<_> = gathered
            .iter()
            .map(|(namespace, seen)| GatheredRow::new(namespace, seen, now))
            .collect();
        let rows = Json(serde_json::to_string(&rows).unwrap_or_default());
        let sql = self.sql("SELECT fencehold.lease_contention_add($1)");
        match self.send(async |client| query::<Row>(client, &sql, &[&rows]).await).await {
            Ok(_) => Ok(()),
            // It may have been added: a second time would count it twice.
            Err(StatementError::Unclear(message)) => Err(StoreError::Unavailable { message }),
            Err(fault) => {
                self.contention.put_back(gathered);
                self.budget.retry_or_fail(fault).await
            }
        }
    }

    /// What all have added, and what this handle has gathered since.
    pub(super) async fn contention(
        &mut self,
        request: &ListContentionRequest,
    ) -> Result<ContentionList, StoreError> {
        // What is on its way is in neither place.
        let _turn = self.core.adding_contention.lock().await;
        let own = self.contention.list(&self.about.namespace, request).keys;
        let sql = "SELECT fencehold.lease_contention_list($1, $2, $3)::text";
        let (key, prefix) = (request.key.as_ref().map(Key::as_str), request.prefix.as_deref());
        let text: String = self.value(sql, &[&self.namespace(), &key, &prefix]).await?;
        let mut keys: Vec<KeyContention> =
            self.read::<Vec<ContentionRow>>(&text)?.into_iter().map(Into::into).collect();
        for own in own {
            match keys.iter_mut().find(|there| there.key == own.key) {
                Some(there) => there.add(&own),
                None => keys.push(own),
            }
        }
        Ok(ContentionList::of(keys))
    }
}
