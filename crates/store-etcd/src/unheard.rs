//! Answers to acquisitions, and what becomes of one that nobody hears (R14).
//!
//! Nouns: an answer is *heard* when its caller has taken it. A grant is *taken up* when the same request, sent again, was
//! told of it. What was granted to a caller that had gone is given back, in one transaction that finds its hold id, its
//! token, and that nobody took it up: a giving back that comes late ends neither the next hold of the key, nor this one
//! from under another sending of the same request.
//!
//! Taking up writes the held key once more, on the same etcd lease. A grant writes record and held key together, so the
//! held key of one that was taken up is the younger of the two.

use std::pin::Pin;
use std::task::{Context, Poll};

use fencehold_contract::{Acquired, StoreError};
use fencehold_core::lease::{Command, decide};
use fencehold_core::{HoldHash, Key, Namespace, Token};
use tokio::sync::{mpsc, oneshot};

use super::acquire::{Taking, Unsettled};
use super::change::Step;
use super::errand::Errand;
use super::look::{KeySight, OnLease, put};
use super::messages::TxnRequest;
use super::wire::Fault;
use super::{Core, Order};

/// How long a grant that nobody heard of is looked for and given back: after that, its ttl ends it.
const PATIENCE_MS: u64 = 10_000;

/// The answer to an acquisition.
pub(super) struct Told {
    pub(super) answer: Result<Acquired, StoreError>,
    /// What stays behind if nobody hears it.
    pub(super) left: Option<Left>,
}

pub(super) enum Left {
    /// A grant that this call has made.
    Grant(Unheard),
    /// A grant that it may have made, or that may still come.
    Doubt(Box<Unsettled>),
}

/// One grant that nobody may know of.
pub(super) struct Unheard {
    pub(super) namespace: Namespace,
    pub(super) key: Key,
    pub(super) hash: HoldHash,
    pub(super) token: Token,
}

/// What will become of an acquisition. Dropping it leaves the line, and sees to an answer that arrived and was never heard.
pub(super) struct Telling {
    orders: mpsc::UnboundedSender<Order>,
    /// `None` once it was heard.
    told: Option<oneshot::Receiver<Told>>,
}

impl Telling {
    pub(super) fn new(orders: mpsc::UnboundedSender<Order>, told: oneshot::Receiver<Told>) -> Self {
        Telling { orders, told: Some(told) }
    }
}

impl Future for Telling {
    /// `None`: the handle was closed.
    type Output = Option<Result<Acquired, StoreError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(told) = &mut self.told else { return Poll::Ready(None) };
        let polled = Pin::new(told).poll(context).map(|told| told.ok().map(|told| told.answer));
        if polled.is_ready() {
            self.told = None;
        }
        polled
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let Some(mut told) = self.told.take() else { return };
        told.close();
        if let Ok(told) = told.try_recv() {
            let _ = self
                .orders
                .send(Box::new(move |core| Box::pin(async move { core.nobody_heard(told).await })));
        }
    }
}

impl KeySight {
    /// Whether another sending of the holder's request was told of its grant.
    fn is_taken_up(&self) -> bool {
        self.held.is_some_and(|held| held.revision > self.record_revision)
    }
}

impl Core {
    /// Sees to what an answer leaves behind that nobody heard.
    pub(super) async fn nobody_heard(&self, told: Told) {
        let mut left = told.left;
        if let Some(Left::Doubt(unsettled)) = left {
            let keys = unsettled.keys();
            // Nobody will send it again and find out: so it is asked for once more, and then given back.
            let (mut nobody, _) = oneshot::channel();
            let mut errand = Errand::new(&self.clock, &self.place, PATIENCE_MS, 0);
            errand.uncertain = true;
            let settled = Taking::settle(self, errand, *unsettled).run(&mut nobody).await;
            if let Err(error @ StoreError::Unknown { .. }) = &settled.answer {
                tracing::warn!(keys, %error, "a lease that nobody asks for any more may have been granted: its ttl ends it");
            }
            left = settled.left;
        }
        if let Some(Left::Grant(grant)) = left {
            let mut errand = Errand::new(&self.clock, &self.place, PATIENCE_MS, 0);
            self.give_back(&mut errand, &grant).await;
        }
    }

    /// Ends a grant that nobody heard of, unless it was taken up.
    pub(super) async fn give_back(&self, errand: &mut Errand, grant: &Unheard) {
        let Unheard { namespace, key, hash, token } = grant;
        self.forget(namespace, key);
        let freed = self.change(errand, namespace, key, None, |sight, at, _| {
            if !at.is_held_by(*hash, *token) || at.is_taken_up() {
                return Step::Answer(false);
            }
            let standing = at.standing(&sight.mark, self.wall_ms(), 1);
            Step::after(decide(&standing, &at.record, &Command::Abandon { hash: *hash }), true)
        });
        match freed.await {
            Ok((true, before)) => self.tidy(&before).await,
            Ok((false, _)) => {}
            Err(error) => {
                tracing::warn!(%key, %error, "a lease that nobody picked up ends only with its ttl");
            }
        }
    }

    /// Takes up a grant that another sending of the same request made. False: it is not as it was seen any more.
    pub(super) async fn take_up(
        &self,
        namespace: &Namespace,
        at: &KeySight,
        on: OnLease,
    ) -> Result<bool, Fault> {
        let token = on.token.to_string().into_bytes();
        let success = vec![put(self.names.held(namespace, &at.key), token, on.lease)];
        let compare = at.unchanged(&self.names, namespace);
        let response = self.wire.txn(TxnRequest { compare, success, failure: Vec::new() }).await?;
        Ok(response.succeeded)
    }
}
