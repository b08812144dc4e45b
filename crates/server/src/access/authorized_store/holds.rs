//! What others do to the holds of a caller, as far as the caller may hold such things.

use std::sync::Arc;

use fencehold_contract::http::{HoldChange, Scope};
use fencehold_contract::{CallContext, StoreError};

use super::{AuthorizedStore, RequestedAct};
use crate::ServerInner;
use crate::access::CallerIdentity;
use crate::limit::WaitSlot;
use crate::observe::OperationKind;
use crate::watch::HoldWatcher;

const HEAR: RequestedAct = RequestedAct::new(OperationKind::Look, &[Scope::LeaseWrite, Scope::JobWork]);
/// What the keys of jobs begin with.
const JOB: &str = "job/";

/// Changes of holds, for one caller.
pub(crate) struct CallerHoldChanges {
    pub(crate) server: Arc<ServerInner>,
    pub(crate) who: CallerIdentity,
    leases: bool,
    jobs: bool,
    watcher: HoldWatcher,
    _seat: WaitSlot<CallerIdentity>,
}

impl AuthorizedStore {
    /// Begins to listen. Those who listen have seats apart from those who wait: a hint is worth no one's place in line.
    pub(crate) fn hold_changes(&self, call: &CallContext) -> Result<CallerHoldChanges, StoreError> {
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
        Ok(CallerHoldChanges { server, who, leases, jobs, watcher, _seat: seat })
    }
}

impl CallerHoldChanges {
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
