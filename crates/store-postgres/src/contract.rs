//! The contract of leases, call by call: what is asked is checked here, and carried to the thread behind the handle.

use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use fencehold_contract::job::JobStore;
use fencehold_contract::operation::{check_acquire, check_batch, check_limit, check_prefix};
use fencehold_contract::{
    AcquireRequest, Acquired, Advanced, Call, Capabilities, EventPage, EventsRequest, HoldListener, HoldRef,
    LeasePage, LeaseStore, LeaseView, LimitsRequest, LimitsView, ListRequest, Renewed, RevokeRequest,
    RevokedLease, StoreError, StoreStatus, Subscription, Which,
};
use fencehold_core::limits::TTL_MS_MIN;
use fencehold_core::{BadInput, HoldHash, Key, Namespace, Owner, Refusal, Token};
use tokio::sync::{mpsc, oneshot};

use super::{Order, PostgresStore, STORE, closed};

#[async_trait]
impl LeaseStore for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: STORE,
            fair: true,
            waits: true,
            preempts: true,
            jobs: true,
            durable: true,
            ttl_ms_min: TTL_MS_MIN,
        }
    }

    fn jobs(&self) -> Option<&dyn JobStore> {
        Some(self)
    }

    async fn acquire(&self, call: &Call, request: AcquireRequest) -> Result<Acquired, StoreError> {
        check_acquire(&request)?;
        let (reply, told) = oneshot::channel();
        let (namespace, patience_ms) = (call.namespace.clone(), call.patience_ms);
        let claim = Claim { namespace: namespace.clone(), hash: request.hold.hash() };
        // A closed handle drops the question, and with it the reply.
        let _ = self.orders.send(Box::new(move |core| {
            Box::pin(async move { core.acquire(namespace, patience_ms, request, reply).await })
        }));
        Telling { orders: self.orders.clone(), claim: Some(claim), told }
            .await
            .unwrap_or_else(|| Err(closed()))
    }

    async fn renew(&self, call: &Call, holds: Vec<HoldRef>) -> Result<Renewed, StoreError> {
        check_batch("renewals", &holds)?;
        let space = call.namespace.clone();
        let answers = self
            .ask(call, async move |core, errand| core.renew(errand, &space, &holds).await)
            .await?;
        Ok(Renewed { answers, waited_ms: 0 })
    }

    async fn release(
        &self,
        call: &Call,
        holds: Vec<HoldRef>,
    ) -> Result<Vec<Result<Token, Refusal>>, StoreError> {
        check_batch("releases", &holds)?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.release(errand, &space, &holds).await)
            .await
    }

    async fn revoke(&self, call: &Call, request: RevokeRequest) -> Result<Vec<RevokedLease>, StoreError> {
        if let Which::Prefix(prefix) = &request.which {
            check_prefix(Some(prefix))?;
        }
        let space = call.namespace.clone();
        let ended = self
            .ask(call, async move |core, errand| core.revoke(errand, &space, &request).await)
            .await?;
        // Behind a pooler this handle may not hear its own notification.
        self.hold_changes.tell(ended.iter().map(|lease| (&call.namespace, &lease.key)));
        Ok(ended)
    }

    async fn get(&self, call: &Call, key: Key) -> Result<Option<LeaseView>, StoreError> {
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.get(errand, &space, &key).await)
            .await
    }

    async fn list(&self, call: &Call, request: ListRequest) -> Result<LeasePage, StoreError> {
        check_limit(request.limit)?;
        check_prefix(request.prefix.as_ref())?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.list(errand, &space, &request).await)
            .await
    }

    async fn events(&self, call: &Call, request: EventsRequest) -> Result<EventPage, StoreError> {
        check_limit(request.limit)?;
        check_prefix(request.prefix.as_ref())?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.events(errand, &space, request).await)
            .await
    }

    async fn advance(&self, call: &Call, by: Owner, lift: u64) -> Result<Advanced, StoreError> {
        if lift == 0 {
            return Err(BadInput::new("lift", "must be more than 0").into());
        }
        self.ask(call, async move |core, errand| core.advance(errand, &by, lift).await)
            .await
    }

    async fn open_now(&self, call: &Call, _: Owner) -> Result<(), StoreError> {
        self.ask(call, async move |core, errand| core.open_now(errand).await).await
    }

    async fn limits(&self, call: &Call, request: LimitsRequest) -> Result<LimitsView, StoreError> {
        request.set.map_or(Ok(()), |set| set.check())?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.limits(errand, &space, &request).await)
            .await
    }

    async fn status(&self, call: &Call) -> Result<StoreStatus, StoreError> {
        let namespace = call.namespace.clone();
        self.ask(call, async move |core, errand| core.status(errand, &namespace).await)
            .await
    }

    async fn closed_for_ms(&self, call: &Call) -> Result<u64, StoreError> {
        let namespace = call.namespace.clone();
        self.ask(call, async move |core, errand| core.closed_for_ms(errand, &namespace).await)
            .await
    }

    async fn answers(&self, call: &Call) -> Result<(), StoreError> {
        self.answer(call).await
    }

    fn on_hold_change(&self, listener: HoldListener) -> Option<Subscription> {
        Some(self.hold_changes.subscribe(listener))
    }

    async fn close(&self) {
        self.stop();
    }
}

/// Whose a grant is, should nobody pick it up.
struct Claim {
    namespace: Namespace,
    hash: HoldHash,
}

/// What will become of an acquisition. Dropping it leaves the line, and gives back a lease that was granted but never
/// picked up.
struct Telling {
    orders: mpsc::UnboundedSender<Order>,
    claim: Option<Claim>,
    told: oneshot::Receiver<Result<Acquired, StoreError>>,
}

impl Future for Telling {
    type Output = Option<Result<Acquired, StoreError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.told).poll(context).map(Result::ok);
        if polled.is_ready() {
            self.claim = None;
        }
        polled
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let Some(Claim { namespace, hash }) = self.claim.take() else { return };
        self.told.close();
        if let Ok(Ok(acquired)) = self.told.try_recv()
            && !acquired.grant.resumed
        {
            let _ = self.orders.send(Box::new(move |core| {
                Box::pin(async move { core.give_back(&namespace, &acquired.key, hash).await })
            }));
        }
    }
}
