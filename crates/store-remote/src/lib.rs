//! `http(s)://`: a Fencehold server, so that the library and the command line work through it without a change.
//!
//! A lone call goes out at once as one request. Calls that come while others are under way share requests (`POST /v1/batch`), as commits
//! share syncs; those that wait and those that renew never do, nor does one that is sent again. While no response comes it is sent again, until its caller's timeout:
//! the same request gets the same answer, and time that has passed is taken into account. What may not be repeated (force)
//! is `Unknown` as soon as an answer is lost. A caller that gives up leaves the line, and what was granted in that moment is
//! found by its hold id and given back.
//!
//! Deliberately absent: a cache, and a clock of its own. The server's store decides.

mod budget;
mod gather;
mod hold_changes;
mod http_client;
mod operations;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use budget::{RequestError, ServerBudget};
use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::http::{HttpOperation, NoQuery, op};
use fencehold_contract::operation::{CallHold, JobRequest, StoreBackend, StoreRequest, StoreResponse};
use fencehold_contract::{CallContext, Capabilities, RemoteUrl, StoreError};
use fencehold_core::Namespace;
use fencehold_net::{Actor, HoldFeeds, PendingCall, ResendPolicy};
use gather::{Gatherer, Route};
use http_client::HttpClient;

/// How long opening retries while the server cannot be reached, unless the caller says otherwise.
const OPENING_MS: u64 = 5_000;
/// How long it may take to give back a grant whose caller has gone. If that fails, it runs out.
const GIVING_BACK_MS: u64 = 2_000;

/// A store behind a Fencehold server.
pub struct RemoteStore {
    actor: Actor<Arc<RemoteInner>>,
    inner: Arc<RemoteInner>,
    capabilities: Capabilities,
}

struct RemoteInner {
    wire: Arc<HttpClient>,
    gatherer: Arc<Gatherer>,
    feeds: HoldFeeds<Namespace>,
    clock: Arc<dyn Clock>,
}

impl RemoteStore {
    /// Reaches a server and learns what its store can do. Waits for answers: not to be called from an executor.
    pub fn open(url: &RemoteUrl, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::open_within(url, clock, OPENING_MS)
    }

    /// The same with a timeout of the caller's: for how long to retry while the server cannot be reached.
    pub fn open_within(url: &RemoteUrl, clock: Arc<dyn Clock>, timeout_ms: u64) -> Result<Self, StoreError> {
        Self::open_with(url, clock, timeout_ms, false)
    }

    /// For tests: one whose calls go in batches also where they are alone.
    #[doc(hidden)]
    pub fn open_batching(url: &RemoteUrl, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::open_with(url, clock, OPENING_MS, true)
    }

    fn open_with(
        url: &RemoteUrl,
        clock: Arc<dyn Clock>,
        timeout_ms: u64,
        always_batch: bool,
    ) -> Result<Self, StoreError> {
        let wire = Arc::new(HttpClient::new(url)?);
        let inner = Arc::new(RemoteInner {
            gatherer: Gatherer::new(&wire, always_batch),
            wire,
            feeds: HoldFeeds::new(Arc::default()),
            clock,
        });
        let state = Arc::clone(&inner);
        let actor = Actor::start("fencehold-remote", move |_| Ok(state))?;
        let can = actor.call_blocking(async move |inner: &Arc<RemoteInner>| {
            let call = CallContext::new(Namespace::default()).with_timeout_ms(timeout_ms);
            let mut budget = ServerBudget::new(&inner.clock, &inner.wire, timeout_ms, 0).reads_only(true);
            loop {
                let asked = inner.wire.send::<op::GetStoreCapabilities>(&call, &NoQuery {});
                match budget.limit(asked).await {
                    Ok(can) => return Ok(can),
                    // Later it may be a mistake that is being put right; at the beginning it is one to be reported.
                    Err(RequestError::Distrusted(why)) => {
                        let place = inner.wire.place().to_string();
                        let why =
                            format!("{why}; for a certificate of your own, add ?ca=FILE with its authority");
                        return Err(StoreError::Unusable { store: place, message: why });
                    }
                    Err(fault) => budget.retry_or_fail(fault, None, ResendPolicy::Safe).await?,
                }
            }
        })?;
        let store = if url.base.starts_with("https:") { "https:" } else { "http:" };
        let capabilities = Capabilities { store, ..can.supported };
        Ok(RemoteStore { actor, inner, capabilities })
    }

    /// Asks the server itself something that is no question to its store: about tokens, or the audit. It must be safe to
    /// send again.
    pub async fn ask_server<O: HttpOperation>(
        &self,
        call: &CallContext,
        request: O::Request,
    ) -> Result<O::Response, StoreError> {
        let call = call.clone();
        let work = async move |inner: &Arc<RemoteInner>| {
            let mut budget = ServerBudget::new(&inner.clock, &inner.wire, call.timeout_ms, 0);
            loop {
                match budget.limit(inner.wire.send::<O>(&call, &request)).await {
                    Ok(answer) => return Ok(answer),
                    Err(fault) => budget.retry_or_fail(fault, None, ResendPolicy::Safe).await?,
                }
            }
        };
        self.actor.call(work).await
    }
}

impl RemoteInner {
    /// Takes a question to the server, again and again while that is safe and no answer comes.
    async fn carry(self: &Arc<Self>, call: &CallContext, ask: &StoreRequest) -> CallResult {
        let mut budget = ServerBudget::new(&self.clock, &self.wire, call.timeout_ms, ask.wait_ms())
            .reads_only(ask.only_reads());
        let answer = match ask.check() {
            Ok(()) => self.carry_on(&mut budget, call, ask).await,
            Err(bad) => Err(bad.into()),
        };
        CallResult { answer, sent_before: budget.call.outcome_unknown }
    }

    async fn carry_on(
        self: &Arc<Self>,
        budget: &mut ServerBudget,
        call: &CallContext,
        ask: &StoreRequest,
    ) -> Result<StoreResponse, StoreError> {
        let repeat =
            if ask.may_be_repeated() || ask.only_reads() { ResendPolicy::Safe } else { ResendPolicy::Never };
        let about = match ask {
            StoreRequest::Acquire(request) => request.any_of.first(),
            _ => None,
        };
        // What may be sent again and is answered at once. Renewals have requests to themselves.
        let renews = matches!(ask, StoreRequest::Renew(_) | StoreRequest::Job(JobRequest::Renew(_)));
        let mut shares = repeat == ResendPolicy::Safe && ask.wait_ms() == 0 && !renews;
        loop {
            let by_ms = budget.call.elapsed_ms();
            // What comes of a batch may have come of another one in it: what is sent again goes alone.
            let route = Route::new(&self.gatherer, std::mem::take(&mut shares));
            let asked = operations::ask(&route, call, ask.aged(by_ms, budget.call.outcome_unknown));
            match budget.limit(asked).await {
                Ok(answer) => {
                    if answer.grants() {
                        self.follow_holds(&call.namespace);
                    }
                    self.tell_own(call, ask, &answer);
                    return Ok(answer.waited_longer(by_ms));
                }
                Err(fault) => budget.retry_or_fail(fault, about, repeat).await?,
            }
        }
    }

    /// What this handle did itself is heard at once, whatever becomes of the stream.
    fn tell_own(&self, call: &CallContext, ask: &StoreRequest, answer: &StoreResponse) {
        let namespace = &call.namespace;
        match (ask, answer) {
            (_, StoreResponse::Revoked { ended, .. }) => {
                self.feeds.changes.tell(ended.iter().map(|lease| (namespace, &lease.key)));
            }
            (StoreRequest::Advance { .. }, StoreResponse::Advanced(_)) => self.feeds.changes.tell_missed(),
            _ => {}
        }
    }

    /// Gives back what was granted to a caller that had gone.
    async fn give_back(self: &Arc<Self>, call: &CallContext, claim: CallHold, carried: CallResult) {
        let claim = claim.after_sending(carried.sent_before);
        let Some(unclaimed) = claim.unclaimed(carried.answer) else { return };
        let call = call.clone().with_timeout_ms(GIVING_BACK_MS);
        if let Err(error) = self.carry(&call, &unclaimed.ask).await.answer {
            tracing::debug!(%error, "a grant whose caller has gone could not be given back; it runs out");
        }
    }

    /// A caller leaves the line: the same request again, for an answer at once, takes its place there. If it was granted
    /// in that moment, the answer tells so.
    async fn leave(self: &Arc<Self>, call: &CallContext, ask: &StoreRequest, claim: CallHold) {
        let mut again = ask.aged(0, true);
        again.wait_no_more();
        let call = call.clone().with_timeout_ms(GIVING_BACK_MS);
        let carried = CallResult { sent_before: true, ..self.carry(&call, &again).await };
        self.give_back(&call, claim, carried).await;
    }
}

/// What came of a question.
struct CallResult {
    answer: Result<StoreResponse, StoreError>,
    /// Whether an earlier sending than the one that was answered may have arrived.
    sent_before: bool,
}

#[async_trait]
impl StoreBackend for RemoteStore {
    async fn execute(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        let claim = CallHold::of(call, &ask);
        let (sent, undone) = (call.clone(), call.clone());
        let work = async move |inner: &Arc<RemoteInner>, caller: &PendingCall| {
            let mut carrying = std::pin::pin!(inner.carry(&sent, &ask));
            let carried = tokio::select! {
                biased;
                carried = &mut carrying => return Some(carried),
                // Only a line is left; what is decided at once is seen through.
                () = caller.gone(), if ask.wait_ms() > 0 => None,
            };
            // The request that stands in line stays open meanwhile: else this one could take what it finds free.
            if let Some(claim) = claim {
                inner.leave(&sent, &ask, claim).await;
            }
            carried
        };
        let undo = async move |inner: &Arc<RemoteInner>, carried: Option<CallResult>| {
            if let (Some(carried), Some(claim)) = (carried, claim) {
                inner.give_back(&undone, claim, carried).await;
            }
        };
        let gone = || Err(StoreError::Unavailable { message: "the caller has gone".to_owned() });
        let carried = self.actor.call_or_undo(work, undo).await?;
        carried.map_or_else(gone, |carried| carried.answer)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn requests_sent(&self) -> Option<u64> {
        Some(self.inner.wire.requests_sent())
    }

    fn hold_changes(&self) -> Option<&Arc<HoldChanges>> {
        Some(&self.inner.feeds.changes)
    }

    async fn close(&self) {
        self.actor.close().await;
    }
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore")
            .field("server", &self.inner.wire.place())
            .finish_non_exhaustive()
    }
}
