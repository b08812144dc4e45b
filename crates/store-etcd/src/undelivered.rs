//! Responses to acquisitions, and what becomes of one that no caller gets (R14).
//!
//! Nouns: an answer is *heard* when its caller has taken it. A grant is *taken up* when the same request, sent again, got
//! it. What was granted to a caller that had gone is given back, in one transaction that finds its hold id, its
//! token, and that it was not taken up: a giving back that comes late ends neither the next hold of the key, nor this one
//! from under another sending of the same request.
//!
//! Taking up writes the held key once more, on the same etcd lease. A grant writes record and held key together, so the
//! held key of one that was taken up is the younger of the two.

use fencehold_contract::{AcquiredLease, StoreError};
use fencehold_core::lease::LeaseCommand;
use fencehold_core::{HoldHash, Key, Namespace, Token};

use super::acquire::{Acquisition, UnsettledGrant};
use super::grpc_client::RequestError;
use super::snapshot::{KeySnapshot, LeasedKey, put};
use super::{EtcdCall, EtcdInner};

/// How long a grant whose caller has gone is looked for and given back: after that, its ttl ends it.
const TIMEOUT_MS: u64 = 10_000;

/// What came of an acquisition.
pub(super) struct AcquireResult {
    pub(super) answer: Result<AcquiredLease, StoreError>,
    /// What stays behind if the caller has gone.
    pub(super) left: Option<UndeliveredState>,
}

pub(super) enum UndeliveredState {
    /// A grant that this call has made.
    Grant(PossibleGrant),
    /// A grant that it may have made, or that may still come.
    Doubt(Box<UnsettledGrant>),
}

/// One grant that no holder may know of.
pub(super) struct PossibleGrant {
    pub(super) namespace: Namespace,
    pub(super) key: Key,
    pub(super) hash: HoldHash,
    pub(super) token: Token,
}

impl KeySnapshot {
    /// Whether another sending of the holder's request got its grant.
    fn is_taken_up(&self) -> bool {
        self.held.is_some_and(|held| held.revision > self.record_revision)
    }
}

impl EtcdInner {
    /// Undoes an acquisition whose caller has gone.
    pub(super) async fn undo(&self, taken: AcquireResult) {
        let mut left = taken.left;
        if let Some(UndeliveredState::Doubt(unsettled)) = left {
            let keys = unsettled.keys();
            // No caller will send it again and find out: so it is asked for once more, and then given back.
            let mut call = self.call(unsettled.namespace.clone(), TIMEOUT_MS, 0);
            call.budget.outcome_unknown = true;
            let settled = Acquisition::settle(call, *unsettled).run(None).await;
            if let Err(error @ StoreError::OutcomeUnknown { .. }) = &settled.answer {
                tracing::warn!(keys, %error, "a lease whose caller has gone may have been granted: its ttl ends it");
            }
            left = settled.left;
        }
        if let Some(UndeliveredState::Grant(grant)) = left {
            self.call(grant.namespace.clone(), TIMEOUT_MS, 0).give_back(&grant).await;
        }
    }
}

impl EtcdCall<'_> {
    /// Ends a grant whose caller has gone, unless it was taken up.
    pub(super) async fn give_back(&mut self, grant: &PossibleGrant) {
        let (core, PossibleGrant { namespace, key, hash, token }) = (self.core, grant);
        core.forget(namespace, key);
        let freed = self.change(key, None, |snapshot, at, _| {
            if !at.is_held_by(*hash, *token) || at.is_taken_up() {
                return (None, false);
            }
            (core.decide(snapshot, at, &LeaseCommand::Abandon { hash: *hash }).record, true)
        });
        match freed.await {
            Ok((true, before)) => core.tidy(&before).await,
            Ok((false, _)) => {}
            Err(error) => {
                tracing::warn!(%key, %error, "a lease whose caller has gone ends only with its ttl");
            }
        }
    }

    /// Takes up a grant that another sending of the same request made. False: it is not as it was seen any more.
    pub(super) async fn take_up(&self, at: &KeySnapshot, on: LeasedKey) -> Result<bool, RequestError> {
        let EtcdCall { core, namespace, .. } = self;
        let token = on.token.to_string().into_bytes();
        let success = vec![put(core.names.held(namespace, &at.key), token, on.lease)];
        core.wire.write(at.unchanged(&core.names, namespace), success).await
    }
}
