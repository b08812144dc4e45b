//! The desk: the store as one caller may use it, and the only way to it that a handler has.
//!
//! Every call passes the same points in the same order: may this caller do that, in this namespace; is there room; is the
//! act entered in the audit, if it is one of force; and only then the store. So no handler can forget one of them, and
//! each item of a batch is held against the rights of its sender in the very call that applies it.

mod calls;
mod holds;
mod tokens;
mod traced;

use std::fmt;
use std::sync::Arc;

use fencehold_contract::http::Scope;
use fencehold_contract::problem::Problem;
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::Namespace;

pub(crate) use self::holds::CallerHoldChanges;
use super::caller::Caller;
use crate::ServerInner;
use crate::audit::{AuditOutcome, AuditRecord};
use crate::limit::{AdmissionClass, AdmissionPermit, MemoryShare, NoMemory};
use crate::observe::{Attribute, OperationKind, Span, SpanKind, Stopwatch, TraceContext};

/// The store, for one caller.
pub(crate) struct AuthorizedStore {
    server: Arc<ServerInner>,
    caller: Caller,
    /// The id of the operation that was asked for.
    operation: &'static str,
    /// The scopes of which it needs one.
    needs: &'static [Scope],
    /// The trace that the request came with.
    trace: Option<TraceContext>,
    /// What its body takes up, if it has one.
    share: Option<MemoryShare>,
}

/// What is about to be asked.
#[derive(Clone, Copy, Debug)]
struct RequestedAct {
    kind: OperationKind,
    /// One of these is enough.
    needs: &'static [Scope],
    way: AdmissionClass,
    /// How much work it is: the number of items.
    cost: usize,
    /// Whether it concerns every namespace at once.
    everywhere: bool,
    /// Whether a server that is being closed still does it: what ends holds, but nothing that begins one.
    to_the_end: bool,
}

impl RequestedAct {
    const fn new(kind: OperationKind, needs: &'static [Scope]) -> Self {
        let way = AdmissionClass::Ordinary;
        RequestedAct { kind, needs, way, cost: 1, everywhere: false, to_the_end: true }
    }

    const fn of(self, items: usize) -> Self {
        RequestedAct { cost: items, ..self }
    }

    /// It may wait this long, so it takes a seat; and it gives something new.
    const fn waiting(self, wait_ms: u64) -> Self {
        let way = if wait_ms > 0 { AdmissionClass::Waiting } else { self.way };
        RequestedAct { way, to_the_end: false, ..self }
    }

    const fn renewing(self) -> Self {
        RequestedAct { way: AdmissionClass::Renewal, ..self }
    }

    const fn everywhere(self) -> Self {
        RequestedAct { everywhere: true, ..self }
    }
}

/// What an act of force is done to, and why.
#[derive(Clone, Debug, Default)]
struct Force {
    target: String,
    reason: Option<String>,
}

/// When something was done, for traces.
#[derive(Clone, Copy, Debug)]
struct ActTimes {
    start_wall_us: u64,
    end_wall_us: u64,
}

/// What is reported of a request in a trace.
struct SpanDetails {
    at: TraceContext,
    parent: Option<[u8; 8]>,
    links: Vec<TraceContext>,
    attributes: Vec<(&'static str, Attribute)>,
}

impl AuthorizedStore {
    /// The desk for this caller.
    pub(crate) fn new(
        server: Arc<ServerInner>,
        caller: Caller,
        (operation, needs): (&'static str, &'static [Scope]),
        trace: Option<TraceContext>,
        share: Option<MemoryShare>,
    ) -> Self {
        AuthorizedStore { server, caller, operation, needs, trace, share }
    }

    /// The same for one operation of a batch. The body stays with the batch.
    pub(crate) fn for_operation(&self, operation: &'static str, needs: &'static [Scope]) -> Self {
        let (server, caller) = (Arc::clone(&self.server), self.caller.clone());
        AuthorizedStore::new(server, caller, (operation, needs), self.trace, None)
    }

    /// Whether the caller keeps to its pace with one more request.
    pub(crate) fn pace(&self) -> Result<(), Problem> {
        self.server.pace(&self.caller.who, false)
    }

    /// Does something that is no act of force.
    async fn pass<T>(
        &self,
        act: RequestedAct,
        call: &CallContext,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let (outcome, took) = self.through(act, call, None, |_| AuditOutcome::Done, work).await;
        self.tell(act, call, took, &outcome, || self.plain());
        outcome
    }

    /// Past every point to the store, counted and timed. `judge`: what an answer says came of an act of force.
    async fn through<T>(
        &self,
        act: RequestedAct,
        call: &CallContext,
        force: Option<Force>,
        judge: fn(&T) -> AuditOutcome,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> (Result<T, StoreError>, ActTimes) {
        let start_wall_us = self.server.clock.now().wall_ms.saturating_mul(1_000);
        let watch = Stopwatch::start();
        let outcome = self.checked(act, call, force, judge, work).await;
        let us = watch.us();
        self.server.metrics.ended(act.kind, &outcome);
        if act.way != AdmissionClass::Waiting {
            self.server.metrics.took(act.kind, us);
        }
        (outcome, ActTimes { start_wall_us, end_wall_us: start_wall_us.saturating_add(us) })
    }

    async fn checked<T>(
        &self,
        act: RequestedAct,
        call: &CallContext,
        force: Option<Force>,
        judge: fn(&T) -> AuditOutcome,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.allow(act, &call.namespace, force.as_ref())?;
        if !act.to_the_end && self.server.shutdown.is_stopping() {
            return Err(StoreError::Unavailable { message: "the server is stopping".to_owned() });
        }
        let _room = self.enter(act, call).await.inspect_err(|_| match act.way {
            AdmissionClass::Renewal => self.server.metrics.renewals_shed.add_one(),
            AdmissionClass::Ordinary => self.server.metrics.shed.add_one(),
            AdmissionClass::Waiting => self.server.metrics.waiting_refused.add_one(),
        })?;
        let noted = match force {
            Some(force) => self.note(self.entry(act, &call.namespace, force)).await?,
            None => None,
        };
        let outcome = if act.way == AdmissionClass::Waiting {
            // A caller that is let in for a moment may stand in line for an hour; leaving the line takes its place back.
            tokio::select! {
                biased;
                outcome = work => outcome,
                stranger = self.server.access.until_refused(&self.caller.who) => {
                    Err(StoreError::Forbidden { message: stranger.to_string() })
                }
            }
        } else {
            work.await
        };
        if let (Some(access_cache), Some(seq)) = (self.server.access.access_cache(), noted) {
            access_cache.settle(seq, outcome.as_ref().map_or(AuditOutcome::Failed, judge));
        }
        outcome
    }

    /// Waits for room, or takes a seat and what goes with it.
    async fn enter(&self, act: RequestedAct, call: &CallContext) -> Result<AdmissionPermit, StoreError> {
        let gate = &self.server.gate;
        let room = gate.enter(act.way, &self.caller.who, &call.namespace, act.cost as u64).await?;
        if let (AdmissionClass::Waiting, Some(share)) = (act.way, &self.share) {
            share.wait().map_err(|NoMemory { limit }| StoreError::LimitReached {
                message: "bytes of the requests that wait".to_owned(),
                limit: limit as u64,
            })?;
        }
        Ok(room)
    }

    /// Whether this caller may do that there. What is said tells nothing of a world that is not the caller's.
    fn allow(
        &self,
        act: RequestedAct,
        namespace: &Namespace,
        force: Option<&Force>,
    ) -> Result<(), StoreError> {
        let why = if !self.caller.is_at_home_in(namespace) {
            format!("this token is not for the namespace {namespace}")
        } else if !act.needs.iter().any(|scope| self.caller.scopes.allow(*scope)) {
            let needs: Vec<&str> = act.needs.iter().map(|scope| scope.name()).collect();
            format!("this needs a token with the scope {}", needs.join(" or "))
        } else if act.everywhere && !self.caller.is_operator() {
            "this concerns every namespace, and needs a token with the scope admin for all of them".to_owned()
        } else {
            return Ok(());
        };
        if let Some(access_cache) = self.server.access.access_cache() {
            access_cache.denied(self.entry(act, namespace, force.cloned().unwrap_or_default()));
        }
        tracing::debug!(who = %self.caller.who, from = %self.caller.origin(), operation = self.operation, %namespace, "denied: {why}");
        Err(StoreError::Forbidden { message: why })
    }

    fn entry(&self, act: RequestedAct, namespace: &Namespace, force: Force) -> AuditRecord {
        AuditRecord {
            who: self.caller.who.to_string(),
            from: self.caller.origin(),
            namespace: if act.everywhere { "*".to_owned() } else { namespace.to_string() },
            act: self.operation,
            target: bounded(force.target),
            reason: force.reason.map(bounded),
        }
    }

    async fn note(&self, entry: AuditRecord) -> Result<Option<i64>, StoreError> {
        let Some(access_cache) = self.server.access.access_cache() else { return Ok(None) };
        let unwritten = |why| StoreError::Unavailable {
            message: format!("the audit cannot be written, so nothing was done: {why}"),
        };
        access_cache.enter(entry).await.map(Some).map_err(unwritten)
    }

    /// Tells a trace of a request, if anybody listens.
    fn tell<T>(
        &self,
        act: RequestedAct,
        call: &CallContext,
        took: ActTimes,
        outcome: &Result<T, StoreError>,
        telling: impl FnOnce() -> SpanDetails,
    ) {
        if !self.server.tracer.is_on() {
            return;
        }
        let SpanDetails { at, parent, links, mut attributes } = telling();
        attributes.push(("fencehold.namespace", call.namespace.to_string().into()));
        attributes.push(("fencehold.items", (act.cost as u64).into()));
        self.server.tracer.record(Span {
            at,
            parent,
            links,
            name: self.operation.into(),
            kind: SpanKind::Server,
            start_wall_us: took.start_wall_us,
            end_wall_us: took.end_wall_us,
            attributes,
            error: outcome.as_ref().err().map(ToString::to_string),
        });
    }

    /// A request of which nothing more is to be reported.
    fn plain(&self) -> SpanDetails {
        let (at, parent) = (self.server.tracer.fresh(self.trace), self.trace.map(|trace| trace.span));
        SpanDetails { at, parent, links: Vec::new(), attributes: Vec::new() }
    }
}

/// How much of what a caller wrote is kept in the audit: a caller without rights can write as much as a body holds.
const AUDITED_BYTES_MAX: usize = 1_024;

fn bounded(mut text: String) -> String {
    if text.len() > AUDITED_BYTES_MAX {
        text.truncate(text.floor_char_boundary(AUDITED_BYTES_MAX));
        text.push('…');
        text.shrink_to_fit();
    }
    text
}

impl fmt::Debug for AuthorizedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizedStore")
            .field("caller", &self.caller)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_audited_is_cut_between_letters() {
        assert_eq!(bounded("short".to_owned()), "short");
        let long = bounded("ü".repeat(20_000));
        assert_eq!(long, format!("{}…", "ü".repeat(AUDITED_BYTES_MAX / 2)));
        assert!(long.capacity() < 2 * AUDITED_BYTES_MAX);
    }
}
