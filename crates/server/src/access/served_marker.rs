//! What a store remembers of having been served with tokens: so that a lost access file does not open it to everybody.
//!
//! The mark is a key of a namespace of its own. A store forgets no key, and every kind of store has keys.

use std::time::Duration;

use fencehold_contract::{AcquireLeaseRequest, CallContext, HoldRef, LeaseStore, StoreError};
use fencehold_core::{HoldId, Key, Namespace, Owner};

use super::AccessCache;
use crate::{Server, random};

const NAMESPACE: &str = "fencehold.access";
const KEY: &str = "tokens";
/// How soon to try again where the store does not answer.
const AGAIN: Duration = Duration::from_secs(5);

/// Whether this store was ever served by a server that asked for tokens.
pub async fn has_had_tokens(store: &dyn LeaseStore) -> Result<bool, StoreError> {
    let call = CallContext::new(Namespace::new(NAMESPACE)?);
    Ok(store.get(&call, Key::new(KEY)?).await?.is_some())
}

impl Server {
    /// Once there are tokens, has the store remember that there were. Ends when that is done.
    pub async fn mark_tokens(&self) {
        let Some(access_cache) = self.0.access.access_cache() else { return };
        access_cache.until_tokens().await;
        while let Err(error) = mark(&*self.0.store).await {
            tracing::warn!(%error, "the store could not be marked as one with tokens");
            rest().await;
        }
    }
}

async fn mark(store: &dyn LeaseStore) -> Result<(), StoreError> {
    if has_had_tokens(store).await? {
        return Ok(());
    }
    let call = CallContext::new(Namespace::new(NAMESPACE)?);
    let key = Key::new(KEY)?;
    let hold = HoldId::from_random(random()?);
    let ttl_ms = store.capabilities().min_ttl_ms;
    let request = AcquireLeaseRequest::new(key.clone(), hold, Owner::new("fencehold serve")?, ttl_ms);
    match store.acquire(&call, request).await {
        Ok(acquired) => {
            let token = acquired.grant.token;
            // If it fails, the lease runs out by itself; the key stays.
            let _ = store.release(&call, vec![HoldRef { key, hold_id: hold, token }]).await;
            Ok(())
        }
        // Another server does the same at this moment.
        Err(StoreError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[expect(clippy::disallowed_methods, reason = "a store that is away needs real time")]
async fn rest() {
    tokio::time::sleep(AGAIN).await;
}

impl AccessCache {
    /// Waits until there is, or was, a token.
    pub(super) async fn until_tokens(&self) {
        let mut read_again = self.read_again();
        while !self.has_tokens() {
            if read_again.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
