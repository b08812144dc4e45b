//! `http(s)://`: a Fencehold server, so that the library and the command line work through it without a change.
//!
//! A question goes out as one request. While no answer comes it is asked again, for as long as its caller has patience:
//! the same request gets the same answer, and time that has passed is taken into account. What may not be repeated (force)
//! is `Unknown` as soon as an answer is lost. Whoever gives up leaves the line, and what was granted in that moment is
//! found by its hold id and given back.
//!
//! Deliberately absent: a cache, and a clock of its own. The server's store decides.

mod ask;
mod errand;
mod holds;
mod wire;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use errand::{Errand, Fault};
use fencehold_api::{Nothing, Operation, op};
use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::operation::{Answer, Ask, Claim, Route};
use fencehold_contract::{Call, Capabilities, RemoteUrl, StoreError};
use fencehold_core::Namespace;
use fencehold_net::Runtime;
use holds::Holds;
use tokio::sync::oneshot;
use wire::Wire;

/// How long opening bears with a server that cannot be reached.
const OPENING_MS: u64 = 5_000;
/// How long it may take to give back what nobody picked up. If that fails, it runs out.
const GIVING_BACK_MS: u64 = 2_000;

/// A store behind a Fencehold server.
pub struct RemoteStore {
    inner: Arc<Inner>,
    capabilities: Capabilities,
    closed: AtomicBool,
}

struct Inner {
    wire: Arc<Wire>,
    holds: Holds,
    clock: Arc<dyn Clock>,
    runtime: Arc<Runtime>,
}

impl RemoteStore {
    /// Reaches a server and learns what its store can do. Waits for answers: not to be called from an executor.
    pub fn open(url: &RemoteUrl, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let wire = Arc::new(Wire::new(url)?);
        let runtime = Runtime::start("fencehold-remote")?;
        let inner = Arc::new(Inner { wire, holds: Holds::new(), clock, runtime });
        let asking = Arc::clone(&inner);
        let can = inner.runtime.run_blocking(async move {
            let call = Call::new(Namespace::default()).with_patience_ms(OPENING_MS);
            let mut errand = Errand::new(&asking.clock, &asking.wire, OPENING_MS, 0);
            loop {
                let asked = asking.wire.send::<op::Capabilities>(&call, &Nothing {});
                match errand.limit(asked).await {
                    Ok(can) => return Ok(can),
                    // Later it may be a mistake that is being mended; at the beginning it is one to be told.
                    Err(Fault::Distrusted(why)) => {
                        let place = asking.wire.place().to_owned();
                        let why =
                            format!("{why}; for a certificate of your own, add ?ca=FILE with its authority");
                        return Err(StoreError::Unusable { place, why });
                    }
                    Err(fault) => errand.bear(fault, None, true).await.map_err(looks_only)?,
                }
            }
        })?;
        let capabilities = Capabilities {
            store: if url.base.starts_with("https:") { "https:" } else { "http:" },
            fair: can.fair,
            waits: can.waits,
            preempts: can.preempts,
            jobs: can.jobs,
            durable: can.durable,
            ttl_ms_min: can.ttl_ms_min,
        };
        Ok(RemoteStore { inner, capabilities, closed: AtomicBool::new(false) })
    }

    /// Asks the server itself something that is no question to its store: about tokens, or the audit. It must be safe to
    /// send again.
    pub async fn ask_server<O: Operation>(
        &self,
        call: &Call,
        request: O::Request,
    ) -> Result<O::Answer, StoreError>
    where
        O::Request: Sync,
    {
        let (sender, told) = oneshot::channel();
        let (inner, call) = (Arc::clone(&self.inner), call.clone());
        self.inner.runtime.spawn(async move {
            let mut errand = Errand::new(&inner.clock, &inner.wire, call.patience_ms, 0);
            let answer = loop {
                match errand.limit(inner.wire.send::<O>(&call, &request)).await {
                    Ok(answer) => break Ok(answer),
                    Err(fault) => {
                        if let Err(error) = errand.bear(fault, None, true).await {
                            break Err(error);
                        }
                    }
                }
            };
            let _ = sender.send(answer);
        });
        let ended = || StoreError::Unknown { why: "the store's thread ended".to_owned() };
        told.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// What only looks has no outcome that could be unknown.
fn looks_only(error: StoreError) -> StoreError {
    match error {
        StoreError::Unknown { why } => StoreError::Unavailable { why },
        error => error,
    }
}

impl Inner {
    /// Takes a question to the server, again and again while that is safe and no answer comes.
    async fn carry(&self, call: &Call, ask: &Ask) -> Carried {
        let mut errand = Errand::new(&self.clock, &self.wire, call.patience_ms, ask.wait_ms());
        let answer = match ask.check() {
            Ok(()) => self.carry_on(&mut errand, call, ask).await,
            Err(bad) => Err(bad.into()),
        };
        Carried { answer, sent_before: errand.uncertain }
    }

    async fn carry_on(&self, errand: &mut Errand<'_>, call: &Call, ask: &Ask) -> Result<Answer, StoreError> {
        let repeatable = ask.may_be_repeated() || ask.only_reads();
        let about = match ask {
            Ask::Acquire(request) => request.keys.first(),
            _ => None,
        };
        loop {
            let by_ms = errand.so_far_ms();
            let asked = ask::ask(&self.wire, call, ask.aged(by_ms, errand.uncertain));
            match errand.limit(asked).await {
                Ok(answer) => {
                    if answer.grants() {
                        self.holds.follow(&self.runtime, &self.wire, &call.namespace);
                    }
                    self.tell_own(call, ask, &answer);
                    return Ok(answer.waited_longer(by_ms));
                }
                Err(fault) => errand
                    .bear(fault, about, repeatable)
                    .await
                    .map_err(|error| if ask.only_reads() { looks_only(error) } else { error })?,
            }
        }
    }

    /// What this handle did itself is heard at once, whatever becomes of the stream.
    fn tell_own(&self, call: &Call, ask: &Ask, answer: &Answer) {
        let namespace = &call.namespace;
        match (ask, answer) {
            (_, Answer::Revoked { ended, .. }) => {
                self.holds.changes.tell(ended.iter().map(|lease| (namespace, &lease.key)));
            }
            (Ask::Advance { .. }, Answer::Advanced(_)) => self.holds.changes.tell_missed(),
            _ => {}
        }
    }

    /// Gives back what was granted to somebody who had gone.
    async fn give_back(&self, call: &Call, claim: Claim, carried: Carried) {
        let claim = claim.after_sending(carried.sent_before);
        let Some(unclaimed) = claim.unclaimed(carried.answer) else { return };
        let call = call.clone().with_patience_ms(GIVING_BACK_MS);
        if let Err(error) = self.carry(&call, &unclaimed.ask).await.answer {
            tracing::debug!(%error, "what nobody picked up could not be given back; it runs out");
        }
    }

    /// A caller leaves the line: the same request again, for an answer at once, takes its place there. If it was granted
    /// in that moment, the answer tells so.
    async fn leave(&self, call: &Call, ask: &Ask, claim: Claim) {
        let mut again = ask.aged(0, true);
        again.wait_no_more();
        let call = call.clone().with_patience_ms(GIVING_BACK_MS);
        let carried = Carried { sent_before: true, ..self.carry(&call, &again).await };
        self.give_back(&call, claim, carried).await;
    }
}

/// What came of a question.
struct Carried {
    answer: Result<Answer, StoreError>,
    /// Whether an earlier sending than the one that was answered may have arrived.
    sent_before: bool,
}

impl Route for RemoteStore {
    async fn route(&self, call: &Call, ask: Ask) -> Result<Answer, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable { why: "this store was closed".to_owned() });
        }
        let (sender, told) = oneshot::channel();
        let claim = Claim::of(call, &ask);
        let telling = Telling { inner: Arc::clone(&self.inner), call: call.clone(), claim, told: Some(told) };
        let (inner, call) = (Arc::clone(&self.inner), call.clone());
        self.inner.runtime.spawn(inner.answer_to(call, ask, claim, sender));
        telling.await
    }

    fn can(&self) -> Capabilities {
        self.capabilities
    }

    fn hold_changes(&self) -> Option<&Arc<HoldChanges>> {
        Some(&self.inner.holds.changes)
    }

    async fn shut(&self) {
        self.closed.store(true, Ordering::Release);
        self.inner.holds.close();
        self.inner.runtime.idle().await;
    }
}

impl Inner {
    /// One call, for as long as somebody wants to know.
    async fn answer_to(
        self: Arc<Self>,
        call: Call,
        ask: Ask,
        claim: Option<Claim>,
        mut sender: oneshot::Sender<Carried>,
    ) {
        let waits = ask.wait_ms() > 0;
        let mut carrying = std::pin::pin!(self.carry(&call, &ask));
        let carried = tokio::select! {
            biased;
            carried = &mut carrying => Some(carried),
            // Only a line is left; what is decided at once is seen through.
            () = sender.closed(), if waits => None,
        };
        match (carried, claim) {
            (Some(carried), claim) => {
                if let (Err(carried), Some(claim)) = (sender.send(carried), claim) {
                    self.give_back(&call, claim, carried).await;
                }
            }
            // The request that stands in line stays open meanwhile: else this one could take what it finds free.
            (None, Some(claim)) => self.leave(&call, &ask, claim).await,
            (None, None) => {}
        }
    }
}

/// What will become of a question. Dropping it leaves the line, and gives back what was granted but never picked up.
struct Telling {
    inner: Arc<Inner>,
    call: Call,
    claim: Option<Claim>,
    /// `None` once it was told.
    told: Option<oneshot::Receiver<Carried>>,
}

impl Future for Telling {
    type Output = Result<Answer, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = || StoreError::Unknown { why: "the store's thread ended".to_owned() };
        let Some(told) = &mut self.told else { return Poll::Ready(Err(ended())) };
        let polled = Pin::new(told).poll(context);
        if polled.is_ready() {
            self.told = None;
        }
        polled.map(|told| told.map_or_else(|_| Err(ended()), |carried| carried.answer))
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let Some(mut told) = self.told.take() else { return };
        told.close();
        if let (Ok(carried), Some(claim)) = (told.try_recv(), self.claim) {
            let (inner, call) = (Arc::clone(&self.inner), self.call.clone());
            self.inner
                .runtime
                .spawn(async move { inner.give_back(&call, claim, carried).await });
        }
    }
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore")
            .field("server", &self.inner.wire.place())
            .finish_non_exhaustive()
    }
}
