//! How an attempt speaks: to its store, or to the test kit.

use std::sync::Arc;

use fencehold_contract::job::{AttemptLedgerEntry, AttemptRef, AttemptReport, LedgerResponse};
use fencehold_core::Namespace;

use crate::error::Error;
use crate::holding::Holding;
use crate::renewal::RenewalHandle;
use crate::report::QueuedReport;
use crate::retry::{RetryLoop, only};
use crate::testing::FakeStore;

/// Who hears an attempt.
#[derive(Clone)]
pub(crate) enum AttemptReporter {
    /// The store.
    Store(Arc<RenewalHandle>),
    /// The test kit.
    Kit(Arc<FakeStore>),
}

impl AttemptReporter {
    /// The namespace that the job lives in.
    pub(crate) fn namespace(&self) -> Namespace {
        match self {
            AttemptReporter::Store(handle) => handle.connection.namespace.clone(),
            AttemptReporter::Kit(_) => Namespace::default(),
        }
    }

    /// Has something done beside the handler.
    #[cfg(feature = "tokio-util")]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self {
            AttemptReporter::Store(handle) => handle.connection.spawn(task),
            AttemptReporter::Kit(kit) => kit.spawn(task),
        }
    }

    /// Says something, and waits until it is kept.
    pub(crate) async fn say(&self, report: AttemptReport, holding: &Holding) -> Result<(), Error> {
        match self {
            AttemptReporter::Store(handle) => {
                let until_ms = last_try_ms(handle, holding);
                handle.connection.say_and_hear(report, until_ms).await.map(drop)
            }
            AttemptReporter::Kit(kit) => {
                kit.hear(report.report);
                Ok(())
            }
        }
    }

    /// Reports without waiting for the response.
    pub(crate) fn note(&self, report: AttemptReport, holding: &Holding) {
        match self {
            AttemptReporter::Store(handle) => {
                let until_ms = last_try_ms(handle, holding);
                let told = Box::new(drop);
                handle.connection.say(QueuedReport { report, until_ms, delayed: None, told });
            }
            AttemptReporter::Kit(kit) => kit.hear(report.report),
        }
    }

    /// Writes into the ledger.
    pub(crate) async fn write(
        &self,
        entry: AttemptLedgerEntry,
        holding: &Holding,
    ) -> Result<LedgerResponse, Error> {
        match self {
            AttemptReporter::Store(handle) => {
                let AttemptRef { job_id: job, token, .. } = entry.attempt;
                let tries = RetryLoop::of_holder(last_try_ms(handle, holding));
                let written = handle
                    .connection
                    .ask_until(tries, 0, |jobs, call| jobs.write_effects(call, vec![entry.clone()]));
                only(written.await?)?.map_err(|refusal| Error::attempt_refused(job, token, refusal))
            }
            AttemptReporter::Kit(kit) => Ok(kit.write(entry)),
        }
    }
}

/// Until when a report on an attempt is worth sending: while no other attempt has the job, also late; so no shorter than
/// a caller's timeout, and no longer than a ttl past the deadline.
pub(crate) fn last_try_ms(handle: &RenewalHandle, holding: &Holding) -> u64 {
    let connection = &handle.connection;
    let late_ms = holding.look().deadline_ms.saturating_add(holding.granted.ttl_ms);
    late_ms.max(connection.now_ms().saturating_add(connection.timeout_ms))
}
