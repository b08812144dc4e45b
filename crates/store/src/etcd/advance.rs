//! After a restore or a lossy failover: every lease is ended and every counter lifted, by one write to the mark.
//!
//! Records are lifted when they are next looked at (see [`look`](super::look)), so it makes no difference how many there
//! are. The store is closed by a key on an etcd lease of the longest ttl there was: etcd's clock opens it again.

use fencehold_core::lease::Record;
use fencehold_core::{BadInput, Owner, Refusal, Stamp};

use super::Core;
use super::codec::{Mark, encode};
use super::errand::Errand;
use super::look::{Gaze, changed_at, delete, put};
use super::messages::TxnRequest;
use super::wire::Fault;
use crate::error::StoreError;
use crate::lease::Advanced;

impl Core {
    pub(super) async fn advance(
        &self,
        errand: &mut Errand,
        by: &Owner,
        lift: u64,
    ) -> Result<Advanced, StoreError> {
        if lift == 0 {
            return Err(BadInput::new("lift", "must be more than 0").into());
        }
        let gaze =
            Gaze { namespace: fencehold_core::Namespace::default(), keys: Vec::new(), who: None, from: None };
        loop {
            let sight = self.see(errand, &gaze).await?;
            if errand.uncertain {
                // Carried out or not: once more would end what was granted since.
                let why = "no answer came; look at the tokens before you try again";
                return Err(errand.given_up(why));
            }
            let census = self.census(errand, &sight.mark, lift).await?;
            let now_ms = self.wall_ms();
            let mark = Mark {
                floor: census.floor,
                generation: sight.mark.generation + 1,
                advanced_by: Some(by.clone()),
                advanced_at: Stamp { store_ms: now_ms, wall_ms: now_ms },
                ..sight.mark.clone()
            };
            let closed_for_ms = mark.longest_ttl_ms;
            let mut success = vec![put(self.names.mark(), encode(&mark), 0)];
            if closed_for_ms > 0 {
                match self.wire.lease_grant(closed_for_ms).await {
                    Ok(lease) => success.push(put(self.names.closed(), b"store advance".to_vec(), lease)),
                    // An etcd lease that nobody uses does no harm.
                    Err(Fault::Unclear(why) | Fault::Unreached(why)) => {
                        errand.bear(Fault::Unreached(why)).await?;
                        continue;
                    }
                    Err(fault) => {
                        errand.bear(fault).await?;
                        continue;
                    }
                }
            }
            let compare = vec![changed_at(self.names.mark(), sight.mark_revision)];
            match self.wire.txn(TxnRequest { compare, success, failure: Vec::new() }).await {
                Ok(response) if response.succeeded => {
                    let Census { keys, ended, .. } = census;
                    return Ok(Advanced { keys, ended, closed_for_ms, namespaces: Vec::new() });
                }
                Ok(_) => {}
                Err(fault) => errand.bear(fault).await?,
            }
        }
    }

    /// Opens a store that an advance has closed.
    pub(super) async fn open_now(&self, errand: &mut Errand) -> Result<(), StoreError> {
        loop {
            let success = vec![delete(self.names.closed())];
            match self
                .wire
                .txn(TxnRequest { compare: Vec::new(), success, failure: Vec::new() })
                .await
            {
                Ok(_) => return Ok(()),
                Err(fault) => errand.bear(fault).await?,
            }
        }
    }

    /// Counts what is there, and finds the floor that is above everything.
    async fn census(&self, errand: &mut Errand, mark: &Mark, lift: u64) -> Result<Census, StoreError> {
        let mut census = Census { keys: 0, ended: 0, floor: mark.floor };
        let mut highest = None;
        let keys = self.everywhere(errand).await?;
        for same in keys.chunk_by(|one, next| one.0 == next.0) {
            let Some((namespace, _)) = same.first() else { continue };
            for at in self.sights(errand, namespace, same).await? {
                census.keys += 1;
                census.ended += u64::from(at.live().is_some());
                let Record { counter, .. } = at.record;
                if counter >= census.floor {
                    census.floor = counter;
                    highest = Some(at.key);
                }
            }
        }
        match (census.floor.lifted(lift), highest) {
            (Some(floor), _) => Ok(Census { floor, ..census }),
            (None, Some(key)) => Err(StoreError::refused(&key, Refusal::TokensExhausted)),
            (None, None) => Err(BadInput::new("lift", "would take the store's floor over the cap").into()),
        }
    }
}

struct Census {
    keys: u64,
    ended: u64,
    floor: fencehold_core::Token,
}
