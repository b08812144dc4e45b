//! What others do to the holds of a caller, as far as the caller may hold such things.

use std::sync::Arc;

use fencehold_contract::http::{HoldChange, Scope};
use fencehold_contract::{CallContext, StoreError};

use super::{Act, Desk};
use crate::Inner;
use crate::access::Who;
use crate::limit::Seat;
use crate::observe::Kind;
use crate::watch::HoldWatcher;

const HEAR: Act = Act::new(Kind::Look, &[Scope::LeaseWrite, Scope::JobWork]);
/// What the keys of jobs begin with.
const JOB: &str = "job/";

/// Changes of holds, for one caller.
pub(crate) struct HeldChanges {
    pub(crate) server: Arc<Inner>,
    pub(crate) who: Who,
    leases: bool,
    jobs: bool,
    watcher: HoldWatcher,
    _seat: Seat<Who>,
}

impl Desk {
    /// Begins to listen. Those who listen have seats apart from those who wait: a hint is worth no one's place in line.
    pub(crate) fn hold_changes(&self, call: &CallContext) -> Result<HeldChanges, StoreError> {
        self.allow(HEAR, &call.namespace, None)?;
        let server = Arc::clone(&self.server);
        let who = self.caller.who.clone();
        let seat = server.gate.listening_seat(&who)?;
        let store = &*server.store;
        let watcher = server.hold_changes.listen(store, &call.namespace);
        let watcher = watcher.ok_or_else(|| StoreError::Unsupported {
            store: store.capabilities().store.to_owned(),
            message: "say at once that another caller acted on a hold".to_owned(),
        })?;
        let allows = |scope| self.caller.scopes.allow(scope);
        let (leases, jobs) = (allows(Scope::LeaseWrite), allows(Scope::JobWork));
        Ok(HeldChanges { server, who, leases, jobs, watcher, _seat: seat })
    }
}

impl HeldChanges {
    /// The next one that concerns what this caller may hold. Cancel safe.
    pub(crate) async fn next(&mut self) -> HoldChange {
        loop {
            let key = self.watcher.changed().await;
            let is_job = |key: &fencehold_core::Key| key.as_str().starts_with(JOB);
            let told = key.as_ref().is_none_or(|key| self.leases || self.jobs && is_job(key));
            if told {
                return HoldChange { key };
            }
        }
    }
}
