//! Leases at the desk.

use async_trait::async_trait;
use fencehold_contract::http::{Operation as _, op};
use fencehold_contract::measure::Measures;
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, CallContext, Capabilities, EventPage, HoldRef,
    JobStore, LeasePage, LeaseStore, LeaseView, ListEventsRequest, ListLeasesRequest, QuotaRequest,
    QuotaView, ReleasedLease, RenewLeaseBatchResponse, RevokeLeasesRequest, RevokeTarget, RevokedLease,
    StoreError, StoreStatus,
};
use fencehold_core::{Key, Owner, Refusal};

use super::{Act, Desk, Force, Telling};
use crate::audit::Outcome;
use crate::observe::{Context, Kind, holding, is_wrong_hold};

const ACQUIRE: Act = Act::new(Kind::Acquire, op::AcquireLease::SPEC);
const RENEW: Act = Act::new(Kind::Renew, op::RenewLeaseBatch::SPEC).renewing();
const RELEASE: Act = Act::new(Kind::Release, op::ReleaseLeaseBatch::SPEC);
const REVOKE: Act = Act::new(Kind::Force, op::RevokeLease::SPEC);
const QUOTA: Act = Act::new(Kind::Look, op::GetQuota::SPEC).everywhere();
const SET_QUOTA: Act = Act::new(Kind::Force, op::SetQuota::SPEC).everywhere();
const OPEN_NOW: Act = Act::new(Kind::Force, op::ReopenStore::SPEC).everywhere();
const ADVANCE: Act = Act::new(Kind::Force, op::AdvanceStore::SPEC).everywhere();
const LOOK: Act = Act::new(Kind::Look, op::GetLease::SPEC);
const STATUS: Act = Act::new(Kind::Look, op::GetStoreStatus::SPEC);

#[async_trait]
impl LeaseStore for Desk {
    fn capabilities(&self) -> Capabilities {
        self.server.store.capabilities()
    }

    fn jobs(&self) -> Option<&dyn JobStore> {
        self.server.store.jobs().map(|_| self as &dyn JobStore)
    }

    async fn acquire(
        &self,
        call: &CallContext,
        request: AcquireLeaseRequest,
    ) -> Result<AcquiredLease, StoreError> {
        let act = ACQUIRE.of(request.any_of.len()).waiting(request.wait_ms);
        let (outcome, took) = self.through(act, call, None, self.server.store.acquire(call, request)).await;
        let metrics = &self.server.metrics;
        match &outcome {
            Ok(acquired) => {
                metrics.waited_ms.record(acquired.waited_ms);
                if acquired.waited_ms > 0 {
                    metrics.contended.add_one();
                }
            }
            Err(StoreError::Refused { refusal: Refusal::Held { .. }, .. }) => metrics.contended.add_one(),
            Err(_) => {}
        }
        self.tell(act, call, took, &outcome, || match &outcome {
            Ok(acquired) => self.granted(call, acquired),
            Err(_) => self.plain(),
        });
        outcome
    }

    async fn renew(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<RenewLeaseBatchResponse, StoreError> {
        let count = holds.len();
        let held = self.held(call, &holds);
        let (outcome, took) = self
            .through(RENEW.of(count), call, None, self.server.store.renew(call, holds))
            .await;
        let answers = outcome.as_ref().map(|renewed| renewed.results.as_slice());
        self.server.metrics.renewals(count, answers, is_wrong_hold);
        self.tell(RENEW.of(count), call, took, &outcome, || self.later(held));
        outcome
    }

    async fn release(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<Vec<Result<ReleasedLease, Refusal>>, StoreError> {
        let act = RELEASE.of(holds.len());
        let held = self.held(call, &holds);
        let (outcome, took) = self.through(act, call, None, self.server.store.release(call, holds)).await;
        if let Ok(answers) = &outcome {
            self.server.metrics.forged(answers, is_wrong_hold);
        }
        self.tell(act, call, took, &outcome, || self.later(held));
        outcome
    }

    async fn revoke(
        &self,
        call: &CallContext,
        request: RevokeLeasesRequest,
    ) -> Result<Vec<RevokedLease>, StoreError> {
        let target = match &request.target {
            RevokeTarget::Key { key, only_token: None } => format!("key {key}"),
            RevokeTarget::Key { key, only_token: Some(token) } => format!("key {key}, token {token}"),
            RevokeTarget::Task(task) => format!("task {task}"),
            RevokeTarget::Owner(owner) => format!("owner {owner}"),
            RevokeTarget::Prefix(prefix) => format!("keys that start with {prefix}"),
        };
        let reason = Some(format!("{} (by {})", request.reason, request.by));
        let judge =
            |ended: &Vec<RevokedLease>| if ended.is_empty() { Outcome::Failed } else { Outcome::Done };
        self.force(REVOKE, call, Force { target, reason }, judge, self.server.store.revoke(call, request))
            .await
    }

    async fn get(&self, call: &CallContext, key: Key) -> Result<Option<LeaseView>, StoreError> {
        self.pass(LOOK, call, self.server.store.get(call, key)).await
    }

    async fn list(&self, call: &CallContext, request: ListLeasesRequest) -> Result<LeasePage, StoreError> {
        self.pass(LOOK, call, self.server.store.list(call, request)).await
    }

    async fn list_events(
        &self,
        call: &CallContext,
        request: ListEventsRequest,
    ) -> Result<EventPage, StoreError> {
        let act = LOOK.waiting(request.wait_ms);
        self.pass(act, call, self.server.store.list_events(call, request)).await
    }

    async fn advance(&self, call: &CallContext, by: Owner, lift: u64) -> Result<AdvancedStore, StoreError> {
        let force = Force {
            target: format!("every lease; counters raised by {lift}"),
            reason: Some(format!("by {by}")),
        };
        self.force(ADVANCE, call, force, |_| Outcome::Done, self.server.store.advance(call, by, lift))
            .await
    }

    async fn quota(&self, call: &CallContext, request: QuotaRequest) -> Result<QuotaView, StoreError> {
        let Some(quota) = request.quota else {
            return self.pass(QUOTA, call, self.server.store.quota(call, request)).await;
        };
        let whose = if request.all_namespaces { "every namespace" } else { call.namespace.as_str() };
        let by = request.by.as_ref().map_or("nobody", Owner::as_str);
        let force = Force { target: format!("{whose}: {quota:?}"), reason: Some(format!("by {by}")) };
        self.force(SET_QUOTA, call, force, |_| Outcome::Done, self.server.store.quota(call, request))
            .await
    }

    async fn reopen(&self, call: &CallContext, by: Owner) -> Result<(), StoreError> {
        let target = "every namespace, before its time".to_owned();
        let force = Force { target, reason: Some(format!("by {by}")) };
        self.force(OPEN_NOW, call, force, |()| Outcome::Done, self.server.store.reopen(call, by))
            .await
    }

    async fn status(&self, call: &CallContext) -> Result<StoreStatus, StoreError> {
        let mut status = self.pass(STATUS, call, self.server.store.status(call)).await?;
        if !self.caller.is_operator() {
            // These are of all namespaces together, and how much others do is not this caller's business.
            (
                status.key_count,
                status.held_count,
                status.waiter_count,
                status.job_count,
                status.unreadable_row_count,
            ) = (0, 0, 0, 0, 0);
            status.maintenance_errors.clear();
            status.counts_hidden = true;
        }
        Ok(status)
    }

    /// The store is the house's, and goes on.
    async fn close(&self) {}

    fn metrics(&self) -> Option<&Measures> {
        self.server.store.metrics()
    }
}

/// How many holds of a batch a span is linked to.
const LINKS_MAX: usize = 32;

impl Desk {
    /// The grant itself is where everything about this hold hangs.
    fn granted(&self, call: &CallContext, acquired: &AcquiredLease) -> Telling {
        let hold = holding(&call.namespace, &acquired.key, acquired.grant.token);
        let at = self.trace.map_or(hold, |trace| Context { span: hold.span, ..trace });
        let attributes = vec![
            ("fencehold.key", acquired.key.to_string().into()),
            ("fencehold.token", acquired.grant.token.get().into()),
            ("fencehold.waited_ms", acquired.waited_ms.into()),
        ];
        Telling { at, parent: self.trace.map(|trace| trace.span), links: Vec::new(), attributes }
    }

    /// The grants of these holds, if anybody wants to know.
    fn held(&self, call: &CallContext, holds: &[HoldRef]) -> Vec<Context> {
        if !self.server.tracer.is_on() {
            return Vec::new();
        }
        let named = holds.iter().take(LINKS_MAX);
        named.map(|hold| holding(&call.namespace, &hold.key, hold.token)).collect()
    }

    /// What comes after a grant hangs from it: in the request's own trace, else in the one that the grant began.
    fn later(&self, held: Vec<Context>) -> Telling {
        let parent = self.trace.or(held.first().copied());
        let links = match self.trace {
            Some(trace) => held.into_iter().map(|hold| Context { span: hold.span, ..trace }).collect(),
            None => held,
        };
        let at = self.server.tracer.fresh(parent);
        Telling { at, parent: parent.map(|parent| parent.span), links, attributes: Vec::new() }
    }
}
