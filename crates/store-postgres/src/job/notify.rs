//! Telling those in line that there may be something for them, after the commit that put it there.
//!
//! PostgreSQL lets transactions that notify commit one at a time, each with its sync: were every enqueue one of them, all would queue
//! up behind the disk. So waiters are notified in a transaction of its own that waits for no disk, once for all calls that have
//! waiters to notify at that moment. A process that dies before that costs those in line the time until they look by themselves.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use fencehold_core::Namespace;
use fencehold_core::job::QueueName;
use tokio::sync::Mutex;
use tokio_postgres::Row;

use crate::PostgresInner;
use crate::statement::query;

const TIMEOUT_MS: u64 = 2_000;

/// Lines to notify.
#[derive(Debug, Default)]
pub(super) struct Notification {
    lines: RefCell<BTreeSet<(Namespace, QueueName)>>,
    /// How many times what had gathered was taken up to be notified.
    round: Cell<u64>,
    /// Its holder notifies.
    speaks: Mutex<()>,
}

impl Notification {
    /// There may be something for those who stand in line for these queues.
    pub(super) fn note<'a>(&self, namespace: &Namespace, queues: impl Iterator<Item = &'a QueueName>) {
        let lines = queues.map(|queue| (namespace.clone(), queue.clone()));
        self.lines.borrow_mut().extend(lines);
    }
}

impl PostgresInner {
    /// Notifies the lines that were noted, unless another call is about to.
    pub(super) async fn tell_lines(&self) {
        let notification = &self.jobs.notification;
        if notification.lines.borrow().is_empty() {
            return;
        }
        let round = notification.round.get();
        let _speaks = notification.speaks.lock().await;
        if notification.round.get() != round {
            return;
        }
        notification.round.set(round + 1);
        let lines = notification.lines.take();
        let namespaces: Vec<&str> = lines.iter().map(|(namespace, _)| namespace.as_str()).collect();
        let queues: Vec<&str> = lines.iter().map(|(_, queue)| queue.as_str()).collect();
        let told = self
            .own_call(TIMEOUT_MS)
            .send(async |client| {
                let sql = self.sql("SELECT fencehold.job_tell_lines($1, $2)");
                query::<Row>(client, &sql, &[&namespaces, &queues]).await
            })
            .await;
        if let Err(why) = told {
            tracing::debug!(?why, "those in line were not told; they look by themselves");
        }
    }
}
